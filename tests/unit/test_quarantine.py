"""What quarantines an Event, how often it is tried again, and who may decide what when (DUR-5)."""

import asyncio
import sqlite3
from collections.abc import AsyncIterator, Callable, Iterable
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path
from types import MappingProxyType

import psycopg
import pytest
from msgspec.structs import replace
from psycopg import errors

from contracts.chain import ChainHash
from contracts.identifiers import GroupSequence
from contracts.timestamps import format_timestamp
from projections.apply_event import Applied, apply_events
from projections.arrival import Arrival, LoggedEvent, read_arrival
from projections.consumer import Statement
from projections.copy_skips import copy_skips
from projections.decide_quarantine import Asked, decide_group, decide_groups
from projections.digest import projection_digests
from projections.exchange_groups import ExchangeRefused, Judged, Standing, exchange_groups
from projections.group_run import ApplyRules
from projections.mission_board.consumer import MissionBoard
from projections.projection import Projection
from projections.quarantine import (
    DecisionRefused,
    attempts_max,
    check_decision,
    reason_characters_max,
    releases_max,
    skips_max,
)
from projections.store import Decision, Quarantined, Stop, Verb, postgres, sqlite
from projections.store.layout import Identity
from projections.store.sql_transaction import SqlTransaction
from projections.store.sqlite import SqliteStore, exchange_file
from projections.watch_quarantine import QuarantineWatch
from tests.builders import BuiltEvent, test_organization
from tests.consumer_rig import until
from tests.mission_history import extend_history, mission_history, more_messages

one, two = "urn:test:group:one", "urn:test:group:two"
start = datetime(2026, 1, 1, tzinfo=UTC)


def at(seconds: float) -> str:
    return format_timestamp(start + timedelta(seconds=seconds))


class Fragile(MissionBoard):
    """A board that fails at some Events."""

    def __init__(self) -> None:
        self.faults: dict[str, Exception] = {}

    def evolve(self, event: LoggedEvent) -> Iterable[Statement]:
        if (fault := self.faults.get(event.event_id)) is not None:
            raise fault
        return super().evolve(event)


class Bench:
    """A fragile board on a store, and a clock that stands until it is moved."""

    def __init__(self, store: SqliteStore, consumer: Fragile) -> None:
        self.store = store
        self.consumer = consumer
        self.now = 0.0

    def clock(self) -> str:
        return at(self.now)

    def break_at(self, built: BuiltEvent, fault: Exception | None = None) -> None:
        self.consumer.faults[built.event.event_id] = fault or ValueError("not in this version")

    async def apply(self, history: Iterable[BuiltEvent]) -> Applied:
        arrivals: list[Arrival] = [read_arrival(built.raw) for built in history]
        return await apply_events(self.store, arrivals, ApplyRules(clock=self.clock))

    async def quarantined(self) -> list[Quarantined]:
        return await self.store.read(lambda transaction: transaction.quarantined())

    async def reached(self, group_id: str = one) -> int:
        cursor = await self.store.read(lambda transaction: transaction.cursor(group_id))
        return cursor.sequence if cursor else 0

    async def decide(self, verb: Verb, group_id: str = one, event: str | None = None) -> Quarantined:
        asked = Asked(verb, "ada", "agreed", self.clock())
        return await self.store.transaction(lambda found: decide_group(found, asked, group_id, event))


@pytest.fixture
async def bench(tmp_path: Path) -> AsyncIterator[Bench]:
    consumer = Fragile()
    store = await SqliteStore.open(tmp_path / "board.db", consumer, test_organization)
    yield Bench(store, consumer)
    await store.close()


# --- classification ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "fault",
    [
        ValueError("x"),
        KeyError("x"),
        AttributeError("x"),
        ZeroDivisionError("x"),
        RecursionError("x"),
        RuntimeError(),
        OSError("x"),
    ],
    ids=lambda fault: type(fault).__name__,
)
async def test_whatever_a_consumer_raises_is_the_events_fault(bench: Bench, fault: Exception) -> None:
    """DUR-5: its Group stands there, with reason, kind, hash and times; another Group of the same batch flows."""
    history, other = mission_history(one), mission_history(two)
    bench.break_at(history[7], fault)
    applied = await bench.apply([*history, *other])
    assert applied.applied == 7 + len(other)
    [found] = await bench.quarantined()
    place = history[7]
    expected = (one, 8, place.event.event_id, place.mark.chain_hash, place.event.kind)
    stop = found.stop
    assert (stop.group_id, stop.sequence, stop.event_id, stop.chain_hash, stop.kind) == expected
    said = f"{type(fault).__name__}: {fault}" if str(fault) else type(fault).__name__
    assert stop.reason.endswith(f": {said}")
    assert "in evolve" in applied.traces[one]
    assert (found.owner, found.first_failed_at, found.last_failed_at, found.attempts) == ("operator", at(0), at(0), 1)


