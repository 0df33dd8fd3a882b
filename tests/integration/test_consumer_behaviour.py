"""One behaviour suite for every listed consumer on every projection store, against a real broker (PRJ-2).

Whatever happens to delivery, the projection ends at the authority's head with the rows that a rebuild gives.
"""

import asyncio
import secrets
import sys
from collections.abc import AsyncIterator, Callable, Iterable, Iterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from msgspec.structs import replace
from nats.aio.client import Client

from contracts.identifiers import GroupSequence
from ops.embedded.broker_server import BrokerServer
from ops.embedded.postgres_server import PostgresServer
from projections.apply_event import Applied
from projections.arrival import LoggedEvent
from projections.consumer import Consumer, Statement
from projections.decide_quarantine import Asked, decide_group
from projections.digest import GroupDigest
from projections.listing import listed_consumers
from projections.projection import Projection
from projections.proof import SignatureProof
from projections.run_consumer import ConsumerRun
from projections.store import Stop, Verb
from services.process.broker import connect
from tests.builders import BuiltEvent, build_event, test_organization
from tests.conftest import create_database, drop_database
from tests.consumer_rig import (
    Acknowledged,
    Provider,
    Stream,
    bounds,
    digests,
    patient,
    reached,
    rebuilt,
    running,
    until,
    until_killed,
)
from tests.history_double import HistoryDouble
from tests.integration import consumer_process
from tests.mission_history import (
    agent_id,
    authority_key,
    extend_history,
    mission_facts,
    mission_history,
    more_messages,
)
from tests.store_kinds import StoreKind, store_kinds
from tests.unit.test_apply_event import proof

one, two = "urn:test:group:one", "urn:test:group:two"
names = [each.name for each in listed_consumers(agent_id)]


def rarely(name: str, *more: object):
    """A case for one consumer; of all but the first one `make fault` runs it."""
    return pytest.param(name, *more, marks=pytest.mark.fault if name != names[0] else ())


of_delivery = pytest.mark.parametrize("consumer", [rarely(name) for name in names], indirect=True)
"""For behaviours of delivery and Cursor, in which no consumer has a say: what is made of Events is proven by others."""


class World:
    """A broker, a history, and one projection at work on them."""

    def __init__(self, client: Client, folder: Path, kind: StoreKind, consumer: Callable[[], Consumer]) -> None:
        self.client = client
        self.folder = folder
        self.kind = kind
        self.consumer = consumer
        self.stream = Stream(client)
        self.source = HistoryDouble()
        self.provider = Provider(client, [one, two])
        self.acknowledged = Acknowledged()
        self.bounds = bounds
        self.proof: SignatureProof | None = None
        self.on_applied: Callable[[Applied], None] | None = None
        self.projection: Projection

    @property
    def live(self) -> Path:
        """Where the projection lies."""
        return self.folder / "live"

    async def open(self) -> Projection:
        """Open the store anew, as a process does at its start."""
        store = await self.kind.open(self.live, self.consumer())
        self.projection = Projection(store, self.proof, self.on_applied)
        return self.projection

    async def close(self) -> None:
        await self.projection.store.close()

    def run(self) -> ConsumerRun:
        """A run of the projection."""
        return ConsumerRun(
            self.client,
            test_organization,
            [self.projection],
            self.provider,
            self.source,
            shards=self.source,
            acknowledger=self.acknowledged,
            bounds=self.bounds,
        )

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        """Run the projection; the block begins once the heads of the start have been compared."""
        asked = self.source.heads_asked
        async with running(self.run()):

            async def compared() -> bool:
                return self.source.heads_asked > asked or not self.provider.groups

            await until(compared)
            yield

    async def accept(self, events: Sequence[BuiltEvent]) -> None:
        """The authority commits Events, and its relay publishes them."""
        self.source.add(events)
        await self.stream.publish(events)

    async def settle(self) -> None:
        """The projection reaches the head, equals its rebuild digest for digest, and has no gap left."""
        await until(lambda: reached(self.projection, self.source))
        assert await digests(self.projection) == await self.rebuilt(self.kind)
        await until(self._nothing_ahead)

    async def rebuilt(self, kind: StoreKind) -> tuple[GroupDigest, ...]:
        """The digests of the projection rebuilt from the source in a store of a kind."""
        fresh = self.folder / "rebuilt"
        kind.lose(fresh)
        skips = await self.projection.store.read(lambda transaction: transaction.skips())
        return await rebuilt(kind.open, fresh, self.consumer(), self.source, self.provider.visible_after, skips)

    async def _nothing_ahead(self) -> bool:
        return await self.projection.heads_ahead() == {}

    async def all_acknowledged(self) -> None:
        """The broker has nothing left to deliver to the consumer."""

        async def done() -> bool:
            return await self.stream.unacknowledged() == 0

        await until(done)


