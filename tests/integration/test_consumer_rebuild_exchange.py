"""The exchanging transaction on both kinds of store: fenced, checked, all or none, and what it leaves alone."""

import secrets
import sqlite3
from collections.abc import Iterable
from contextlib import ExitStack
from functools import partial
from types import MappingProxyType

import pytest

from contracts.cursor import Cursor, cursor_start
from contracts.identifiers import GroupSequence, ShardId, ShardPosition
from ops.consumers.green import GreenFile, green_beside
from ops.projection_place import ProjectionSchema
from projections.apply_event import apply_events
from projections.arrival import LoggedEvent, read_arrival
from projections.consumer import Statement
from projections.copy_skips import copy_skips
from projections.decide_quarantine import Asked, decide_group
from projections.digest import projection_digests
from projections.exchange_groups import ExchangeRefused, Judged, Standing, exchange_groups
from projections.group_run import ApplyRules
from projections.mission_board.consumer import MissionBoard
from projections.projection import Projection
from projections.rebuild import rebuild
from projections.store import EditionReplaced, Fork, Stop, StoreReplaced, StreamPosition, Verb
from projections.store.layout import Identity
from tests.builders import test_incarnation, test_organization
from tests.conftest import create_database, drop_database
from tests.history_double import HistoryDouble
from tests.mission_history import mission_history
from tests.store_kinds import schema_at, store_kinds

one, two = "urn:test:group:one", "urn:test:group:two"
noticed = "2026-01-01T00:00:00.000000Z"
unasked = Judged({}, {})
rules = ApplyRules()


class Intending(MissionBoard):
    """A board that keeps something to do for each Message."""

    tables = MappingProxyType({**MissionBoard.tables, "mission_board_intent": "create_mission_board_intent"})
    intent_tables = frozenset({"mission_board_intent"})
    statements = MappingProxyType(
        {
            **MissionBoard.statements,
            "create_mission_board_intent": (
                "CREATE TABLE IF NOT EXISTS mission_board_intent "
                "(group_id TEXT NOT NULL, sequence BIGINT NOT NULL, PRIMARY KEY (group_id, sequence)) WITHOUT ROWID"
            ),
            "put_intent": "INSERT INTO mission_board_intent (group_id, sequence) VALUES (:group_id, :sequence)",
        }
    )

    def intents(self, event: LoggedEvent) -> Iterable[Statement]:
        if event.kind == "message.posted":
            yield Statement("put_intent", {"group_id": event.group_id, "sequence": event.sequence})


class TwoVersions:
    """A live store, the green one beside it, and the history that both are made of."""

    def __init__(self, kind, path, place, stack, consumer):
        self.kind = kind
        self.path = path
        self.stack = stack
        self.green_place = stack.enter_context(green_beside(place).held())
        self.consumer = consumer
        self.identity = Identity(self.consumer, test_organization)
        self.source = HistoryDouble(mission_history(one), mission_history(two))

    async def open(self):
        self.live = await self.kind.open(self.path, self.consumer)
        self.green = await self.green_place.open(self.consumer, test_organization)
        return self

    async def close(self):
        await self.live.close()
        await self.green.close()

    async def apply(self, history, store=None):
        return await apply_events(store or self.live, [read_arrival(built.raw) for built in history], rules)

    async def rebuild(self, *group_ids):
        return await rebuild(Projection(self.green), self.source, group_ids or (one, two))

    def exchange(self, *group_ids, judged=unasked, edition="another", whole=False, work=None):
        exchanging = partial(exchange_groups, group_ids=group_ids, judged=judged, edition=edition, whole=whole)
        return self.green_place.exchange(self.identity, work or exchanging)

    async def digests(self, store=None):
        return await (store or self.live).read(lambda seen: projection_digests(seen, self.consumer))

    async def cursor(self, group_id, store=None) -> Cursor:
        return await (store or self.live).read(lambda seen: seen.cursor(group_id))


@pytest.fixture
def consumer():
    """Whose versions they are."""
    return MissionBoard()


