"""How far a rebuild is, in a line for people on stderr about once a second."""

import sys
import time
from collections.abc import Callable
from typing import Final

from msgspec import Struct

line_seconds: Final = 1.0
"""Seconds between two lines."""


class Progress(Struct, kw_only=True, frozen=True):
    """Groups and Events done and in all; `seconds` since it began."""

    groups_done: int
    groups: int
    events_done: int
    events: int
    seconds: float

    @property
    def rate(self) -> float:
        """Events per second."""
        return self.events_done / self.seconds if self.seconds > 0 else 0.0

    @property
    def seconds_left(self) -> float | None:
        """Seconds until all Events are replayed at this rate; None while there is no rate."""
        return max(0, self.events - self.events_done) / self.rate if self.rate else None

    def __str__(self) -> str:
        left = "" if self.seconds_left is None else f", about {self.seconds_left:,.0f} s left"
        done = f"{self.groups_done:,} of {self.groups:,} Groups, {self.events_done:,} of {self.events:,} Events"
        return f"{done}, {self.rate:,.0f} Events/s{left}"


type Tell = Callable[[Progress], None]


def tell_people(name: str) -> Tell:
    """Write a line on stderr, when the last one is old enough or the last Group is done."""
    told = 0.0

    def tell(progress: Progress) -> None:
        nonlocal told
        now = time.monotonic()
        if now - told >= line_seconds or progress.groups_done == progress.groups:
            told = now
            sys.stderr.write(f"rebuilding {name}: {progress}\n")

    return tell
