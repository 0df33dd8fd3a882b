"""Close the hole between a Cursor and the head of its Group, in pages from the history source.

What waits in the buffer is taken where it joins; what does not join the chain is discarded and read from the source.
A crash leaves the Cursor somewhere between: it is asked again from there.
"""

import asyncio
from collections.abc import AsyncGenerator, Iterator, Sequence
from contextlib import aclosing
from typing import Final, overload

from msgspec import Struct

from contracts.bounds import replay_page_events_max
from contracts.cursor import Cursor
from contracts.identifiers import GroupSequence
from contracts.payloads.requests import GroupPage
from projections.apply_event import Applied, Unproven
from projections.arrival import Arrival, UnreadableEvent, read_arrival
from projections.group_run import Question
from projections.history import HistoryBroken, HistoryRefused, HistorySource, place_of
from projections.projection import Projection
from projections.store import Transaction

replay_batch_events: Final = 2_000
"""Events that are gathered from pages for one transaction, as long as there are more; one page may go beyond it."""
rounds_max: Final = 64
"""Times that one call starts reading anew because delivery or the buffer moved the Cursor meanwhile."""


class Filled(Struct):
    """How a filling ended: at the head, or at a question or a missing proof. `events` is how many it applied."""

    events: int = 0
    question: Question | None = None
    unproven: Unproven | None = None


class PagedArrivals(Sequence[Arrival]):
    """The Events of consecutive pages, parsed when first looked at: inside the store's thread.

    Parsing them while that thread executes statements would make the two fight over the interpreter row by row. The
    look raises HistoryBroken, as `read_page` does.
    """

    def __init__(self, group_id: str) -> None:
        """No pages yet."""
        self._group_id = group_id
        self._pages: list[tuple[GroupSequence, GroupPage]] = []
        self._length = 0
        self._arrivals: list[Arrival] = []

    def add(self, page: GroupPage, after: GroupSequence) -> None:
        """One more page, of Events above `after`."""
        self._pages.append((after, page))
        self._length += len(page.events)

    def __len__(self) -> int:
        """How many Events there are."""
        return self._length

    @overload
    def __getitem__(self, index: int) -> Arrival: ...
    @overload
    def __getitem__(self, index: slice) -> list[Arrival]: ...
    def __getitem__(self, index: int | slice) -> Arrival | list[Arrival]:
        """One Event, or some."""
        return self._read()[index]

    def __iter__(self) -> Iterator[Arrival]:
        """All Events in sequence."""
        return iter(self._read())

    def _read(self) -> list[Arrival]:
        for after, page in self._pages:
            self._arrivals += read_page(page, self._group_id, after)
        self._pages = []
        return self._arrivals


class HistoryBatch(Struct, frozen=True):
    """Consecutive Events of one Group, and where its history ended when the last of them was fetched."""

    arrivals: PagedArrivals
    head: Cursor


async def fill_gap(projection: Projection, source: HistorySource, group_id: str) -> Filled:
    """Bring one Group to its head. A stopped Group is left where it is.

    Raises HistoryUnavailable, HistoryRefused, and HistoryBroken for an answer that is no history.
    """
    filled = Filled()
    for _ in range(rounds_max):
        known = (await projection.heads_ahead()).get(group_id)
        cursor = await projection.cursor(group_id)
        reached = cursor.sequence if cursor else projection.visible_after.get(group_id, GroupSequence(0))
        try:
            head = await _read_to_head(projection, source, group_id, reached, filled)
        except HistoryRefused:
            if cursor is None or cursor.sequence >= projection.visible_after.get(group_id, 0):
                raise
            await _begin_anew(projection, group_id)
            continue
        if filled.question or filled.unproven or await _stands(projection, group_id, head):
            break
        if head is not None and await _is_level(projection, group_id, known, head):
            break
    if filled.events:
        projection.progress.gaps_filled += 1
    return filled


async def _read_to_head(
    projection: Projection,
    source: HistorySource,
    group_id: str,
    reached: GroupSequence,
    filled: Filled,
) -> Cursor | None:
    """Apply batches until the source has no more; None when the buffer moved the Cursor on: reading starts anew."""
    head: Cursor | None = None
    async with aclosing(read_batches(source, group_id, reached)) as batches:
        async for batch in batches:
            head = batch.head
            if not batch.arrivals:
                break
            applied = await projection.apply(batch.arrivals)
            last = batch.arrivals[-1].mark.sequence
            held = await projection.apply_held(group_id, last)
            filled.events += applied.applied + held.applied
            if _is_contradicted(applied, filled) or applied.stops or held.stops:
                return head
            if held.cursors:
                return None
    return head


