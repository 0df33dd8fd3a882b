"""Bring one Group of a projection to the authority's head, whatever happened: gap, fork, lost message, lost state."""

from typing import Final

from msgspec import Struct

from contracts.cursor import Contact
from projections.fill_gap import Filled, fill_gap
from projections.group_run import Question
from projections.history import GroupNotShown, HistoryBroken, HistorySource, HistoryUnavailable
from projections.projection import Projection
from projections.settle_fork import settle_fork
from projections.store import Fork
from services.process.logs import get_log

repair_rounds_max: Final = 4
"""Forks in a row that one call follows; a source that forks more often is not one history."""

_log = get_log(__name__)


class Repaired(Struct):
    """What a repair did."""

    events: int = 0
    forks: tuple[Fork, ...] = ()


async def repair_group(
    projection: Projection, source: HistorySource, group_id: str, question: Question | None = None
) -> Repaired:
    """Answer the question, if there is one, then fill to the head; a fork found on the way is followed (PRJ-3).

    A Group that was lost as a whole ends without rows. Raises HistoryUnavailable, HistoryRefused and HistoryBroken;
    the Group stays as far as it came.
    """
    repaired = Repaired()
    for _ in range(repair_rounds_max):
        if question is not None:
            fork = await settle_fork(projection, source, group_id)
            if fork is not None:
                repaired.forks += (fork,)
                _log.error("fork_recorded", consumer=projection.name, group_id=group_id, **_seen(fork))
                if fork.found.sequence == 0:
                    return repaired
            projection.buffer.discard(group_id)
        filled = await _fill(projection, source, group_id, question)
        repaired.events += filled.events
        if (unproven := filled.unproven) is not None:
            fault = HistoryUnavailable if unproven.for_now else HistoryBroken
            raise fault(f"the source's history of {group_id} is not proven: {unproven.reason}")
        question = filled.question
        if question is None:
            return repaired
    raise HistoryBroken(f"the history of {group_id} contradicts itself: {question} after {repaired}")


async def _fill(projection: Projection, source: HistorySource, group_id: str, answered: Question | None) -> Filled:
    """Fill to the head; where the Group is not shown any more that is the question, unless it was `answered` just now.

    Raises as `fill_gap` does.
    """
    try:
        return await fill_gap(projection, source, group_id)
    except GroupNotShown:
        cursor = await projection.cursor(group_id)
        if answered is not None or cursor is None:
            raise
        return Filled(question=Question(Contact.UNKNOWN, cursor))


def _seen(fork: Fork) -> dict[str, object]:
    return {
        "seen_incarnation": fork.seen.incarnation,
        "seen_sequence": fork.seen.sequence,
        "seen_chain_hash": fork.seen.chain_hash.hex(),
        "found_incarnation": fork.found.incarnation,
        "found_sequence": fork.found.sequence,
        "lost_event_ids": [event.event_id for event in fork.lost],
    }
