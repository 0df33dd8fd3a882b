"""What the tests of the client and the Worker share: an authority and a relay as real processes, Agents, Missions."""

import asyncio
import os
import secrets
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path

from contracts.documents.common import Actor, ActorType
from contracts.event import lease_expired, lease_revoked
from contracts.payloads.membership import MembershipChange
from contracts.payloads.work import WorkAuthorize, WorkOffer
from contracts.receipt import Receipt
from contracts.signature import SigningKey
from ops.demo.mission_documents import agent_id, mission_creation, selection_basis, work_contract
from ops.demo.mission_file import load_mission_file
from ops.demo.mission_tables import MissionFile, WorkTable
from ops.demo.register_agents import NewAgent, agent_key, register_agent
from ops.demo.watch_group import GroupView
from ops.embedded.broker_server import BrokerServer
from ops.embedded.postgres_server import PostgresServer
from ops.init import Organization, initialize
from services.agent.connect import Client, connect
from services.agent.send_command import Answered, RetryPolicy
from services.agent.sign_command import Intent
from services.process.database import connect as open_database
from services.process.settings import BrokerCredentials
from services.worker.work_plan import job_keys
from tests.conftest import create_database, drop_database, template

Credentials = Callable[[str], BrokerCredentials]
"""What a process or client of a name shows to the broker."""


def nothing_shown(_name: str) -> BrokerCredentials:
    """For a broker that lets everybody in."""
    return BrokerCredentials()


patient = RetryPolicy(deadline_seconds=120.0, attempts_max=400, reply_timeout_seconds=10.0)
"""Bounds of the first Principals' clients: the processes start beside whatever else the machine does."""
mission_text = """
format = 1
[mission]
name = "small"
title = "Small"
objective = "Count."
coordinator = "editor"
deadlineMinutes = 60
[[mission.criterion]]
id = "counted"
description = "Words are counted."
evidence = ["reviewer_assessment"]
[[agent]]
name = "editor"
[[agent]]
name = "ada"
[[work]]
id = "count"
goal = "Count."
candidates = ["ada"]
job = { type = "word-count", input = "one two two three three three", steps = 4 }
[[work]]
id = "more"
goal = "Count more."
candidates = ["ada"]
job = { type = "word-count", input = "four" }
"""


class Process:
    """One service in a process of its own, with its log."""

    def __init__(self, module: str, variables: dict[str, str], log: Path) -> None:
        self.module = module
        self._variables = variables
        self.log = log
        self._child: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        with self.log.open("ab") as output:
            self._child = subprocess.Popen(
                [sys.executable, "-m", self.module],
                env={**os.environ, **self._variables},
                stdout=output,
                stderr=output,
                stdin=subprocess.DEVNULL,
            )

    @property
    def pid(self) -> int:
        assert self._child is not None
        return self._child.pid

    def wait(self, seconds: float) -> int:
        """Wait for its end by itself; the exit code."""
        assert self._child is not None
        return self._child.wait(seconds)

    def kill(self) -> None:
        """SIGKILL, as a crash would."""
        self.end(signal.SIGKILL)

    def end(self, request: signal.Signals = signal.SIGTERM, seconds: float = 60.0) -> int | None:
        """Send a signal and wait; the exit code, None when it did not run."""
        if self._child is None:
            return None
        if self._child.poll() is None:
            self._child.send_signal(request)
        try:
            return self._child.wait(seconds)
        except subprocess.TimeoutExpired:
            self._child.kill()
            self._child.wait()
            raise


