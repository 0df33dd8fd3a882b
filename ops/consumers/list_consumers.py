"""The projections of a stack, each as one look at it shows it."""

from collections.abc import Sequence
from typing import Any

from msgspec import Struct
from psycopg import AsyncConnection

from ops.consumers.green import green_beside
from ops.cursor_report import judge_cursors
from ops.projection_file import NotAProjection
from ops.projection_place import ProjectionPlace, open_place
from projections.consumer import Consumer


class ConsumerLine(Struct, frozen=True, kw_only=True, rename="camel"):
    """One projection. `events` are those that its Cursors stand on, `behind` those after them at the authority.

    `state` is `live`, or `live, green unfinished` when a rebuilt version beside it was never exchanged, or
    `unreadable` with the `problem`; nothing else is known of it then. `findings` counts Cursors that are not on the
    authority's history.
    """

    place: str
    state: str
    name: str | None = None
    version: int | None = None
    variant: str | None = None
    groups: int | None = None
    events: int | None = None
    behind: int | None = None
    stopped: int | None = None
    findings: int | None = None
    problem: str | None = None


async def list_consumers(
    connection: AsyncConnection[Any], organization_id: str, places: Sequence[ProjectionPlace]
) -> tuple[ConsumerLine, ...]:
    """All projections at these places, compared with the authority's heads."""
    return tuple([await _line(connection, organization_id, place) for place in places])


async def _line(connection: AsyncConnection[Any], organization_id: str, place: ProjectionPlace) -> ConsumerLine:
    try:
        with open_place(place) as opened:
            consumer: Consumer = opened.consumer
            cursors, stops = opened.snapshot.cursors(), opened.snapshot.stops()
    except NotAProjection as fault:
        return ConsumerLine(place=str(place), state="unreadable", problem=str(fault))
    judged = await judge_cursors(connection, organization_id, cursors)
    return ConsumerLine(
        place=str(place),
        state="live, green unfinished" if green_beside(place).is_there() else "live",
        name=consumer.name,
        version=consumer.version,
        variant=consumer.variant,
        groups=len(cursors),
        events=sum(cursor.sequence for cursor in cursors),
        behind=sum(line.behind or 0 for line in judged),
        stopped=len(stops),
        findings=sum(line.verdict.is_finding for line in judged),
    )
