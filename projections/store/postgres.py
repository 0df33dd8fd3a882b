"""A projection in a schema of its own in PostgreSQL: a read model of the server's side (PRJ-2).

Authoritative here: nothing; the database may be lost, or come back as it was earlier. It is not the authority's, even
where the server is the same one.

One process writes a projection at a time: its connection holds a session lock, and every transaction runs on that very
connection, so that there is none without the lock. Another process waits for it, as a standby. Should both write all
the same (through a pooler that shares connections, which is not supported), the Cursor's compare-and-set lets one
transaction pass.

What a crash or a lost connection leaves behind:
- before the commit: nothing of the transaction; it is run again once the connection is back.
- in the commit: each transaction leaves its name in the schema. The lock is taken again before the name is read, so
  the server has ended whatever was on its way, and the name tells what became of it.
- another process wrote meanwhile, or an older state came back: the name is neither of the two that it could be. That
  is StoreReplaced; a process that begins anew goes on from what it finds.
"""

import hashlib
import uuid
from collections.abc import Callable
from typing import Final

import psycopg
from psycopg import sql

from projections.consumer import Consumer
from projections.store import StoreReplaced
from projections.store.exchange import ExchangeTransaction
from projections.store.layout import Identity, check_names, creations, retired_tables, tables_of
from projections.store.postgres_dialect import as_postgres
from projections.store.postgres_session import Connection, HeldElsewhere, PostgresSession
from projections.store.sql_transaction import Dialect, SqlTransaction
from services.process.statements import load

schema_characters_max: Final = 63
"""Characters of a name in PostgreSQL."""

_sql: Final = {name: as_postgres(text) for name, text in load(__package__, "postgres").items()}
_refusing_classes: Final = ("0A", "21", "22", "23", "2F", "38", "39", "42", "44", "54", "P0")
"""SQLSTATE classes of what is wrong with a statement or its values; 54 is a limit, such as that of an index's entry."""
_not_allowed: Final = "42501"
"""A right that the role lacks: the same for every Event."""


def _refuses(fault: Exception) -> bool:
    """Whether the statement or its values are at fault, and not the server, the connection or another session."""
    if not isinstance(fault, psycopg.Error):
        return isinstance(fault, OverflowError | UnicodeError)
    if fault.sqlstate is None:
        return isinstance(fault, psycopg.DataError | psycopg.ProgrammingError)
    return fault.sqlstate[:2] in _refusing_classes and fault.sqlstate != _not_allowed


def schema_of(consumer: Consumer, organization_id: str) -> str:
    """The schema of a consumer of an Organization: `projection_<name>_` and 12 hex digits of whose it is."""
    whose = hashlib.sha256(f"{organization_id}\n{consumer.variant}".encode()).hexdigest()[:12]
    schema = f"projection_{consumer.name}_{whose}"
    if len(schema) > schema_characters_max:
        raise ValueError(f"{schema} has {len(schema)} characters, at most {schema_characters_max}")
    return schema


def postgres_dialect(consumer: Consumer, *, reorders: bool) -> Dialect:
    """How PostgreSQL takes the statements of the stores and of a consumer; who only reads reorders none."""
    statements = {name: as_postgres(text) for name, text in consumer.statements.items()}
    return Dialect(_sql, statements, _refuses, tables_of(consumer) if reorders else {})


def enter_schema(connection: Connection, schema: str) -> None:
    """Let unqualified names mean those of a projection's schema; see `sql/postgres/set_session.sql`."""
    search_path = sql.Identifier(schema).as_string(connection)
    connection.execute(_sql["set_session"], {"search_path": search_path})


def find_schema(connection: Connection, schema: str) -> bool:
    """Whether a database has a schema."""
    return connection.execute(_sql["find_schema"], {"schema": schema}).fetchone() is not None


def list_projections(connection: Connection) -> list[str]:
    """The schemas of a database that hold projections, whosever they are."""
    return [str(name) for (name,) in connection.execute(_sql["list_projections"], {})]


def lock_projection(connection: Connection, name: str) -> bool:
    """Take the session lock of a schema's writer, or one of another name, without waiting; whether it is ours."""
    return connection.execute(_sql["try_writer_lock"], {"schema": name}).fetchone() == (True,)


