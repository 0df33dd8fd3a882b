"""Connections for reads: each leads to the server whose history was examined (RULE-16, RULE-21)."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from services.authority.history_standing import HistoryDoubted, HistoryStanding, server_life
from services.process.database import Connection, Pool
from services.process.statements import load

sql = load(__package__)


class ExaminedPool:
    """A pool that is asked before each use which life of which server a connection leads to."""

    def __init__(self, pool: Pool, standing: HistoryStanding) -> None:
        """`standing` is the verdict of this process."""
        self._pool = pool
        self._standing = standing

    @asynccontextmanager
    async def connection(self) -> AsyncIterator[Connection]:
        """A connection to what was examined and is beyond doubt. Raises HistoryDoubted, and what the pool raises."""
        self._standing.require_sound()
        async with self._pool.connection() as connection:
            [life] = await (await connection.execute(sql.read_server_life)).fetchall()
            try:
                self._standing.require_examined(server_life(life))
            except HistoryDoubted:
                # It may lead elsewhere than new ones do.
                await connection.close()
                raise
            # The verdict may have come while the pool was waited for.
            self._standing.require_sound()
            yield connection
