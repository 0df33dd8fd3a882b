"""Steady work under the storm: Messages to several Groups, and Missions whose work a real Worker does."""

import asyncio
import itertools
import secrets
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager

from contracts.documents.common import Actor, ActorType
from contracts.documents.message import TextPart
from contracts.identifiers import ShardId
from contracts.payloads.membership import MembershipChange
from contracts.payloads.message import MessagePost
from contracts.receipt import Receipt
from ops.demo.conduct_mission import Conductor, MissionMark
from ops.demo.mission_documents import agent_id, mission_creation
from ops.demo.register_agents import NewAgent, agent_key, register_agent
from services.agent.connect import Client
from services.agent.send_command import Answered, RetryPolicy, Unresolved
from services.agent.sign_command import Intent
from services.authority.decide_mission import main_conversation_id
from services.authority.route import root_shard
from services.process import broker
from services.worker.artifact_store import ArtifactStore
from services.worker.work_plan import job_keys
from tests.agent_rig import small_mission
from tests.chaos.storm import Storm, healthy_seconds_max, shard_count

groups_per_shard = 2
senders_per_group = 2
send_pause_seconds = 0.05
"""Between the answer to one Message and the next Message of the same sender."""
receipts_under_way = 60
worker_name, coordinator_name = "ada", "editor"


class Load:
    """Work that goes on until it is told to stop, and then ends what it has begun."""

    def __init__(self, storm: Storm, owner: Client, coordinator: Client) -> None:
        self.owner = owner
        self.receipts: list[Receipt] = []
        self.sent: list[str] = []
        """Message IDs of all Messages, each of which must be accepted."""
        self.missions: list[Conductor] = []
        self.group_ids: list[str] = []
        self._coordinator = coordinator
        folder = storm.stack.directory.path
        self._file = small_mission(folder)
        self._content = ArtifactStore(folder / "artifacts")
        self._stopping = asyncio.Event()

    def stop(self) -> None:
        """Begin nothing new."""
        self._stopping.set()

    async def under_way(self) -> None:
        """Some of it is accepted."""
        while len(self.receipts) < receipts_under_way:
            await asyncio.sleep(send_pause_seconds)

    async def open_groups(self) -> None:
        """Missions in all shards that are only talked in; the Worker is a member of each and follows it."""
        for shard in range(1, shard_count + 1):
            names = (f"urn:weavehold:group:talk-{shard}-{number}" for number in itertools.count())
            for group_id in itertools.islice(
                (n for n in names if root_shard(n, shard_count) == shard), groups_per_shard
            ):
                await self._open_group(group_id, ShardId(shard))

    async def _open_group(self, group_id: str, shard: ShardId) -> None:
        creation = mission_creation(self._file, group_id.replace(":group:", ":mission:"), group_id)
        await self._accept(self.owner, Intent(kind="mission.create", payload=creation, group_id=group_id))
        member = Actor(type=ActorType.AGENT, id=agent_id(worker_name))
        change = MembershipChange(principal=member, role="worker", visibility_after_sequence=0)
        invitation = Intent(kind="membership.change", payload=change, group_id=group_id, coordinator_epoch=1)
        await self._accept(self._coordinator, invitation)
        self.group_ids.append(group_id)

    async def run(self) -> None:
        """Work until `stop`."""
        async with asyncio.TaskGroup() as tasks:
            for group_id in self.group_ids:
                for _ in range(senders_per_group):
                    tasks.create_task(self._talk(group_id))
            tasks.create_task(self._conduct())

    async def _talk(self, group_id: str) -> None:
        """One Message after another."""
        while not self._stopping.is_set():
            message = MessagePost(
                message_id=f"urn:weavehold:message:{secrets.token_hex(12)}",
                conversation_id=main_conversation_id(group_id),
                content=(TextPart(text="As planned. " * 20),),
            )
            self.sent.append(message.message_id)
            await self._accept(self.owner, Intent(kind="message.post", payload=message, group_id=group_id))
            await asyncio.sleep(send_pause_seconds)

    async def _conduct(self) -> None:
        """One Mission after another, from its creation to its approval."""
        while not self._stopping.is_set():
            run = secrets.token_hex(6)
            mark = MissionMark(f"urn:weavehold:mission:work-{run}", f"urn:weavehold:group:work-{run}")
            conductor = Conductor(self._file, mark, self.owner, self._coordinator, self._content)
            conductor.may_approve.set()
            self.missions.append(conductor)
            await conductor.run(lambda: None)

    async def _accept(self, client: Client, intent: Intent) -> None:
        """Send until there is an answer, which must be a Receipt."""
        answer = await client.send(intent)
        while isinstance(answer, Unresolved):
            answer = await client.send(intent, resume=answer.command)
        assert isinstance(answer, Answered), answer
        self.receipts.append(answer.value)


@asynccontextmanager
async def load_on(storm: Storm) -> AsyncIterator[Load]:
    """Registered Agents, a running Worker, Groups to talk in; nothing is sent by itself."""
    stack = storm.stack
    keys = stack.directory.keys / "agents"
    async with AsyncExitStack() as closing:

        async def client(key) -> Client:
            connection = await broker.connect(
                storm.proxies["client/broker"].nats_url, name=key.principal.id, token=stack.nats_token, wait=True
            )
            closing.push_async_callback(connection.close)
            policy = RetryPolicy(deadline_seconds=60.0, attempts_max=500)
            return Client(connection, stack.organization.organization_id, key, policy=policy)

        registry = await client(stack.organization.keys.registry)
        owner = await client(stack.organization.keys.mission_owner)
        for name in (coordinator_name, worker_name):
            agent = NewAgent(name=name, key=agent_key(keys, name), skills=tuple(job_keys()), slots=2)
            await register_agent(registry, owner.key.principal, agent)
        coordinator = await client(agent_key(keys, coordinator_name))
        await coordinator.open_session()
        load = Load(storm, owner, coordinator)
        await load.open_groups()
        await storm.start_worker(keys / f"{worker_name}.json")
        await stack.wait_healthy(healthy_seconds_max)
        yield load
