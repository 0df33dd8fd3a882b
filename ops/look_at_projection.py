"""Read a projection of the server's side, as it was projected last: neither authority nor broker is asked."""

from collections.abc import Callable
from pathlib import Path

from msgspec import Struct

from ops.command_fault import CommandFault
from ops.projection_file import NotAProjection
from ops.projection_place import open_place, place_of_consumer
from projections.consumer import Consumer
from projections.store import Transaction
from services.projector.select_consumers import selection_variable


class StoppedGroup(Struct, frozen=True, kw_only=True, rename="camel"):
    """A Group whose rows do not move any more: the Event at `sequence` is not understood (PRJ-5)."""

    group_id: str
    sequence: int
    reason: str


class Looked[T](Struct, frozen=True):
    """What was seen in one snapshot, whose rows they are, and which Groups stand still."""

    seen: T
    organization_id: str
    stopped: tuple[StoppedGroup, ...]


def look_at_projection[T](
    consumer: Consumer, directory: Path, group_id: str | None, look: Callable[[Transaction], T]
) -> Looked[T]:
    """What `look` sees of the stack in a directory, or in the store that WEAVEHOLD_PROJECTION_… names.

    Of the Groups that stand still only `group_id` is told, if it is given. Raises CommandFault.
    """
    place = place_of_consumer(consumer, directory)
    if isinstance(place, Path) and not place.exists():
        raise CommandFault(
            f"there is no {place}; run a projector (`weavehold up` does) whose {selection_variable} has "
            f"{consumer.name}, or name its --directory"
        )
    try:
        with open_place(place) as opened:
            if opened.consumer.name != consumer.name:
                raise CommandFault(f"{place} holds a projection named {opened.consumer.name}, not {consumer.name}")
            seen, stops = look(opened.snapshot), opened.snapshot.stops()
    except NotAProjection as fault:
        raise CommandFault(f"{fault}; run a projector with the same WEAVEHOLD_PROJECTION_… settings") from fault
    stopped = tuple(
        StoppedGroup(group_id=stop.group_id, sequence=stop.sequence, reason=stop.reason)
        for stop in stops
        if group_id in (None, stop.group_id)
    )
    return Looked(seen, opened.organization_id, stopped)
