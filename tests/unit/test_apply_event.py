"""The applying transaction: classification, proof, stops, forks, atomicity (PRJ-1, PRJ-3, PRJ-5, RULE-19)."""

import sqlite3
from collections.abc import AsyncIterator, Iterable
from pathlib import Path

import pytest
from msgspec.structs import replace

from contracts.chain import chain_start
from contracts.cursor import Contact, Cursor
from contracts.identifiers import GroupSequence
from contracts.verification import RegisteredKey
from projections.advance_cursor import advance_cursor
from projections.apply_event import Applied, apply_event, apply_events
from projections.arrival import Arrival, LoggedEvent, UnreadableEvent, read_arrival
from projections.consumer import Statement
from projections.digest import projection_digests
from projections.group_run import ApplyRules
from projections.mission_board.consumer import MissionBoard
from projections.proof import KnownKeys, SignatureProof
from projections.store import CursorMoved
from projections.store.sqlite import SqliteStore
from tests.builders import BuiltEvent, build_event, signing_key, test_incarnation, test_organization
from tests.mission_history import authority_key, mission_history

group = "urn:test:group:one"
rules = ApplyRules()


@pytest.fixture
async def store(tmp_path: Path) -> AsyncIterator[SqliteStore]:
    opened = await SqliteStore.open(tmp_path / "board.db", MissionBoard(), test_organization)
    yield opened
    await opened.close()


def arrive(history: Iterable[BuiltEvent]) -> list[Arrival]:
    return [read_arrival(built.raw) for built in history]


async def cursor_of(store: SqliteStore, group_id: str = group) -> Cursor | None:
    return await store.read(lambda transaction: transaction.cursor(group_id))


async def digests(store: SqliteStore) -> object:
    return await store.read(lambda transaction: projection_digests(transaction, store.consumer))


def test_an_arrival_recomputes_the_place_of_every_event() -> None:
    """PRJ-3: the chain hash is computed from the Event's own bytes, with and without a WorkItem in the envelope."""
    for built in mission_history(group):
        arrival = read_arrival(built.raw)
        assert arrival.mark == built.mark
        assert arrival.event.event_id == built.event.event_id
    with_item = build_event("work.started", {}, authority_key, group_id=group, workItemId="urn:test:item")
    assert read_arrival(with_item.raw).mark == with_item.mark


def test_bytes_that_are_not_canonical_get_the_hash_of_their_document() -> None:
    """The definition holds where the short way does not apply: spaces change nothing, a second member is refused."""
    built = mission_history(group)[0]
    spaced = b" " + built.raw.replace(b',"signature":', b', "signature":')
    assert read_arrival(spaced).mark == built.mark
    doubled = built.raw.replace(b',"signature":', b',"sequence":7,"signature":')
    assert read_arrival(doubled).mark.chain_hash != built.mark.chain_hash


@pytest.mark.parametrize("raw", [b"", b"{}", b"[1]", b"nonsense", b'{"kind":"x"}', b"x" * 600_000])
def test_what_is_no_event_is_unreadable(raw: bytes) -> None:
    with pytest.raises(UnreadableEvent):
        read_arrival(raw)


async def test_one_transaction_applies_a_history_and_moves_the_cursor(store: SqliteStore) -> None:
    """PRJ-1: rows and Cursor move together; the Cursor carries incarnation, Group, sequence and chain hash (PRJ-3)."""
    history = mission_history(group)
    applied = await apply_events(store, arrive(history), rules)
    last = history[-1].mark
    assert applied.applied == len(history)
    assert await cursor_of(store) == Cursor(test_incarnation, group, last.sequence, last.chain_hash)


async def test_one_event_at_a_time_gives_the_same_rows_as_one_batch(store: SqliteStore, tmp_path: Path) -> None:
    """MWP-WRK-008: how Events were batched does not show in the rows."""
    history = mission_history(group, messages=20)
    for arrival in arrive(history):
        await apply_event(store, arrival, rules)
    other = await SqliteStore.open(tmp_path / "other.db", MissionBoard(), test_organization)
    await apply_events(other, arrive(history), rules)
    assert await digests(store) == await digests(other)
    await other.close()


async def test_duplicates_are_ignored_and_counted(store: SqliteStore) -> None:
    """MWP-WRK-029: an Event that was applied changes nothing, in the same batch, at the Cursor, and below it."""
    arrivals = arrive(mission_history(group))
    await apply_events(store, [*arrivals[:5], *arrivals[2:5]], rules)
    before = await digests(store)
    applied = await apply_events(store, arrivals[:5], rules)
    assert (applied.applied, applied.duplicates) == (0, 5)
    assert await digests(store) == before
    assert (await store.read(lambda transaction: transaction.counts()))["duplicates"] == 8


