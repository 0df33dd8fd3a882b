"""One consumer process of the simulation: the real run on a real file, which can die anywhere and start again."""

import asyncio
import random
import sqlite3
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING, Any

from nats.aio.msg import Msg
from nats.errors import Error as BrokerError

from contracts import subjects
from contracts.cursor import Cursor
from contracts.identifiers import GroupSequence, ShardId
from contracts.payloads.requests import Delivery
from projections.delivery import DeliveredGroup, DeliveryUnavailable, Provisioned
from projections.digest import projection_digests
from projections.gap_buffer import GapBuffer
from projections.history import HistoryUnavailable
from projections.projection import Projection
from projections.pull import PullBounds
from projections.rebuild import rebuild
from projections.repairs import RepairTimes
from projections.run_consumer import ConsumerRun, RunBounds
from projections.store.sqlite import SqliteStore
from services.agent.read_history import Standing, Unavailable
from services.authority.broker_consumers import BrokerConsumers, StreamAbsent
from services.projector.shard_delivery import ShardDelivery
from tests.simulation.checker import Checker, Mirror
from tests.simulation.events import Fact, forge, forgeries, organization, proof
from tests.simulation.ledger import Ledger
from tests.simulation.network import Link
from tests.simulation.traced_store import Change, TracedProjection, TracedStore
from tests.simulation.truth import SimulatedHistory

if TYPE_CHECKING:
    from tests.simulation.world import World

bounds = RunBounds(
    pull=PullBounds(batch=8, outstanding=2, expires_seconds=20, heartbeat_seconds=4),
    repair=RepairTimes(gap_wait_seconds=0.2, first_backoff_seconds=0.1, backoff_seconds_max=2.0),
    heads_seconds=25,
    acknowledge_seconds=3,
    first_backoff_seconds=0.1,
    backoff_seconds_max=2.0,
)
type Copy = tuple[bytes, Mirror]
"""A copy of a store's file, with what it holds."""
crash_points = ("before-commit", "after-commit", "before-ack", "after-ack", "history", "now")


