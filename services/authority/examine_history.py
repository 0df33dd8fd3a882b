"""Whether the database still holds the whole history: its own identity, and the broker's high-water marks (RULE-16).

A restored dump stands in another cluster, a promoted standby or a point-in-time recovery on another timeline. A volume
set back keeps both; then the streams, which lie outside PostgreSQL, end beyond the log, or belong to an incarnation
that the database has forgotten. What none of them shows was never published to anybody.
"""

from typing import Any

from msgspec import Struct
from nats.errors import Error as BrokerError
from psycopg import AsyncConnection

from contracts import subjects
from contracts.identifiers import ShardId
from services.authority.broker_consumers import BrokerConsumers, StreamAbsent
from services.process.statements import load

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
    stands_on: tuple[str, int]
    shards: tuple[ShardEnd, ...]
    forgotten: tuple[str, ...]

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


async def examine_history(
    connection: AsyncConnection[Any], broker: BrokerConsumers, organization_id: str
) -> HistoryEvidence:
    """Read streams, then logs: a stream can only end beyond a log that was read later if commits were lost.

    Raises psycopg errors, `nats.errors.Error` and `TimeoutError`: then nothing is known.
    """
    asked = {"organization_id": organization_id}
    row = await (await connection.execute(sql.read_history_evidence, asked)).fetchone()
    if row is None:
        raise LookupError(f"{organization_id} has no incarnation; run weavehold init")
    incarnation, cluster, timeline, now_cluster, now_timeline = row
    shard_ids = [ShardId(shard) for shard, _ in await (await connection.execute(sql.read_shard_ends, asked)).fetchall()]
    known = {name for (name,) in await (await connection.execute(sql.read_incarnation_names, asked)).fetchall()}
    streams: dict[int, int | None] = {}
    forgotten: dict[str, None] = {}
    for shard_id in shard_ids:
        streams[shard_id] = await _end_of(broker, subjects.stream_name(organization_id, shard_id, incarnation))
        for holder in await broker.holders(subjects.shard_events(organization_id, shard_id)):
            if (name := subjects.incarnation_of(holder)) is not None and name not in known:
                forgotten[name] = None
    ends = await (await connection.execute(sql.read_shard_ends, asked)).fetchall()
    return HistoryEvidence(
        incarnation=incarnation,
        founded_on=(cluster, timeline),
        stands_on=(now_cluster, now_timeline),
        shards=tuple(ShardEnd(shard_id=shard, log=end, stream=streams.get(shard)) for shard, end in ends),
        forgotten=tuple(forgotten),
    )


async def _end_of(broker: BrokerConsumers, stream: str) -> int | None:
    try:
        return await broker.last_sequence(stream)
    except StreamAbsent:
        return None


examination_faults = (BrokerError, TimeoutError)
"""What an examination raises when the broker does not answer."""