@pytest.fixture(params=names)
def consumer(request: pytest.FixtureRequest) -> Callable[[], Consumer]:
    """Makes the consumer, anew for each opening of a store."""
    return lambda: next(each for each in listed_consumers(agent_id) if each.name == request.param)


@pytest.fixture
def database(request: pytest.FixtureRequest) -> Iterator[Callable[[], str]]:
    """Makes a database of this test's own, once it is asked for one."""
    made: list[str] = []

    def make() -> str:
        server: PostgresServer = request.getfixturevalue("postgres_server")
        made.append(f"projections_{secrets.token_hex(6)}")
        return create_database(server, made[-1])

    yield make
    for name in made:
        server = request.getfixturevalue("postgres_server")
        drop_database(server, name)
        drop_database(server, f"{name}_kept")


@pytest.fixture(params=store_kinds)
def kind_name(request: pytest.FixtureRequest) -> str:
    """The name of one kind of store."""
    return str(request.param)


@pytest.fixture
def kind(kind_name: str, database: Callable[[], str]) -> StoreKind:
    """One kind of store."""
    return store_kinds[kind_name]("" if kind_name == "sqlite" else database())


@pytest.fixture
async def world(
    nats_url: str, tmp_path: Path, consumer: Callable[[], Consumer], kind: StoreKind
) -> AsyncIterator[World]:
    client = await connect(nats_url, name="test")
    made = World(client, tmp_path, kind, consumer)
    await made.stream.create()
    await made.open()
    yield made
    await made.close()
    await client.close()


def mixed() -> list[BuiltEvent]:
    """Both Groups' Events in turns, as one shard's stream holds them."""
    return [event for pair in zip(mission_history(one), mission_history(two), strict=True) for event in pair]


async def test_live_equals_rebuilt(world: World) -> None:
    """MWP-WRK-008: the live projection equals the rebuilt one, digest for digest; MWP-WRK-030: Cursors are reported."""
    async with world.running():
        await world.accept(mixed())
        await world.settle()
        await world.all_acknowledged()
        cursors = {cursor.group_id: cursor for cursor in await world.projection.cursors()}

        async def reported() -> bool:
            return world.acknowledged.cursors == cursors

        await until(reported)
    assert world.source.pages_asked == [(one, 0), (two, 0)]  # by the rebuild alone: delivery needed no help


async def test_every_store_holds_the_same(world: World, database: Callable[[], str]) -> None:
    """PRJ-2, NEW-4: one history gives one digest, in whichever store; a title with NUL is none too many for any."""
    first, *others = mission_facts()
    titled = replace(first, payload=first.payload | {"title": "a\0b"})
    async with world.running():
        await world.accept(mission_history(one))
        await world.accept(extend_history([], two, [titled, *others]))
        await world.settle()
    live = await digests(world.projection)
    for name, make in store_kinds.items():
        assert await world.rebuilt(make("" if name == "sqlite" else database())) == live


async def test_an_older_state_comes_back(world: World) -> None:
    """MWP-FND-023, RULE-20: the store is restored to a copy; what was acknowledged comes by position, once."""
    world.provider.filtered, world.provider.groups = False, []
    events = mixed()
    async with world.running():
        await world.accept(events[:30])
        await world.settle()
    await world.close()
    world.kind.keep(world.live)
    await world.open()
    async with world.running():
        await world.accept(events[30:])
        await world.settle()
        await world.all_acknowledged()
    await world.close()
    world.kind.restore(world.live)
    await world.open()
    assert sum(cursor.sequence for cursor in await world.projection.cursors()) == 30
    async with world.running():
        await world.settle()
    assert world.projection.progress.applied == len(events) - 30


async def test_duplicates(world: World) -> None:
    """MWP-WRK-029: every message twice, in place and in the whole; each is applied once."""
    world.source.add(mixed())
    async with world.running():
        await world.stream.publish([event for event in mixed() for _ in range(2)])
        await world.stream.publish(mixed())
        await world.settle()
        await world.all_acknowledged()
    assert world.projection.progress.applied == len(mixed())
    assert world.projection.progress.duplicates >= 2 * len(mixed())


async def test_gaps(world: World) -> None:
    """MWP-WRK-029: messages that never come are fetched; the durable Cursor never crosses the hole."""
    events = mixed()
    async with world.running():
        world.source.add(events)
        await world.stream.publish([event for at, event in enumerate(events) if at % 7 not in (2, 3)])
        await world.stream.publish(events[-2:])
        await world.settle()
    assert world.projection.progress.gaps_filled >= 1