@dataclass
class Stack:
    """A running authority and relay with the clients of the first Principals."""

    organization: Organization
    nats_url: str
    folder: Path
    variables: dict[str, str]
    registry: Client
    owner: Client
    processes: list[Process] = field(default_factory=list)
    closing: AsyncExitStack = field(default_factory=AsyncExitStack)
    credentials: Credentials = nothing_shown

    def process(self, module: str, name: str, **variables: str) -> Process:
        """A further process; not started."""
        shown = credential_variables(self.credentials(name))
        made = Process(module, {**self.variables, **shown, **variables}, self.folder / f"{name}.log")
        self.processes.append(made)
        return made

    def key(self, name: str) -> SigningKey:
        """The key of an Agent of the tests."""
        return agent_key(self.folder / "agents", name)

    async def register(self, *names: str, skills: tuple[str, ...] = tuple(job_keys())) -> None:
        """Register Agents with their cards."""
        for name in names:
            agent = NewAgent(name=name, key=self.key(name), skills=skills, slots=1)
            await register_agent(self.registry, self.owner.key.principal, agent)

    async def client(self, name: str, *, reopens: bool = True) -> Client:
        """A client of a registered Agent, without a session yet."""
        plain = await self.closing.enter_async_context(
            connect(
                self.nats_url,
                self.organization.organization_id,
                self.key(name),
                credentials=self.credentials(f"worker-{name}"),
            )
        )
        return Client(plain.connection, plain.organization_id, plain.key, policy=patient, reopens_session=reopens)

    @asynccontextmanager
    async def working(self, name: str, **variables: str) -> AsyncIterator[Process]:
        """A Worker while the block runs; it is asked to stop afterwards and must do so cleanly."""
        worker = self.worker(name, **variables)
        before = worker.log.stat().st_size if worker.log.exists() else 0
        worker.start()
        try:
            await until_logged(worker.log, "session_opened", before)
            yield worker
        finally:
            code = await asyncio.to_thread(worker.end)
        assert code == 0, worker.log.read_text()[-3000:]

    async def life(self, name: str, kill_at: str) -> None:
        """One life of a Worker that ends at a named point."""
        worker = self.worker(name, kill_at=kill_at)
        worker.start()
        code = await asyncio.to_thread(worker.wait, 60.0)
        assert code == -signal.SIGKILL, worker.log.read_text()[-3000:]

    def worker(self, name: str, *, kill_at: str | None = None, **variables: str) -> Process:
        """A Worker process of a registered Agent; not started. With `kill_at` it kills itself (`killed_worker`)."""
        self.key(name)
        if kill_at is not None:
            variables["WEAVEHOLD_TEST_KILL_AT"] = kill_at
        own = {
            "WEAVEHOLD_SIGNING_KEY_FILE": str(self.folder / "agents" / f"{name}.json"),
            "WEAVEHOLD_WORKER_DATABASE": str(self.folder / "workers" / f"{name}.sqlite"),
            "WEAVEHOLD_ARTIFACTS_DIR": str(self.folder / "artifacts"),
        }
        module = "services.worker.main" if kill_at is None else "tests.killed_worker"
        return self.process(module, f"worker-{name}", **{**own, **variables})


def credential_variables(credentials: BrokerCredentials) -> dict[str, str]:
    """The variables that tell a process its credentials."""
    named = {
        "WEAVEHOLD_NATS_NKEY_SEED_FILE": credentials.nkey_seed_file,
        "WEAVEHOLD_NATS_CA_FILE": credentials.ca_file,
    }
    return {variable: str(path) for variable, path in named.items() if path is not None}


@asynccontextmanager
async def running_stack(
    organization: Organization,
    database_url: str,
    nats_url: str,
    folder: Path,
    *,
    relay: bool = True,
    credentials: Credentials = nothing_shown,
) -> AsyncIterator[Stack]:
    """Start the authority (and the relay) and wait until Commands are answered."""
    variables = {
        "WEAVEHOLD_DATABASE_URL": database_url,
        "WEAVEHOLD_NATS_URL": nats_url,
        "WEAVEHOLD_ORGANIZATION": organization.organization_id,
        "WEAVEHOLD_KEYS_DIR": str(organization.keys_directory),
        "WEAVEHOLD_HEALTH_PORT": "0",
    }
    identity = organization.organization_id
    async with (
        connect(
            nats_url, identity, organization.keys.registry, policy=patient, credentials=credentials("client")
        ) as registry,
        connect(
            nats_url, identity, organization.keys.mission_owner, policy=patient, credentials=credentials("client")
        ) as owner,
    ):
        stack = Stack(organization, nats_url, folder, variables, registry, owner, credentials=credentials)
        try:
            # Under one name each: the next life of a killed one takes its leases back at once.
            stack.process("services.authority.main", "authority", WEAVEHOLD_INSTANCE="authority").start()
            if relay:
                stack.process("outbox_relay.main", "relay", WEAVEHOLD_INSTANCE="relay").start()
            yield stack
        finally:
            await stack.closing.aclose()
            for process in reversed(stack.processes):
                await asyncio.to_thread(process.end)


