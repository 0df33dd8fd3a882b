"""A projection in one SQLite file: a Worker's own store, which survives without the authority.

The writer and the reader each have one connection in one thread of their own. What a crash leaves behind is the last
commit (WAL, `synchronous = FULL`); everything else is delivered or replayed again.
"""

import asyncio
import re
import sqlite3
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import MappingProxyType
from typing import Any, Final

import msgspec

from contracts.chain import ChainHash
from contracts.cursor import Cursor
from contracts.identifiers import GroupSequence, ShardId, ShardPosition
from projections.consumer import Consumer, Row, Statement, Value
from projections.store import (
    AppliedEvent,
    CursorMoved,
    Fork,
    StatementRefused,
    Stop,
    StreamPosition,
    forks_kept_max,
    remembered_pairs_max,
)
from services.process.statements import load

store_version: Final = 1
"""Version of the tables that this module makes, apart from those of the consumer."""
busy_seconds: Final = 5.0
"""Seconds that a transaction waits for another process's write lock on the same file."""
cached_statements: Final = 256
"""Prepared statements kept per connection."""

_creations: Final = (
    "create_projection_meta",
    "create_projection_cursor",
    "create_projection_applied",
    "create_projection_known_head",
    "create_projection_stop",
    "create_projection_position",
    "create_projection_fork",
    "create_projection_counter",
)
_lasting_tables: Final = ("projection_fork", "projection_counter")
"""What stays when the consumer's version changes: a report of something that no longer exists."""

_sql: Final = load(__package__)
_words: Final = re.compile(r"\w+")
_in_place: Final[Mapping[str, str]] = MappingProxyType({})
"""No statement's table is known: all keep their places, as it is for who only reads."""


