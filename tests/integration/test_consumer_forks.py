"""Forks as running consumers meet them: at first contact, with the next incarnation's streams, killed in the refill."""

import secrets
import sys
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from pathlib import Path

import pytest
from msgspec.structs import replace

from contracts.payloads.requests import GroupHead
from ops.embedded.broker_server import BrokerServer
from ops.embedded.postgres_server import PostgresServer
from projections.history import HistoryRefused
from projections.store import Fork
from services.process.broker import connect
from tests.builders import BuiltEvent, test_incarnation
from tests.conftest import create_database, drop_database
from tests.consumer_rig import Stream, reached, shard, until, until_killed
from tests.history_double import HistoryDouble, restored_incarnation
from tests.integration import refill_process
from tests.integration.test_consumer_behaviour import World, one, two
from tests.mission_history import extend_history, mission_history, more_messages
from tests.simulation.ledger import Ledger
from tests.store_kinds import SqliteFiles, store_kinds
from tests.unit.test_settle_fork import ids, restored

patience_seconds = 60


@pytest.fixture
async def world(nats_url: str, tmp_path: Path) -> AsyncIterator[World]:
    client = await connect(nats_url, name="test")
    made = World(client, tmp_path, SqliteFiles(), lambda: Ledger("forks"))
    await made.stream.create()
    await made.open()
    yield made
    await made.close()
    await client.close()


async def forks(world: World) -> list[Fork]:
    return await world.projection.store.read(lambda transaction: transaction.forks())


async def told(world: World, table: str, group_id: str) -> list[str]:
    """The Event IDs of a Group's rows, or of its intents."""
    names, rows = await world.projection.store.read(lambda tx: tx.rows(f"ledger_forks_{table}", group_id))
    return [row[names.index("event_id")] for row in rows]


async def forked(world: World) -> bool:
    return bool(await forks(world))


async def consumed(world: World) -> tuple[list[BuiltEvent], list[BuiltEvent]]:
    """Two Groups, delivered and applied."""
    first, second = mission_history(one), mission_history(two)
    await world.accept([*first, *second])
    await world.settle()
    await world.all_acknowledged()
    return first, second


def restore(world: World, history: Sequence[BuiltEvent]) -> None:
    """The authority goes on from an earlier point in another incarnation, and says so to whoever asks."""
    world.source.replace(history)
    world.source.current = world.provider.incarnation = restored_incarnation


@pytest.mark.parametrize(("filtered", "announced"), [(True, True), (True, False), (False, True)])
async def test_delivery_goes_on_in_the_next_incarnation(world: World, filtered: bool, announced: bool) -> None:
    """RULE-18, PRJ-3: the first head that bears its name leads there; who lost nothing goes on without a rebuild."""
    world.provider.filtered = filtered
    if not filtered:
        world.provider.groups = []
    if not announced:
        world.bounds = replace(world.bounds, heads_seconds=0.5)
    async with world.running():
        first, second = await consumed(world)
        new, same = restored(first[:12], 30), restored(second, len(second) + 3)
        asked = len(world.source.pages_asked)
        await world.stream.follow(restored_incarnation)
        restore(world, new)
        world.source.add(same[len(second) :])
        await world.stream.publish([*new, *same])
        if announced:
            await world.stream.announce(same[-1])
        await until(lambda: reached(world.projection, world.source), patience_seconds)
        pages = world.source.pages_asked[asked:]
        await world.settle()
        await until(lambda: acknowledged(world), patience_seconds)
    [fork] = await forks(world)
    assert (fork.group_id, fork.shared, fork.found.incarnation) == (one, 12, restored_incarnation)
    assert [lost.event_id for lost in fork.lost] == ids(first[12:])
    assert (await told(world, "entry", one), await told(world, "entry", two)) == (ids(new), ids(same))
    # Nothing is asked for again of what was lost or found, and Group two was never begun anew.
    assert (await told(world, "intent", one), await told(world, "intent", two)) == (ids(first), ids(same))
    assert all(after >= len(second) for group_id, after in pages if group_id == two)


async def acknowledged(world: World) -> bool:
    """Whether everything in the stream was read there: its consumer exists and nothing is left to it."""
    try:
        return await world.stream.unacknowledged() == 0
    except KeyError:
        return False


async def test_a_fork_without_any_event(world: World, nats_server: BrokerServer) -> None:
    """PRJ-3: restored and idle: after a reconnection, and after a restart, heads are compared and the fork is found."""
    async with world.running():
        first, _ = await consumed(world)
        shorter = restored(first[:20], 25)
        world.source.replace(shorter)
        nats_server.kill()
        nats_server.start()
        await until(lambda: forked(world), patience_seconds)
        await world.settle()
    await world.close()
    world.source.replace(first[:9])
    await world.open()
    async with world.running():
        await until(lambda: reached(world.projection, world.source), patience_seconds)
        await world.settle()
    before, after = await forks(world)
    assert ([lost.event_id for lost in before.lost], before.shared) == (ids(first[20:]), 20)
    assert ([lost.event_id for lost in after.lost], after.shared) == (ids(shorter[9:]), 9)


