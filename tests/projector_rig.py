"""What the tests of the projector share: its process, its file as anyone may read it, the rebuild to compare with."""

import asyncio
import itertools
import json
import secrets
import time
import urllib.request
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

from contracts import subjects
from contracts.documents.message import TextPart
from contracts.identifiers import ShardId
from contracts.payloads.message import MessagePost
from ops.embedded.http_probe import probe
from ops.embedded.postgres_server import PostgresServer
from ops.projection_file import NotAProjection
from ops.projection_place import open_place, place_of_consumer
from projections.digest import projection_digests
from projections.history import place_of
from projections.mission_board.consumer import MissionBoard
from projections.mission_board.read_board import read_board
from projections.projection import Projection
from projections.rebuild import rebuild
from projections.store.sqlite import SqliteStore
from services.agent.connect import Client, connect
from services.agent.sign_command import Intent
from services.authority.route import root_shard
from services.feed.signed_history import SignedHistory
from tests.agent_rig import (
    PlantedMission,
    Process,
    Stack,
    accepted,
    patient,
    running_stack,
    shared_organization_of,
    small_mission,
)

shards = (ShardId(1), ShardId(2))


class PlantedMissions:
    """The Missions of all tests on one stack, and the broker's side of their delivery."""

    def __init__(self, stack: Stack, coordinator: Client, operator: Client) -> None:
        self.stack = stack
        self.operator = operator
        self.missions: list[PlantedMission] = []
        self._coordinator = coordinator
        self._numbers = itertools.count(1)

    async def plant(self, shard: ShardId) -> PlantedMission:
        """A new Mission whose tree lies in this shard."""
        file = small_mission(self.stack.folder)
        names = (f"board-{shard}-{next(self._numbers)}" for _ in itertools.count())
        name = next(name for name in names if root_shard(f"urn:weavehold:group:{name}", len(shards)) == shard)
        mission = PlantedMission(self.stack, self._coordinator, file, name)
        await mission.create()
        self.missions.append(mission)
        return mission

    async def post(self, mission: PlantedMission, count: int = 1) -> None:
        """So many Messages in the Mission's Group."""
        created = mission.view.events[0].payload
        for _ in range(count):
            message = MessagePost(
                message_id=f"urn:weavehold:message:{secrets.token_hex(8)}",
                conversation_id=created["conversation"]["conversationId"],
                content=(TextPart(text="As planned."),),
            )
            await accepted(self._coordinator, Intent(kind="message.post", payload=message, group_id=mission.group_id))

    async def post_until(self, enough: asyncio.Event, mission: PlantedMission) -> int:
        """Messages one after another until it is enough; how many."""
        posted = 0
        while not enough.is_set():
            await self.post(mission)
            posted += 1
            await asyncio.sleep(0.05)
        return posted

    async def heads(self):
        """Where each Group's history ends, by Group ID."""
        heads = await self.operator.history.heads([mission.group_id for mission in self.missions])
        return {head.group_id: place_of(head) for head in heads}

    def stream(self, shard: ShardId) -> str:
        organization = self.stack.organization
        return subjects.stream_name(organization.organization_id, shard, organization.incarnation)

    async def call(self, call: str, asked=None):
        """A call of the broker's API, as raw JSON."""
        body = json.dumps(asked).encode() if asked else b""
        return json.loads((await self.operator.connection.request(f"$JS.API.{call}", body, timeout=30)).data)

    async def consumer(self, shard: ShardId):
        """What the broker says of the board's consumer."""
        return await self.call(f"CONSUMER.INFO.{self.stream(shard)}.mission_board-{shard}")

    async def last_sequence(self, shard: ShardId) -> int:
        """The last sequence of a shard's stream; 0 when there is no stream."""
        described = await self.call(f"STREAM.INFO.{self.stream(shard)}")
        return 0 if "error" in described else described["state"]["last_seq"]

    async def published(self, seconds: float = 60.0) -> None:
        """Wait until every stream holds the whole log of its shard."""
        for shard in shards:
            page = await self.operator.history.shard_page(shard, 0)
            await until(lambda shard=shard, page=page: self._level(shard, page.head.position), seconds)

    async def _level(self, shard: ShardId, position: int) -> bool:
        return await self.last_sequence(shard) >= position


