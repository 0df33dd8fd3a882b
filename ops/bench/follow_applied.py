"""From lines that say when what was committed, and rows that say when it was accepted, to latencies."""

import math
from bisect import bisect_left
from collections import defaultdict
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Final, NamedTuple

applied_name: Final = "applied"
"""The file that `note_applied` writes."""


class Committed(NamedTuple):
    """An Event that the authority has committed; `at` in seconds of the machine's clock."""

    group_id: str
    sequence: int
    at: float


class AppliedLog:
    """What a projection noted, as far as it has been read."""

    def __init__(self, path: Path) -> None:
        """Read `path` from its beginning, as it grows; it need not be there yet."""
        self._path = path
        self._offset = 0
        self._places: defaultdict[str, tuple[list[int], list[float]]] = defaultdict(lambda: ([], []))

    def read(self) -> None:
        """Take in the lines that are complete by now."""
        if not self._path.exists():
            return
        with self._path.open("rb") as file:
            file.seek(self._offset)
            complete, end, _ = file.read().rpartition(b"\n")
        self._offset += len(complete) + len(end)
        for line in complete.decode().splitlines():
            at, sequence, group_id = line.split(" ", 2)
            sequences, times = self._places[group_id]
            sequences.append(int(sequence))
            times.append(float(at))

    def applied_at(self, committed: Committed) -> float | None:
        """When an Event was applied; None while it is not."""
        sequences, times = self._places[committed.group_id]
        place = bisect_left(sequences, committed.sequence)
        return times[place] if place < len(times) else None

    def has(self, committed: Iterable[Committed]) -> bool:
        """Whether all of these are applied."""
        return all(self.applied_at(each) is not None for each in committed)

    def rate(self, committed: Sequence[Committed]) -> float:
        """Events per second from the first of these commits to the last application."""
        last = max(applied for each in committed if (applied := self.applied_at(each)) is not None)
        return len(committed) / (last - min(each.at for each in committed))

    def latencies(self, committed: Iterable[Committed]) -> list[float]:
        """Seconds from commit to application, shortest first, of those that are applied."""
        pairs = ((each.at, self.applied_at(each)) for each in committed)
        return sorted(applied - at for at, applied in pairs if applied is not None)


def percentile(ordered: Sequence[float], percent: float) -> float:
    """The smallest value that so many percent do not exceed; `ordered` holds at least one, smallest first."""
    return ordered[max(0, math.ceil(len(ordered) * percent / 100) - 1)]
