"""What projections had consumed and no longer exists: the forks they recorded, and whether they are mended (PRJ-3).

Authoritative here: nothing. What was lost is told by each projection's own store; how its Groups stand now, by the log.
"""

from collections.abc import Collection, Sequence
from enum import Enum
from itertools import chain
from typing import Any

from msgspec import Struct
from psycopg import AsyncConnection

from contracts.cursor import Cursor, cursor_start
from ops.cursor_report import CursorLine, Verdict, judge_cursors
from ops.projection_file import NotAProjection
from ops.projection_place import ProjectionPlace, open_place
from projections.store import ForkAcknowledgement, RecordedFork


class Place(Struct, frozen=True, kw_only=True, rename="camel"):
    """Where a history stood; sequence 0 of a Group that it does not have. The hash is lower-case hex."""

    incarnation: str
    sequence: int
    chain_hash: str


class LostEvent(Struct, frozen=True, kw_only=True, rename="camel"):
    """One Event that was applied and is not in the history any more."""

    sequence: int
    event_id: str
    chain_hash: str


class Mended(Enum):
    """How far a Group is rebuilt since its fork."""

    REBUILT = "rebuilt"
    """Applied beyond what was found with the fork, or to the head; it may be behind as any Group may."""
    REBUILDING = "rebuilding"
    GONE = "gone"
    """The history has no such Group, and the projection has no rows of it."""
    OFF_HISTORY = "off the history"
    """Its Cursor is on a history that was given up since: the consumer has not noticed yet."""


class ForkLine(Struct, frozen=True, kw_only=True, rename="camel"):
    """One fork of one projection.

    `lost` names the lost Events that the projection remembered, at most the newest 256 that it applied.
    `shared_sequence` is the last that both histories have; when it is null, older Events than `lost` may be lost too.
    `lost_count` is how many were lost in all, null when that is not known. `noticed_at` is by the consumer's clock.
    `applied` is how far the Group is applied now, `behind` how many Events follow, null where that cannot be said.
    """

    projection: str
    number: int
    consumer: str
    group_id: str
    noticed_at: str
    seen: Place
    found: Place
    shared_sequence: int | None
    lost_count: int | None
    lost: tuple[LostEvent, ...]
    mended: Mended
    applied: int
    behind: int | None
    acknowledged: ForkAcknowledgement | None


class OffHistory(Struct, frozen=True, kw_only=True, rename="camel"):
    """A Cursor that is not on the authority's history."""

    projection: str
    consumer: str
    cursor: CursorLine


class UnreadableProjection(Struct, frozen=True, kw_only=True, rename="camel"):
    """A projection that could not be asked."""

    projection: str
    problem: str


class ForkReport(Struct, frozen=True, kw_only=True, rename="camel"):
    """All forks on record, oldest first per projection, and what else is not as it should be.

    `unnoticed` are Cursors that contradict the history and whose consumers have not noticed it yet. `kept` are those of
    Workers in Groups that the authority does not have: a Worker cannot tell this from the end of its Membership, so it
    keeps the rows.
    """

    forks: tuple[ForkLine, ...] = ()
    unnoticed: tuple[OffHistory, ...] = ()
    kept: tuple[OffHistory, ...] = ()
    unreadable: tuple[UnreadableProjection, ...] = ()

    @property
    def is_settled(self) -> bool:
        """Whether nobody has to look: every fork is acknowledged and none unnoticed."""
        return not (self.unnoticed or self.unreadable or any(fork.acknowledged is None for fork in self.forks))


async def report_forks(
    connection: AsyncConnection[Any],
    organization_id: str,
    places: Sequence[ProjectionPlace],
    group_ids: Collection[str] = (),
) -> ForkReport:
    """The forks of the projections at these places, of these Groups alone if there are any."""
    reports = [await _report(connection, organization_id, place, group_ids) for place in places]
    return ForkReport(
        forks=tuple(chain.from_iterable(report.forks for report in reports)),
        unnoticed=tuple(chain.from_iterable(report.unnoticed for report in reports)),
        kept=tuple(chain.from_iterable(report.kept for report in reports)),
        unreadable=tuple(chain.from_iterable(report.unreadable for report in reports)),
    )


async def _report(
    connection: AsyncConnection[Any], organization_id: str, place: ProjectionPlace, group_ids: Collection[str]
) -> ForkReport:
    """The forks of one projection."""
    try:
        with open_place(place) as opened:
            consumer, snapshot = opened.consumer, opened.snapshot
            recorded = [each for each in snapshot.recorded_forks() if _is_asked(each.fork.group_id, group_ids)]
            cursors = [each for each in snapshot.cursors() if _is_asked(each.group_id, group_ids)]
    except NotAProjection as fault:
        return ForkReport(unreadable=(UnreadableProjection(projection=str(place), problem=str(fault)),))
    begun = {cursor.group_id for cursor in cursors}
    absent = {each.fork.group_id for each in recorded} - begun
    beginnings = [cursor_start(organization_id, group_id, "") for group_id in sorted(absent)]
    judged = await judge_cursors(connection, organization_id, [*cursors, *beginnings])
    now = {line.group_id: line for line in judged}
    off = [line for line in judged if line.group_id in begun and line.verdict.is_finding]
    kept = [line for line in off if consumer.variant and line.verdict is Verdict.UNKNOWN_GROUP]
    return ForkReport(
        forks=tuple(_line(place, consumer.name, each, now[each.fork.group_id]) for each in recorded),
        unnoticed=tuple(_off_history(place, consumer.name, line) for line in off if line not in kept),
        kept=tuple(_off_history(place, consumer.name, line) for line in kept),
    )


def _off_history(place: ProjectionPlace, consumer: str, line: CursorLine) -> OffHistory:
    return OffHistory(projection=str(place), consumer=consumer, cursor=line)


def _is_asked(group_id: str, group_ids: Collection[str]) -> bool:
    return not group_ids or group_id in group_ids


def _line(place: ProjectionPlace, consumer: str, recorded: RecordedFork, now: CursorLine) -> ForkLine:
    fork = recorded.fork
    return ForkLine(
        projection=str(place),
        number=recorded.number,
        consumer=consumer,
        group_id=fork.group_id,
        noticed_at=fork.noticed_at,
        seen=_place(fork.seen),
        found=_place(fork.found),
        shared_sequence=fork.shared,
        lost_count=None if fork.shared is None else fork.seen.sequence - fork.shared,
        lost=tuple(
            LostEvent(sequence=event.sequence, event_id=event.event_id, chain_hash=event.chain_hash.hex())
            for event in fork.lost
        ),
        mended=_mended(fork.found, now),
        applied=now.sequence,
        behind=now.behind,
        acknowledged=recorded.acknowledged,
    )


def _place(cursor: Cursor) -> Place:
    return Place(incarnation=cursor.incarnation, sequence=cursor.sequence, chain_hash=cursor.chain_hash.hex())


def _mended(found: Cursor, now: CursorLine) -> Mended:
    if now.verdict is Verdict.UNKNOWN_GROUP:
        return Mended.GONE if now.sequence == 0 else Mended.OFF_HISTORY
    if now.verdict.is_finding:
        return Mended.OFF_HISTORY
    is_there = now.verdict is Verdict.LEVEL or now.sequence >= max(1, found.sequence)
    return Mended.REBUILT if is_there else Mended.REBUILDING
