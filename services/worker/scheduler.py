"""Which ready WorkItem gets a free slot. This file is the seam behind which a richer scheduler can stand.

The rule: the Group that was served longest ago goes first, so one Group cannot hold a slot while another waits;
inside a Group the WorkItem that is due first.
"""

from collections.abc import Sequence
from datetime import datetime

from msgspec import Struct


class ReadyWork(Struct, frozen=True):
    """A WorkItem that may start now. `due` is its contract's deadline."""

    group_id: str
    work_item_id: str
    due: datetime


class Scheduler:
    """Round robin over Groups, earliest due first inside each."""

    def __init__(self) -> None:
        self._served: dict[str, int] = {}
        self._turn = 0

    def choose(self, ready: Sequence[ReadyWork]) -> ReadyWork | None:
        """The next one to start, or None when nothing is ready. Choosing counts as serving."""
        if not ready:
            return None
        chosen = min(ready, key=lambda work: (self._served.get(work.group_id, 0), work.due, work.work_item_id))
        self._turn += 1
        self._served[chosen.group_id] = self._turn
        return chosen
