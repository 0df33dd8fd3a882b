"""PostgreSQL arrays in binary form, made in one pass: bulk statements take whole columns (`unnest`).

psycopg dumps a list item by item through its adapters; for columns of hundreds of values that costs more than the
statement. The layout is that of `array_recv`: dimensions, null flag, element type, length, lower bound, then each
item after its length (-1 for NULL).
"""

import struct
from collections.abc import Callable, Iterable
from datetime import UTC, datetime
from typing import Any, ClassVar, Final

import psycopg
from psycopg import pq
from psycopg.abc import Buffer
from psycopg.adapt import Dumper

_header: Final = struct.Struct(">iiIii").pack
_length: Final = struct.Struct(">i").pack
_null: Final = _length(-1)
_smallint: Final = struct.Struct(">h").pack
_integer: Final = struct.Struct(">i").pack
_bigint: Final = struct.Struct(">q").pack
_epoch: Final = datetime(2000, 1, 1, tzinfo=UTC)


class Column(list[Any]):
    """A list that travels as one array parameter; take the subclass of its element type."""

    element_oid: ClassVar[int]
    array_oid: ClassVar[int]


class TextColumn(Column):
    """`text[]` of str or None."""

    element_oid, array_oid = 25, 1009


class BytesColumn(Column):
    """`bytea[]` of bytes."""

    element_oid, array_oid = 17, 1001


class SmallintColumn(Column):
    """`smallint[]` of int."""

    element_oid, array_oid = 21, 1005


class IntegerColumn(Column):
    """`integer[]` of int."""

    element_oid, array_oid = 23, 1007


class BigintColumn(Column):
    """`bigint[]` of int."""

    element_oid, array_oid = 20, 1016


class TimestampColumn(Column):
    """`timestamptz[]` of aware datetimes."""

    element_oid, array_oid = 1184, 1185


def _microseconds(moment: datetime) -> bytes:
    since = moment - _epoch
    return _bigint((since.days * 86_400 + since.seconds) * 1_000_000 + since.microseconds)


_encoders: Final[dict[type[Column], Callable[[Any], bytes]]] = {
    TextColumn: str.encode,
    BytesColumn: bytes,
    SmallintColumn: _smallint,
    IntegerColumn: _integer,
    BigintColumn: _bigint,
    TimestampColumn: _microseconds,
}


def array_bytes(column: Column) -> bytes:
    """The binary form of a column. Raises struct.error for an integer beyond its type, AttributeError for no text."""
    if not column:
        return _header(0, 0, column.element_oid, 0, 1)[:12]
    encode = _encoders[type(column)]
    parts = [_header(1, int(None in column), column.element_oid, len(column), 1)]
    parts.extend(_items(encode, column))
    return b"".join(parts)


def _items(encode: Callable[[Any], bytes], column: Iterable[Any]) -> Iterable[bytes]:
    for item in column:
        if item is None:
            yield _null
        else:
            encoded = encode(item)
            yield _length(len(encoded))
            yield encoded


def _dumper(column: type[Column]) -> type[Dumper]:
    class ColumnDumper(Dumper):
        format = pq.Format.BINARY
        oid = column.array_oid

        def dump(self, obj: Any) -> Buffer:
            return array_bytes(obj)

    return ColumnDumper


for _column in _encoders:
    psycopg.adapters.register_dumper(_column, _dumper(_column))
