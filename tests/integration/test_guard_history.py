"""The guard of an authority's history: what it does in doubt, whatever fails beside it (RULE-16)."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from msgspec import json as msgspec_json
from psycopg import AsyncConnection

from contracts.command import history_resume
from contracts.event import history_resumed
from contracts.rejection import Code, reject
from contracts.reply import encode_receipt
from ops.bench.workload import group_name
from ops.embedded.operating_user import operating_user
from ops.embedded.postgres_server import PostgresServer
from ops.init import Organization, initialize
from services.authority.accept_transition import Committed
from services.authority.broker_consumers import BrokerConsumers
from services.authority.encode_answer import encode_rejection
from services.authority.examine_history import NotExaminable, examine_history
from services.authority.examined_pool import ExaminedPool
from services.authority.guard_history import HistoryGuard, OnFailover
from services.authority.history_standing import HistoryDoubted, ServerLife
from services.authority.resume_groups import GroupResumer
from services.process.broker import connect as connect_broker
from services.process.database import connect, open_pool
from services.process.health import READY, State
from tests.authority_rig import InProcessAuthority, post, refusal_of, rows, run_sql, verified
from tests.conftest import PrivatePostgres
from tests.keys_rig import authority_with_groups, to_registry

another_timeline = "CREATE OR REPLACE FUNCTION weavehold_timeline() RETURNS integer LANGUAGE sql AS 'SELECT {}'"
seconds_max = 60


@pytest.fixture
async def authority(database_url: str, organization: Organization) -> AsyncIterator[InProcessAuthority]:
    """An authority with two Groups."""
    async with authority_with_groups(database_url, organization) as one:
        yield one


@asynccontextmanager
async def guarded(
    authority: InProcessAuthority,
    nats_url: str,
    on_failover: OnFailover = OnFailover.HOLD,
    submit: Callable[[bytes], Awaitable[bytes]] | None = None,
) -> AsyncIterator[HistoryGuard]:
    """An authority whose history is guarded."""
    broker = await connect_broker(nats_url, name="test-guard")

    async def accepted(raw: bytes) -> bytes:
        return encode_receipt(msgspec_json.encode(await authority.receipt(raw)))

    guard = HistoryGuard(
        authority.office,
        lambda: connect(authority.url, name="test-guard"),
        BrokerConsumers(broker),
        submit or accepted,
        on_failover=on_failover,
    )
    running = asyncio.create_task(guard.run(lambda: None))
    try:
        yield guard
        assert not running.done(), running
    finally:
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)
        await broker.close()


async def until(condition: Callable[[], bool]) -> None:
    """Wait for what must come."""
    async with asyncio.timeout(seconds_max):
        while not condition():
            await asyncio.sleep(0.02)


async def log_size(url: str) -> int:
    [(size,)] = await rows(url, "SELECT count(*) FROM event_log")
    return int(size)


async def incarnations(url: str) -> int:
    [(count,)] = await rows(url, "SELECT count(*) FROM incarnation")
    return int(count)


def sound(authority: InProcessAuthority) -> Callable[[], bool]:
    return lambda: authority.office.history.fault is None


def doubted(authority: InProcessAuthority) -> Callable[[], bool]:
    return lambda: "timeline 9" in (authority.office.history.fault or "")


@pytest.mark.parametrize(
    ("on_failover", "held"), [(OnFailover.HOLD, True), (OnFailover.TRUST, False), (OnFailover.RESUME, False)]
)
async def test_a_failover_is_decided_beforehand(
    authority: InProcessAuthority, database_url: str, nats_url: str, on_failover: OnFailover, held: bool
) -> None:
    """RULE-16: on a later timeline the authority holds, trusts synchronous replication, or resumes by itself."""
    async with guarded(authority, nats_url, on_failover) as guard:
        await until(sound(authority))
        await run_sql(database_url, another_timeline.format(9))
        # Whoever accepts next meets the other life, is refused, and has it examined at once.
        with pytest.raises(HistoryDoubted):
            await authority.commit(post(authority.organization))
        assert (await guard.check()).state is State.FAILED
        examined = lambda: getattr(authority.office.history.examined, "timeline", None) == 9  # noqa: E731
        await until(lambda: examined() and sound(authority)() is not held)
        assert await incarnations(database_url) == (2 if on_failover is OnFailover.RESUME else 1)


async def test_a_refused_decision_leaves_the_doubt(
    authority: InProcessAuthority, database_url: str, nats_url: str
) -> None:
    """RULE-16: what was decided beforehand is refused or unanswered; nothing goes on in the old incarnation."""
    asked: list[bytes] = []

    async def refuse(raw: bytes) -> bytes:
        asked.append(raw)
        if len(asked) == 2:
            raise TimeoutError
        return encode_rejection(reject(Code.AUTH_FORBIDDEN, "no"))

    async with guarded(authority, nats_url, OnFailover.RESUME, refuse):
        await until(sound(authority))
        await run_sql(database_url, another_timeline.format(9))
        before = await log_size(database_url)
        for attempt in range(1, 4):
            authority.office.history.asked.set()
            await until(lambda at_least=attempt: len(asked) >= at_least)
            assert doubted(authority)()
            refusal = refusal_of(await authority.answer(post(authority.organization)))
            assert (refusal.code, refusal.retryable) == (Code.BACKPRESSURE, True)
        assert await log_size(database_url) == before
        assert await incarnations(database_url) == 1


async def test_a_connection_to_another_server_accepts_nothing(
    authority: InProcessAuthority, organization: Organization, database_url: str, nats_url: str
) -> None:
    """RULE-16: new connections lead to a sound server, a lane's own to another one: only the latter is refused."""
    async with guarded(authority, nats_url) as guard:
        await until(sound(authority))
        examined = authority.office.history.examined
        assert examined is not None
        other = ServerLife(examined.cluster, examined.timeline, examined.started_at.replace(year=2020))
        authority.office.history.examined = other
        before = await log_size(database_url)
        with pytest.raises(HistoryDoubted):
            await authority.commit(post(organization))
        assert await log_size(database_url) == before
        # The guard looks again, at what a new connection leads to; a lane replaces its own connection and goes on.
        await until(lambda: authority.office.history.examined == examined)
        assert await guard.check() == READY
        authority.office.history.examined = other
        async with authority.lane() as lane:
            await authority.through(lane, post(organization))
        await until(lambda: authority.office.history.examined == examined)
    await verified(database_url, organization)