def exchange_schema[T](
    connection: Connection, schemas: tuple[str, str], identity: Identity, work: Callable[[ExchangeTransaction], T]
) -> T:
    """Run `work` in one transaction on the live schema (the first) with the green one (the second) beside it.

    Raises what `work` raises, StoreReplaced when something else than `identity` made the live schema, and
    `psycopg.Error`.
    """
    live, green = schemas
    enter_schema(connection, live)
    dialect = postgres_dialect(identity.consumer, reorders=False)
    with connection.transaction():
        if not identity.made(connection.execute(_sql["read_meta"], {}).fetchone()):
            raise StoreReplaced(f"{live} was taken over by another version")
        for creation in creations:
            connection.execute(_sql[creation].encode(), {})
        qualifier = sql.Identifier(green).as_string(connection)
        return work(ExchangeTransaction(connection, identity.consumer, dialect, qualifier))


def write_beside_schema[T](
    connection: Connection, live: str, identity: Identity, work: Callable[[SqlTransaction], T]
) -> T:
    """Run `work` in one transaction on the live schema, beside the process that writes everything else there.

    Its rows are not exchanged meanwhile, and of several such transactions one runs after another. Raises what `work`
    raises, StoreReplaced when something else than `identity` made the schema, and `psycopg.Error`.
    """
    enter_schema(connection, live)
    with connection.transaction():
        if not identity.made(connection.execute(_sql["read_meta"], {}).fetchone()):
            raise StoreReplaced(f"{live} was taken over by another version")
        connection.execute(_sql["hold_edition"], {})
        connection.execute(_sql["hold_decisions"], {})
        return work(SqlTransaction(connection, identity.consumer, postgres_dialect(identity.consumer, reorders=False)))


def drop_schema(connection: Connection, schema: str) -> None:
    """Remove a schema with everything in it, if it is there."""
    connection.execute(sql.SQL(_sql["drop_schema"]).format(schema=sql.Identifier(schema)))


class _Attempt[T]:
    """One transaction under the name by which its commit is recognised, however often it is run."""

    def __init__(self, work: Callable[[SqlTransaction], T]) -> None:
        self.work = work
        self.name = uuid.uuid4().hex
        self.results: list[T] = []
        """What the work returned before its latest commit."""