class PlantedMission:
    """A Mission of one Group, led by hand."""

    def __init__(self, stack: Stack, coordinator: Client, file: MissionFile, name: str) -> None:
        self.owner = stack.owner
        self.coordinator = coordinator
        self.file = file
        self.mission_id = f"urn:weavehold:mission:{name}"
        self.group_id = f"urn:weavehold:group:{name}"
        self.view = GroupView(coordinator, self.group_id)

    async def create(self) -> Receipt:
        creation = mission_creation(self.file, self.mission_id, self.group_id)
        receipt = await accepted(self.owner, Intent(kind="mission.create", payload=creation, group_id=self.group_id))
        await self.view.refresh()
        return receipt

    async def invite(self, name: str) -> Receipt:
        member = Actor(type=ActorType.AGENT, id=agent_id(name))
        change = MembershipChange(principal=member, role="worker", visibility_after_sequence=0)
        return await self.coordinate("membership.change", change)

    async def offer(self, item: WorkTable, *, seconds: int = 300) -> str:
        """Authorise and offer a WorkItem; its ID."""
        work_item_id = f"urn:weavehold:work:{self.group_id[-12:].replace(':', '-')}-{item.id}"
        contract = work_contract(item, self.view.state.mission.deadline, (), ())
        await self.coordinate("work.authorize", WorkAuthorize(work_item_id=work_item_id, contract=contract))
        await self.coordinate(
            "work.offer",
            WorkOffer(
                work_item_id=work_item_id,
                candidate_agent_ids=tuple(agent_id(name) for name in item.candidates),
                selection_basis=selection_basis(item),
                offer_expires_in_seconds=seconds,
            ),
        )
        return work_item_id

    async def coordinate(self, kind, payload) -> Receipt:
        epoch = self.view.state.mission.coordinator.coordinator_epoch
        intent = Intent(kind=kind, payload=payload, group_id=self.group_id, coordinator_epoch=epoch)
        return await accepted(self.coordinator, intent)

    async def until(self, work_item_id: str, *states: str, seconds: float = 60.0) -> None:
        """Wait until a WorkItem is in one of these states."""
        ends = time.monotonic() + seconds
        while True:
            await self.view.refresh()
            record = self.view.state.work_item(work_item_id)
            if record is not None and record.item.state.value in states:
                return
            found = record.item.state.value if record else None
            assert time.monotonic() < ends, f"{work_item_id} is {found}, not {states}: {self.kinds()}"
            await asyncio.sleep(0.1)

    async def until_recorded(self, kind: str, seconds: float = 60.0) -> None:
        """Wait until an Event of this kind is in the history: a state may be too short to be seen."""
        ends = time.monotonic() + seconds
        while kind not in self.kinds():
            assert time.monotonic() < ends, f"no {kind}: {self.kinds()}"
            await asyncio.sleep(0.1)
            await self.view.refresh()

    def kinds(self) -> list[str]:
        """The kinds of all Events so far."""
        return [event.kind for event in self.view.events]


async def until_logged(log: Path, event: str, after: int, seconds: float = 60.0) -> None:
    """Wait until a log says something behind its first `after` bytes."""
    ends = time.monotonic() + seconds
    while event not in log.read_text()[after:]:
        assert time.monotonic() < ends, f"{log} never says {event}: {log.read_text()[-3000:]}"
        await asyncio.sleep(0.1)


async def accepted(client: Client, intent: Intent) -> Receipt:
    """Send a Command that must be accepted."""
    answer = await client.send(intent)
    assert isinstance(answer, Answered), answer
    return answer.value


@asynccontextmanager
async def shared_organization_of(server: PostgresServer, folder: Path) -> AsyncIterator[tuple[Organization, str, str]]:
    """A database with an Organization and a NATS server for all tests of a module."""
    name = f"shared_{secrets.token_hex(6)}"
    database_url = create_database(server, name, template)
    nats = BrokerServer(folder / "nats")
    await asyncio.to_thread(nats.start)
    try:
        connection = await open_database(database_url, name="fixture")
        try:
            made = await initialize(connection, name="test", keys_directory=folder / "keys", shard_count=2)
        finally:
            await connection.close()
        yield made, database_url, nats.url
    finally:
        await asyncio.to_thread(nats.stop)
        drop_database(server, name)


def assert_done_once(mission, work_item_id):
    """One acceptance, one Artifact, one submission; every execution that began has ended."""
    kinds = Counter(event.kind for event in mission.view.events if event.work_item_id == work_item_id)
    assert {kinds["work.offer.accepted"], kinds["artifact.published"], kinds["work.submitted"]} == {1}, kinds
    ended = kinds["work.checkpointed"] + kinds["work.submitted"] + kinds[lease_revoked] + kinds[lease_expired]
    assert kinds["work.started"] == ended, kinds


def small_mission(folder: Path, text: str = mission_text) -> MissionFile:
    """A Mission file of the tests."""
    path = folder / "small.toml"
    path.write_text(text)
    return load_mission_file(path)


@asynccontextmanager
async def registered_stack(server: PostgresServer, folder: Path, *agents: str) -> AsyncIterator[Stack]:
    """An authority without a relay for all tests of a module, with these Agents."""
    async with (
        shared_organization_of(server, folder) as shared,
        running_stack(*shared, folder, relay=False) as running,
    ):
        await running.register(*agents)
        yield running