async def test_reads_are_told_nothing_of_another_server(
    authority: InProcessAuthority, database_url: str, nats_url: str
) -> None:
    """RULE-16, RULE-21: a FORK verdict rests on reads, so none is answered by a server that was not examined."""
    standing = authority.office.history
    examined_pool = ExaminedPool(authority.pool, standing)

    async def read() -> int:
        async with examined_pool.connection() as connection:
            [(heads,)] = await (await connection.execute("SELECT count(*) FROM event_log")).fetchall()
        return int(heads)

    async with guarded(authority, nats_url):
        await until(sound(authority))
        assert await read() == await log_size(database_url)
        examined = standing.examined
        assert examined is not None
        standing.examined = ServerLife(examined.cluster, examined.timeline, examined.started_at.replace(year=2020))
        with pytest.raises(HistoryDoubted):
            await read()
        await until(lambda: standing.examined == examined)
        assert await read() == await log_size(database_url)
        standing.fault = "the database lost commits"
        with pytest.raises(HistoryDoubted, match="lost commits"):
            await read()


async def test_a_verdict_that_comes_while_a_reader_waits_counts(authority: InProcessAuthority) -> None:
    """RULE-16: a pool may lend its connection seconds later; by then the same server may be in doubt."""
    standing = authority.office.history

    class LatePool:
        @asynccontextmanager
        async def connection(self) -> AsyncIterator[Any]:
            async with authority.pool.connection() as connection:
                standing.fault = "the database lost commits"
                yield connection

    with pytest.raises(HistoryDoubted, match="lost commits"):
        async with ExaminedPool(LatePool(), standing).connection():  # type: ignore[arg-type]
            pass


async def test_a_decision_is_about_the_server_that_was_examined(
    authority: InProcessAuthority, organization: Organization, database_url: str, nats_url: str
) -> None:
    """RULE-16: a lane whose connection still leads to a former primary does not open the incarnation there."""
    async with guarded(authority, nats_url):
        await until(sound(authority))
    [found] = await rows(database_url, "SELECT cluster, timeline, started_at FROM server_life")
    standing = authority.office.history
    standing.fault = "the database lost commits"
    resume = to_registry(organization, history_resume, decision(organization))
    for examined in (None, ServerLife(found[0], found[1], found[2].replace(year=2020))):
        standing.examined = examined
        with pytest.raises(HistoryDoubted):
            await authority.answer(resume)
    assert await incarnations(database_url) == 1
    standing.examined = ServerLife(*found)
    await authority.receipt(resume)
    assert await incarnations(database_url) == 2