async def test_what_may_pass_is_raised_and_leaves_nothing(bench: Bench) -> None:
    """DUR-5, DUR-3: no memory quarantines nobody; the whole transaction is tried again later."""
    history = mission_history(one)
    bench.break_at(history[7], MemoryError())
    with pytest.raises(MemoryError):
        await bench.apply(history)
    assert (await bench.quarantined(), await bench.reached()) == ([], 0)
    bench.consumer.faults.clear()
    assert (await bench.apply(history)).applied == len(history)


@pytest.mark.parametrize(
    "statement",
    [
        Statement("no_such_statement", {}),
        Statement("put_work_item_state", {}),
        Statement("put_work_item_state", {"group_id": one, "work_item_id": "x", "state": 1 << 70}),
        Statement("put_work_item_state", {"group_id": one, "work_item_id": "x", "state": "\ud800"}),
        Statement("wrong_column", {}),
    ],
    ids=["unknown", "parameters", "number", "text", "column"],
)
async def test_a_statement_that_is_refused_quarantines(tmp_path: Path, statement: Statement) -> None:
    """DUR-5: whatever is wrong with a statement or its values, one Group stands, and nothing is tried in a loop."""

    class Refused(MissionBoard):
        statements = MappingProxyType(
            {**MissionBoard.statements, "wrong_column": "UPDATE mission_board_mission SET no_such = 1"}
        )

        def evolve(self, event: LoggedEvent) -> Iterable[Statement]:
            return [statement] if (event.group_id, event.sequence) == (one, 8) else super().evolve(event)

    store = await SqliteStore.open(tmp_path / "refused.db", Refused(), test_organization)
    other = mission_history(two)
    arrivals = [read_arrival(built.raw) for built in (*mission_history(one), *other)]
    applied = await apply_events(store, arrivals, ApplyRules())
    assert applied.applied == 7 + len(other)
    assert [(stop.group_id, stop.sequence) for stop in applied.stops] == [(one, 8)]
    await store.close()


def _sqlite_fault(code: int) -> sqlite3.OperationalError:
    fault = sqlite3.OperationalError("as SQLite says it")
    fault.sqlite_errorcode = code
    return fault


@pytest.mark.parametrize(
    ("refuses", "fault", "expected"),
    [
        *((sqlite._refuses, _sqlite_fault(code), False) for code in (5, 6, 7, 8, 10, 11, 13, 14, 261, 517)),
        (sqlite._refuses, _sqlite_fault(sqlite3.SQLITE_ERROR), True),
        (sqlite._refuses, sqlite3.IntegrityError(), True),
        (sqlite._refuses, MemoryError(), False),
        (postgres._refuses, errors.LockNotAvailable(), False),
        (postgres._refuses, errors.DeadlockDetected(), False),
        (postgres._refuses, errors.QueryCanceled(), False),
        (postgres._refuses, errors.DiskFull(), False),
        (postgres._refuses, errors.AdminShutdown(), False),
        (postgres._refuses, errors.InsufficientPrivilege(), False),
        (postgres._refuses, psycopg.OperationalError("the connection is lost"), False),
        (postgres._refuses, psycopg.InterfaceError(), False),
        (postgres._refuses, errors.UniqueViolation(), True),
        (postgres._refuses, errors.UndefinedColumn(), True),
        (postgres._refuses, errors.StringDataRightTruncation(), True),
        (postgres._refuses, errors.ProgramLimitExceeded(), True),
        (postgres._refuses, psycopg.DataError("PostgreSQL text fields cannot contain NUL bytes"), True),
    ],
)
def test_a_store_tells_a_refused_statement_from_its_own_trouble(
    refuses: Callable[[Exception], bool], fault: Exception, expected: bool
) -> None:
    """DUR-5, DUR-3: locked, full, away, forbidden or broken quarantines nobody; a value, a limit or a mistake does."""
    assert refuses(fault) is expected