@of_delivery
async def test_swaps(world: World) -> None:
    """MWP-WRK-029: messages in the wrong order wait for their turn, and nobody is asked."""
    world.bounds = patient
    events = mixed()
    async with world.running():
        world.source.add(events)
        await world.stream.publish([event for at in range(0, 72, 8) for event in reversed(events[at : at + 8])])
        await world.settle()
    assert world.source.pages_asked == [(one, 0), (two, 0)]


@pytest.mark.parametrize(
    ("consumer", "length"),
    [*((name, 20) for name in names), *(rarely(name, length) for length in (12, 21, 60) for name in names)],
    indirect=["consumer"],
)
async def test_fork(world: World, length: int) -> None:
    """PRJ-3, NEW-1: the authority was restored to 8 and went on; its head is below, at, above or far above ours."""
    old = mission_history(one)[:20]
    async with world.running():
        await world.accept(old)
        await world.accept(mission_history(two))
        await world.settle()
        new = extend_history(old[:8], one, more_messages(1, length - 8), salt="restored", incarnation="f" * 32)
        world.source.replace(new)
        await world.stream.announce(new[-1])
        await world.settle()
    (fork,) = await world.projection.store.read(lambda transaction: transaction.forks())
    assert (fork.seen.sequence, fork.seen.chain_hash, fork.shared) == (20, old[-1].mark.chain_hash, 8)
    assert [event.event_id for event in fork.lost] == [built.event.event_id for built in old[8:]]


@of_delivery
@pytest.mark.parametrize("at", [4, 19, 20])
async def test_fork_seen_in_a_message(world: World, at: int) -> None:
    """RULE-19: one Event of the new history gives it away: below the Cursor, at it, or right after it."""
    old = mission_history(one)
    new = extend_history(old[:4], one, more_messages(1, 40), salt="restored", incarnation="f" * 32)
    async with world.running():
        await world.accept(old[:20])
        await world.accept(mission_history(two))
        await world.settle()
        world.source.replace(new)
        await world.stream.publish(new[at : at + 1])
        await world.settle()
    assert world.projection.progress.forks == 1


@of_delivery
@pytest.mark.parametrize("point", ["before-commit", "after-commit"])
async def test_kill(world: World, nats_url: str, kind_name: str, point: str) -> None:
    """PRJ-1, SCH-7: kill -9 inside the transaction, and between commit and acknowledgement; nothing lost or doubled."""
    await world.close()
    await world.accept(mixed())
    await world.provider.provision()
    await world.stream.redeliver_after(seconds=0.3)
    world.source.save(world.folder / "log")
    name = world.consumer().name
    store = [kind_name, world.kind.url]
    command = [sys.executable, "-m", consumer_process.__name__, nats_url, str(world.folder), name, point, *store]
    await until_killed(command)
    await world.open()
    left = {cursor.group_id: cursor.sequence for cursor in await world.projection.cursors()}
    below = max(left.values()) < consumer_process.kill_at_sequence
    assert below if point == "before-commit" else not below
    assert await world.stream.unacknowledged() > len(mixed()) - sum(left.values()) - (point == "before-commit")
    world.bounds = patient
    await asyncio.sleep(0.5)  # until the broker delivers again what the dead process did not acknowledge
    async with world.running():
        await world.settle()
        await world.all_acknowledged()
    assert world.projection.progress.applied + sum(left.values()) == len(mixed())
    if point == "after-commit":
        assert world.projection.progress.duplicates > 0


@of_delivery
async def test_deleted_message(world: World) -> None:
    """RULE-20: a message deleted from the stream leaves a hole without an error; the next one shows it."""
    await world.stream.publish(mixed())
    for position in (5, 6, 30):
        await world.stream.delete_message(position)
    # Before anybody asks for what is missing: a Group that the source does not know is not asked for again.
    world.source.add(mixed())
    async with world.running():
        await world.settle()


@of_delivery
async def test_last_message_lost(world: World) -> None:
    """RULE-21: nothing follows the lost last message of a Group; its announced head shows it."""
    history = mission_history(one)
    async with world.running():
        await world.accept(mission_history(two))
        await world.accept(history[:-1])
        await world.all_acknowledged()
        world.source.add(history[-1:])
        await world.stream.announce(history[-1])
        await world.settle()


@of_delivery
async def test_last_message_lost_without_announcement(world: World) -> None:
    """RULE-21: not even the announcement arrived; heads are compared from time to time."""
    world.bounds = replace(bounds, heads_seconds=0.4)
    async with world.running():
        await world.accept(mission_history(two))
        await world.accept(mission_history(one)[:-1])
        world.source.add(mission_history(one)[-1:])
        await world.settle()