@pytest.fixture(params=store_kinds)
async def versions(request, tmp_path, consumer):
    name, database = f"exchange_{secrets.token_hex(6)}", None
    path = tmp_path / "live"
    if request.param == "postgres":
        server = request.getfixturevalue("postgres_server")
        database = create_database(server, name)
    place = ProjectionSchema(database, schema_at(path)) if database else path.with_suffix(".db")
    with ExitStack() as stack:
        made = await TwoVersions(store_kinds[request.param](database or ""), path, place, stack, consumer).open()
        yield made
        await made.close()
    if database:
        drop_database(server, name)


async def test_a_writer_of_the_earlier_edition_is_fenced(versions):
    """RULE-22, PRJ-4: its next transaction writes nothing; opened anew, it goes on behind the rebuilt rows."""
    history = mission_history(one)
    await versions.apply(history[:10])
    await versions.rebuild()
    assert versions.exchange(one, two) == {one: Standing.BEHIND, two: Standing.ABSENT}
    with pytest.raises(EditionReplaced):
        await versions.apply(history[10:])
    with pytest.raises(EditionReplaced):
        await versions.live.transaction(lambda transaction: transaction.reset_group(one))
    await versions.live.reopen()
    assert await versions.digests() == await versions.digests(versions.green)
    applied = await versions.apply(history)
    assert (applied.applied, applied.duplicates) == (0, len(history))
    assert (await versions.apply(mission_history(one, messages=3)[len(history) :])).applied == 3


async def test_what_stops_the_transaction_leaves_the_live_version(versions):
    """PRJ-4, RULE-22: a fault after rows were copied leaves rows, edition and the writer's right to write."""
    await versions.apply(mission_history(one)[:10])
    await versions.rebuild()
    before = await versions.digests()

    def fail(transaction):
        exchange_groups(transaction, (one, two), unasked, "never", whole=True)
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        versions.exchange(work=fail)
    assert await versions.digests() == before
    assert (await versions.apply(mission_history(one)[10:12])).applied == 2


@pytest.mark.parametrize("versions", ["sqlite"], indirect=True)
async def test_a_full_disk_leaves_the_live_version(versions):
    """PRJ-4: the file cannot grow in the middle of the exchange: old rows, whole, and the writer goes on."""
    versions.source = HistoryDouble(mission_history(one, messages=400))
    await versions.apply(mission_history(one)[:1])
    await versions.rebuild(one)
    before, live = await versions.digests(), await versions.cursor(one)

    def fill(transaction):
        # It is never less than what the file has: nothing can be added.
        transaction._connection.execute("PRAGMA main.max_page_count = 1")
        exchange_groups(transaction, (one,), Judged({one: live}, {}), "never", whole=True)

    with pytest.raises(sqlite3.OperationalError, match="full"):
        versions.exchange(work=fill)
    assert await versions.digests() == before
    assert (await versions.apply(mission_history(one)[1:2])).applied == 1


async def test_a_live_version_that_is_ahead_is_not_exchanged(versions):
    """RULE-22: green ≥ blue per Group, or nothing; of the whole version a Group that green lacks counts too."""
    await versions.apply([*mission_history(one)[:10], *mission_history(two)[:10]])
    await apply_events(versions.green, [read_arrival(built.raw) for built in mission_history(one)[:9]], rules)
    before = await versions.digests()
    with pytest.raises(ExchangeRefused) as refused:
        versions.exchange(one, whole=True)
    assert refused.value.standings == {one: Standing.AHEAD, two: Standing.AHEAD}
    await versions.rebuild(one)
    with pytest.raises(ExchangeRefused) as refused:
        versions.exchange(one, whole=True)
    assert refused.value.standings == {two: Standing.AHEAD}
    assert await versions.digests() == before
    assert versions.exchange(one) == {one: Standing.BEHIND}
    await versions.live.reopen()
    assert await versions.cursor(one) == await versions.cursor(one, versions.green)
    assert (await versions.cursor(two)).sequence == 10