async def test_a_reason_is_bounded_and_can_be_kept(bench: Bench) -> None:
    """DUR-5: a fault that quotes a whole payload, with what no UTF-8 can carry, is cut and kept."""
    history = mission_history(one)
    bench.break_at(history[7], ValueError("\ud800\0" * 1_000_000))
    await bench.apply(history)
    [found] = await bench.quarantined()
    assert len(found.stop.reason) < 2 * reason_characters_max


# --- attempts ------------------------------------------------------------------------------------------------------


async def test_the_first_failure_stays_and_attempts_count(bench: Bench) -> None:
    """DUR-5: tried again it fails again: first failure, one attempt more; once it is mended nothing is left."""
    history = mission_history(one)
    bench.break_at(history[7])
    await bench.apply(history)
    bench.now = 20
    await bench.decide(Verb.RETRY)
    [tried] = await bench.quarantined()
    assert tried.tried_at == at(20)
    bench.now = 25
    await bench.apply(history[7:])
    [found] = await bench.quarantined()
    assert (found.first_failed_at, found.last_failed_at, found.attempts, found.tried_at) == (at(0), at(25), 2, None)
    bench.consumer.faults.clear()
    assert (await bench.apply(history[7:])).applied == 0
    bench.now = 40
    await bench.decide(Verb.RELEASE)
    assert (await bench.quarantined())[0].attempts == 0
    await bench.apply(history[7:])
    assert (await bench.quarantined(), await bench.reached()) == ([], len(history))
    decisions = await bench.store.read(lambda transaction: transaction.decisions())
    told = [(each.verb, each.who, each.why, each.at, each.attempts) for each in decisions]
    assert told == [(Verb.RETRY, "ada", "agreed", at(20), 1), (Verb.RELEASE, "ada", "agreed", at(40), 2)]


class Fetching:
    """Repairs that fetch at once."""

    def __init__(self, bench: Bench, history: list[BuiltEvent]) -> None:
        self.bench = bench
        self.history = history
        self.asked: list[int] = []

    def reach(self, projection: Projection, group_id: str, sequence: GroupSequence) -> None:
        self.asked.append(sequence)
        self.running = asyncio.create_task(self.bench.apply(self.history))


async def test_each_run_tries_once_up_to_a_bound(bench: Bench) -> None:
    """DUR-5: each process tries a Group once, not sooner than 10 s after it failed, and 10 times in all."""
    history = mission_history(one)
    bench.break_at(history[7])
    await bench.apply(history)
    counted: list[tuple[int, int]] = []
    projection = Projection(bench.store, on_quarantined=lambda *told: counted.append(told), clock=bench.clock)
    for run in range(1, attempts_max + 3):
        repairs = Fetching(bench, history)
        watching = asyncio.create_task(QuarantineWatch((projection,), repairs, look_seconds=0.001).watch())  # type: ignore[arg-type]
        await _looked(counted)
        assert repairs.asked == []  # it failed at this very moment
        bench.now += 11
        failed = min(run + 1, attempts_max)

        async def tried(failed: int = failed) -> bool:
            return [(each.attempts, each.tried_at) for each in await bench.quarantined()] == [(failed, None)]

        await until(tried)
        await _looked(counted)
        assert repairs.asked == ([8] if run < attempts_max else [])
        watching.cancel()
        await asyncio.gather(watching, return_exceptions=True)
    assert sum(tried for _, tried in counted) == attempts_max - 1
    assert counted[-1] == (1, 0)


async def _looked(counted: list[tuple[int, int]]) -> None:
    """Two more looks."""
    before = len(counted)
    while len(counted) < before + 2:
        await asyncio.sleep(0.001)


# --- decisions -----------------------------------------------------------------------------------------------------

stopped = Quarantined(
    Stop(one, GroupSequence(8), "urn:uuid:8", ChainHash(b"8" * 32), "work.started", "unread"),
    owner="operator",
    version=2,
    first_failed_at=at(0),
    last_failed_at=at(0),
    attempts=1,
    tried_at=None,
)


def decided(verb: Verb, moment: float, group_id: str = one) -> Decision:
    stop = stopped.stop
    where = (group_id, stop.sequence, stop.event_id, stop.chain_hash, stop.kind)
    return Decision(verb, *where, version=2, attempts=1, who="ada", why="agreed", at=at(moment))