class ConsumerProcess:
    """`groups` are those of a Worker's filtered delivery; None reads whole shards as a projector does."""

    def __init__(self, world: "World", name: str, groups: tuple[str, ...] | None, visible_after: dict[str, int]):
        self.world = world
        self.name = name
        self.groups = groups
        self.visible_after = visible_after
        self.ledger = Ledger(name)
        self.dead = True
        self.armed: str | None = None
        self.hidden: dict[str, float] = {}
        """Groups that are not shown for a while, each until when."""
        shows_all = groups is None
        pairs = world.settings.remembered_pairs
        self.checker = Checker(world.truth, visible_after, world.loop.time, self._violate, pairs, shows_all=shows_all)
        self.lives = 0
        self.copies: list[Copy] = []
        """Older copies of the store, with what they hold."""
        self._other_store: tuple[Copy | None] | None = None
        self._path = Path(world.folder) / f"{name}.sqlite"
        self._handed: dict[tuple[str, str], list[tuple[str, Fact | None]]] = {}
        self._task: asyncio.Task[None] | None = None
        self._ending: asyncio.Task[None] | None = None
        self._gone: asyncio.Future[None]
        self._store: TracedStore
        self._link: Link
        self.run: ConsumerRun
        self.history: SimulatedHistory

    @property
    def expected_groups(self) -> tuple[str, ...]:
        return tuple(self.world.truth.group_ids) if self.groups is None else self.groups

    def is_hidden(self, group_id: str) -> bool:
        """Whether a Group is not shown to it now."""
        return self.world.loop.time() < self.hidden.get(group_id, 0.0)

    async def start(self) -> None:
        """Begin a life."""
        world = self.world
        self.lives += 1
        rng = random.Random(f"{world.seed}/{self.name}/{self.lives}")
        self._store = TracedStore(await SqliteStore.open(self._path, self.ledger, organization), self)
        self._gone = world.loop.create_future()
        self._handed = {}
        await self._check_store()
        self._link = Link(world.broker, f"{self.name}{self.lives}", rng, lambda: world.weather)
        self._link.on_acknowledgement = self._on_acknowledgement
        self._link.on_acknowledged = lambda: self.reach("after-ack")
        self._link.on_handed = self._on_handed
        self._link.forging = self._forge
        projection = TracedProjection(self._store, proof())  # type: ignore[arg-type]
        projection.buffer = GapBuffer(world.settings.held_events)
        history = self.history = SimulatedHistory(self, rng, world.settings.page_events)
        provider: Any
        if self.groups is None:
            provider = ShardDelivery(_Client(self._link, history), projection)  # type: ignore[arg-type]
        else:
            provider = FilteredDelivery(self, self._link, history)
        self.run = ConsumerRun(
            self._link,  # type: ignore[arg-type]
            organization,
            [projection],
            provider,
            history,
            shards=history if self.groups is None else None,
            acknowledger=history,
            bounds=bounds,
        )
        self.dead, self.armed = False, None
        self._task = world.loop.create_task(self.run.run())
        self._task.add_done_callback(self._on_end)
        world.note(f"{self.name} starts life {self.lives}")

    def _on_end(self, task: "asyncio.Task[None]") -> None:
        if not self.dead:
            fault = None if task.cancelled() else task.exception()
            self._violate(f"ended by itself: {_leaf(fault)!r}")

    # --- death -------------------------------------------------------------------------------------------------

    def reach(self, point: str) -> bool:
        """A named point is reached: die here if that is what was armed. True when the process is dead."""
        if not self.dead and self.armed == point:
            self.die(point)
        return self.dead

    def die(self, why: str) -> None:
        """At once: nothing of this life leaves the process or reaches its store any more."""
        if self.dead:
            return
        self.dead, self.armed = True, None
        self.world.note(f"{self.name} dies: {why}")
        self._link.die()
        self._ending = self.world.spawn(self._end())
        if not self.world.is_over:
            self.world.spawn(self._revive(self._ending))

    async def _end(self) -> None:
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)
        await self._store.close()

    async def _revive(self, ending: "asyncio.Task[None]") -> None:
        """After a while the process is started again, perhaps on another store."""
        await asyncio.sleep(random.Random(f"{self.world.seed}/{self.name}/{self.lives}/away").uniform(0.01, 3.0))
        await asyncio.wait({ending})
        if self._other_store is not None:
            self._put_back(*self._other_store)
            self._other_store = None
        await self.start()

    def cut(self, seconds: float) -> None:
        """Its connection is lost for a while."""
        self._link.cut(seconds)

    def refresh(self) -> None:
        """It hears that something about its delivery changed."""
        if not self.dead:
            self.run.refresh()

    async def ended(self) -> None:
        """Until the last life has let go of its file."""
        if self._ending is not None:
            await self._ending

    async def still_there(self) -> None:
        """Never return to a process that is dead."""
        if self.dead:
            await asyncio.shield(self._gone)

    # --- its file ----------------------------------------------------------------------------------------------

    def copy_file(self) -> None:
        """Keep a copy of the store as it is now."""
        with closing(sqlite3.connect(self._path)) as connection:
            self.copies.append((connection.serialize(), self.checker.mirror.copy()))

    def set_back(self, why: str, copy: Copy | None) -> None:
        """The process dies and finds an older copy of its store, or none, when it starts again."""
        self._other_store = (copy,)
        self.die(why)

    def _put_back(self, copy: Copy | None) -> None:
        for file in self._path.parent.glob(f"{self._path.name}*"):
            file.unlink()
        self.checker.mirror = Mirror()
        if copy is not None:
            self._path.write_bytes(copy[0])
            self.checker.mirror = copy[1].copy()

    async def _check_store(self) -> None:
        with closing(sqlite3.connect(self._path)) as connection:
            rows = connection.execute(
                f"SELECT group_id, sequence, event_id, payload_hash FROM {self.ledger.table} ORDER BY rowid"
            ).fetchall()
            intents = connection.execute(
                f"SELECT group_id, sequence, event_id FROM {self.ledger.intent_table} ORDER BY rowid"
            ).fetchall()
        cursors = await self._store.inner.read(lambda transaction: transaction.cursors())
        places = [(each.group_id, each.sequence, bytes(each.chain_hash)) for each in cursors]
        heads = await self._store.inner.read(lambda transaction: transaction.heads_ahead())
        self.checker.stored(rows, intents, places, [(group_id, sequence) for group_id, sequence in heads])

    async def check_at_end(self) -> None:
        """The file against the log, once nothing changes any more."""
        await self._check_store()
        for difference in self.checker.missing(self.expected_groups):
            self._violate(f"did not catch up: {difference}")
        current = self.world.truth.lineage[-1]
        moved_on = any(
            events and events[-1].incarnation == current
            for group_id in self.expected_groups
            if (events := self.world.truth.groups[group_id])
        )
        read = self.run._provisioned.incarnation
        if moved_on and read != current:
            self._violate(f"reads the streams of {read}, and the history goes on in {current}")
        if strange := self.checker.strange(self.expected_groups):
            self._violate(f"has rows of Groups that are not its own: {strange}")

    async def check_rebuild(self) -> None:
        """NEW-4: the projection rebuilt from the history into a fresh store has the live one's digests."""
        store = await SqliteStore.open(self._path.with_suffix(".rebuilt"), self.ledger, organization)
        fresh = Projection(store, proof())
        fresh.visible_after = {group_id: GroupSequence(hidden) for group_id, hidden in self.visible_after.items()}
        groups = [group_id for group_id in self.expected_groups if self.world.truth.groups[group_id]]
        await rebuild(fresh, SimulatedHistory(self, random.Random(0), self.world.settings.page_events), groups)
        rebuilt, live = [
            await each.read(lambda transaction: projection_digests(transaction, self.ledger))
            for each in (store, self._store.inner)
        ]
        await store.close()
        live = tuple(digest for digest in live if digest.group_id in groups)
        if rebuilt != live:
            self._violate(f"does not rebuild to what it is: {live} live, {rebuilt} rebuilt")

    # --- what the checker hears --------------------------------------------------------------------------------

    def committed(self, changes: list[Change], arrivals: list[tuple[str, int, bytes]]) -> None:
        """One transaction was committed."""
        self.world.note(f"{self.name} commits", changes)
        self.checker.commit(changes, arrivals)

    def check_report(self, cursor: Cursor) -> None:
        """A Cursor leaves for the authority."""
        if not self.dead:
            self.checker.reported(cursor.group_id, cursor.sequence, bytes(cursor.chain_hash))

    def _on_handed(self, message: Msg) -> None:
        fact = self.world.fact_of(message.data, message.headers or {})
        _, _, stream, consumer, _, position, *_ = message.reply.split(".")
        if fact is None:
            _, _, shard, incarnation = stream.split("_")
            self.checker.forged.add((f"{incarnation}/{shard}", int(position)))
        self._handed.setdefault((stream, consumer), []).append((message.reply, fact))

    def _on_acknowledgement(self, subject: str) -> None:
        if self.reach("before-ack"):
            return
        _, _, stream, consumer, _, position, *_ = subject.split(".")
        handed = self._handed.get((stream, consumer), [])
        last = max((index for index, (reply, _) in enumerate(handed) if reply == subject), default=-1)
        covered = [
            fact for reply, fact in handed[: last + 1] if fact is not None and int(reply.split(".")[5]) <= int(position)
        ]
        del handed[: last + 1]
        self.world.note(f"{self.name} acknowledges {position}")
        self.checker.acknowledged(covered)

    def _forge(self, data: bytes) -> bytes:
        fact = self.world.by_raw.get(data)
        return data if fact is None else forge(fact, self._link.rng.choice(forgeries))

    def _violate(self, what: str) -> None:
        self.world.violate(f"{self.name}: {what}")


