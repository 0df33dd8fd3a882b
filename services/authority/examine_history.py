"""Whether the database still holds the whole history: its own identity, and the broker's high-water marks (RULE-16).

A restored dump stands in another cluster, a promoted standby or a point-in-time recovery on another timeline. A volume
set back keeps both; then the streams, which lie outside PostgreSQL, end beyond the log, or belong to an incarnation
that the database has forgotten. What none of them shows was never published to anybody.
"""

import asyncio
from typing import Any, Final

from msgspec import Struct
from nats.errors import Error as BrokerError
from psycopg import AsyncConnection

from contracts import subjects
from contracts.identifiers import ShardId
from services.authority.broker_consumers import BrokerConsumers, StreamAbsent
from services.authority.history_standing import ServerLife, server_life
from services.process.statements import load

shards_at_once_max: Final = 16
"""Shards that the broker is asked about at once."""
broker_seconds_max: Final = 10.0
"""Seconds that the broker may take for its answers, all together."""

sql = load(__package__)


class ShardEnd(Struct, frozen=True, kw_only=True, rename="camel"):
    """Where a shard's log ends, and its stream; `stream` is None when there is none in this incarnation."""

    shard_id: int
    log: int
    stream: int | None


class HistoryEvidence(Struct, frozen=True, kw_only=True, rename="camel"):
    """What was found. `forgotten` are incarnations that the broker holds streams of and the database does not know."""

    incarnation: str
    founded_on: tuple[str, int]
    life: ServerLife
    shards: tuple[ShardEnd, ...]
    forgotten: tuple[str, ...]

    @property
    def stands_on(self) -> tuple[str, int]:
        """Cluster and timeline of the server that was examined."""
        return self.life.cluster, self.life.timeline

    @property
    def was_promoted(self) -> bool:
        """Whether this is a later timeline of the same cluster: a failover, or a recovery to an earlier point."""
        return self.founded_on[0] == self.stands_on[0] and self.founded_on[1] < self.stands_on[1]

    @property
    def identity_fault(self) -> str | None:
        """Why the database is not the one that the incarnation was founded on, or None."""
        (cluster, timeline), (now_cluster, now_timeline) = self.founded_on, self.stands_on
        if cluster != now_cluster:
            return f"the database is a copy in another cluster ({now_cluster}, not {cluster})"
        if timeline != now_timeline:
            return f"the database was promoted or recovered: it is on timeline {now_timeline}, not {timeline}"
        return None

    @property
    def stream_fault(self) -> str | None:
        """What the broker has that the database lost, or None."""
        for shard in self.shards:
            if shard.stream is not None and shard.stream > shard.log:
                return (
                    f"the database lost commits: the stream of shard {shard.shard_id} ends at {shard.stream}, "
                    f"its log at {shard.log}"
                )
        if self.forgotten:
            return f"the database was set back to before incarnation {self.forgotten[0]} was opened"
        return None


class NotExaminable(Exception):
    """What stands here cannot be compared now; the message says why and what to do."""


examination_faults = (BrokerError, TimeoutError, NotExaminable)
"""What an examination raises when nothing can be known; database errors come as they are."""


async def examine_history(
    connection: AsyncConnection[Any], broker: BrokerConsumers, organization_id: str
) -> HistoryEvidence:
    """Read streams, then logs: a stream can only end beyond a log that was read later if commits were lost.

    `connection` is in autocommit. Raises what `examination_faults` names, psycopg errors, and LookupError for an
    Organization that is not there: then nothing is known.
    """
    asked = {"organization_id": organization_id}
    evidence = await _evidence(connection, asked)
    shard_ids = [ShardId(shard) for shard, _ in await (await connection.execute(sql.read_shard_ends, asked)).fetchall()]
    streams = await _streams(broker, organization_id, shard_ids, evidence[0])
    # One transaction, so that one server answers, whatever stands between.
    async with connection.transaction():
        incarnation, cluster, timeline, *life = await _evidence(connection, asked)
        known = {name for (name,) in await (await connection.execute(sql.read_incarnation_names, asked)).fetchall()}
        ends = await (await connection.execute(sql.read_shard_ends, asked)).fetchall()
    if incarnation != evidence[0]:
        raise NotExaminable("another incarnation began meanwhile; look again")
    holders = dict.fromkeys(name for stream in streams.values() for name in stream.holders)
    return HistoryEvidence(
        incarnation=incarnation,
        founded_on=(cluster, timeline),
        life=server_life(life),
        shards=tuple(ShardEnd(shard_id=shard, log=end, stream=_end_of(streams.get(shard))) for shard, end in ends),
        forgotten=tuple(name for name in holders if name not in known),
    )


async def _evidence(connection: AsyncConnection[Any], asked: dict[str, Any]) -> tuple[Any, ...]:
    """Incarnation, founding cluster and timeline, and the columns of this server's life."""
    row = await (await connection.execute(sql.read_history_evidence, asked)).fetchone()
    if row is None:
        raise LookupError(f"{asked['organization_id']} has no incarnation; run weavehold init")
    if row[4] is None:
        raise NotExaminable("the database is a standby in recovery; promote it or lead the address to the primary")
    return tuple(row)


class _Stream(Struct, frozen=True):
    """A shard's stream in the current incarnation (None: there is none), and the incarnations of all that hold it."""

    end: int | None
    holders: tuple[str, ...]


def _end_of(stream: _Stream | None) -> int | None:
    return None if stream is None else stream.end


async def _streams(
    broker: BrokerConsumers, organization_id: str, shard_ids: list[ShardId], incarnation: str
) -> dict[int, _Stream]:
    """What the broker has of each shard, asked of a few at a time."""

    async def look(shard_id: ShardId) -> _Stream:
        names = await broker.holders(subjects.shard_events(organization_id, shard_id))
        holders = tuple(name for held in names if (name := subjects.incarnation_of(held)) is not None)
        try:
            end = await broker.last_sequence(subjects.stream_name(organization_id, shard_id, incarnation))
        except StreamAbsent:
            end = None
        return _Stream(end, holders)

    found: dict[int, _Stream] = {}
    async with asyncio.timeout(broker_seconds_max):
        for start in range(0, len(shard_ids), shards_at_once_max):
            some = shard_ids[start : start + shards_at_once_max]
            found |= zip(some, await asyncio.gather(*map(look, some)), strict=True)
    return found
