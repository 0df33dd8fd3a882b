"""See to quarantined Groups beside delivery: let them be tried again, and notice what somebody decided (DUR-5).

Authoritative here: the store. A decision is written there by a command, in one transaction, whether this process runs
or not; it is noticed at the next look. A Group that stood when this run began is tried once, since the process may be
another version; not more often than the bounds of `projections.quarantine` allow, however often it is restarted.
"""

import asyncio
from collections.abc import Iterable, Sequence
from typing import Final

from contracts.chain import ChainHash
from projections.projection import Projection
from projections.quarantine import (
    attempts_max,
    is_exhausted,
    pause_seconds,
    seconds_since,
    seconds_to_wait,
    tried_seconds_max,
)
from projections.repairs import Repairs
from projections.store import Held, Transaction
from services.process.logs import get_log

look_seconds_default: Final = 1.0
"""Seconds between two looks at the quarantined Groups."""
groups_at_once_max: Final = 1_000
"""Groups that one look lets go on."""

_log = get_log(__name__)


class QuarantineWatch:
    """Looks at the quarantined Groups of projections for the length of one run."""

    def __init__(
        self,
        projections: Sequence[Projection],
        repairs: Repairs,
        look_seconds: float = look_seconds_default,
        pause: float = pause_seconds,
    ) -> None:
        """What is tried again is fetched by `repairs`; `pause` is the seconds between a failure and another attempt."""
        self._projections = projections
        self._repairs = repairs
        self._look_seconds = look_seconds
        self._pause = pause
        self._waiting: dict[str, dict[str, ChainHash]] = {}
        """By projection the Groups that stood when the run began and were not tried in it yet, and where they stand."""
        self._tried: dict[str, dict[str, str]] = {}
        """By projection the Groups that are being tried and since when: those are seen to."""

    async def watch(self) -> None:
        """Look, for ever."""
        while True:
            for projection in self._projections:
                await self._look(projection)
            await asyncio.sleep(self._look_seconds)

    async def _look(self, projection: Projection) -> None:
        if (waiting := self._waiting.get(projection.name)) is None:
            found = await projection.store.read(lambda transaction: transaction.held())
            waiting = {each.group_id: each.chain_hash for each in found if each.tried_at is None}
            self._waiting[projection.name] = waiting
        found, standing = await _in_hand(projection, waiting)
        due = [
            each for each in found if waiting.get(each.group_id) == each.chain_hash and self._is_due(projection, each)
        ]
        lost = [each for each in found if _came_to_nothing(each, projection.clock())]
        if due or lost:
            await _try_again(projection, due[:groups_at_once_max], lost)
            found, standing = await _in_hand(projection, waiting)
        for each in due[:groups_at_once_max]:
            del waiting[each.group_id]
        self._see_to(projection, found, standing)

    def _is_due(self, projection: Projection, found: Held) -> bool:
        """Whether a Group that stood at the beginning has waited long enough."""
        return found.tried_at is not None or seconds_to_wait(found, projection.clock(), self._pause) == 0

    def _see_to(self, projection: Projection, found: Sequence[Held], standing: int) -> None:
        """Fetch for the Groups that are tried again, once each time."""
        known = self._tried.get(projection.name, {})
        tried = {each.group_id: each.tried_at for each in found if each.tried_at is not None}
        self._tried[projection.name] = tried
        news = [each for each in found if tried.get(each.group_id) not in (None, known.get(each.group_id))]
        for each in news:
            _log.info("group_tried_again", consumer=projection.name, group_id=each.group_id, attempts=each.attempts)
            self._repairs.reach(projection, each.group_id, each.sequence)
        projection.note_quarantined(standing, len(news))


async def _in_hand(projection: Projection, waiting: Iterable[str]) -> tuple[list[Held], int]:
    """The Groups that are tried again or wait for it, and how many stand in all."""
    groups = list(waiting)[:groups_at_once_max]
    return await projection.store.read(lambda found: (found.held_in_hand(groups), found.count_standing()))


def _came_to_nothing(found: Held, now: str) -> bool:
    """Whether a Group was let go on long ago and its Event was not met since: nobody must think that it flows."""
    return found.tried_at is not None and seconds_since(found.tried_at, now) > tried_seconds_max


async def _try_again(projection: Projection, due: Sequence[Held], lost: Sequence[Held]) -> None:
    """Let Groups go on, those that failed too often excepted; those that came to nothing stand again."""
    exhausted = [each.group_id for each in due if is_exhausted(each)]
    if exhausted:
        reason = f"they failed {attempts_max} times; release them once the cause is gone"
        _log.error("groups_not_tried_again", consumer=projection.name, group_ids=exhausted, reason=reason)
    now = projection.clock()

    def try_again(transaction: Transaction) -> None:
        for each in lost:
            transaction.stand_again(each)
        for each in due:
            if not is_exhausted(each):
                transaction.try_again(each, now, each.attempts)

    await projection.store.transaction(try_again)