class _Client:
    """As much of `services.agent.connect.Client` as provisioning asks for."""

    def __init__(self, link: Link, history: SimulatedHistory) -> None:
        self.connection = link
        self.history = self
        self.organization_id = organization
        self._told = history

    async def memberships(self) -> Standing:
        """As `services.agent.read_history.HistoryReader.memberships`."""
        try:
            return await self._told.memberships()
        except HistoryUnavailable as fault:
            raise Unavailable(str(fault)) from fault


class FilteredDelivery:
    """A Worker's delivery: per shard one consumer with the subjects of its Groups, as the authority provisions it."""

    def __init__(self, process: ConsumerProcess, link: Link, history: SimulatedHistory) -> None:
        self._process = process
        self._consumers = BrokerConsumers(link)  # type: ignore[arg-type]
        self._history = history

    async def provision(self) -> Provisioned:
        """As `DeliveryProvider.provision`."""
        assert self._process.groups is not None
        try:
            standing = await self._history.memberships()
            by_shard: dict[ShardId, list[str]] = {}
            for group_id in self._process.groups:
                by_shard.setdefault(self._process.world.truth.shard_of[group_id], []).append(group_id)
            deliveries = [await self._ensure(*each, standing.incarnation) for each in by_shard.items()]
        except (HistoryUnavailable, StreamAbsent, BrokerError, TimeoutError) as fault:
            raise DeliveryUnavailable(str(fault)) from fault
        return Provisioned(
            incarnation=standing.incarnation,
            deliveries=tuple(deliveries),
            groups=tuple(
                DeliveredGroup(group_id, shard, GroupSequence(self._process.visible_after.get(group_id, 0)))
                for shard, group_ids in by_shard.items()
                for group_id in group_ids
            ),
        )

    async def _ensure(self, shard: ShardId, group_ids: list[str], incarnation: str) -> Delivery:
        stream, consumer = subjects.stream_name(organization, shard, incarnation), self._process.name
        place = await self._consumers.find(stream, consumer)
        if place is not None and place.passed > await self._consumers.last_sequence(stream):
            await self._consumers.delete(stream, consumer)
            place = None
        if place is None:
            filters = tuple(subjects.event(organization, shard, group_id) for group_id in group_ids)
            await self._consumers.put(stream, consumer, filters, 1)
        return Delivery(shard_id=shard, stream=stream, consumer=consumer)


def _leaf(fault: BaseException | None) -> BaseException | None:
    while isinstance(fault, BaseExceptionGroup):
        fault = fault.exceptions[0]
    return fault
