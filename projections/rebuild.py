"""Rebuild a projection from its history into a fresh store, beside the live one (PRJ-4, MWP-WRK-008)."""

from collections.abc import Iterable

from msgspec import Struct

from contracts.identifiers import GroupSequence
from projections.fill_gap import read_batches
from projections.history import HistoryBroken, HistorySource, HistoryUnavailable
from projections.projection import Projection


class Rebuilt(Struct):
    """What was replayed."""

    groups: int = 0
    events: int = 0


async def rebuild(projection: Projection, source: HistorySource, group_ids: Iterable[str]) -> Rebuilt:
    """Replay these Groups from their beginning (a late member's: from its visibility start) to their heads.

    The store must be nobody else's. Groups that it holds already are continued. No intents are kept. Raises
    HistoryUnavailable, HistoryRefused, and HistoryBroken when the source's history does not prove itself.
    """
    rebuilt = Rebuilt()
    for group_id in group_ids:
        rebuilt.groups += 1
        cursor = await projection.cursor(group_id)
        after = cursor.sequence if cursor else projection.visible_after.get(group_id, GroupSequence(0))
        async for batch in read_batches(source, group_id, after):
            if not batch.arrivals:
                break
            applied = await projection.apply(batch.arrivals, keep_intents=False)
            rebuilt.events += applied.applied
            if any(unproven.for_now for unproven in applied.unproven):
                raise HistoryUnavailable(f"{group_id} is not proven: {applied.unproven}")
            if applied.applied < len(batch.arrivals):
                raise HistoryBroken(
                    f"{group_id} does not rebuild beyond {applied.cursors}: questions {applied.questions}, "
                    f"unproven {applied.unproven}, stops {applied.stops}"
                )
    return rebuilt
