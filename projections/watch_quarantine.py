"""See to quarantined Groups beside delivery: let them be tried again, and notice what somebody decided (DUR-5).

Authoritative here: the store. A decision is written there by a command, in one transaction, whether this process runs
or not; it is noticed at the next look. A Group that stood when this run began is tried once, since the process may be
another version; not more often than the bounds of `projections.quarantine` allow, however often it is restarted.
"""

import asyncio
from collections.abc import Sequence
from typing import Final

from contracts.chain import ChainHash
from projections.projection import Projection
from projections.quarantine import attempts_max, is_exhausted, pause_seconds, seconds_to_wait
from projections.repairs import Repairs
from projections.store import Quarantined, Transaction
from services.process.logs import get_log

look_seconds_default: Final = 1.0
"""Seconds between two looks at the quarantined Groups."""

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
        found = await projection.store.read(lambda transaction: transaction.quarantined())
        standing = {each.stop.group_id: each.stop.chain_hash for each in found if each.tried_at is None}
        waiting = self._waiting.setdefault(projection.name, standing)
        for each in found:
            if waiting.get(each.stop.group_id) == each.stop.chain_hash and await self._try_again(projection, each):
                del waiting[each.stop.group_id]
                found = await projection.store.read(lambda transaction: transaction.quarantined())
        self._see_to(projection, found)

    def _see_to(self, projection: Projection, found: Sequence[Quarantined]) -> None:
        """Fetch for the Groups that are tried again, once each time."""
        known = self._tried.get(projection.name, {})
        tried = {each.stop.group_id: each.tried_at for each in found if each.tried_at is not None}
        self._tried[projection.name] = tried
        for each in found:
            group_id = each.stop.group_id
            if tried.get(group_id) not in (None, known.get(group_id)):
                _log.info("group_tried_again", consumer=projection.name, group_id=group_id, attempts=each.attempts)
                self._repairs.reach(projection, group_id, each.stop.sequence)
        projection.note_quarantined(len(found) - len(tried), sum(tried[each] != known.get(each) for each in tried))

    async def _try_again(self, projection: Projection, found: Quarantined) -> bool:
        """Let a Group that stood at the beginning go on when it may; whether it need not be looked at any more."""
        group_id, now = found.stop.group_id, projection.clock()
        if is_exhausted(found):
            reason = f"failed {found.attempts} times, at most {attempts_max}; release it once the cause is gone"
            _log.error("group_not_tried_again", consumer=projection.name, group_id=group_id, reason=reason)
            return True
        if found.tried_at is not None:
            return True
        if seconds_to_wait(found, now, self._pause) > 0:
            return False

        def try_again(transaction: Transaction) -> None:
            transaction.try_again(found, now, found.attempts)

        await projection.store.transaction(try_again)
        return True
