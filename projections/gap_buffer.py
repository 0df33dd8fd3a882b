"""Events that arrived before their turn, held for a short while so that a hole may close by itself."""

from collections.abc import Iterable
from typing import Final

from contracts.identifiers import GroupSequence
from projections.arrival import Arrival

held_events_max: Final = 4_096
"""Events held over all Groups of one projection."""
held_bytes_max: Final = 64 * 1024 * 1024
"""Bytes of those Events."""


class GapBuffer:
    """Per Group, by sequence. What does not fit is let go: the store knows that it exists, the source has it."""

    def __init__(self, events_max: int = held_events_max, bytes_max: int = held_bytes_max) -> None:
        """Both bounds count over all Groups."""
        self._events_max = events_max
        self._bytes_max = bytes_max
        self._groups: dict[str, dict[GroupSequence, Arrival]] = {}
        self._events = 0
        self._bytes = 0

    def __len__(self) -> int:
        """How many Events are held."""
        return self._events

    def hold(self, arrivals: Iterable[Arrival]) -> None:
        """Keep Events while there is room; of two at one sequence the later arrival stays."""
        for arrival in arrivals:
            self._drop(arrival.mark.group_id, arrival.mark.sequence)
            if self._events >= self._events_max or self._bytes + arrival.size > self._bytes_max:
                continue
            self._groups.setdefault(arrival.mark.group_id, {})[arrival.mark.sequence] = arrival
            self._events += 1
            self._bytes += arrival.size

    def take_joining(self, group_id: str, reached: GroupSequence) -> list[Arrival]:
        """Remove and return the run that follows `reached` without a hole; what lies at or below it is dropped."""
        group = self._groups.get(group_id, {})
        for sequence in [sequence for sequence in group if sequence <= reached]:
            self._drop(group_id, sequence)
        joining: list[Arrival] = []
        while (arrival := group.get(GroupSequence(reached + len(joining) + 1))) is not None:
            joining.append(arrival)
        for arrival in joining:
            self._drop(group_id, arrival.mark.sequence)
        return joining

    def discard(self, group_id: str) -> None:
        """Let go of all Events of a Group."""
        for sequence in list(self._groups.get(group_id, ())):
            self._drop(group_id, sequence)

    def _drop(self, group_id: str, sequence: GroupSequence) -> None:
        group = self._groups.get(group_id)
        arrival = group.pop(sequence, None) if group else None
        if arrival is None:
            return
        self._events -= 1
        self._bytes -= arrival.size
        if not group:
            del self._groups[group_id]