async def test_a_gap_is_never_crossed_but_remembered(store: SqliteStore) -> None:
    """MWP-WRK-029, RULE-20: what lies beyond a hole is not applied; the same transaction keeps that it exists."""
    arrivals = arrive(mission_history(group))
    applied = await apply_events(store, [*arrivals[:3], *arrivals[5:8]], rules)
    assert applied.applied == 3
    assert [arrival.mark.sequence for arrival in applied.ahead] == [6, 7, 8]
    assert await store.read(lambda transaction: transaction.heads_ahead()) == [(group, 8)]


async def test_another_hash_at_or_below_the_cursor_is_a_fork(store: SqliteStore) -> None:
    """RULE-19, PRJ-3: the same sequence with another hash is FORK at the Cursor, below it, and right after it."""
    arrivals, others = arrive(mission_history(group)), arrive(mission_history(group, salt="other"))
    await apply_events(store, arrivals[:10], rules)
    for other in (others[9], others[4], others[10]):
        applied = await apply_event(store, other, rules)
        assert [question.contact for question in applied.questions] == [Contact.FORK]
        assert applied.applied == 0
    cursor = await cursor_of(store)
    assert cursor is not None
    assert cursor.chain_hash == arrivals[9].mark.chain_hash


async def test_a_fork_inside_a_batch_holds_back_what_follows_it(store: SqliteStore) -> None:
    """PRJ-3: two histories are never mixed, whatever order they arrive in."""
    arrivals, others = arrive(mission_history(group)), arrive(mission_history(group, salt="other"))
    applied = await apply_events(store, [*arrivals[:6], others[3], *arrivals[6:8], *others[6:9]], rules)
    assert applied.applied == 6
    assert await store.read(lambda transaction: transaction.heads_ahead()) == [(group, 9)]


async def test_below_what_is_remembered_the_answer_is_unknown(store: SqliteStore) -> None:
    """RULE-19: an Event whose hash is forgotten is never dropped unseen, and does not stop what comes next."""
    arrivals = arrive(mission_history(group, messages=300))
    await apply_events(store, arrivals[:330], rules)
    applied = await apply_events(store, [arrivals[2], arrivals[329], arrivals[330]], rules)
    assert [question.contact for question in applied.questions] == [Contact.UNKNOWN]
    assert (applied.applied, applied.duplicates) == (1, 1)


async def test_groups_in_one_batch_do_not_touch_each_other(store: SqliteStore) -> None:
    """A batch holds Events of several Groups; a fork in one of them leaves the others alone."""
    one, two = arrive(mission_history(group)), arrive(mission_history("urn:test:group:two"))
    fork = arrive(mission_history(group, salt="other"))
    mixed = [event for pair in zip(one[:6], two[:6], strict=True) for event in pair]
    applied = await apply_events(store, [*mixed, fork[2], *two[6:]], rules)
    assert applied.applied == 6 + len(two)
    assert [question.group_id for question in applied.questions] == [group]


async def test_a_late_member_begins_at_its_visibility_start(store: SqliteStore) -> None:
    """RULE-23: the first visible Event gives the Cursor its hash; earlier Events are not taken."""
    arrivals = arrive(mission_history(group))
    late = ApplyRules(visible_after={group: GroupSequence(5)})
    assert (await apply_events(store, arrivals[:5], late)).applied == 0
    assert await cursor_of(store) is None
    assert (await apply_events(store, arrivals[6:8], late)).ahead == arrivals[6:8]
    assert (await apply_events(store, arrivals[5:8], late)).applied == 3


async def test_a_crash_before_the_commit_leaves_nothing(store: SqliteStore) -> None:
    """PRJ-1: what is raised inside the transaction leaves neither rows nor Cursor."""
    board = MissionBoard()

    class Failing(MissionBoard):
        def evolve(self, event: LoggedEvent) -> Iterable[Statement]:
            if event.sequence == 9:
                raise KeyboardInterrupt
            return board.evolve(event)

    failing = await SqliteStore.open(store._path, Failing(), test_organization)
    with pytest.raises(KeyboardInterrupt):
        await apply_events(failing, arrive(mission_history(group)), rules)
    assert await cursor_of(store) is None
    assert await digests(store) == ()
    await failing.close()


async def test_an_unknown_critical_extension_stops_its_group_only(store: SqliteStore) -> None:
    """PRJ-5: the Group stops there with a clear state, keeps what came before, and others flow."""
    history = mission_history(group)[:4]
    extensions = {"urn:test:extension:new": {"version": "1.0.0", "critical": True, "data": None}}
    stopping = _with_extension(history[-1], extensions)
    other = arrive(mission_history("urn:test:group:two"))
    applied = await apply_events(store, [*arrive(history), stopping, *other], rules)
    assert applied.applied == 4 + len(other)
    (stop,) = await store.read(lambda transaction: transaction.stops())
    assert (stop.group_id, stop.sequence) == (group, 5)
    assert "urn:test:extension:new" in stop.reason
    assert (await apply_event(store, stopping, rules)) == Applied()


