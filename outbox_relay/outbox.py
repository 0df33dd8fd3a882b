"""What the relay reads of the authority: the views `outbox` and `outbox_shard`. Every method is one short read."""

from collections.abc import Mapping
from typing import Any, Final

from msgspec import Struct

from contracts.bounds import event_bytes_max
from contracts.delivery import PointerStub
from contracts.identifiers import ShardId, ShardPosition
from services.process.database import Pool
from services.process.statements import load

connection_wait_seconds: Final = 2.0
"""Seconds to wait for a connection of the pool: a database that is away must show before leases are over."""
page_rows_max: Final = 1_000
"""Rows of one page; a full page is one atomic batch, whose limit at the broker is 1,000 messages."""
page_bytes_max: Final = 2 * 1024 * 1024
"""Event bytes of one page (one larger Event still travels alone)."""


class LogFault(Exception):
    """The log breaks its own promise; nothing may be published from it."""


class OutboxRow(Struct, frozen=True, gc=False):
    """One row of the log: the canonical bytes of an Event, and whose they are (Group "" in the Organization shard)."""

    position: ShardPosition
    group_id: str
    incarnation: str
    event_id: str
    event: bytes


class OutboxPage(Struct, frozen=True):
    """Consecutive rows of a log, and whether it may well have more behind them: the page ended at its bounds."""

    rows: list[OutboxRow]
    more: bool


class LogHead(Struct, frozen=True):
    """The last position of a shard's log (0 when empty) and the Event ID at the position that was asked for."""

    position: ShardPosition
    event_id: str | None


class Backlog(Struct, frozen=True):
    """The head of one log, and in seconds the age of its oldest row that is not relayed (0 when none)."""

    head: ShardPosition
    age_seconds: float


class Outbox:
    """Reads the logs of one Organization from the primary. Every method raises `psycopg.Error` as it comes."""

    def __init__(self, pool: Pool, organization_id: str) -> None:
        """Use connections of this pool."""
        self._pool = pool
        self.organization_id = organization_id
        self._sql = load(__package__)

    async def shards(self) -> tuple[ShardId, ...]:
        """All shards of the Organization, in order."""
        rows = await self._read("list_shards")
        return tuple(ShardId(shard_id) for (shard_id,) in rows)

    async def lineage(self, shard_id: ShardId) -> tuple[str, ...]:
        """The incarnations of the history, oldest first; the last is the current one. Empty before `init`."""
        rows = await self._read("read_lineage", shard_id=shard_id)
        return tuple(rows[0][0]) if rows else ()

    async def page(
        self,
        shard_id: ShardId,
        after: ShardPosition,
        *,
        rows_max: int = page_rows_max,
        bytes_max: int = page_bytes_max,
    ) -> OutboxPage:
        """The next rows after a position; none at the head of the log. Raises LogFault when positions have a hole."""
        rows = await self._read("read_page", shard_id=shard_id, after=after, rows_max=rows_max, bytes_max=bytes_max)
        if rows and (rows[0][0] != after + 1 or rows[-1][0] != after + len(rows)):
            raise LogFault(f"the log has a hole between {after} and {rows[-1][0]}; restore it before relaying")
        found = [OutboxRow(*row) for row in rows]
        size = sum(len(row.event) for row in found)
        return OutboxPage(found, more=len(found) == rows_max or size > bytes_max - event_bytes_max)

    async def head(self, shard_id: ShardId, position: ShardPosition) -> LogHead:
        """The head of the log and the Event at `position`, in one snapshot."""
        [(head, event_id)] = await self._read("read_head", shard_id=shard_id, position=position)
        return LogHead(ShardPosition(head), event_id)

    async def pointer(self, shard_id: ShardId, position: ShardPosition) -> PointerStub:
        """What a pointer says of the Event at `position`, which must be in the log."""
        [(event_id, group_id, sequence, chain_hash)] = await self._read(
            "read_pointer", shard_id=shard_id, position=position
        )
        return PointerStub(
            event_id=event_id,
            group_id=group_id,
            sequence=sequence,
            position=position,
            chain_hash=bytes(chain_hash).hex(),
        )

    async def first_position(self, shard_id: ShardId, retention_seconds: float) -> ShardPosition:
        """Where a new stream starts: the lowest position younger than the retention (0 keeps everything)."""
        [(position,)] = await self._read("find_first_position", shard_id=shard_id, retention_seconds=retention_seconds)
        return ShardPosition(position)

    async def backlog(self, relayed: Mapping[ShardId, ShardPosition]) -> dict[ShardId, Backlog]:
        """How far each log is ahead of what is relayed, on the database clock."""
        rows = await self._read("measure_backlog", shard_ids=list(relayed), positions=list(relayed.values()))
        return {
            ShardId(shard_id): Backlog(ShardPosition(head or 0), max(0.0, age_seconds or 0.0))
            for shard_id, head, age_seconds in rows
        }

    async def _read(self, statement: str, **asked: Any) -> list[tuple[Any, ...]]:
        asked["organization_id"] = self.organization_id
        async with self._pool.connection(timeout=connection_wait_seconds) as connection:
            cursor = await connection.execute(self._sql[statement], asked, binary=True)
            return await cursor.fetchall()
