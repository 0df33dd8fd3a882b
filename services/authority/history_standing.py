"""Whether what the database holds may be believed to be the whole history: known of one life of one server (RULE-16).

While a server lives, what it committed stays. A restore, a volume set back, a failover and a moved address all lead to
another life, whatever connections, poolers and proxies stand between. So each accepting transaction and each read
compares the life that it runs on with the one that was examined; no connection has to be trusted.
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

    `fault` says why the history is in doubt; without one it stands beyond doubt on the server life `examined`.
    `asked` is set when somebody met another life.
    """

    def __init__(self) -> None:
        self.fault: str | None = None
        self.examined: ServerLife | None = None
        self.asked = asyncio.Event()

    def doubt(self, life: ServerLife) -> str | None:
        """Why nothing read on this life may be believed now, or None."""
        return self.fault or (_another_life if self._is_another(life) else None)

    def require_examined(self, life: ServerLife) -> None:
        """Raises HistoryDoubted on a life that no verdict is about. While there is a fault the judge knows of it."""
        if self.fault is None and self._is_another(life):
            raise HistoryDoubted(_another_life)

    def _is_another(self, life: ServerLife) -> bool:
        if self.examined is None or self.examined == life:
            return False
        self.asked.set()
        return True


def server_life(row: Sequence[Any]) -> ServerLife:
    """From the columns cluster, timeline and started_at of `server_life`."""
    return ServerLife(*row)
