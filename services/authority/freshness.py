"""How old, or how far ahead, a new signed request may be on the database's clock (TRU-6, RULE-29)."""

from datetime import datetime, timedelta

from msgspec import Struct

from contracts.bounds import freshness_future_seconds, freshness_past_seconds
from contracts.timestamps import format_timestamp, instant


class Freshness(Struct, frozen=True, kw_only=True):
    """A window around now, in seconds; both borders belong to it."""

    past_seconds: int = freshness_past_seconds
    future_seconds: int = freshness_future_seconds

    def around(self, now: datetime) -> "FreshnessWindow":
        """The window at one moment of the database's clock."""
        return FreshnessWindow(self, now)


class FreshnessWindow:
    """Judges `issuedAt` of requests that are judged at one moment."""

    def __init__(self, freshness: Freshness, now: datetime) -> None:
        """`now` is aware."""
        self._freshness = freshness
        self._now = now
        self._earliest = instant(format_timestamp(now - timedelta(seconds=freshness.past_seconds)))
        self._latest = instant(format_timestamp(now + timedelta(seconds=freshness.future_seconds)))

    def fault(self, issued_at: str) -> str | None:
        """Why a request issued at this moment is not fresh, or None."""
        if self._earliest <= instant(issued_at) <= self._latest:
            return None
        window = f"{self._freshness.past_seconds} s back and {self._freshness.future_seconds} s ahead"
        return f"issuedAt {issued_at} is not within {window} of {self._now.isoformat()}"