class SqliteTransaction:
    """`projections.store.Transaction` on one SQLite connection."""

    def __init__(
        self, connection: sqlite3.Connection, consumer: Consumer, table_of: Mapping[str, str] = _in_place
    ) -> None:
        """Speak for `consumer` on a connection whose transaction has begun.

        `table_of` gives the table of each statement that names only one; a statement without keeps its place.
        """
        self._connection = connection
        self._consumer = consumer
        self._table_of = table_of

    def _all(self, name: str, **parameters: Value) -> list[Any]:
        return self._connection.execute(_sql[name], parameters).fetchall()

    def _one(self, name: str, **parameters: Value) -> Any:
        return self._connection.execute(_sql[name], parameters).fetchone()

    def _change(self, statement: str, /, **parameters: Any) -> int:
        return self._connection.execute(_sql[statement], parameters).rowcount

    def run(self, statements: Iterable[Statement]) -> None:
        """Execute statements, those of one table in order, so that neighbours of one name go together."""
        runs: dict[str, list[tuple[str, list[Mapping[str, Value]]]]] = {}
        growing: dict[str, list[Mapping[str, Value]]] = {}
        for name, parameters in statements:
            batch = growing.get(name)
            if batch is not None:
                batch.append(parameters)
                continue
            table = self._table_of.get(name)
            if table is None:
                self._run_all(runs)
                growing.clear()
                self._run_batch(name, [parameters])
                continue
            of_table = runs.setdefault(table, [])
            if of_table:
                del growing[of_table[-1][0]]
            growing[name] = [parameters]
            of_table.append((name, growing[name]))
        self._run_all(runs)

    def _run_all(self, runs: dict[str, list[tuple[str, list[Mapping[str, Value]]]]]) -> None:
        for of_table in runs.values():
            for name, batch in of_table:
                self._run_batch(name, batch)
        runs.clear()

    def _run_batch(self, name: str, batch: Sequence[Mapping[str, Value]]) -> None:
        try:
            self._connection.executemany(self._consumer.statements[name], batch)
        except (sqlite3.IntegrityError, sqlite3.DataError, sqlite3.InterfaceError, sqlite3.ProgrammingError) as fault:
            raise StatementRefused(f"{self._consumer.name}: statement {name} was refused: {fault}") from fault

    def query(self, name: str, parameters: Mapping[str, Value]) -> list[Row]:
        """All rows of a reading statement of the consumer."""
        return self._connection.execute(self._consumer.statements[name], parameters).fetchall()

    def rows(self, table: str, group_id: str) -> tuple[tuple[str, ...], list[Row]]:
        """The column names and rows of one Group in one table of the consumer."""
        if table not in self._consumer.tables:
            raise ValueError(f"{table} is no table of {self._consumer.name}")
        found = self._connection.execute(_sql.read_rows.format(table=table), {"group_id": group_id})
        return tuple(column[0] for column in found.description), found.fetchall()

    def cursor(self, group_id: str) -> Cursor | None:
        """The Cursor of a Group."""
        row = self._one("read_cursor", group_id=group_id)
        return None if row is None else Cursor(*row)

    def cursors(self) -> list[Cursor]:
        """All Cursors."""
        return [Cursor(*row) for row in self._all("read_cursors")]

    def move_cursor(self, before: Cursor | None, after: Cursor) -> None:
        """Compare and set."""
        place = msgspec.structs.asdict(after)
        if before is None:
            changed = self._change("insert_cursor", **place)
        else:
            expected = {"sequence_before": before.sequence, "chain_hash_before": before.chain_hash}
            changed = self._change("update_cursor", **place, **expected)
        if changed != 1:
            raise CursorMoved(f"{self._consumer.name}: the Cursor of {after.group_id} moved under this transaction")

    def remember(self, group_id: str, applied: Sequence[AppliedEvent]) -> None:
        """Write the newest into the ring."""
        self._connection.executemany(
            _sql.remember,
            [
                {
                    "group_id": group_id,
                    "slot": event.sequence % remembered_pairs_max,
                    "sequence": event.sequence,
                    "chain_hash": event.chain_hash,
                    "event_id": event.event_id,
                }
                for event in applied[-remembered_pairs_max:]
            ],
        )

    def remembered(self, group_id: str, sequence: GroupSequence) -> ChainHash | None:
        """The chain hash applied at a sequence, if the ring still holds it."""
        slot = sequence % remembered_pairs_max
        row = self._one("read_remembered", group_id=group_id, slot=slot, sequence=sequence)
        return None if row is None else ChainHash(row[0])

    def all_remembered(self, group_id: str) -> list[AppliedEvent]:
        """The ring of a Group in sequence."""
        return [AppliedEvent(*row) for row in self._all("read_all_remembered", group_id=group_id)]

    def note_head(self, group_id: str, sequence: GroupSequence) -> None:
        """Raise what is known of a Group's head."""
        self._change("note_head", group_id=group_id, sequence=sequence)

    def settle_head(self, group_id: str, sequence: GroupSequence) -> None:
        """Set what is known of a Group's head."""
        self._change("settle_head", group_id=group_id, sequence=sequence)

    def heads_ahead(self) -> list[tuple[str, GroupSequence]]:
        """Groups known to reach beyond their Cursor."""
        return self._all("read_heads_ahead")

    def stop(self, stop: Stop) -> None:
        """Keep why a Group cannot go on."""
        self._change("write_stop", **msgspec.structs.asdict(stop))

    def resume(self, group_id: str) -> None:
        """Forget why a Group could not go on."""
        self._change("delete_stop", group_id=group_id)

    def stops(self) -> list[Stop]:
        """All Groups that cannot go on."""
        return [Stop(*row) for row in self._all("read_stops")]

    def reset_group(self, group_id: str) -> None:
        """Remove all of a Group except its forks."""
        per_group = ("projection_cursor", "projection_applied", "projection_known_head", "projection_stop")
        for table in (*self._consumer.tables, *per_group):
            self._connection.execute(_sql.delete_rows.format(table=table), {"group_id": group_id})

    def record_fork(self, fork: Fork) -> None:
        """Keep a fork; the oldest of the Group gives way beyond the bound."""
        self._change(
            "record_fork",
            group_id=fork.group_id,
            seen_incarnation=fork.seen.incarnation,
            seen_sequence=fork.seen.sequence,
            seen_chain_hash=fork.seen.chain_hash,
            found_incarnation=fork.found.incarnation,
            found_sequence=fork.found.sequence,
            found_chain_hash=fork.found.chain_hash,
            lost_events=msgspec.json.encode(fork.lost).decode(),
        )
        self._change("delete_old_forks", group_id=fork.group_id, kept=forks_kept_max)

    def forks(self) -> list[Fork]:
        """All recorded forks, oldest first."""
        return [_fork(row) for row in self._all("read_forks")]

    def count(self, name: str, amount: int) -> None:
        """Add to a durable counter."""
        self._change("count", name=name, amount=amount)

    def counts(self) -> dict[str, int]:
        """All durable counters."""
        return dict(self._all("read_counts"))

    def position(self, shard_id: ShardId) -> StreamPosition | None:
        """How far an unfiltered delivery is processed."""
        row = self._one("read_position", shard_id=shard_id)
        return None if row is None else StreamPosition(ShardId(row[0]), row[1], ShardPosition(row[2]))

    def move_position(self, position: StreamPosition) -> None:
        """Keep how far an unfiltered delivery is processed."""
        self._change("write_position", **msgspec.structs.asdict(position))


