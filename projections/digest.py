"""The digest of a projection's rows, Group by Group: what shows that a rebuilt projection equals the live one.

Rows are taken as objects in canonical JSON, sorted, table by table; neither their order in the store nor the store's
kind matters. Source: MWP-WRK-008, NEW-4.
"""

import hashlib

from msgspec import Struct

from contracts.canonical import canonical_bytes
from projections.consumer import Consumer, Row, Value
from projections.store import Transaction

type PlainValue = str | int | None
"""A column's value as JSON has it."""


class GroupDigest(Struct, frozen=True, rename="camel"):
    """Digests compare only at the same place: `chain_hash` is lower-case hex, `digest` is `sha256:` and hex."""

    group_id: str
    sequence: int
    chain_hash: str
    digest: str


def projection_digests(transaction: Transaction, consumer: Consumer) -> tuple[GroupDigest, ...]:
    """The digest of every Group that has a Cursor, in the order of Group IDs."""
    return tuple(
        GroupDigest(
            cursor.group_id,
            cursor.sequence,
            cursor.chain_hash.hex(),
            rows_digest(transaction, consumer, cursor.group_id),
        )
        for cursor in sorted(transaction.cursors(), key=lambda cursor: cursor.group_id)
    )


def rows_digest(transaction: Transaction, consumer: Consumer, group_id: str) -> str:
    """The digest of one Group's rows in all tables of the consumer that are made of Events alone."""
    whole = hashlib.sha256()
    for table in sorted(consumer.tables.keys() - consumer.intent_tables):
        columns, rows = transaction.rows(table, group_id)
        whole.update(canonical_bytes(table))
        for encoded in sorted(_encoded(columns, row) for row in rows):
            whole.update(b"\n" + encoded)
        whole.update(b"\n\n")
    return f"sha256:{whole.hexdigest()}"


def _encoded(columns: tuple[str, ...], row: Row) -> bytes:
    return canonical_bytes({column: plain(value) for column, value in zip(columns, row, strict=True)})


def plain(value: Value) -> PlainValue:
    """A column's value as JSON has it; bytes are lower-case hex."""
    return value.hex() if isinstance(value, bytes) else value
