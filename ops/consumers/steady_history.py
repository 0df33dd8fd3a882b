"""The authority's history for a long rebuild: at a bounded rate, and patient with an authority that is away briefly."""

import asyncio
import random
import time
from collections.abc import Awaitable, Callable, Sequence
from typing import Final

from msgspec import Struct

from contracts.identifiers import GroupSequence
from contracts.payloads.requests import GroupHead, GroupPage
from projections.history import HistorySource, HistoryUnavailable


class Patience(Struct, frozen=True, kw_only=True):
    """How often one question is asked in all, and the longest wait in seconds between two attempts (full jitter)."""

    attempts_max: int = 8
    first_backoff_seconds: float = 0.25
    backoff_seconds_max: float = 8.0

    def backoff(self, attempt: int) -> float:
        """Seconds before attempt number `attempt` (from 1)."""
        ceiling = min(self.backoff_seconds_max, self.first_backoff_seconds * 2 ** min(attempt, 16))
        return random.uniform(0, ceiling)  # noqa: S311 - jitter, not a secret


default_patience: Final = Patience()


def _unwatched() -> None:
    """Nobody wants to know."""


class SteadyHistory:
    """`projections.history.HistorySource` in front of another one.

    `events` counts those that were fetched; `on_page` is called after each page.
    """

    def __init__(
        self, source: HistorySource, events_per_second: float | None, patience: Patience = default_patience
    ) -> None:
        """Without a rate it is not slowed down."""
        self.events = 0
        self.on_page: Callable[[], None] = _unwatched
        self._source = source
        self._rate = events_per_second
        self._patience = patience
        self._due = 0.0
        """When the next page may be asked for, by the monotonic clock."""

    @property
    def shows_all(self) -> bool:
        """As its source."""
        return self._source.shows_all

    async def page(self, group_id: str, after: GroupSequence, limit: int) -> GroupPage:
        """A page, in its turn: with a rate, of the Events of one second at most. Raises as its source does."""
        if self._rate is not None:
            limit = min(limit, max(1, int(self._rate)))
            await asyncio.sleep(max(0.0, self._due - time.monotonic()))
        page = await self._asked(lambda: self._source.page(group_id, after, limit))
        self.events += len(page.events)
        self.on_page()
        if self._rate is not None:
            self._due = max(self._due, time.monotonic()) + len(page.events) / self._rate
        return page

    async def heads(self, group_ids: Sequence[str]) -> Sequence[GroupHead]:
        """Heads. Raises as its source does."""
        return await self._asked(lambda: self._source.heads(group_ids))

    async def incarnation(self) -> str:
        """The current incarnation. Raises as its source does."""
        return await self._asked(self._source.incarnation)

    async def _asked[T](self, ask: Callable[[], Awaitable[T]]) -> T:
        attempt = 0
        while True:
            attempt += 1
            try:
                return await ask()
            except HistoryUnavailable:
                if attempt >= self._patience.attempts_max:
                    raise
            await asyncio.sleep(self._patience.backoff(attempt))