async def test_the_sweep_appends_nothing_in_doubt(
    authority: InProcessAuthority, organization: Organization, database_url: str
) -> None:
    """RULE-16, RULE-17: between two pages the history may come into doubt, or the server be another one."""
    await authority.receipt(to_registry(organization, history_resume, decision(organization)))
    before = await log_size(database_url)
    resumer = sweep(authority)
    standing = authority.office.history
    [found] = await rows(database_url, "SELECT cluster, timeline, started_at FROM server_life")
    for fault, examined in (
        ("the database lost commits", ServerLife(*found)),
        (None, ServerLife(found[0], found[1], found[2].replace(year=2020))),
    ):
        standing.fault, standing.examined = fault, examined
        connection = await authority.connected()
        try:
            shard, group_id = (await rows(database_url, "SELECT shard_id, group_id FROM mission_group"))[0]
            with pytest.raises(HistoryDoubted):
                await resumer._resume(connection, shard, [group_id])
        finally:
            await connection.close()
    assert await log_size(database_url) == before


def decision(organization: Organization) -> dict[str, Any]:
    return {"incarnation": organization.incarnation, "reason": "restored"}


def sweep(authority: InProcessAuthority) -> GroupResumer:
    async def ignore(_committed: Committed) -> None:
        return

    return GroupResumer(authority.office, authority.pool, authority.connected, authority.held, ignore)


async def test_one_group_that_cannot_go_on_holds_nobody_up(
    authority: InProcessAuthority, organization: Organization, database_url: str
) -> None:
    """RULE-05, RULE-17: its entities cannot be read; the others are resumed, and readiness names it."""
    await authority.receipt(to_registry(organization, history_resume, decision(organization)))
    broken, whole = group_name(0), group_name(1)
    [(body,)] = await rows(database_url, "SELECT body FROM entity WHERE kind = 'mission' AND group_id = %s", broken)
    await run_sql(database_url, f"UPDATE entity SET body = '{{}}' WHERE kind = 'mission' AND group_id = '{broken}'")
    resumer = sweep(authority)
    running = asyncio.create_task(resumer.run(lambda: None))
    try:
        async with asyncio.timeout(seconds_max):
            while broken not in (await resumer.check()).detail or not await went_on(database_url, whole):
                await asyncio.sleep(0.05)
        found = await resumer.check()
        assert (found.state, whole in found.detail) == (State.READY, False)
        assert not await went_on(database_url, broken)
        assert not running.done()
    finally:
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)
    await restore_body(database_url, broken, body)
    await verified(database_url, organization)


async def restore_body(url: str, group_id: str, body: bytes) -> None:
    connection: AsyncConnection[Any] = await connect(url, name="test-restore")
    async with connection:
        await connection.execute(
            "UPDATE entity SET body = %s WHERE kind = 'mission' AND group_id = %s", (body, group_id)
        )


async def went_on(url: str, group_id: str) -> bool:
    statement = "SELECT kind FROM event_log WHERE group_id = %s ORDER BY sequence"
    return (history_resumed,) in await rows(url, statement, group_id)


async def test_a_standby_is_waited_for(private_postgres: PrivatePostgres, nats_url: str, tmp_path: Path) -> None:
    """RULE-16: an address that leads to a standby for a while ends nothing; once promoted it is judged."""
    url = private_postgres.database_url
    connection = await connect(url, name="test-standby")
    organization = await initialize(connection, name="stands-by", keys_directory=tmp_path / "keys", shard_count=1)
    await connection.close()
    await asyncio.to_thread(private_postgres.server.stop)
    standby = PostgresServer(private_postgres.server.directory, parameters={"restore_command": "false"})
    (standby.data / "standby.signal").touch()
    operating_user().own(standby.data / "standby.signal")
    await asyncio.to_thread(standby.start)
    try:
        pool = await open_pool(url, name="test-standby", maximum=2)
        authority = InProcessAuthority(url, organization, pool, "standby")
        try:
            async with guarded(authority, nats_url) as guard:
                await until(lambda: "standby" in getattr(guard._unexamined, "reason", ""))
                broker = await connect_broker(nats_url, name="test-standby")
                async with await connect(url, name="test-standby") as looking:
                    with pytest.raises(NotExaminable, match="standby"):
                        await examine_history(looking, BrokerConsumers(broker), organization.organization_id)
                await broker.close()
                await run_sql(url, "SELECT pg_promote()")
                await until(lambda: "timeline 2, not 1" in (authority.office.history.fault or ""))
                assert (await guard.check()).state is State.FAILED
        finally:
            await authority.close()
            await pool.close()
    finally:
        await asyncio.to_thread(standby.stop)
