"""Rebuild a projection from its history into a fresh store, beside the live one (PRJ-4, MWP-WRK-008).

A store that holds some of it already is continued, Group by Group from its own Cursors. A Group of it that is on a
history which the source no longer has begins anew.
"""

from collections.abc import Iterable
from typing import Final

from msgspec import Struct, field

from contracts.cursor import Contact
from contracts.identifiers import GroupSequence
from projections.fill_gap import read_batches
from projections.group_run import Question
from projections.history import HistoryBroken, HistorySource, HistoryUnavailable
from projections.projection import Projection
from projections.settle_fork import settle_fork

forks_followed_max: Final = 4
"""Times in a row that one Group begins anew; a source that forks more often is not one history."""


class Rebuilt(Struct):
    """What was replayed. `stopped` are Groups that end before an Event which this version cannot read."""

    groups: int = 0
    events: int = 0
    stopped: list[str] = field(default_factory=list)


async def rebuild(projection: Projection, source: HistorySource, group_ids: Iterable[str]) -> Rebuilt:
    """Replay these Groups from their beginning (a late member's: from its visibility start) to their heads.

    The store must be nobody else's. No intents are kept. Raises HistoryUnavailable, HistoryRefused, and HistoryBroken
    when the source's history does not prove itself; what was replayed before stays.
    """
    rebuilt = Rebuilt()
    for group_id in group_ids:
        rebuilt.groups += 1
        for _ in range(forks_followed_max):
            question = await _replay(projection, source, group_id, rebuilt)
            if question is None:
                break
            if await settle_fork(projection, source, group_id) is None:
                raise HistoryBroken(f"{group_id} does not rebuild: the source contradicts itself at {question.place}")
        else:
            raise HistoryBroken(f"{group_id} does not rebuild: its history forked {forks_followed_max} times")
    return rebuilt


async def _replay(projection: Projection, source: HistorySource, group_id: str, rebuilt: Rebuilt) -> Question | None:
    """Replay one Group to its head or stop, or to where its store is not on the source's history."""
    cursor = await projection.cursor(group_id)
    after = cursor.sequence if cursor else projection.visible_after.get(group_id, GroupSequence(0))
    async for batch in read_batches(source, group_id, after):
        if not batch.arrivals:
            head = batch.head
            differs = cursor and head.sequence <= after and head.chain_hash != cursor.chain_hash
            return Question(Contact.FORK, head) if differs else None
        applied = await projection.apply(batch.arrivals, keep_intents=False)
        rebuilt.events += applied.applied
        cursor, after = next(iter(applied.cursors), cursor), batch.arrivals[-1].mark.sequence
        if any(unproven.for_now for unproven in applied.unproven):
            raise HistoryUnavailable(f"{group_id} is not proven: {applied.unproven}")
        if applied.questions:
            return applied.questions[0]
        if applied.stops or await projection.is_stopped(group_id):
            rebuilt.stopped.append(group_id)
            return None
        if applied.applied < len(batch.arrivals):
            raise HistoryBroken(f"{group_id} does not rebuild beyond {applied.cursors}: unproven {applied.unproven}")
    return None