async def test_an_unknown_kind_is_passed_over(store: SqliteStore) -> None:
    """PRJ-5: an unknown non-critical kind moves the Cursor and changes nothing that is not its own."""
    history = mission_history(group)[:4]
    unknown = build_event(
        "ext.future.thing.happened", {"new": 1}, authority_key, group_id=group, previous=history[-1].mark
    )
    applied = await apply_events(store, arrive([*history, unknown]), rules)
    assert applied.applied == 5


async def test_a_payload_that_cannot_be_read_stops_its_group(store: SqliteStore) -> None:
    """PRJ-5, DUR-5: one Event that no one can evolve stops one Group, not the process."""
    history = mission_history(group)[:4]
    broken = build_event("work.started", {"surprise": True}, authority_key, group_id=group, previous=history[-1].mark)
    applied = await apply_events(store, arrive([*history, broken]), rules)
    assert applied.applied == 4
    assert applied.stops[0].sequence == 5


async def test_rows_that_the_store_refuses_isolate_one_event(store: SqliteStore, tmp_path: Path) -> None:
    """A violated constraint is found by halving the batch; everything else of the batch is applied."""

    class Refused(MissionBoard):
        def evolve(self, event: LoggedEvent) -> Iterable[Statement]:
            if event.group_id == group and event.sequence == 7:
                return [Statement("put_work_item_state", {"group_id": None, "work_item_id": "x", "state": "open"})]
            return super().evolve(event)

    refused = await SqliteStore.open(tmp_path / "refused.db", Refused(), test_organization)
    other = arrive(mission_history("urn:test:group:two"))
    applied = await apply_events(refused, [*arrive(mission_history(group)), *other], rules)
    assert applied.applied == 6 + len(other)
    assert [(stop.group_id, stop.sequence) for stop in applied.stops] == [(group, 7)]
    cursor = await cursor_of(refused)
    assert cursor is not None
    assert cursor.sequence == 6
    await refused.close()


class Registry:
    """One registered key."""

    def __init__(self, key: RegisteredKey) -> None:
        self._key = key

    def resolve(self, key_id: str) -> RegisteredKey | None:
        return self._key if key_id == self._key.key_id else None


def proof() -> SignatureProof:
    registered = RegisteredKey(
        key_id=authority_key.key_id,
        principal=authority_key.principal,
        public_key=authority_key.public_key,
        valid_from="2026-01-01T00:00:00Z",
    )
    return SignatureProof(KnownKeys(Registry(registered)))


async def test_the_newest_signature_proves_the_batch(store: SqliteStore) -> None:
    """NEW-5: one valid signature proves the chain behind it; an invalid one applies nothing of that Group."""
    proven = ApplyRules(proof=proof())
    history = mission_history(group)
    assert (await apply_events(store, arrive(history[:8]), proven)).applied == 8
    forged = build_event(
        "message.posted", {}, signing_key("authority", "human"), group_id=group, previous=history[7].mark
    )
    applied = await apply_events(store, arrive([forged]), proven)
    assert applied.applied == 0
    assert applied.unproven[0].group_id == group
    assert (await apply_events(store, arrive(history[8:]), proven)).applied == len(history) - 8


async def test_a_cursor_moves_only_from_where_it_was_read(store: SqliteStore) -> None:
    """PRJ-4: two writers of one store cannot both move a Cursor, and none moves backward."""
    start = Cursor(test_incarnation, group, GroupSequence(0), chain_start(test_organization, group))
    one, two = replace(start, sequence=1), replace(start, sequence=2)
    await store.transaction(lambda transaction: advance_cursor(transaction, None, one))
    with pytest.raises(CursorMoved):
        await store.transaction(lambda transaction: advance_cursor(transaction, None, two))
    with pytest.raises(CursorMoved):
        await store.transaction(
            lambda transaction: advance_cursor(transaction, replace(one, chain_hash=b"x" * 32), two)
        )
    with pytest.raises(ValueError, match="never moves backward"):
        await store.transaction(lambda transaction: advance_cursor(transaction, two, one))


async def test_a_snapshot_reader_cannot_write(store: SqliteStore) -> None:
    with pytest.raises(sqlite3.OperationalError):
        await store.read(lambda transaction: transaction.count("duplicates", 1))


def _with_extension(previous: BuiltEvent, extensions: dict[str, object]) -> Arrival:
    """The next Event, with one more extension beside its history."""
    place = {"group_id": group, "previous": previous.mark, "extensions": extensions}
    marked = build_event("message.posted", {"message": {}}, authority_key, **place)
    return read_arrival(marked.raw)
