"""A projection in PostgreSQL when its database fails: cut, killed, silent, shared by two, restored behind its back."""

import asyncio
from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager, closing
from pathlib import Path

import psycopg
import pytest

from contracts.chain import chain_start
from contracts.cursor import Cursor
from contracts.identifiers import GroupSequence
from projections.advance_cursor import advance_cursor
from projections.apply_event import apply_events
from projections.arrival import LoggedEvent, read_arrival
from projections.consumer import Statement
from projections.group_run import ApplyRules
from projections.mission_board.consumer import MissionBoard
from projections.mission_board.read_board import read_board
from projections.store import CursorMoved, Transaction, postgres_session
from projections.store.postgres import PostgresStore, StoreReplaced, schema_of
from projections.store.postgres_dialect import as_postgres
from services.process.broker import connect
from tests.builders import BuiltEvent, test_incarnation, test_organization
from tests.conftest import PrivatePostgres
from tests.consumer_rig import until
from tests.fault_proxy import FaultProxy
from tests.integration.test_consumer_behaviour import World, mixed, one, two
from tests.mission_history import mission_history
from tests.store_kinds import PostgresSchemas

rules = ApplyRules()


@pytest.fixture
async def store(empty_database_url: str) -> AsyncIterator[PostgresStore]:
    opened = await PostgresStore.open(empty_database_url, MissionBoard(), test_organization)
    yield opened
    await opened.close()


@asynccontextmanager
async def board_at(database_url: str, nats_url: str, folder: Path, through: str | None = None) -> AsyncIterator[World]:
    """A mission board at work on a database."""
    client = await connect(nats_url, name="test")
    world = World(client, folder, PostgresSchemas(database_url, through), MissionBoard)
    await world.stream.create()
    await world.open()
    yield world
    await world.close()
    await client.close()


def store_of(world: World) -> PostgresStore:
    opened = world.projection.store
    assert isinstance(opened, PostgresStore)
    return opened


def arrive(history: Iterable[BuiltEvent]):
    return [read_arrival(built.raw) for built in history]


def last_sequence(transaction: Transaction) -> int:
    return sum(cursor.sequence for cursor in transaction.cursors())


@pytest.mark.parametrize("words", [b"COMMIT", b"INSERT INTO mission_board_mission"])
async def test_the_connection_is_cut_in_a_transaction(empty_database_url: str, words: bytes) -> None:
    """PRJ-1, PRJ-2, DUR-3: cut before, and in the commit whose answer is lost: applied once, and so it is told."""
    async with FaultProxy.to_database(empty_database_url) as proxy:
        store = await PostgresStore.open(proxy.database_url(empty_database_url), MissionBoard(), test_organization)
        proxy.cut_when_client_sends(lambda sent: words in sent)
        applied = await apply_events(store, arrive(mission_history(one)), rules)
        assert proxy._cut_after is None
        assert (applied.applied, applied.duplicates) == (len(mission_history(one)), 0)
        [mission] = await store.read(read_board)
        posted = sum(each.event.kind == "message.posted" for each in arrive(mission_history(one)))
        assert (mission.message_count, mission.last_sequence) == (posted, len(mission_history(one)))
        assert store.problem is None
        await store.close()


async def test_connections_are_cut_while_events_flow(nats_url: str, empty_database_url: str, tmp_path: Path) -> None:
    """PRJ-1, PRJ-2: every connection is cut again and again; each Event counts once, and nobody is asked for it."""
    async with (
        FaultProxy.to_database(empty_database_url) as proxy,
        board_at(empty_database_url, nats_url, tmp_path, proxy.database_url(empty_database_url)) as world,
    ):
        events = mixed()
        async with world.running():
            for start in range(0, len(events), 9):
                await world.accept(events[start : start + 9])
                await proxy.cut()
            await world.settle()
            await world.all_acknowledged()
        assert world.projection.progress.applied == len(events)
        assert world.projection.progress.duplicates == 0


async def test_the_server_dies_and_restarts(private_postgres: PrivatePostgres, nats_url: str, tmp_path: Path) -> None:
    """PRJ-2, MWP-FND-023: the server is killed in the middle; the projection waits, says why, and goes on."""
    async with board_at(private_postgres.database_url, nats_url, tmp_path) as world:
        events = mixed()
        async with world.running():
            await world.accept(events[:30])
            await world.settle()
            await asyncio.to_thread(private_postgres.server.kill)
            await world.accept(events[30:])

            async def waits() -> bool:
                return store_of(world).problem is not None

            await until(waits)
            await asyncio.to_thread(private_postgres.server.start)
            await world.settle()
            await world.all_acknowledged()
        assert world.projection.progress.applied == len(events)
        assert store_of(world).problem is None


