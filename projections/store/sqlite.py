"""A projection in one SQLite file: a Worker's own store, which survives without the authority.

The writer and the reader each have one connection in one thread of their own. What a crash leaves behind is the last
commit (WAL, `synchronous = FULL`); everything else is delivered or replayed again.
"""

import asyncio
import sqlite3
import uuid
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from pathlib import Path
from typing import Final

from projections.consumer import Consumer
from projections.store import StoreReplaced
from projections.store.exchange import ExchangeTransaction
from projections.store.layout import Identity, check_names, creations, retired_tables, tables_of
from projections.store.sql_transaction import Dialect, SqlTransaction
from services.process.statements import load

busy_seconds: Final = 60.0
"""Seconds that a transaction waits for another process's write lock on the same file: an exchange of many rows."""
cached_statements: Final = 256
"""Prepared statements kept per connection."""

_sql: Final = load(__package__, "sqlite")
_refusals: Final = (
    sqlite3.IntegrityError,
    sqlite3.DataError,
    sqlite3.InterfaceError,
    sqlite3.ProgrammingError,
    sqlite3.NotSupportedError,
    OverflowError,
    UnicodeError,
)


def _refuses(fault: Exception) -> bool:
    """Whether the statement or its values are at fault, and not the file, the disk or another writer."""
    if isinstance(fault, sqlite3.OperationalError):
        return getattr(fault, "sqlite_errorcode", None) == sqlite3.SQLITE_ERROR
    return isinstance(fault, _refusals)


def sqlite_dialect(consumer: Consumer, table_of: Mapping[str, str] | None = None) -> Dialect:
    """How SQLite takes the statements of the stores and of a consumer; who only reads gives no `table_of`."""
    return Dialect(_sql, consumer.statements, _refuses, table_of or {})


class SqliteTransaction(SqlTransaction):
    """`projections.store.Transaction` on one SQLite connection."""

    def __init__(
        self, connection: sqlite3.Connection, consumer: Consumer, table_of: Mapping[str, str] | None = None
    ) -> None:
        """Speak for `consumer` on a connection whose transaction has begun; who only reads gives no `table_of`."""
        super().__init__(connection, consumer, sqlite_dialect(consumer, table_of))


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
        self._edition = ""
        """The name of the rows that were opened."""

    @classmethod
    async def open(cls, path: Path, consumer: Consumer, organization_id: str) -> "SqliteStore":
        """Open or create a store. What it holds of another consumer, version or Organization is discarded (PRJ-4).

        Raises `sqlite3.Error` when the file cannot be used.
        """
        store = cls(path, consumer, organization_id)
        loop = asyncio.get_running_loop()
        try:
            await loop.run_in_executor(store._writer, store._open_writing)
            try:
                await loop.run_in_executor(store._reader, store._open_reading)
            except BaseException:
                await loop.run_in_executor(store._writer, store._writing.close)
                raise
        except BaseException:
            store._writer.shutdown(wait=False)
            store._reader.shutdown(wait=False)
            raise
        return store

    def _open_writing(self) -> None:
        self._writing = _connect(self._path)
        identity = Identity(self.consumer, self.organization_id)
        try:
            self._in_transaction(self._writing, _sql.begin, lambda _: _prepare(self._writing, identity))
            self._open_edition()
        except BaseException:
            self._writing.close()
            raise

    def _open_edition(self) -> None:
        if not Identity(self.consumer, self.organization_id).made(_found(self._writing)):
            raise StoreReplaced(f"{self._path} was taken over by another version; stop this one")
        self._edition = self._writing.execute(_sql.hold_edition).fetchone()[0]

    def _open_reading(self) -> None:
        self._reading = _connect(self._path)
        self._reading.execute(_sql.set_read_only)

    def _in_transaction[T](
        self, connection: sqlite3.Connection, begin: str, work: Callable[[SqliteTransaction], T]
    ) -> T:
        transaction = SqliteTransaction(connection, self.consumer, self._table_of)
        return _within(connection, begin, lambda: work(transaction))

    async def transaction[T](self, work: Callable[[SqliteTransaction], T]) -> T:
        """Run `work` in one durable transaction, after those before it.

        Raises what `work` raises, EditionReplaced, and `sqlite3.OperationalError` when the file stays locked for
        `busy_seconds` or cannot be written.
        """

        def fenced(transaction: SqliteTransaction) -> T:
            transaction.hold_edition(self._edition)
            return work(transaction)

        loop = asyncio.get_running_loop()
        return await loop.run_in_executor(self._writer, self._in_transaction, self._writing, _sql.begin, fenced)

    async def read[T](self, work: Callable[[SqliteTransaction], T]) -> T:
        """Run `work` on one snapshot, beside the writer."""
        loop = asyncio.get_running_loop()
        return await loop.run_in_executor(self._reader, self._in_transaction, self._reading, _sql.begin_reading, work)

    async def reopen(self) -> None:
        """Go on with the rows that are there now. Raises StoreReplaced when something else made them."""
        await asyncio.get_running_loop().run_in_executor(self._writer, self._open_edition)

    async def close(self) -> None:
        """Let the transaction in progress end, then close the file."""
        loop = asyncio.get_running_loop()
        for executor, connection in ((self._reader, self._reading), (self._writer, self._writing)):
            await loop.run_in_executor(executor, connection.close)
            executor.shutdown()


