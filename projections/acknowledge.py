"""Report durable Cursors to the authority at a bounded cadence, never in the way of applying (MWP-WRK-030)."""

import asyncio
from collections.abc import Sequence
from typing import Final

from contracts.cursor import Cursor
from projections.delivery import Acknowledger
from projections.history import HistoryRefused, HistoryUnavailable
from projections.projection import Projection
from services.process.logs import get_log

reports_per_round_max: Final = 256
"""Cursors reported in one round; the others follow in the next."""

_log = get_log(__name__)


async def acknowledge_periodically(
    projections: Sequence[Projection], acknowledger: Acknowledger, seconds: float
) -> None:
    """Report the Cursors that moved, every `seconds`, for ever.

    Of several projections that share a delivery the slowest counts. A Cursor is reported only once it is durable,
    since it is read from the store.
    """
    reported: dict[str, Cursor] = {}
    while True:
        await asyncio.sleep(seconds)
        moved = [cursor for cursor in await _slowest(projections) if reported.get(cursor.group_id) != cursor]
        for cursor in moved[:reports_per_round_max]:
            try:
                await acknowledger.acknowledge(cursor)
            except HistoryUnavailable as fault:
                _log.warning("cursor_not_acknowledged", group_id=cursor.group_id, reason=str(fault))
                break
            except HistoryRefused as fault:
                # A Cursor on a history that was given up: the comparison of heads will find the fork.
                _log.warning("acknowledgement_refused", group_id=cursor.group_id, reason=str(fault))
            reported[cursor.group_id] = cursor


async def _slowest(projections: Sequence[Projection]) -> list[Cursor]:
    """Per Group the lowest Cursor, of Groups that every projection has begun."""
    per_projection = [{cursor.group_id: cursor for cursor in await each.cursors()} for each in projections]
    shared = set.intersection(*(set(cursors) for cursors in per_projection))
    return [
        min((cursors[group_id] for cursors in per_projection), key=lambda cursor: cursor.sequence)
        for group_id in sorted(shared)
    ]