async def test_the_network_swallows_everything(empty_database_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """PRJ-2: a connection that stays open and answers nothing is cut after a bounded time, and work goes on."""
    monkeypatch.setattr(postgres_session, "answer_seconds_max", 1.0)
    async with FaultProxy.to_database(empty_database_url) as proxy:
        store = await PostgresStore.open(proxy.database_url(empty_database_url), MissionBoard(), test_organization)
        proxy.stall()
        applying = asyncio.create_task(apply_events(store, arrive(mission_history(one)), rules))

        async def gave_up() -> bool:
            return store.problem is not None

        await until(gave_up)
        assert not applying.done()
        await proxy.cut()
        proxy.resume()
        assert (await applying).applied == len(mission_history(one))
        await store.close()


async def test_a_second_writer_waits_for_the_first(empty_database_url: str) -> None:
    """PRJ-2, PRJ-4: one process writes; another says whom it waits for, and goes on where the first one ended."""
    store = await PostgresStore.open(empty_database_url, MissionBoard(), test_organization)
    history = arrive(mission_history(one))
    await apply_events(store, history[:10], rules)
    second = PostgresStore(empty_database_url, MissionBoard(), test_organization)
    waiting = asyncio.create_task(apply_events(second, history, rules))

    async def waits() -> bool:
        return "is written by another process (PID " in (second.problem or "")

    await until(waits)
    await apply_events(store, history[10:20], rules)
    assert not waiting.done()
    await store.close()
    applied = await waiting
    assert (applied.duplicates, applied.applied) == (20, len(history) - 20)
    assert second.problem is None
    await second.close()


async def test_two_writers_without_a_lock(
    store: PostgresStore, empty_database_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """PRJ-4: should two write all the same, the Cursor lets one of two transactions pass; no row counts twice."""
    monkeypatch.setattr(PostgresStore, "_lock", lambda *_: None)
    second = await PostgresStore.open(empty_database_url, MissionBoard(), test_organization)
    history = arrive(mission_history(one, messages=200))
    passed = refused = 0
    for start in range(0, len(history), 20):
        both = [apply_events(each, history[start : start + 20], rules) for each in (store, second)]
        for outcome in await asyncio.gather(*both, return_exceptions=True):
            if isinstance(outcome, CursorMoved):
                refused += 1
            else:
                assert not isinstance(outcome, BaseException), outcome
                passed += outcome.applied
    assert passed == len(history)
    assert refused > 0
    [mission] = await store.read(read_board)
    assert mission.message_count == sum(each.event.kind == "message.posted" for each in history)
    await second.close()


async def test_restored_behind_a_running_writer(empty_database_url: str, tmp_path: Path) -> None:
    """PRJ-2, MWP-FND-023: an older state comes back while the connection is lost: it stops clearly and begins anew."""
    kind, history = PostgresSchemas(empty_database_url), arrive(mission_history(one))
    store = await kind.open(tmp_path / "live", MissionBoard())
    await apply_events(store, history[:10], rules)
    await store.close()
    kind.keep(tmp_path / "live")
    store = await kind.open(tmp_path / "live", MissionBoard())
    await apply_events(store, history[10:20], rules)
    kind.restore(tmp_path / "live")
    with pytest.raises(StoreReplaced, match="start again"):
        await apply_events(store, history[20:], rules)
    await store.close()
    store = await kind.open(tmp_path / "live", MissionBoard())
    assert (await apply_events(store, history, rules)).applied == len(history) - 10
    await store.close()
    kind.drop_copy()


async def test_what_another_version_left_is_discarded_but_not_its_forks(empty_database_url: str) -> None:
    """PRJ-3, PRJ-4: rows, Cursors and views upon them go; forks and counters stay; other schemas are not touched."""

    class Later(MissionBoard):
        version = MissionBoard.version + 1  # type: ignore[misc]

    store = await PostgresStore.open(empty_database_url, MissionBoard(), test_organization)
    await apply_events(store, arrive(mission_history(one)), rules)
    await store.transaction(lambda transaction: transaction.count("forks", 3))
    await store.close()
    with closing(psycopg.connect(empty_database_url, autocommit=True)) as database:
        database.execute("CREATE TABLE public.mission_board_of_somebody AS SELECT 1 AS one")
        database.execute(f"CREATE VIEW public.seen AS SELECT title FROM {store.schema}.mission_board_mission")
        later = await PostgresStore.open(empty_database_url, Later(), test_organization)
        assert await later.read(last_sequence) == 0
        assert await later.read(lambda transaction: transaction.counts()) == {"forks": 3}
        assert database.execute("SELECT one FROM mission_board_of_somebody").fetchall() == [(1,)]
        with pytest.raises(psycopg.errors.UndefinedTable):
            database.execute("SELECT * FROM seen")
    await later.close()


async def test_rows_that_the_store_refuses_isolate_one_event(empty_database_url: str) -> None:
    """A violated constraint or a wrong type is found by halving the batch; everything else of the batch is applied."""

    class Refused(MissionBoard):
        def evolve(self, event: LoggedEvent) -> Iterable[Statement]:
            if event.group_id == one and event.sequence == 7:
                return [Statement("put_work_item_state", {"group_id": None, "work_item_id": "x", "state": "open"})]
            if event.group_id == two and event.sequence == 5:
                return [Statement("note_activity", {"group_id": two, "messages": "x", "at": "", "sequence": 1})]
            return super().evolve(event)

    refused = await PostgresStore.open(empty_database_url, Refused(), test_organization)
    applied = await apply_events(refused, arrive(mixed()), rules)
    assert applied.applied == 6 + 4
    assert {(stop.group_id, stop.sequence) for stop in applied.stops} == {(one, 7), (two, 5)}
    await refused.close()


async def test_a_cursor_moves_only_from_where_it_was_read(store: PostgresStore) -> None:
    """PRJ-4: compare and set, as in every store; a fault of the work leaves nothing, and the store goes on."""
    start = Cursor(test_incarnation, one, GroupSequence(1), chain_start(test_organization, one))
    await store.transaction(lambda transaction: advance_cursor(transaction, None, start))
    with pytest.raises(CursorMoved):
        await store.transaction(lambda transaction: advance_cursor(transaction, None, start))
    with pytest.raises(ZeroDivisionError):
        await store.transaction(lambda transaction: [transaction.reset_group(one), 1 / 0])
    assert await store.read(last_sequence) == 1


async def test_a_snapshot_reader_cannot_write(store: PostgresStore) -> None:
    with pytest.raises(psycopg.ProgrammingError, match="cannot be written"):
        await store.read(lambda transaction: transaction.count("duplicates", 1))


async def test_commits_are_durable_and_waits_are_bounded(store: PostgresStore) -> None:
    """PRJ-1, PRJ-2: what was answered is on disk; no statement, lock or idle transaction waits for ever."""
    names = ("synchronous_commit", "statement_timeout", "lock_timeout", "idle_in_transaction_session_timeout")
    shown = await store._writer.run(
        lambda connection: [connection.execute(f"SHOW {name}").fetchone()[0] for name in names]
    )
    assert shown == ["on", "30s", "5s", "15s"]


def test_a_schema_belongs_to_one_organization_and_has_a_name_that_fits() -> None:
    """PRJ-2: Organizations that share a database do not share a schema."""
    mine, theirs = (schema_of(MissionBoard(), f"urn:weavehold:organization:{name}") for name in ("a", "b"))
    assert mine != theirs
    assert mine.startswith("projection_mission_board_")

    class Long(MissionBoard):
        name = "x" * 50  # type: ignore[misc]

    with pytest.raises(ValueError, match="at most 63"):
        schema_of(Long(), "urn:test:organization")


def test_one_wording_for_both() -> None:
    """PRJ-2: only parameters and a few types change; texts, casts and what was commented out stay what they are."""
    assert as_postgres("-- why: so\nSELECT :a::text, ':b' WHERE c LIKE '%x' AND d = :d") == (
        "SELECT %(a)s::text, ':b' WHERE c LIKE '%%x' AND d = %(d)s"
    )
    assert as_postgres("CREATE TABLE t (a TEXT, b BLOB) WITHOUT ROWID").split() == (
        ["CREATE", "TABLE", "t", "(a", "TEXT", "COLLATE", '"C",', "b", "BYTEA)"]
    )
