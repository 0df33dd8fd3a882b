"""Whether what the database holds may be believed to be the whole history: known of one life of one server (RULE-16).

While a server lives, what it committed stays. A restore, a volume set back, a failover and a moved address all lead to
another life. So each accepting transaction compares the life that it runs on with the one that was examined, and each
connection is compared when something is to be read on it: none is trusted for having been opened well.
"""

import asyncio
from collections.abc import Sequence
from datetime import datetime
from typing import Any, Final

from msgspec import Struct

not_examined_yet: Final = "the history has not been compared with the broker yet"
_another_life: Final = "the database server is another one or was started anew, and its history is not compared yet"


class ServerLife(Struct, frozen=True, rename="camel"):
    """One life of a PostgreSQL server: its cluster, its timeline, and when it was started."""

    cluster: str
    timeline: int
    started_at: datetime


class HistoryDoubted(Exception):
    """Nothing was written: this server's history is in doubt, or was not examined since the server came to life."""


class HistoryStanding:
    """The last verdict, shared by all that accept and read in a process. Until a guard takes part nothing is in doubt.

    `fault` says why the history is in doubt on the server life `examined`; without one it stands beyond doubt there.
    `asked` is set when somebody met another life.
    """

    def __init__(self) -> None:
        self.fault: str | None = None
        self.examined: ServerLife | None = None
        self.asked = asyncio.Event()

    def require_sound(self) -> None:
        """Raises HistoryDoubted while there is a fault."""
        if self.fault is not None:
            raise HistoryDoubted(self.fault)

    def require_examined(self, life: ServerLife) -> None:
        """Raises HistoryDoubted on a life that the verdict, good or bad, is not about."""
        if self.examined is not None and self.examined != life:
            self.asked.set()
            raise HistoryDoubted(_another_life)

    def require_judged(self, life: ServerLife) -> None:
        """Raises HistoryDoubted also while there is no verdict at all: nothing can be decided on it then."""
        self.require_examined(life)
        if self.examined is None:
            self.require_sound()


def server_life(row: Sequence[Any]) -> ServerLife:
    """From the columns cluster, timeline and started_at of `server_life`."""
    return ServerLife(*row)