def _is_contradicted(applied: Applied, filled: Filled) -> bool:
    """Whether what the source says does not continue what is stored."""
    filled.question = next(iter(applied.questions), None)
    filled.unproven = next(iter(applied.unproven), None)
    return filled.question is not None or filled.unproven is not None


async def _stands(projection: Projection, group_id: str, head: Cursor | None) -> bool:
    """Whether a Group stands before an Event that the history still has; one that it lost holds nobody up (PRJ-3)."""

    def judge(transaction: Transaction) -> bool:
        held = transaction.held_of({group_id}).get(group_id)
        if held is not None and head is not None and head.sequence < held.sequence:
            transaction.end_quarantine(group_id)
            return False
        return held is not None and held.tried_at is None

    if await projection.held(group_id) is None:
        return False
    return await projection.store.transaction(judge)


async def _is_level(projection: Projection, group_id: str, known: GroupSequence | None, head: Cursor) -> bool:
    """Whether nothing is left to fill. What was known before the source was asked and it does not have never was."""
    hidden = projection.visible_after.get(group_id, GroupSequence(0))

    def settle(transaction: Transaction) -> bool:
        ahead = dict(transaction.heads_ahead()).get(group_id)
        if ahead is not None and ahead <= hidden:
            # Of a late member's Group only what is hidden is known: there is nothing to fill.
            transaction.settle_head(group_id, GroupSequence(0))
            return True
        if ahead is not None and ahead == known and known > head.sequence:
            transaction.settle_head(group_id, head.sequence)
            ahead = None
        return ahead is None

    if (await projection.heads_ahead()).get(group_id) is None:
        return True
    return await projection.store.transaction(settle)


async def _begin_anew(projection: Projection, group_id: str) -> None:
    """A member whose visibility now starts beyond its Cursor cannot be brought there: its history begins anew."""
    await projection.store.transaction(lambda transaction: transaction.reset_group(group_id))
    projection.buffer.discard(group_id)


async def read_batches(source: HistorySource, group_id: str, after: GroupSequence) -> AsyncGenerator[HistoryBatch]:
    """A Group's history above `after`, oldest first, the next batch being fetched while one is used.

    The last batch reaches the head and may be empty. Raises as `fill_gap` does.
    """
    waiting = asyncio.ensure_future(_read_batch(source, group_id, after))
    try:
        while True:
            batch, following = await waiting
            if following is not None:
                waiting = asyncio.ensure_future(_read_batch(source, group_id, following))
            yield batch
            if following is None:
                return
    finally:
        waiting.cancel()
        await asyncio.gather(waiting, return_exceptions=True)


async def _read_batch(
    source: HistorySource, group_id: str, after: GroupSequence
) -> tuple[HistoryBatch, GroupSequence | None]:
    """Pages up to `replay_batch_events`, and the `after` of what follows."""
    arrivals = PagedArrivals(group_id)
    while True:
        page = await source.page(group_id, after, replay_page_events_max)
        arrivals.add(page, after)
        head = place_of(page.head)
        if page.next is None:
            return HistoryBatch(arrivals, head), None
        if page.next <= after:
            raise HistoryBroken(f"a page of {group_id} after {after} is followed by one after {page.next}")
        after = GroupSequence(page.next)
        if len(arrivals) >= replay_batch_events:
            return HistoryBatch(arrivals, head), after


def read_page(page: GroupPage, group_id: str, after: GroupSequence) -> list[Arrival]:
    """The Events of a page, checked to be consecutive and to have the chain hash that the source claims.

    Raises HistoryBroken.
    """
    arrivals: list[Arrival] = []
    for expected, replayed in enumerate(page.events, after + 1):
        try:
            arrival = read_arrival(replayed.event)
        except UnreadableEvent as fault:
            raise HistoryBroken(f"the page of {group_id} holds {fault} at sequence {expected}") from fault
        mark = arrival.mark
        if (mark.group_id, mark.sequence) != (group_id, expected):
            raise HistoryBroken(f"the page of {group_id} holds {mark.group_id} {mark.sequence} in place of {expected}")
        arrivals.append(arrival)
    if arrivals and arrivals[-1].mark.chain_hash.hex() != page.events[-1].chain_hash:
        raise HistoryBroken(f"{group_id} at {arrivals[-1].mark.sequence} has another chain hash than the page claims")
    return arrivals
