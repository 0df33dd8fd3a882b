"""The quarantined Groups of projections (DUR-5), each as its own store tells it."""

from collections.abc import Collection, Sequence
from enum import Enum

from msgspec import Struct

from ops.fork_report import UnreadableProjection
from ops.projection_file import NotAProjection
from ops.projection_place import ProjectionPlace, open_place
from projections.quarantine import is_exhausted
from projections.store import Quarantined


class Standing(Enum):
    """Whether a quarantined Group stands."""

    STANDS = "stands"
    """Its consumer's next process tries it again, or somebody lets it."""
    EXHAUSTED = "stands until released"
    """It failed too often to be tried again by itself."""
    TRIED = "being tried"
    """It was let go on, and its consumer's process has not got to it yet."""


class QuarantineLine(Struct, frozen=True, kw_only=True, rename="camel"):
    """One Group of one projection before an Event that its consumer cannot apply.

    `owner` answers for the consumer. `attempts` counts failures since the Group was released last, `version` is that of
    the consumer, and `tried_at` is since when it is being tried. The hash is lower-case hex, times are timestamps.
    """

    projection: str
    consumer: str
    version: int
    owner: str
    group_id: str
    sequence: int
    event_id: str
    chain_hash: str
    kind: str
    reason: str
    first_failed_at: str
    last_failed_at: str
    attempts: int
    standing: Standing
    tried_at: str | None


class QuarantineReport(Struct, frozen=True, kw_only=True, rename="camel"):
    """Quarantined Groups by projection and Group ID, `more` of which are not shown."""

    quarantined: tuple[QuarantineLine, ...]
    more: int
    unreadable: tuple[UnreadableProjection, ...]

    @property
    def is_clear(self) -> bool:
        """Whether nobody has to look."""
        return not (self.quarantined or self.unreadable)


def list_quarantine(places: Sequence[ProjectionPlace], group_ids: Collection[str], limit: int) -> QuarantineReport:
    """Up to `limit` quarantined Groups of the projections at these places, of these Groups alone if there are any."""
    lines: list[QuarantineLine] = []
    unreadable: list[UnreadableProjection] = []
    for place in places:
        try:
            with open_place(place) as opened:
                found = opened.snapshot.quarantined()
                name = opened.consumer.name
        except NotAProjection as fault:
            unreadable.append(UnreadableProjection(projection=str(place), problem=str(fault)))
            continue
        asked = [each for each in found if not group_ids or each.stop.group_id in group_ids]
        lines += [quarantine_line(place, name, each) for each in asked]
    return QuarantineReport(
        quarantined=tuple(lines[:limit]), more=max(0, len(lines) - limit), unreadable=tuple(unreadable)
    )


def quarantine_line(place: ProjectionPlace, consumer: str, found: Quarantined) -> QuarantineLine:
    """One quarantined Group for people."""
    stop = found.stop
    return QuarantineLine(
        projection=str(place),
        consumer=consumer,
        version=found.version,
        owner=found.owner,
        group_id=stop.group_id,
        sequence=stop.sequence,
        event_id=stop.event_id,
        chain_hash=stop.chain_hash.hex(),
        kind=stop.kind,
        reason=stop.reason,
        first_failed_at=found.first_failed_at,
        last_failed_at=found.last_failed_at,
        attempts=found.attempts,
        standing=_standing(found),
        tried_at=found.tried_at,
    )


def _standing(found: Quarantined) -> Standing:
    if found.tried_at is not None:
        return Standing.TRIED
    return Standing.EXHAUSTED if is_exhausted(found.held) else Standing.STANDS
