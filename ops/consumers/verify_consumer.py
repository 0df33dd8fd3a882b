"""A live projection against a replay of the log up to its own Cursors: digests first, then row by row (NEW-4).

The replay passes over the Events that the live version has to (DUR-5). The digest of a Group and its Cursor come from
one snapshot, so that its process may go on meanwhile. The rows of a Group whose digest differs are read once more, with
the Cursor that they then have, and the replay is brought there.
"""

import asyncio
from collections.abc import Sequence
from typing import Any, Final

from msgspec import Struct
from psycopg import AsyncConnection

from contracts.cursor import Cursor
from ops.consumers.live_version import read_digests, read_live, read_skips, read_standing
from ops.consumers.row_differences import RowDifference, keyed_rows, row_differences
from ops.cursor_report import judge_cursors
from ops.projection_place import ProjectionPlace, open_place
from ops.verify.verify_projections import replay_beside, replay_to
from projections.copy_skips import copy_skips
from projections.digest import rows_digest
from projections.history import HistoryBroken
from projections.projection import Projection

differences_shown_max: Final = 50
"""Different rows that a report shows; more are counted."""


class GroupVerdict(Struct, frozen=True, kw_only=True, rename="camel"):
    """One Group at its live Cursor. `problem` says why it could not be replayed or that it differs; null when equal."""

    group_id: str
    sequence: int
    chain_hash: str
    live_digest: str
    replay_digest: str | None
    problem: str | None


class VerifyReport(Struct, frozen=True, kw_only=True, rename="camel"):
    """`ok` when every Group is equal. `found` counts the rows that differ; `differences` shows the first of them.

    `standing` are quarantined Groups, with the sequence that they stand before: their rows are equal up to there.
    """

    ok: bool
    name: str
    version: int
    place: str
    groups: tuple[GroupVerdict, ...]
    found: int
    differences: tuple[RowDifference, ...]
    standing: dict[str, int]


async def verify_consumer(
    connection: AsyncConnection[Any], organization_id: str, place: ProjectionPlace, group_ids: Sequence[str]
) -> VerifyReport:
    """Verify these Groups of a projection, or without any all that it has. Raises NotAProjection.

    A Group that was asked for and is not there is left out: whoever asks compares.
    """
    live = read_live(place, organization_id)
    digests = await asyncio.to_thread(read_digests, place, sorted(set(group_ids) or live.cursors))
    cursors = [cursor for cursor, _ in digests.values()]
    problems = {
        line.group_id: f"its Cursor is not on the authority's history: {line.verdict.value}"
        for line in await judge_cursors(connection, organization_id, cursors)
        if line.verdict.is_finding
    }
    verdicts: list[GroupVerdict] = []
    found: list[RowDifference] = []
    count = 0
    skips = await asyncio.to_thread(read_skips, place)
    async with replay_beside(live.consumer, organization_id, skips) as replayed:
        for group_id, (cursor, digest) in digests.items():
            replay, problem = None, problems.get(group_id)
            if problem is None:
                replay, problem = await _replay(replayed, connection, cursor)
            if replay is not None and replay != digest:
                differing = await _differences(replayed, connection, place, group_id)
                count += len(differing)
                found += differing[: differences_shown_max - len(found)]
                problem = f"{len(differing)} rows differ from the replay"
            verdicts.append(_verdict(cursor, digest, replay, problem))
    return VerifyReport(
        ok=all(verdict.problem is None for verdict in verdicts),
        name=live.consumer.name,
        version=live.consumer.version,
        place=str(place),
        groups=tuple(verdicts),
        found=count,
        differences=tuple(found),
        standing=await asyncio.to_thread(read_standing, place),
    )


def _verdict(cursor: Cursor, digest: str, replay: str | None, problem: str | None) -> GroupVerdict:
    return GroupVerdict(
        group_id=cursor.group_id,
        sequence=cursor.sequence,
        chain_hash=cursor.chain_hash.hex(),
        live_digest=digest,
        replay_digest=replay,
        problem=problem,
    )


async def _replay(
    replayed: Projection, connection: AsyncConnection[Any], cursor: Cursor
) -> tuple[str | None, str | None]:
    """The digest of one Group replayed to a Cursor, or why there is none."""
    try:
        await replay_to(replayed, connection, {cursor.group_id: cursor})
    except HistoryBroken as fault:
        return None, str(fault)
    consumer = replayed.store.consumer
    return await replayed.store.read(lambda seen: rows_digest(seen, consumer, cursor.group_id)), None


async def _differences(
    replayed: Projection, connection: AsyncConnection[Any], place: ProjectionPlace, group_id: str
) -> list[RowDifference]:
    """The rows of a Group that differ at the Cursor that it has now."""
    with open_place(place) as opened:
        cursor = opened.snapshot.cursor(group_id)
        live = keyed_rows(opened.snapshot, opened.consumer, group_id)
        skips = opened.snapshot.skips()
    await copy_skips(replayed.store, skips)
    if cursor is not None:
        await replay_to(replayed, connection, {group_id: cursor})
    consumer = replayed.store.consumer
    replay = await replayed.store.read(lambda seen: keyed_rows(seen, consumer, group_id))
    return row_differences(consumer, group_id, live, replay)