@of_delivery
async def test_consumer_deleted(world: World) -> None:
    """RULE-25: the consumer vanishes at the broker; it is provisioned anew and what comes again are duplicates."""
    events = mixed()
    async with world.running():
        await world.accept(events[:40])
        await world.all_acknowledged()
        await world.stream.delete_consumer()
        await world.accept(events[40:])
        await world.settle()
        await until(lambda: _asked(world, 2))
        await world.all_acknowledged()


async def _asked(world: World, times: int) -> bool:
    return world.provider.asked >= times


@of_delivery
async def test_stream_wiped(world: World) -> None:
    """OBX-1: the stream is lost with everything in it, and comes back filled from the log."""
    events = mixed()
    async with world.running():
        await world.accept(events[:40])
        await world.all_acknowledged()
        await world.stream.delete()
        await until(lambda: _asked(world, 2))
        world.source.add(events[40:])
        await world.stream.create(first=31)
        await world.stream.publish(events[30:])
        await world.settle()
        await world.all_acknowledged()


@of_delivery
async def test_broker_restarts(world: World, nats_server: BrokerServer) -> None:
    """The broker is killed and comes back: pulling goes on although outstanding requests are lost."""
    events = mixed()
    async with world.running():
        await world.accept(events[:40])
        await world.all_acknowledged()
        nats_server.kill()
        nats_server.start()
        await until(lambda: _reconnected(world.client))
        await world.accept(events[40:])
        await world.settle()
        await world.all_acknowledged()


async def _reconnected(client: Client) -> bool:
    return client.is_connected and client.stats["reconnects"] > 0


async def test_unknown_version(world: World) -> None:
    """PRJ-4: a projection of a version that is not this one's is discarded and replayed."""
    async with world.running():
        await world.accept(mixed())
        await world.settle()
    await world.close()
    world.kind.make_strange(world.live, world.consumer())
    await world.open()
    assert await world.projection.cursors() == []
    async with world.running():
        await world.settle()


@of_delivery
async def test_state_lost_after_acknowledgement(world: World) -> None:
    """MWP-FND-023, MWP-WRK-030: an acknowledgement deletes no history; the lost projection is rebuilt from 0."""
    async with world.running():
        await world.accept(mixed())
        await world.settle()
        await world.all_acknowledged()
    await world.close()
    world.kind.lose(world.live)
    await world.open()
    async with world.running():
        await world.settle()


@of_delivery
async def test_five_thousand_events_from_zero(world: World) -> None:
    """A Group of 5,000 Events that delivery no longer holds is replayed from 0 in pages."""
    world.source.add(mission_history(one, messages=5_000))
    world.provider.groups = [one]
    async with world.running():
        await world.settle()
    assert world.projection.progress.applied == len(mission_history(one, messages=5_000))


@of_delivery
async def test_pointer(world: World) -> None:
    """OBX-2: in place of an Event that the broker refused stands a pointer; the Event comes from the source."""
    history = mission_history(one)
    async with world.running():
        await world.accept(mission_history(two))
        world.source.add(history)
        await world.stream.publish(history[:10])
        await world.stream.publish_pointer(history[10])
        await world.stream.publish(history[11:-1])
        await world.stream.publish_pointer(history[-1])
        await world.settle()
        await world.all_acknowledged()


@of_delivery
async def test_what_cannot_be_read(world: World) -> None:
    """Rubbish in the stream is passed over; the Group's head is compared, and nothing waits behind it."""
    history = mission_history(one)
    async with world.running():
        await world.accept(mission_history(two))
        await world.accept(history[:-1])
        world.source.add(history[-1:])
        await world.stream.publish_raw(one, b"rubbish")
        await world.settle()
        await world.all_acknowledged()


@of_delivery
async def test_unfiltered_hole(world: World) -> None:
    """RULE-20: an unfiltered consumer takes a hole in positions for a GAP, also when it was a Group's last Event."""
    world.provider.filtered, world.provider.groups = False, []
    await world.accept(mixed())
    await world.stream.delete_message(len(mixed()) - 1)
    await world.stream.delete_message(3)
    async with world.running():
        await world.settle()
        await world.all_acknowledged()
    assert world.source.heads_asked == 0  # what was missing came by position