class Board:
    """One projector's folder, or database: its process and what its projection shows."""

    def __init__(self, planted: PlantedMissions, folder: Path, database_url: str | None = None) -> None:
        self.planted = planted
        self.folder = folder
        self.settings = {"WEAVEHOLD_PROJECTIONS_DIR": str(folder), "WEAVEHOLD_PROJECTIONS": MissionBoard.name}
        if database_url is not None:
            self.settings["WEAVEHOLD_PROJECTION_STORE"] = "postgres"
            self.settings["WEAVEHOLD_PROJECTION_DATABASE_URL"] = database_url
        organization = {"WEAVEHOLD_ORGANIZATION": planted.operator.organization_id}
        self.place = place_of_consumer(MissionBoard(), folder.parent, self.settings | organization)
        self._port_file = folder.with_name(f"{folder.name}.port")

    def process(self, kill_at: str | None = None, **variables: str) -> Process:
        """A projector on this folder; not started. With `kill_at` it kills itself (`killed_projector`)."""
        if kill_at is not None:
            variables["WEAVEHOLD_TEST_KILL_AT"] = kill_at
        own = {
            **self.settings,
            "WEAVEHOLD_HEALTH_PORT_FILE": str(self._port_file),
        }
        module = "services.projector.main" if kill_at is None else "tests.killed_projector"
        return self.planted.stack.process(module, f"projector-{self.folder.name}", **(own | variables))

    @asynccontextmanager
    async def projecting(self, **variables: str):
        """A projector while the block runs; asked to stop afterwards it ends in good order."""
        # The port of an earlier life must not be taken for this one's.
        self._port_file.unlink(missing_ok=True)
        process = self.process(**variables)
        process.start()
        try:
            yield process
            # Asked before it listens to signals, it could not end in good order.
            await until(self._serving)
            code = await asyncio.to_thread(process.end)
            assert code == 0, process.log.read_text()[-3000:]
        finally:
            await asyncio.to_thread(process.end)

    async def _serving(self) -> bool:
        """Whether the process has told its health port: it listens to signals by then."""
        return self._port_file.exists()

    def read(self, look):
        """What `look` sees in one snapshot of the projection."""
        with open_place(self.place) as opened:
            return look(opened.snapshot)

    def missions(self):
        """The board's Missions by Group ID."""
        return {mission.group_id: mission for mission in self.read(read_board)}

    def cursors(self):
        return self.read(lambda snapshot: {cursor.group_id: cursor for cursor in snapshot.cursors()})

    def positions(self):
        """How far each shard is processed; 0 where nothing is."""
        places = self.read(lambda snapshot: [snapshot.position(shard) for shard in shards])
        return [place.position if place else 0 for place in places]

    def applied(self) -> int:
        """Events applied so far; 0 while there is no file."""
        try:
            return sum(cursor.sequence for cursor in self.cursors().values())
        except NotAProjection:
            return 0

    async def moved(self, began: int) -> bool:
        """Whether more is applied than before."""
        return self.applied() > began

    async def reached(self, heads) -> bool:
        """Whether every Group is applied up to its head."""
        return self.applied() > 0 and self.cursors() == heads

    async def settled(self, seconds: float = 60.0) -> None:
        """The board reaches every Group's head and equals its rebuild, digest for digest; nothing is left open."""
        heads = await self.planted.heads()
        await until(lambda: self.reached(heads), seconds)
        assert self.read(lambda snapshot: projection_digests(snapshot, MissionBoard())) == await self.rebuilt()
        assert self.read(lambda snapshot: (snapshot.heads_ahead(), snapshot.stops(), snapshot.forks())) == ([], [], [])

    async def rebuilt(self):
        """The digests of a board rebuilt from the authority's history."""
        self.folder.mkdir(exist_ok=True)
        file = self.folder / f"rebuilt-{secrets.token_hex(4)}.sqlite"
        store = await SqliteStore.open(file, MissionBoard(), self.planted.operator.organization_id)
        groups = sorted(mission.group_id for mission in self.planted.missions)
        await rebuild(Projection(store), SignedHistory(self.planted.operator.history), groups)
        found = await store.read(lambda transaction: projection_digests(transaction, MissionBoard()))
        await store.close()
        return found

    async def readiness(self):
        """The answer of `/readyz`; None while there is none."""
        port = int(self._port_file.read_text()) if self._port_file.exists() else None
        answer = await probe(port, "/readyz") if port else None
        return answer[1] if answer else None

    async def dependency(self, name: str, consumer: str = MissionBoard.name):
        """What `/readyz` says of a consumer's `projection` or `delivery`: state and detail; empty without an answer."""
        answer = await self.readiness()
        return answer["dependencies"].get(f"{name}:{consumer}", {}) if answer else {}

    async def ready(self) -> bool:
        """Whether the running process says that it is ready: its delivery is provisioned."""
        answer = await self.readiness()
        return answer is not None and answer["ready"]

    async def metric(self, name: str) -> float:
        """A counter of the running process."""
        url = f"http://127.0.0.1:{int(self._port_file.read_text())}/metrics"
        text = (await asyncio.to_thread(lambda: urllib.request.urlopen(url, timeout=30).read())).decode()
        lines = [line for line in text.splitlines() if line.startswith(f"weavehold_{name}_total")]
        # What was never counted is not shown yet.
        return float(lines[0].split()[-1]) if lines else 0.0


@asynccontextmanager
async def planting(server: PostgresServer, folder: Path) -> AsyncIterator["PlantedMissions"]:
    """A stack for all tests of a module, on which Missions can be planted."""
    async with shared_organization_of(server, folder) as shared, running_stack(*shared, folder) as stack:
        await stack.register("editor")
        coordinator = await stack.client("editor")
        await coordinator.open_session()
        identity, keys = stack.organization.organization_id, stack.organization.keys
        async with connect(stack.nats_url, identity, keys.operator, policy=patient) as operator:
            yield PlantedMissions(stack, coordinator, operator)


async def until(holds, seconds: float = 60.0) -> None:
    """Wait until something holds."""
    ends = time.monotonic() + seconds
    while not await holds():
        assert time.monotonic() < ends, f"not reached within {seconds} s"
        await asyncio.sleep(0.1)
