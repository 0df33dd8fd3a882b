"""How far everyone is: the authority's heads, what Principals acknowledged, a local projection's Cursors (PRJ-3)."""

import sqlite3
from collections.abc import Sequence
from contextlib import closing
from enum import Enum
from pathlib import Path
from typing import Any, Final

from msgspec import Struct
from psycopg import AsyncConnection

from contracts.chain import ChainHash, chain_start
from contracts.cursor import Cursor
from contracts.identifiers import GroupSequence
from contracts.payloads.requests import GroupHead
from contracts.timestamps import format_timestamp
from ops.projection_file import NotAProjection
from ops.projection_place import ProjectionPlace, open_place
from services.process.statements import load

cursors_in_page_max: Final = 1_000
"""Cursors of a projection compared in one statement."""

sql = load(__package__)
projection_sql = load("projections.store")


class AcknowledgedLine(Struct, frozen=True, kw_only=True, rename="camel"):
    """What one Principal says it has durably applied; `behind` counts the Events after it."""

    principal: str
    incarnation: str
    sequence: int
    chain_hash: str
    behind: int
    acknowledged_at: str


class GroupLine(Struct, frozen=True, kw_only=True, rename="camel"):
    """One Group's head and who acknowledged how far."""

    group_id: str
    shard_id: int
    head: GroupHead
    acknowledged: tuple[AcknowledgedLine, ...]


class Verdict(Enum):
    """How a Cursor stands to the authority's history."""

    LEVEL = "level"
    BEHIND = "behind"
    AHEAD = "ahead"
    """Beyond the head: the authority lost what this Cursor has seen."""
    FORK = "fork"
    """The log has another Event there: this Cursor belongs to another history."""
    UNKNOWN_GROUP = "unknown group"

    @property
    def is_finding(self) -> bool:
        """Whether someone should look."""
        return self not in (Verdict.LEVEL, Verdict.BEHIND)


class CursorLine(Struct, frozen=True, kw_only=True, rename="camel"):
    """One Cursor of a projection; `behind` counts the Events after it, null when it is not on this history."""

    group_id: str
    incarnation: str
    sequence: int
    chain_hash: str
    verdict: Verdict
    behind: int | None


class CursorReport(Struct, frozen=True, kw_only=True, rename="camel"):
    """One page of Groups (`next` is the following --after, null at the end) and all Cursors of the projection."""

    groups: tuple[GroupLine, ...]
    next: str | None
    projection: tuple[CursorLine, ...] | None


async def read_groups(
    connection: AsyncConnection[Any], organization_id: str, group_id: str | None, after_group_id: str, limit: int
) -> tuple[tuple[GroupLine, ...], str | None]:
    """Heads and acknowledgements of up to `limit` Groups after `after_group_id` ("" first), or of one Group."""
    asked = {
        "organization_id": organization_id,
        "group_id": group_id,
        "after_group_id": after_group_id,
        "limit": limit,
    }
    heads = await (await connection.execute(sql.read_group_heads_page, asked, binary=True)).fetchall()
    named = {"organization_id": organization_id, "group_ids": [row[0] for row in heads]}
    told: dict[str, list[tuple[Any, ...]]] = {}
    for row in await (await connection.execute(sql.read_acknowledgements_of, named, binary=True)).fetchall():
        told.setdefault(row[0], []).append(row[1:])
    lines = tuple(_group(row, told.get(row[0], ())) for row in heads)
    return lines, heads[-1][0] if len(heads) == limit else None


def _group(row: Sequence[Any], told: Sequence[tuple[Any, ...]]) -> GroupLine:
    group_id, shard_id, incarnation, head, chain_hash = row
    return GroupLine(
        group_id=group_id,
        shard_id=shard_id,
        head=GroupHead(incarnation=incarnation, group_id=group_id, sequence=head, chain_hash=chain_hash.hex()),
        acknowledged=tuple(
            AcknowledgedLine(
                principal=principal,
                incarnation=their_incarnation,
                sequence=sequence,
                chain_hash=their_hash.hex(),
                # Read a moment after the head, so it may be beyond it.
                behind=max(0, head - sequence),
                acknowledged_at=format_timestamp(at),
            )
            for principal, their_incarnation, sequence, their_hash, at in told
        ),
    )


def read_projection(place: ProjectionPlace) -> list[Cursor]:
    """All Cursors of a projection, opened for reading only; a file's consumer may be unknown. Raises NotAProjection."""
    if not isinstance(place, Path):
        with open_place(place) as opened:
            return opened.snapshot.cursors()
    try:
        with closing(sqlite3.connect(f"{place.resolve().as_uri()}?mode=ro", uri=True)) as connection:
            return [Cursor(*row) for row in connection.execute(projection_sql.read_cursors)]
    except sqlite3.Error as fault:
        raise NotAProjection(f"{place} is not the SQLite file of a projection: {fault}") from fault


async def judge_cursors(
    connection: AsyncConnection[Any], organization_id: str, cursors: Sequence[Cursor]
) -> tuple[CursorLine, ...]:
    """Compare each Cursor with the log of the primary, by sequence and chain hash."""
    lines: list[CursorLine] = []
    for start in range(0, len(cursors), cursors_in_page_max):
        page = cursors[start : start + cursors_in_page_max]
        asked = {
            "organization_id": organization_id,
            "group_ids": [cursor.group_id for cursor in page],
            "sequences": [cursor.sequence for cursor in page],
        }
        rows = await (await connection.execute(sql.read_places, asked, binary=True)).fetchall()
        places = {group_id: (chain_hash, head) for group_id, chain_hash, head in rows}
        lines += [_judge(organization_id, cursor, *places[cursor.group_id]) for cursor in page]
    return tuple(lines)


def _judge(organization_id: str, cursor: Cursor, found: bytes | None, head: int | None) -> CursorLine:
    verdict = _verdict(organization_id, cursor, found, head)
    return CursorLine(
        group_id=cursor.group_id,
        incarnation=cursor.incarnation,
        sequence=cursor.sequence,
        chain_hash=cursor.chain_hash.hex(),
        verdict=verdict,
        behind=None if head is None or verdict.is_finding else head - cursor.sequence,
    )


def _verdict(organization_id: str, cursor: Cursor, found: bytes | None, head: int | None) -> Verdict:
    if head is None:
        return Verdict.UNKNOWN_GROUP
    if cursor.sequence > head:
        return Verdict.AHEAD
    expected = chain_start(organization_id, cursor.group_id) if cursor.sequence == GroupSequence(0) else found
    if expected is None or cursor.chain_hash != ChainHash(expected):
        return Verdict.FORK
    return Verdict.LEVEL if cursor.sequence == head else Verdict.BEHIND