def exchange_file[T](live: Path, green: Path, identity: Identity, work: Callable[[ExchangeTransaction], T]) -> T:
    """Run `work` in one durable transaction on the live file, with the green one attached for reading.

    Raises what `work` raises, StoreReplaced when something else than `identity` made the live file, and
    `sqlite3.Error`.
    """
    with closing(_connect(live)) as connection:
        connection.execute(_sql.attach_green, {"file": str(green)})
        dialect = sqlite_dialect(identity.consumer)

        def exchange() -> T:
            if not identity.made(_found(connection)):
                raise StoreReplaced(f"{live} was taken over by another version")
            for creation in creations:
                connection.execute(_sql[creation])
            return work(ExchangeTransaction(connection, identity.consumer, dialect, "green"))

        return _within(connection, _sql.begin, exchange)


def write_beside[T](live: Path, identity: Identity, work: Callable[[SqliteTransaction], T]) -> T:
    """Run `work` in one durable transaction on the live file, beside the process that writes everything else there.

    Raises what `work` raises, StoreReplaced when something else than `identity` made the file, and `sqlite3.Error`.
    """
    with closing(_connect(live)) as connection:

        def write() -> T:
            if not identity.made(_found(connection)):
                raise StoreReplaced(f"{live} was taken over by another version")
            return work(SqliteTransaction(connection, identity.consumer))

        return _within(connection, _sql.begin, write)


def _connect(path: Path) -> sqlite3.Connection:
    connection = sqlite3.connect(path, timeout=busy_seconds, isolation_level=None, cached_statements=cached_statements)
    try:
        connection.execute(_sql.set_journal)
        connection.execute(_sql.set_synchronous)
    except BaseException:
        connection.close()
        raise
    return connection


def _within[T](connection: sqlite3.Connection, begin: str, work: Callable[[], T]) -> T:
    """Begin, work, commit; or roll back."""
    connection.execute(begin)
    try:
        result = work()
        connection.commit()
    except BaseException:
        connection.rollback()
        raise
    return result


def _prepare(connection: sqlite3.Connection, identity: Identity) -> None:
    """Discard what another version made; create what is missing."""
    consumer = identity.consumer
    check_names(consumer)
    for table in identity.outdated(_found(connection), [str(name) for (name,) in connection.execute(_sql.list_tables)]):
        connection.execute(_sql.drop_table.format(table=table))
    for table in retired_tables:
        connection.execute(_sql.drop_table.format(table=table))
    for creation in creations:
        connection.execute(_sql[creation])
    for creation in consumer.tables.values():
        connection.execute(consumer.statements[creation])
    connection.execute(_sql.write_meta, identity.row())
    connection.execute(_sql.begin_edition, {"edition": uuid.uuid4().hex})


def _found(connection: sqlite3.Connection) -> tuple[object, ...] | None:
    """The row of `read_meta`, or None when there is no such table, or one of unknown shape."""
    try:
        found: tuple[object, ...] | None = connection.execute(_sql.read_meta).fetchone()
    except sqlite3.OperationalError:
        return None
    return found
