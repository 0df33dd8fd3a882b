"""A projection in one SQLite file: a Worker's own store, which survives without the authority.

The writer and the reader each have one connection in one thread of their own. What a crash leaves behind is the last
commit (WAL, `synchronous = FULL`); everything else is delivered or replayed again.
"""

import asyncio
import sqlite3
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Final

from projections.consumer import Consumer
from projections.store.layout import Identity, check_names, creations, tables_of
from projections.store.sql_transaction import Dialect, SqlTransaction
from services.process.statements import load

busy_seconds: Final = 5.0
"""Seconds that a transaction waits for another process's write lock on the same file."""
cached_statements: Final = 256
"""Prepared statements kept per connection."""

_sql: Final = load(__package__, "sqlite")
_refusals: Final = (sqlite3.IntegrityError, sqlite3.DataError, sqlite3.InterfaceError, sqlite3.ProgrammingError)


class SqliteTransaction(SqlTransaction):
    """`projections.store.Transaction` on one SQLite connection."""

    def __init__(
        self, connection: sqlite3.Connection, consumer: Consumer, table_of: Mapping[str, str] | None = None
    ) -> None:
        """Speak for `consumer` on a connection whose transaction has begun; who only reads gives no `table_of`."""
        super().__init__(connection, consumer, Dialect(_sql, consumer.statements, _refusals, table_of or {}))


class SqliteStore:
    """`projections.store.ProjectionStore` in one SQLite file. Open it with `SqliteStore.open`."""

    def __init__(self, path: Path, consumer: Consumer, organization_id: str) -> None:
        """Describe a store; nothing is opened yet."""
        self.consumer: Final = consumer
        self.organization_id: Final = organization_id
        self._path = path
        self._table_of = tables_of(consumer)
        self._writer = ThreadPoolExecutor(1, thread_name_prefix=f"{consumer.name}-writer")
        self._reader = ThreadPoolExecutor(1, thread_name_prefix=f"{consumer.name}-reader")
        self._writing: sqlite3.Connection
        self._reading: sqlite3.Connection

    @classmethod
    async def open(cls, path: Path, consumer: Consumer, organization_id: str) -> "SqliteStore":
        """Open or create a store. What it holds of another consumer, version or Organization is discarded (PRJ-4).

        Raises `sqlite3.Error` when the file cannot be used.
        """
        store = cls(path, consumer, organization_id)
        loop = asyncio.get_running_loop()
        try:
            await loop.run_in_executor(store._writer, store._open_writing)
            await loop.run_in_executor(store._reader, store._open_reading)
        except BaseException:
            store._writer.shutdown(wait=False)
            store._reader.shutdown(wait=False)
            raise
        return store

    def _connect(self) -> sqlite3.Connection:
        connection = sqlite3.connect(
            self._path, timeout=busy_seconds, isolation_level=None, cached_statements=cached_statements
        )
        connection.execute(_sql.set_journal)
        connection.execute(_sql.set_synchronous)
        return connection

    def _open_writing(self) -> None:
        self._writing = self._connect()
        self._in_transaction(
            self._writing, _sql.begin, lambda _: _prepare(self._writing, Identity(self.consumer, self.organization_id))
        )

    def _open_reading(self) -> None:
        self._reading = self._connect()
        self._reading.execute(_sql.set_read_only)

    def _in_transaction[T](
        self, connection: sqlite3.Connection, begin: str, work: Callable[[SqliteTransaction], T]
    ) -> T:
        connection.execute(begin)
        try:
            result = work(SqliteTransaction(connection, self.consumer, self._table_of))
            connection.commit()
        except BaseException:
            connection.rollback()
            raise
        return result

    async def transaction[T](self, work: Callable[[SqliteTransaction], T]) -> T:
        """Run `work` in one durable transaction, after those before it.

        Raises what `work` raises, and `sqlite3.OperationalError` when the file stays locked for `busy_seconds` or
        cannot be written.
        """
        loop = asyncio.get_running_loop()
        return await loop.run_in_executor(self._writer, self._in_transaction, self._writing, _sql.begin, work)

    async def read[T](self, work: Callable[[SqliteTransaction], T]) -> T:
        """Run `work` on one snapshot, beside the writer."""
        loop = asyncio.get_running_loop()
        return await loop.run_in_executor(self._reader, self._in_transaction, self._reading, _sql.begin_reading, work)

    async def close(self) -> None:
        """Let the transaction in progress end, then close the file."""
        loop = asyncio.get_running_loop()
        for executor, connection in ((self._reader, self._reading), (self._writer, self._writing)):
            await loop.run_in_executor(executor, connection.close)
            executor.shutdown()


def _prepare(connection: sqlite3.Connection, identity: Identity) -> None:
    """Discard what another version made; create what is missing."""
    consumer = identity.consumer
    check_names(consumer)
    try:
        found = connection.execute(_sql.read_meta).fetchone()
    except sqlite3.OperationalError:  # no such table, or one of unknown shape
        found = None
    for table in identity.outdated(found, [str(name) for (name,) in connection.execute(_sql.list_tables)]):
        connection.execute(_sql.drop_table.format(table=table))
    for creation in creations:
        connection.execute(_sql[creation])
    for creation in consumer.tables.values():
        connection.execute(consumer.statements[creation])
    connection.execute(_sql.write_meta, identity.row())