@pytest.mark.parametrize(
    ("verb", "found", "decisions", "refusal"),
    [
        (Verb.RETRY, stopped, [], None),
        (Verb.RETRY, replace(stopped, last_failed_at=at(95)), [], "run it again in 5 s"),
        (Verb.RETRY, replace(stopped, last_failed_at=at(10_000)), [], None),
        (Verb.RETRY, replace(stopped, attempts=attempts_max), [], "quarantine release"),
        (Verb.RETRY, replace(stopped, tried_at=at(1)), [], "is being tried since"),
        (Verb.RETRY, stopped, [decided(Verb.RETRY, 96)], "run it again in 6 s"),
        (Verb.RETRY, stopped, [decided(Verb.RETRY, 96, two)], None),
        (Verb.RELEASE, replace(stopped, attempts=attempts_max), [], None),
        (Verb.RELEASE, stopped, [decided(Verb.RELEASE, 1)] * (releases_max - 1), None),
        (Verb.RELEASE, stopped, [decided(Verb.RELEASE, 1)] * releases_max, "raise the consumer's version"),
        (Verb.RELEASE, replace(stopped, version=3), [decided(Verb.RELEASE, 1)] * releases_max, None),
        (Verb.SKIP, replace(stopped, last_failed_at=at(100)), [], None),
        (Verb.SKIP, stopped, [decided(Verb.SKIP, 99)], "run it again in 9 s"),
        (Verb.SKIP, stopped, [decided(Verb.SKIP, 1, two)] * (skips_max - 1), None),
        (Verb.SKIP, stopped, [decided(Verb.SKIP, 1, two)] * skips_max, "mend the consumer"),
    ],
)
def test_decisions_are_bounded_in_number_and_rate(
    verb: Verb, found: Quarantined, decisions: list[Decision], refusal: str | None
) -> None:
    """DUR-5: the bounds of each decision, at 100 s; a refusal names the remedy."""
    of_group = [each for each in decisions if each.group_id == one]
    skips = sum(each.verb is Verb.SKIP for each in decisions)
    if refusal is None:
        check_decision(verb, found, of_group, skips, at(100))
        return
    with pytest.raises(DecisionRefused, match=refusal):
        check_decision(verb, found, of_group, skips, at(100))


async def test_a_skip_passes_over_the_event_that_was_named_and_no_other(bench: Bench) -> None:
    """DUR-5: the Cursor goes over it by hash; the Event behind it, which fails too, was not meant."""
    history = mission_history(one)
    bench.break_at(history[7])
    bench.break_at(history[8])
    await bench.apply(history)
    for wrong in ("7", history[8].event.event_id):
        with pytest.raises(DecisionRefused, match=f"stands before {history[7].event.event_id}"):
            await bench.decide(Verb.SKIP, event=wrong)
    await bench.decide(Verb.SKIP, event=history[7].event.event_id)
    applied = await bench.apply(history[7:])
    assert (applied.applied, applied.skipped, applied.stops[0].sequence) == (1, 1, 9)
    [found] = await bench.quarantined()
    assert (found.stop.sequence, found.attempts) == (9, 1)
    with pytest.raises(DecisionRefused, match="stands before"):
        await bench.decide(Verb.SKIP, event="8")


async def test_many_groups_are_released_in_pages(bench: Bench) -> None:
    """DUR-5: a bounded number in one transaction; what must not be decided on now is named and hides no later Group."""
    groups = [f"urn:test:group:{number}" for number in range(5)]
    for group_id in reversed(groups):
        history = mission_history(group_id)
        bench.break_at(history[2])
        await bench.apply(history)
        bench.now += 4
    asked = Asked(Verb.RELEASE, "ada", "agreed", bench.clock())
    for limit, done, refused, left in ((1, groups[2:3], groups[:1], 3), (2, groups[3:], groups[:2], 0)):
        decided = await bench.store.transaction(partial(decide_groups, asked=asked, limit=limit))
        assert [each.stop.group_id for each in decided.done] == done
        assert [each.stop.group_id for each, _ in decided.refused] == refused
        assert decided.left == left
    assert [each.stop.group_id for each in await bench.quarantined() if each.tried_at] == groups[2:]