def _fork(row: Any) -> Fork:
    group_id, *places, lost = row
    return Fork(
        group_id,
        Cursor(places[0], group_id, places[1], places[2]),
        Cursor(places[3], group_id, places[4], places[5]),
        msgspec.json.decode(lost, type=tuple[AppliedEvent, ...]),
    )


class SqliteStore:
    """`projections.store.ProjectionStore` in one SQLite file. Open it with `SqliteStore.open`."""

    def __init__(self, path: Path, consumer: Consumer, organization_id: str) -> None:
        """Describe a store; nothing is opened yet."""
        self.consumer: Final = consumer
        self.organization_id: Final = organization_id
        self._path = path
        self._table_of = _tables_of(consumer)
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
        self._in_transaction(self._writing, _sql.begin, lambda _: _prepare(self._writing, self._identity()))

    def _open_reading(self) -> None:
        self._reading = self._connect()
        self._reading.execute(_sql.set_read_only)

    def _identity(self) -> "_Identity":
        return _Identity(self.consumer, self.organization_id)

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


def _tables_of(consumer: Consumer) -> dict[str, str]:
    """The table of each statement that names exactly one of the consumer's tables."""
    tables: dict[str, str] = {}
    for name, sql in consumer.statements.items():
        named = set(_words.findall(sql)) & consumer.tables.keys()
        if len(named) == 1:
            tables[name] = named.pop()
    return tables


class _Identity(msgspec.Struct, frozen=True):
    """What the rows of a file must have been made by."""

    consumer: Consumer
    organization_id: str

    def row(self) -> dict[str, Value]:
        return {
            "store_version": store_version,
            "consumer": self.consumer.name,
            "version": self.consumer.version,
            "variant": self.consumer.variant,
            "organization_id": self.organization_id,
        }


def _prepare(connection: sqlite3.Connection, identity: _Identity) -> None:
    """Discard what another version made; create what is missing."""
    consumer = identity.consumer
    strangers = [table for table in consumer.tables if not table.startswith(f"{consumer.name}_")]
    if strangers:
        raise ValueError(f"tables of {consumer.name} must begin with {consumer.name}_: {strangers}")
    for table in _outdated(connection, identity):
        connection.execute(_sql.drop_table.format(table=table))
    for creation in _creations:
        connection.execute(_sql[creation])
    for creation in consumer.tables.values():
        connection.execute(consumer.statements[creation])
    connection.execute(_sql.write_meta, identity.row())


def _outdated(connection: sqlite3.Connection, identity: _Identity) -> list[str]:
    """The tables that were made by something else than what is opened now.

    Tables that belong to neither a consumer nor a store (a Worker's own) are never touched. Forks and counters stay
    as long as this version of the store can read them and the Organization is the same.
    """
    expected = tuple(identity.row().values())
    try:
        found = connection.execute(_sql.read_meta).fetchone()
    except sqlite3.OperationalError:  # no such table, or one of unknown shape
        found = None
    if found == expected:
        return []
    prefixes = {f"{identity.consumer.name}_", "projection_"}
    kept: tuple[str, ...] = ()
    if found is not None:
        prefixes.add(f"{found[1]}_")
        if (found[0], found[4]) == (expected[0], expected[4]):
            kept = _lasting_tables
    present = [str(name) for (name,) in connection.execute(_sql.list_tables)]
    return [name for name in present if name.startswith(tuple(prefixes)) and name not in kept]
