"""A transaction that holds back what a vacuum may remove, and what that leaves behind in the outbox and beside it."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import psycopg
from psycopg import AsyncConnection

look_seconds = 0.2
relay_tables = ("relay_position", "relay_process")
dead_rows_per_second = 2.0
"""Dead versions that each lease and each process may leave per second, however many Events pass: one for its renewal,
once a second, and one more for takeovers."""
dead_rows_at_rest = 20
"""Dead versions besides, of starts and ends."""
row_bytes_max = 400
"""A version of such a row with its part of the index."""
relation_bytes_at_rest = 128 * 1024
"""Size of a table that hardly holds anything, its index included."""

count_dead_rows = "SELECT dead_tuple_count FROM pgstattuple(%s::regclass)"
count_changes = """
SELECT coalesce(sum(n_tup_upd + n_tup_del), 0)::bigint FROM pg_stat_user_tables WHERE relname = 'event_log'
"""
size_of = "SELECT pg_total_relation_size(%s::regclass)"


@asynccontextmanager
async def held_transaction(url: str) -> AsyncIterator[None]:
    """One open transaction with a snapshot and an ID while the block runs; a killed server gets a new one at once."""

    async def hold() -> None:
        while True:
            try:
                async with await AsyncConnection.connect(url) as connection:
                    await connection.set_isolation_level(psycopg.IsolationLevel.REPEATABLE_READ)
                    await connection.execute("SELECT pg_current_xact_id()")
                    begun.set()
                    while True:
                        await asyncio.sleep(look_seconds)
                        await connection.execute("SELECT 1")
            except psycopg.OperationalError:
                await asyncio.sleep(look_seconds)

    begun = asyncio.Event()
    holding = asyncio.create_task(hold())
    try:
        await asyncio.wait_for(begun.wait(), 30)
        yield
    finally:
        holding.cancel()
        await asyncio.gather(holding, return_exceptions=True)


async def assert_outbox_is_lean(connection: AsyncConnection, seconds: float, shards: int) -> None:
    """OBX-3 after `seconds` of one relay of so many shards: dead rows grow with time, never with Events.

    The database needs the extension pgstattuple. Statistics of changes begin anew when the server is killed; sizes and
    dead rows do not.
    """
    rows = shards + 1
    for table in relay_tables:
        [(dead,)] = await (await connection.execute(count_dead_rows, (table,))).fetchall()
        assert dead <= dead_rows_at_rest + dead_rows_per_second * rows * seconds, (table, dead, seconds)
        [(size,)] = await (await connection.execute(size_of, (table,))).fetchall()
        bound = relation_bytes_at_rest + row_bytes_max * dead_rows_per_second * rows * seconds
        assert size <= bound, (table, size, seconds)
    await connection.execute("SELECT pg_stat_force_next_flush()")
    assert await (await connection.execute(count_changes)).fetchall() == [(0,)]