@pytest.mark.parametrize("shows_all", [True, False])
async def test_a_group_that_is_not_shown_any_more(world: World, shows_all: bool) -> None:
    """PRJ-3: to a service the Group is lost and its rows go; an Agent, who cannot tell, keeps them until it differs."""
    world.source.shows_all = shows_all
    world.bounds = replace(world.bounds, heads_seconds=0.3)
    async with world.running():
        first, second = await consumed(world)
        world.source.lose(one)
        if shows_all:
            await until(lambda: forked(world), patience_seconds)
        else:
            asked = world.source.heads_asked

            async def compared() -> bool:
                return world.source.heads_asked > asked + 2

            await until(compared, patience_seconds)
            assert await told(world, "entry", one) == ids(first)
        assert await told(world, "entry", two) == ids(second)
        again = mission_history(one, salt="again", incarnation=restored_incarnation)
        await world.accept(again)
        await until(lambda: reached(world.projection, world.source), patience_seconds)
        await world.settle()
    [fork] = await forks(world)
    assert (fork.found.sequence, fork.shared) == (0 if shows_all else len(again), 0)
    assert [lost.event_id for lost in fork.lost] == ids(first)


async def test_positions_of_another_incarnation_are_not_taken_for_those_of_the_stream(world: World) -> None:
    """RULE-18, RULE-20: the hole in the stream that is read is a position of the old incarnation; delivery moves on."""
    world.provider.filtered, world.provider.groups = False, []
    async with world.running():
        first, second = await consumed(world)
        new = restored(first[:12], 30)
        old = Stream(world.client)
        old.last = world.stream.last
        await old.publish(later := restored(second, len(second) + 2, test_incarnation))
        await old.delete_message(old.last - 1)
        del later
        await world.stream.follow(restored_incarnation)
        restore(world, new)
        await world.stream.publish([*new, *second])
        await world.stream.announce(new[-1])
        await until(lambda: reached(world.projection, world.source), patience_seconds)
        await until(lambda: acknowledged(world), patience_seconds)
        await world.settle()
    position = await world.projection.store.read(lambda transaction: transaction.position(shard))
    assert position is not None
    assert (position.incarnation, position.position) == (restored_incarnation, len(new) + len(second))


@pytest.fixture
def store_url(request: pytest.FixtureRequest) -> Iterator[Callable[[], str]]:
    """A database for a projection, made when it is asked for."""
    made: list[str] = []

    def make() -> str:
        server: PostgresServer = request.getfixturevalue("postgres_server")
        made.append(f"projections_{secrets.token_hex(6)}")
        return create_database(server, made[-1])

    yield make
    for name in made:
        drop_database(request.getfixturevalue("postgres_server"), name)


@pytest.mark.parametrize("kind_name", store_kinds)
async def test_killed_inside_the_refill(
    world: World, nats_url: str, kind_name: str, store_url: Callable[[], str]
) -> None:
    """PRJ-3, RULE-22: kill -9 between two transactions of the refill; what goes on is silent up to the found head."""
    await world.close()
    world.kind = store_kinds[kind_name]("" if kind_name == "sqlite" else store_url())
    await world.open()
    async with world.running():
        first, second = await consumed(world)
    await world.close()
    new = restored(first[:8], 30)
    HistoryDouble(new, second).save(world.folder / "log")
    command = [sys.executable, "-m", refill_process.__name__, nats_url, str(world.folder), kind_name, world.kind.url]
    await until_killed(command)
    await world.open()
    [fork] = await forks(world)
    assert [lost.event_id for lost in fork.lost] == ids(first[8:])
    assert await told(world, "entry", one) == ids(new[: refill_process.kill_at_sequence])
    new += restored(new, 34)[30:]
    world.source.replace(new)
    async with world.running():
        await world.settle()
    assert await forks(world) == [fork]
    assert (await told(world, "entry", one), await told(world, "entry", two)) == (ids(new), ids(second))
    assert (await told(world, "intent", one), await told(world, "intent", two)) == (
        [*ids(first), *ids(new[30:])],
        ids(second),
    )


async def test_a_refused_comparison_asks_for_the_delivery_anew(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """RULE-18, RULE-25: nothing is delivered and no hint came; who may not read any more asks where it stands."""
    world.bounds = replace(world.bounds, heads_seconds=0.3)
    async with world.running():
        await consumed(world)
        asked = world.provider.asked

        async def refuse(_group_ids: Sequence[str]) -> Sequence[GroupHead]:
            raise HistoryRefused("AUTH_STALE_SESSION: open a new session")

        with monkeypatch.context() as patch:
            patch.setattr(world.source, "heads", refuse)
            await until(lambda: _asked_again(world, asked))
        history = mission_history(one)
        more = extend_history(history, one, more_messages(1, 1))[len(history) :]
        world.source.add(more)
        await world.settle()


async def _asked_again(world: World, times: int) -> bool:
    return world.provider.asked > times
