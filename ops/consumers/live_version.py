"""The live version of a projection as one snapshot shows it; its own process goes on beside."""

from collections.abc import Collection

from msgspec import Struct

from contracts.cursor import Cursor
from ops.projection_file import NotAProjection
from ops.projection_place import ProjectionPlace, open_place
from projections.consumer import Consumer
from projections.digest import rows_digest
from projections.store import AppliedEvent, Decision


class LiveVersion(Struct, frozen=True):
    """Whose rows they are, the Cursors by Group, and the Groups that are known without a Cursor."""

    consumer: Consumer
    organization_id: str
    cursors: dict[str, Cursor]
    known: frozenset[str]

    @property
    def group_ids(self) -> set[str]:
        """All Groups that it knows of."""
        return {*self.known, *self.cursors}


def read_live(place: ProjectionPlace, organization_id: str) -> LiveVersion:
    """Look at a projection of an Organization. Raises NotAProjection."""
    with open_place(place) as opened:
        if opened.organization_id != organization_id:
            raise NotAProjection(f"{place} is a projection of {opened.organization_id or 'nobody'}, not ours")
        cursors = {cursor.group_id: cursor for cursor in opened.snapshot.cursors()}
        known = frozenset(group_id for group_id, _ in opened.snapshot.heads_ahead())
        return LiveVersion(opened.consumer, opened.organization_id, cursors, known)


def read_digests(place: ProjectionPlace, group_ids: Collection[str]) -> dict[str, tuple[Cursor, str]]:
    """Cursor and digest of those of these Groups that are there, each pair from one snapshot. Raises NotAProjection."""
    found: dict[str, tuple[Cursor, str]] = {}
    for group_id in group_ids:
        # A snapshot each: a long one would keep the store from tidying up behind its writer.
        with open_place(place) as opened:
            cursor = opened.snapshot.cursor(group_id)
            if cursor is not None:
                found[group_id] = (cursor, rows_digest(opened.snapshot, opened.consumer, group_id))
    return found


def read_skips(place: ProjectionPlace) -> list[Decision]:
    """The Events that a projection passes over (DUR-5). Raises NotAProjection.

    Read after its rows they are all that count for these: what is skipped lies beyond the Cursor at that moment.
    """
    with open_place(place) as opened:
        return opened.snapshot.skips()


def read_remembered(place: ProjectionPlace, group_id: str) -> list[AppliedEvent]:
    """The remembered Events of a Group. Raises NotAProjection."""
    with open_place(place) as opened:
        return opened.snapshot.all_remembered(group_id)


def read_standing(place: ProjectionPlace) -> dict[str, int]:
    """The Groups that stand before an Event (DUR-5), and its sequence. Raises NotAProjection."""
    with open_place(place) as opened:
        return {stop.group_id: stop.sequence for stop in opened.snapshot.stops()}
