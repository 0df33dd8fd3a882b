"""Columns in binary form mean to PostgreSQL what lists mean."""

import struct
from datetime import UTC, datetime
from typing import Any

import pytest

from services.process.arrays import (
    BigintColumn,
    BytesColumn,
    Column,
    IntegerColumn,
    SmallintColumn,
    TextColumn,
    TimestampColumn,
    array_bytes,
)
from services.process.database import connect


@pytest.mark.parametrize(
    ("column", "cast"),
    [
        (TextColumn(["", "a", 'quote " and \\', "é😀", None]), "text"),
        (BytesColumn([b"", b"\0\xff", None]), "bytea"),
        (SmallintColumn([-32768, 0, 32767]), "smallint"),
        (IntegerColumn([-(2**31), 2**31 - 1]), "integer"),
        (BigintColumn([-(2**63), 2**63 - 1]), "bigint"),
        (TimestampColumn([datetime(1999, 12, 31, 23, 59, 59, 999999, tzinfo=UTC)]), "timestamptz"),
        (TextColumn(), "text"),
    ],
    ids=lambda value: type(value).__name__ if isinstance(value, Column) else value,
)
async def test_a_column_comes_back_as_it_went(column: Column, cast: str, database_url: str) -> None:
    """ACC-5: every value of a bulk statement reaches the database unchanged."""
    async with await connect(database_url, name="test") as connection:
        cursor = await connection.execute(f"SELECT %(column)s::{cast}[]", {"column": column})
        row: Any = await cursor.fetchone()
    assert row[0] == list(column)


def test_a_number_beyond_its_type_is_refused() -> None:
    """ACC-5: nothing is truncated on its way."""
    with pytest.raises(struct.error):
        array_bytes(SmallintColumn([32768]))