async def test_a_cursor_that_green_does_not_remember_needs_the_authority_s_word(versions):
    """RULE-22, PRJ-3: far behind, or on another history, it is exchanged only as the authority judged exactly it."""
    versions.source = HistoryDouble(mission_history(one, messages=300))
    await versions.apply(mission_history(one)[:10])
    await versions.rebuild(one)
    live = await versions.cursor(one)
    for word in (unasked, Judged({one: await versions.cursor(one, versions.green)}, {})):
        with pytest.raises(ExchangeRefused) as refused:
            versions.exchange(one, judged=word)
        assert refused.value.standings == {one: Standing.UNPROVEN}
    assert versions.exchange(one, judged=Judged({one: live}, {})) == {one: Standing.BEHIND}


async def test_a_forked_live_version_stays_on_record(versions):
    """PRJ-3, RULE-22: on a history that was given up, level or ahead: exchanged together with what it had seen."""
    await versions.apply(mission_history(one, messages=5, salt="given-up"))
    await versions.rebuild()
    seen, found = await versions.cursor(one), await versions.cursor(one, versions.green)
    assert seen.sequence > found.sequence
    with pytest.raises(ExchangeRefused):
        versions.exchange(one)
    fork = Fork(one, seen, found, (), None, noticed)
    assert versions.exchange(one, judged=Judged({}, {one: fork})) == {one: Standing.FORKED}
    await versions.live.reopen()
    assert await versions.live.read(lambda found: (found.forks(), found.counts())) == ([fork], {"forks": 1})
    assert await versions.digests() == (await versions.digests(versions.green))[:1]


async def test_a_group_that_the_authority_lost_goes_on_record(versions):
    """PRJ-3, RULE-22: there is nothing to rebuild; its rows go, and what had been seen stays."""
    await versions.apply([*mission_history(one), *mission_history(two)])
    await versions.rebuild(two)
    seen = await versions.cursor(one)
    fork = Fork(one, seen, cursor_start(test_organization, one, "f" * 32), (), None, noticed)
    standings = versions.exchange(two, judged=Judged({}, {one: fork}), whole=True)
    assert standings == {one: Standing.FORKED, two: Standing.LEVEL}
    await versions.live.reopen()
    assert await versions.live.read(lambda found: (found.cursor(one), found.forks())) == (None, [fork])


@pytest.mark.parametrize("consumer", [Intending()])
async def test_intents_are_the_live_version_s_alone(versions):
    """RULE-22: green keeps none; a Group is exchanged once live has kept those of every Event that green has."""
    history = mission_history(one)
    await versions.apply(history[:-1])
    await versions.rebuild()
    with pytest.raises(ExchangeRefused) as refused:
        versions.exchange(one, two)
    assert refused.value.standings == {one: Standing.BEHIND, two: Standing.ABSENT}
    await versions.apply(history)
    assert versions.exchange(one) == {one: Standing.LEVEL}


@pytest.mark.parametrize("consumer", [Intending()])
async def test_what_is_the_live_version_s_own_carries_over(versions):
    """RULE-22: intents stay as they are; so do counters, known heads, positions and forks."""
    history = mission_history(one)
    await versions.apply([*history, *mission_history(two)])
    place = StreamPosition(ShardId(1), test_incarnation, ShardPosition(7))
    fork = Fork(two, *[await versions.cursor(one)] * 2, (), None, noticed)

    def keep(transaction):
        transaction.count("duplicates", 3)
        transaction.note_head(one, GroupSequence(999))
        transaction.move_position(place)
        transaction.record_fork(fork)

    def own(found):
        intents = found.rows("mission_board_intent", one)
        return found.counts(), found.heads_ahead(), found.position(ShardId(1)), len(found.forks()), sorted(intents[1])

    await versions.live.transaction(keep)
    await versions.rebuild()
    assert await versions.green.read(lambda found: found.rows("mission_board_intent", one)[1]) == []
    before = await versions.live.read(own)
    assert before[-1] == [(one, built.mark.sequence) for built in history if built.event.kind == "message.posted"]
    versions.exchange(one, two, whole=True)
    assert await versions.live.read(own) == before


