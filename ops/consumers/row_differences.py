"""Which rows of one Group differ between two stores of a projection, whatever kinds of stores they are."""

import sqlite3
from collections.abc import Iterable, Iterator, Mapping
from contextlib import closing

from msgspec import Struct

from projections.consumer import Consumer
from projections.digest import PlainValue, plain
from projections.store import Transaction
from services.process.statements import load

sql = load(__package__)

type PlainRow = dict[str, PlainValue]
type KeyedRows = dict[tuple[str, tuple[PlainValue, ...]], PlainRow]
"""Rows by table and key."""


class RowDifference(Struct, frozen=True, kw_only=True, rename="camel"):
    """One row. `key` are the columns that name it; `live` and `replayed` those that differ, null for no such row."""

    group_id: str
    table: str
    key: PlainRow
    live: PlainRow | None
    replayed: PlainRow | None


def key_columns(consumer: Consumer) -> dict[str, tuple[str, ...]]:
    """The columns of each table's primary key, all of them being empty for a table without one."""
    with closing(sqlite3.connect(":memory:")) as database:
        for creation in consumer.tables.values():
            database.execute(consumer.statements[creation])
        return {
            table: tuple(name for (name,) in database.execute(sql.read_key_columns, {"table": table}))
            for table in consumer.tables
        }


def keyed_rows(transaction: Transaction, consumer: Consumer, group_id: str) -> KeyedRows:
    """A Group's rows in all tables that are made of Events alone."""
    found: KeyedRows = {}
    keys = key_columns(consumer)
    for table in sorted(consumer.tables.keys() - consumer.intent_tables):
        columns, rows = transaction.rows(table, group_id)
        for row in rows:
            named = {column: plain(value) for column, value in zip(columns, row, strict=True)}
            key = tuple(named[column] for column in keys[table] or columns)
            found[table, key] = named
    return found


def row_differences(consumer: Consumer, group_id: str, live: KeyedRows, replayed: KeyedRows) -> list[RowDifference]:
    """The rows that differ, by table and key."""
    keys = key_columns(consumer)
    return list(_differing(keys, group_id, live, replayed))


def _differing(
    keys: Mapping[str, tuple[str, ...]], group_id: str, live: KeyedRows, replayed: KeyedRows
) -> Iterator[RowDifference]:
    for table, key in sorted(live.keys() | replayed.keys(), key=repr):
        ours, theirs = live.get((table, key)), replayed.get((table, key))
        if ours == theirs:
            continue
        row = ours or theirs or {}
        changed = [column for column in row if ours is None or theirs is None or ours[column] != theirs[column]]
        yield RowDifference(
            group_id=group_id,
            table=table,
            key={column: row[column] for column in keys[table] or row},
            live=_only(ours, changed),
            replayed=_only(theirs, changed),
        )


def _only(row: PlainRow | None, columns: Iterable[str]) -> PlainRow | None:
    return None if row is None else {column: row[column] for column in columns}