@of_delivery
async def test_unfiltered_state_lost(world: World) -> None:
    """RULE-20: the broker has seen everything acknowledged, the projection has lost it: fetched by position."""
    world.provider.filtered, world.provider.groups = False, []
    async with world.running():
        await world.accept(mixed())
        await world.settle()
        await world.all_acknowledged()
    await world.close()
    world.kind.lose(world.live)
    await world.open()
    async with world.running():
        await world.settle()
    assert world.source.heads_asked == 0


async def test_late_member(world: World) -> None:
    """RULE-23: a late member's history begins after its visibility start, live and rebuilt."""
    for group_id in (one, two):
        world.source.visible_after[group_id] = 10
        world.provider.visible_after[group_id] = GroupSequence(10)
    async with world.running():
        world.source.add(mixed())
        await world.stream.publish([*mixed()[6:40], *mixed()[50:]])
        await world.settle()


@of_delivery
async def test_stop(world: World) -> None:
    """PRJ-5: an unknown critical extension stops that Group with a clear state; others flow, the process lives."""
    history = mission_history(one)[:5]
    plain = build_event("message.posted", {"message": {}}, authority_key, group_id=one, previous=history[-1].mark)
    critical = {"urn:test:extension:new": {"version": "1.0.0", "critical": True, "data": None}}
    stopping = _with_extensions(plain, history[-1], critical)
    async with world.running():
        await world.accept([*history, stopping, *mission_history(two)])

        async def flows() -> bool:
            return len(await world.projection.cursors()) == 2 and len(await _stops(world)) == 1

        await until(flows)
        await world.all_acknowledged()
    cursors = {cursor.group_id: cursor.sequence for cursor in await world.projection.cursors()}
    assert cursors == {one: 5, two: len(mission_history(two))}


async def test_quarantine(world: World) -> None:
    """DUR-5: a Group whose Event fails stands alone, and says so; once that is skipped it goes on, as a replay does."""
    consumer = world.projection.store.consumer
    failing = next(
        built for built in mission_history(one)[5:] if consumer.kinds is None or built.event.kind in consumer.kinds
    )
    evolve = consumer.evolve

    def fail(event: LoggedEvent) -> Iterable[Statement]:
        if event.event_id == failing.event.event_id:
            raise AttributeError("not in this version")
        return evolve(event)

    consumer.evolve = fail  # type: ignore[method-assign]
    store, place = world.projection.store, failing.mark
    async with world.running():
        await world.accept(mixed())
        expected = {one: place.sequence - 1, two: len(mission_history(two))}

        async def stands() -> bool:
            cursors = {cursor.group_id: cursor.sequence for cursor in await world.projection.cursors()}
            return cursors == expected and len(await _stops(world)) == 1

        await until(stands)
        await world.all_acknowledged()
        [found] = await store.read(lambda transaction: transaction.quarantined())
        assert (found.stop.group_id, found.stop.sequence, found.stop.chain_hash) == (
            one,
            place.sequence,
            place.chain_hash,
        )
        assert (found.stop.event_id, found.stop.kind) == (failing.event.event_id, failing.event.kind)
        assert (found.owner, found.version, found.attempts) == (consumer.owner, consumer.version, 1)
        assert "not in this version" in found.stop.reason
        asked = Asked(Verb.SKIP, "ada", "agreed", found.last_failed_at)
        await store.transaction(lambda transaction: decide_group(transaction, asked, one, failing.event.event_id))
        await world.settle()
    assert await store.read(lambda transaction: transaction.quarantined()) == []


async def _stops(world: World) -> list[Stop]:
    return await world.projection.store.read(lambda transaction: transaction.stops())


def _with_extensions(plain: BuiltEvent, previous: BuiltEvent, more: dict[str, object]) -> BuiltEvent:
    assert isinstance(plain.event.extensions, dict)
    history = {
        name: {"version": each.version, "critical": each.critical, "data": each.data}
        for name, each in plain.event.extensions.items()
    }
    return build_event(
        "message.posted",
        {"message": {}},
        authority_key,
        group_id=one,
        previous=previous.mark,
        extensions=history | more,
    )


@of_delivery
async def test_forged_event(world: World) -> None:
    """NEW-5: an Event that only looks like the next one is not applied; the true one comes from the source."""
    world.proof = proof()
    await world.close()
    await world.open()
    history = mission_history(one)
    forged = build_event("message.posted", {"message": {}}, authority_key, group_id=one, previous=history[9].mark)
    body = forged.raw.replace(b'"value":"', b'"value":"AAAA', 1)
    async with world.running():
        await world.accept(mission_history(two))
        await world.accept(history[:10])
        await world.settle()
        world.source.add(history[10:])
        await world.stream.publish_raw(one, body)
        await world.settle()
    assert world.projection.progress.unproven == 1
    assert world.projection.progress.forks == 0