class PostgresStore:
    """`projections.store.ProjectionStore` in one PostgreSQL schema.

    It connects at the first use, and waits while the server is away or another process writes: `problem` says so.
    """

    def __init__(self, url: str, consumer: Consumer, organization_id: str, schema: str | None = None) -> None:
        """Describe a store at a database's URL, in `schema_of` consumer and Organization by default.

        Raises ValueError for tables or a schema that cannot be named so.
        """
        check_names(consumer)
        self.consumer: Final = consumer
        self.organization_id: Final = organization_id
        self.schema: Final = schema or schema_of(consumer, organization_id)
        self._dialect = postgres_dialect(consumer, reorders=True)
        self._writer = PostgresSession(url, f"{consumer.name}-writer", self._begin_writing)
        self._reader = PostgresSession(url, f"{consumer.name}-reader", self._begin_reading)
        self._committed: str | None = None
        """The name of the last transaction that is known to be committed; None before the first connection."""
        self._in_doubt: str | None = None
        """The name of the transaction whose commit was begun last."""
        self._edition = ""
        """The name of the rows that were opened."""

    @classmethod
    async def open(
        cls, url: str, consumer: Consumer, organization_id: str, schema: str | None = None
    ) -> "PostgresStore":
        """A store that is ready: the lock is held, and what another version made is discarded (PRJ-4)."""
        store = cls(url, consumer, organization_id, schema)
        try:
            await store.transaction(_nothing)
        except BaseException:
            await store.close()
            raise
        return store

    @property
    def problem(self) -> str | None:
        """Why nothing can be written or read at the moment, or None."""
        return self._writer.problem or self._reader.problem

    async def transaction[T](self, work: Callable[[SqlTransaction], T]) -> T:
        """Run `work` in one durable transaction, after those before it, anew as long as a fault is transient.

        Raises what `work` raises, EditionReplaced, StoreReplaced, and `psycopg.Error` for a fault that stays.
        """
        attempt = _Attempt(work)
        return await self._writer.run(lambda connection: self._commit(connection, attempt))

    async def read[T](self, work: Callable[[SqlTransaction], T]) -> T:
        """Run `work` on one snapshot, beside the writer. Writing raises `psycopg.ProgrammingError`."""
        if self._committed is None:
            await self.transaction(_nothing)
        return await self._reader.run(lambda connection: self._look(connection, work))

    async def reopen(self) -> None:
        """Go on with the rows that are there now. Raises StoreReplaced when something else made them."""
        await self._writer.run(self._open_edition)

    async def close(self) -> None:
        """Let the transaction in progress end, then close both connections."""
        await self._reader.close()
        await self._writer.close()

    def _commit[T](self, connection: Connection, attempt: _Attempt[T]) -> T:
        if self._committed != attempt.name:
            with connection.transaction():
                transaction = SqlTransaction(connection, self.consumer, self._dialect)
                transaction.hold_edition(self._edition)
                attempt.results = [attempt.work(transaction)]
                connection.execute(_sql["name_transaction"], {"name": attempt.name})
                self._in_doubt = attempt.name
            self._committed = attempt.name
        return attempt.results[0]

    def _look[T](self, connection: Connection, work: Callable[[SqlTransaction], T]) -> T:
        try:
            with connection.transaction():
                return work(SqlTransaction(connection, self.consumer, self._dialect))
        except psycopg.errors.ReadOnlySqlTransaction as fault:
            # Of a server this would mean a standby, which is waited for; here it is the work that is wrong.
            raise psycopg.ProgrammingError(f"a snapshot of {self.schema} cannot be written") from fault

    def _begin_reading(self, connection: Connection) -> None:
        enter_schema(connection, self.schema)
        connection.isolation_level = psycopg.IsolationLevel.REPEATABLE_READ
        connection.read_only = True

    def _begin_writing(self, connection: Connection) -> None:
        """Take the lock, then make the tables; or, after a lost connection, see what became of the last commit."""
        enter_schema(connection, self.schema)
        self._lock(connection)
        if self._committed is None:
            with connection.transaction():
                self._prepare(connection)
            self._open_edition(connection)
        last = self._last_transaction(connection)
        if self._committed is not None and last not in (self._committed, self._in_doubt):
            raise StoreReplaced(
                f"{self.schema} was written by another process, or restored to an earlier state, while the connection "
                "was lost; start again to go on from what it holds"
            )
        self._committed = last

    def _open_edition(self, connection: Connection) -> None:
        if not Identity(self.consumer, self.organization_id).made(self._found(connection)):
            raise StoreReplaced(f"{self.schema} was taken over by another version; stop this one")
        self._edition = connection.execute(_sql["hold_edition"], {}).fetchall()[0][0]

    def _last_transaction(self, connection: Connection) -> str | None:
        try:
            row = connection.execute(_sql["read_last_transaction"], {}).fetchone()
        except psycopg.errors.UndefinedTable:
            return None
        return None if row is None else str(row[0])

    def _lock(self, connection: Connection) -> None:
        if not lock_projection(connection, self.schema):
            holder = connection.execute(_sql["read_writer_lock_holder"], {"schema": self.schema}).fetchone()
            whose = "which has just ended" if holder is None else "PID {} of the server, {} on {}".format(*holder)
            raise HeldElsewhere(f"{self.schema} is written by another process ({whose}); this one waits for its end")

    def _prepare(self, connection: Connection) -> None:
        """Discard what another version made; create what is missing."""
        identity = Identity(self.consumer, self.organization_id)
        if not find_schema(connection, self.schema):
            connection.execute(sql.SQL(_sql["create_schema"]).format(schema=sql.Identifier(self.schema)))
        present = [str(name) for (name,) in connection.execute(_sql["list_tables"], {})]
        for table in (*identity.outdated(self._found(connection), present), *retired_tables):
            connection.execute(sql.SQL(_sql["drop_table"]).format(table=sql.Identifier(table)))
        statements = [_sql[name] for name in (*creations, "create_projection_writer")]
        statements += [self._dialect.consumer[name] for name in self.consumer.tables.values()]
        for creation in statements:
            connection.execute(creation.encode(), {})
        connection.execute(_sql["write_meta"], identity.row())
        connection.execute(_sql["begin_writer"], {"name": uuid.uuid4().hex})
        connection.execute(_sql["begin_edition"], {"edition": uuid.uuid4().hex})

    def _found(self, connection: Connection) -> tuple[object, ...] | None:
        """The row of `read_meta`, or None when there is no such table, or one of unknown shape."""
        try:
            with connection.transaction():
                return connection.execute(_sql["read_meta"], {}).fetchone()
        except psycopg.ProgrammingError:
            return None


def _nothing(_transaction: SqlTransaction) -> None:
    """Change nothing."""