async def test_a_stopped_group_is_exchanged_with_its_stop(versions):
    """PRJ-5, RULE-22: rebuilt up to the same Event, it stays stopped and says why; the other Group flows."""

    def unread(event):
        if event.group_id == one and event.sequence == 8:
            raise ValueError("not in this version")
        return MissionBoard.evolve(versions.consumer, event)

    versions.consumer.evolve = unread
    await versions.apply([*mission_history(one), *mission_history(two)[:10]])
    assert (await versions.rebuild()).stopped == [one]
    assert versions.exchange(one, two, whole=True) == {one: Standing.LEVEL, two: Standing.BEHIND}
    [stop] = await versions.live.read(lambda found: found.stops())
    assert isinstance(stop, Stop)
    assert (stop.group_id, stop.sequence) == (one, 8)


async def test_a_failure_in_both_versions_began_in_the_live_one(versions):
    """DUR-5, RULE-22: exchanged, the first failure stays, and the attempts of both are counted."""

    def unread(event):
        if event.group_id == one and event.sequence == 8:
            raise ValueError("not in this version")
        return MissionBoard.evolve(versions.consumer, event)

    versions.consumer.evolve = unread
    await versions.apply(mission_history(one))
    [before] = await versions.live.read(lambda found: found.quarantined())
    await versions.rebuild()
    versions.exchange(one, two, whole=True)
    [after] = await versions.live.read(lambda found: found.quarantined())
    assert (after.stop, after.first_failed_at, after.attempts) == (before.stop, before.first_failed_at, 2)
    assert after.last_failed_at > before.last_failed_at


async def test_what_is_skipped_is_skipped_in_the_exchanged_rows(versions):
    """DUR-5, PRJ-4, NEW-4: rows made of an Event that live passes over are not taken; replayed without it they are."""
    history = mission_history(one)
    failing = next(built for built in history[7:] if built.event.kind == "message.posted")

    def unread(event):
        if event.event_id == failing.event.event_id:
            raise ValueError("not in this version")
        return MissionBoard.evolve(versions.consumer, event)

    versions.consumer.evolve = unread
    await versions.apply([*history, *mission_history(two)])
    del versions.consumer.evolve  # the version that rebuilds can read it
    await versions.rebuild()
    asked = Asked(Verb.SKIP, "ada", "agreed", noticed)
    await versions.live.transaction(lambda found: decide_group(found, asked, one, failing.event.event_id))
    with pytest.raises(ExchangeRefused) as refused:
        versions.exchange(one, two, whole=True)
    assert refused.value.standings == {one: Standing.SKIPPING_OTHERS}
    await copy_skips(versions.green, await versions.live.read(lambda found: found.skips()))
    await versions.rebuild()
    assert versions.exchange(one, two, whole=True) == {one: Standing.BEHIND, two: Standing.LEVEL}
    await versions.live.reopen()
    assert await versions.live.read(lambda found: (found.quarantined(), len(found.decisions()))) == ([], 1)
    exchanged = await versions.digests()
    await versions.live.transaction(lambda found: found.reset_group(one))
    await versions.apply(history)
    assert await versions.digests() == exchanged


async def test_another_version_takes_over(versions):
    """PRJ-4: what it discards it also fences; the process of the earlier version cannot write, nor open it again."""

    class Later(MissionBoard):
        version = 1_000

    await versions.apply(mission_history(one)[:10])
    if isinstance(versions.green_place, GreenFile):
        later = await versions.kind.open(versions.path, Later())
        with pytest.raises(EditionReplaced):
            await versions.apply(mission_history(one)[10:])
        with pytest.raises(StoreReplaced, match="taken over by another version"):
            await versions.live.reopen()
        await versions.live.close()
    else:
        # One writer at a time: the later version waits until the earlier one has ended.
        await versions.live.close()
        later = await versions.kind.open(versions.path, Later())
    with pytest.raises(StoreReplaced, match="taken over by another version"):
        versions.exchange(one)
    assert await later.read(lambda found: found.cursors()) == []
    await later.close()
    versions.live = await versions.kind.open(versions.path, versions.consumer)
