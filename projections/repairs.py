"""Repairs of Groups beside delivery: each Group of a projection by one task at a time, bounded in number."""

import asyncio
import random
import time
from collections import OrderedDict
from typing import Final

from msgspec import Struct

from contracts.cursor import Contact, Cursor
from contracts.identifiers import GroupSequence
from projections.group_run import Question
from projections.history import GroupNotShown, HistoryBroken, HistoryRefused, HistorySource, HistoryUnavailable
from projections.projection import Projection
from projections.repair_group import repair_group
from projections.store import CursorMoved, Transaction
from services.process.logs import get_log

repairs_at_once_max: Final = 8
"""Groups that are read from the source at the same time."""
attempts_max: Final = 12
"""Attempts of one repair before it is left to the next comparison of heads."""

look_seconds: Final = 30.0
"""Seconds between two looks whether the Event that a Group stands before is still part of the history."""
looks_kept_max: Final = 10_000

_log = get_log(__name__)


class RepairTimes(Struct, frozen=True, kw_only=True):
    """Waits in seconds: before a hole is filled (it may close by itself), and between attempts, with full jitter."""

    gap_wait_seconds: float = 0.2
    first_backoff_seconds: float = 0.25
    backoff_seconds_max: float = 15.0


class _Need(Struct):
    """What a Group needs: an answer to a question, to reach a sequence, or both."""

    reach: GroupSequence = GroupSequence(0)
    question: Question | None = None


class Repairs:
    """Collects what Groups need and sees to it. All methods are called from one event loop."""

    def __init__(self, source: HistorySource, times: RepairTimes, tasks: asyncio.TaskGroup) -> None:
        """Tasks run in `tasks`: a fault of a store ends it and everything in it."""
        self._source = source
        self._times = times
        self._tasks = tasks
        self._at_once = asyncio.Semaphore(repairs_at_once_max)
        self._needs: dict[tuple[str, str], _Need] = {}
        self._running: set[tuple[str, str]] = set()
        self._looked_at: OrderedDict[tuple[str, str], float] = OrderedDict()

    def reach(self, projection: Projection, group_id: str, sequence: GroupSequence) -> None:
        """The Group's history is known to reach `sequence`: fill up to its head if delivery does not get there soon."""
        need = self._need(projection, group_id)
        need.reach = max(need.reach, sequence)
        self._start(projection, group_id)

    def ask(self, projection: Projection, question: Question) -> None:
        """An Event or a head does not fit what was applied: ask the authority at once."""
        self._need(projection, question.group_id).question = question
        self._start(projection, question.group_id)

    async def judge_head(self, projection: Projection, head: Cursor, applied_before: int = 0) -> None:
        """Compare the authority's word on a Group with its Cursor, and see to what follows.

        `applied_before` is how far the Group was applied when the authority was asked. A head below it has lost
        Events (PRJ-3); one that was merely announced may be late, which is no reason to ask.
        """

        def judge(transaction: Transaction) -> Contact:
            cursor = transaction.cursor(head.group_id)
            if head.sequence < applied_before:
                return Contact.FORK
            if cursor is None or head.sequence > cursor.sequence:
                return Contact.GAP
            known = cursor.chain_hash if head.sequence == cursor.sequence else None
            known = known or transaction.remembered(head.group_id, head.sequence)
            if known is None:
                return Contact.UNKNOWN
            return Contact.DUPLICATE if known == head.chain_hash else Contact.FORK

        contact = await projection.store.read(judge)
        if contact is Contact.GAP:
            self.reach(projection, head.group_id, head.sequence)
        elif contact is not Contact.DUPLICATE:
            self.ask(projection, Question(contact, head))

    def _need(self, projection: Projection, group_id: str) -> _Need:
        return self._needs.setdefault((projection.name, group_id), _Need())

    def _start(self, projection: Projection, group_id: str) -> None:
        key = (projection.name, group_id)
        if key not in self._running:
            self._running.add(key)
            self._tasks.create_task(self._see_to(projection, group_id), name=f"repair-{projection.name}")

    async def _see_to(self, projection: Projection, group_id: str) -> None:
        """Repair a Group until nothing is needed any more, or for `attempts_max` attempts."""
        key = (projection.name, group_id)
        attempt = 0
        try:
            if self._needs[key].question is None:
                await asyncio.sleep(self._times.gap_wait_seconds)
            while (need := self._needs.pop(key, None)) is not None and attempt < attempts_max:
                if need.question is None and not await self._is_behind(projection, group_id, need.reach):
                    continue
                attempt += 1
                if not await self._attempt(projection, group_id, need):
                    await asyncio.sleep(self._backoff(attempt))
        finally:
            self._running.discard(key)

    async def _is_behind(self, projection: Projection, group_id: str, reach: GroupSequence) -> bool:
        cursor = await projection.cursor(group_id)
        if (cursor.sequence if cursor else 0) >= reach:
            return False
        return not await projection.is_stopped(group_id) or self._may_look(projection, group_id)

    def _may_look(self, projection: Projection, group_id: str) -> bool:
        """Whether to look, now and then, if the Event that a Group stands before is still part of the history."""
        now, key = time.monotonic(), (projection.name, group_id)
        if now < self._looked_at.get(key, -look_seconds) + look_seconds:
            return False
        self._looked_at.pop(key, None)
        if len(self._looked_at) >= looks_kept_max:
            self._looked_at.popitem(last=False)
        self._looked_at[key] = now
        return True

    async def _attempt(self, projection: Projection, group_id: str, need: _Need) -> bool:
        """One repair; whether it is done. What is left undone is needed again."""
        try:
            async with self._at_once:
                await repair_group(projection, self._source, group_id, need.question)
        except HistoryRefused as fault:
            _log.warning("history_refused", consumer=projection.name, group_id=group_id, reason=str(fault))
            if isinstance(fault, GroupNotShown):
                await projection.store.transaction(lambda transaction: _forget_unapplied(transaction, group_id))
            return True
        except (HistoryUnavailable, HistoryBroken, CursorMoved) as fault:
            report = _log.error if isinstance(fault, HistoryBroken) else _log.warning
            report("group_not_repaired", consumer=projection.name, group_id=group_id, reason=str(fault))
            again = self._need(projection, group_id)
            again.reach = max(again.reach, need.reach)
            again.question = again.question or need.question
            return False
        return True

    def _backoff(self, attempt: int) -> float:
        ceiling = min(self._times.backoff_seconds_max, self._times.first_backoff_seconds * 2 ** min(attempt, 16))
        return random.uniform(0, ceiling)  # noqa: S311 - jitter, not a secret


def _forget_unapplied(transaction: Transaction, group_id: str) -> None:
    """Of a Group that is not shown and of which nothing was applied, nothing is kept: it stands before no Event."""
    if transaction.cursor(group_id) is None:
        transaction.end_quarantine(group_id)
        transaction.settle_head(group_id, GroupSequence(0))