async def test_one_group_is_looked_up_by_its_name(
    bench: Bench, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """DUR-5, PRJ-4: neither a decision nor the exchange of a Group reads what is kept of all others."""

    def whole(_transaction: SqlTransaction) -> object:
        raise AssertionError("a whole table was read")

    green = Bench(await SqliteStore.open(tmp_path / "green.db", bench.consumer, test_organization), bench.consumer)
    for group_id in (one, two):
        history = mission_history(group_id)
        bench.break_at(history[7])
        await bench.apply(history)
        await green.apply(history)
    bench.now += 11
    await bench.decide(Verb.RETRY, two)
    await green.store.close()
    for name in ("quarantined", "held", "decisions", "skips", "skipped"):
        monkeypatch.setattr(SqlTransaction, name, whole)
    await bench.decide(Verb.SKIP, one)
    identity = Identity(bench.consumer, test_organization)
    exchanging = partial(exchange_file, bench.store._path, tmp_path / "green.db", identity)
    exchange = partial(exchange_groups, group_ids=(one, two), judged=Judged({}, {}), edition="rebuilt", whole=True)
    with pytest.raises(ExchangeRefused) as refused:
        exchanging(exchange)
    assert refused.value.standings == {one: Standing.SKIPPING_OTHERS}
    assert exchanging(partial(exchange, group_ids=(two,), whole=False)) == {two: Standing.LEVEL}
    monkeypatch.undo()
    assert [each.attempts for each in await bench.quarantined()] == [1, 2]


# --- histories -----------------------------------------------------------------------------------------------------


async def test_a_skip_belongs_to_its_history(bench: Bench) -> None:
    """DUR-5, PRJ-3: on another history it is inert: its own Event there is applied, or quarantined in turn."""
    old = mission_history(one)[:12]
    new = extend_history(old[:5], one, more_messages(1, 10), salt="restored", incarnation="f" * 32)
    bench.break_at(old[7])
    bench.break_at(new[7])
    await bench.apply(old)
    await bench.decide(Verb.SKIP, event="8")
    assert (await bench.apply(old[7:])).skipped == 1
    await bench.store.transaction(lambda transaction: transaction.reset_group(one))
    applied = await bench.apply(new)
    assert (applied.skipped, applied.stops[0].event_id) == (0, new[7].event.event_id)
    await bench.store.transaction(lambda transaction: transaction.reset_group(one))
    assert (await bench.apply(old)).skipped == 1


async def test_a_replay_beside_passes_over_the_same_events(bench: Bench, tmp_path: Path) -> None:
    """DUR-5, NEW-4: equal digests; a Group that was replayed with other skips begins anew, the others stay."""
    history, other = mission_history(one), mission_history(two)
    at_message = next(built for built in history[7:] if built.event.kind == "message.posted")
    bench.break_at(at_message)
    await bench.apply(history)
    await bench.decide(Verb.SKIP, event=at_message.event.event_id)
    await bench.apply([*history[at_message.mark.sequence - 1 :], *other])
    skips = await bench.store.read(lambda transaction: transaction.skips())
    beside = Bench(await SqliteStore.open(tmp_path / "beside.db", Fragile(), test_organization), Fragile())
    await beside.apply([*history, *other])
    assert await _digests(beside) != await _digests(bench)
    await copy_skips(beside.store, skips)
    assert (await beside.reached(one), await beside.reached(two)) == (0, len(other))
    await beside.apply(history)
    assert await _digests(beside) == await _digests(bench)
    await copy_skips(beside.store, skips)
    assert await beside.reached(one) == len(history)
    await copy_skips(beside.store, ())
    assert await beside.reached(one) == 0
    await beside.store.close()


async def _digests(bench: Bench) -> object:
    return await bench.store.read(lambda transaction: projection_digests(transaction, bench.consumer))


async def test_another_version_keeps_what_was_decided(bench: Bench) -> None:
    """DUR-5, PRJ-4: in place, too, the replay passes over what was skipped; attempts are another version's."""

    class Later(Fragile):
        version = 1_000

    history, other = mission_history(one), mission_history(two)
    bench.break_at(history[7])
    bench.break_at(other[3])
    await bench.apply([*history, *other])
    await bench.decide(Verb.SKIP, event="8")
    later = Bench(await SqliteStore.open(bench.store._path, Later(), test_organization), Later())
    assert await later.quarantined() == []
    applied = await later.apply([*history, *other])
    assert (applied.skipped, applied.applied) == (1, len(history) + len(other))
    [decision] = await later.store.read(lambda transaction: transaction.decisions())
    assert (decision.verb, decision.version) == (Verb.SKIP, 2)
    await later.store.close()
