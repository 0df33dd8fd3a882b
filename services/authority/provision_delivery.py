"""Give an Agent's current session its delivery: one durable pull consumer per shard with Groups of the Agent (RULE-25).

Authoritative here: Memberships and the Session Epoch in PostgreSQL. The consumers are a projection of them that can be
made again at any time:
- filters are the literal subjects of the Groups whose Membership has not ended, never a wildcard;
- a consumer begins after every Event that some Membership in the shard hides (RULE-23) and after what the Agent has
  acknowledged in all of its Groups; Events below that are the replay service's business;
- consumers of the Agent's earlier sessions are deleted.

Two processes may provision at once, and a Membership may change meanwhile: what was written is compared with the
database afterwards, and written again until they agree. A crash in between leaves consumers that the next request
corrects; nothing is lost, since every gap closes by replay.
"""

import asyncio
from collections.abc import Callable, Iterable
from typing import Any, Final

from msgspec import Struct
from nats.aio.client import Client
from nats.errors import Error as BrokerError
from psycopg import AsyncConnection

from contracts import subjects
from contracts.identifiers import SessionEpoch, ShardId, organization_shard, token
from contracts.payloads.requests import Delivery, HeldMembership
from contracts.rejection import Code, Rejection, reject
from services.authority.broker_consumers import BrokerConsumers, StreamAbsent
from services.authority.held_memberships import read_held_memberships
from services.process.database import Connections
from services.process.logs import get_log
from services.process.statements import load

delivered_groups_max: Final = 1_000
"""Groups of one shard that one consumer filters by; the broker takes about 0.4 s to set up so many."""
memberships_read_max: Final = 400
"""Memberships read in one statement."""
provision_rounds_max: Final = 4
"""Times that consumers are written again because Memberships changed meanwhile."""
broker_calls_max: Final = 16
"""Calls to the broker's API in flight for one request."""
consumer_names: Final = 16
"""Names that the consumers of an Agent take in turn, one per session: the broker grants literal names only, so an
Agent's must be few enough to be listed. A name comes again when all earlier holders of it are long deleted."""
retry_after_ms: Final = 500
"""Milliseconds that a Worker is told to wait for a stream or for the broker."""

log = get_log(__name__)
sql = load(__package__)


class ShardScope(Struct, frozen=True):
    """What an Agent may get of one shard's stream.

    `filters` are subjects, sorted. Positions up to `hidden` hold Events that some Membership hides; positions up to
    `settled` hold nothing that the Agent still needs.
    """

    shard_id: ShardId
    filters: tuple[str, ...]
    hidden: int
    settled: int


class Scope(Struct, frozen=True):
    """What an Agent may get now, shard by shard. `streams` are those of all shards of Mission trees."""

    incarnation: str
    streams: tuple[str, ...]
    session_epoch: SessionEpoch
    shards: tuple[ShardScope, ...]

    @property
    def permission(self) -> tuple[Any, ...]:
        """The part that decides what may be delivered: without what the Agent acknowledges along the way."""
        return (self.incarnation, self.session_epoch, *((s.shard_id, s.filters, s.hidden) for s in self.shards))


async def provision_delivery(
    nc: Client, pool: Connections, organization_id: str, agent_id: str, session_epoch: SessionEpoch
) -> tuple[Delivery, ...] | Rejection:
    """Make the session's consumers agree with its Memberships and remove those of earlier sessions.

    A Rejection says that the session is stale, that an Agent has too many Groups in a shard, or that the broker or a
    stream is not ready (retryable).
    """
    consumers = BrokerConsumers(nc)
    written: Scope | None = None
    try:
        for _ in range(provision_rounds_max):
            async with pool.connection() as connection:
                scope = await read_scope(connection, organization_id, agent_id)
            if scope.session_epoch != session_epoch:
                # Undo what this session wrote while it was being replaced.
                await _delete_where(consumers, scope.streams, consumer_name(agent_id, session_epoch).__eq__)
                message = f"session epoch {session_epoch} of {agent_id} was replaced by {scope.session_epoch}"
                return reject(Code.AUTH_STALE_SESSION, f"{message}; open a new session")
            if refusal := _too_many_groups(agent_id, scope):
                return refusal
            if written is not None and written.permission == scope.permission:
                return tuple(_delivery(organization_id, agent_id, scope, shard) for shard in scope.shards)
            await _write(consumers, organization_id, agent_id, scope)
            written = scope
    except (StreamAbsent, StreamBehind) as absence:
        return _not_ready(f"delivery is being set up ({absence})")
    except (BrokerError, TimeoutError) as fault:
        log.warning("delivery_not_provisioned", agent_id=agent_id, error=str(fault) or type(fault).__name__)
        return _not_ready("the broker does not answer")
    return _not_ready(f"Memberships of {agent_id} keep changing")


async def read_scope(connection: AsyncConnection[Any], organization_id: str, agent_id: str) -> Scope:
    """What the Agent may get by what PostgreSQL says now."""
    asked = {"organization_id": organization_id, "agent_id": agent_id}
    session = await (await connection.execute(sql.read_session_epoch, asked)).fetchone()
    current = await (await connection.execute(sql.read_current_incarnation, asked)).fetchone()
    assert current is not None  # noqa: S101 - every Organization has an incarnation from its first transaction on
    held: list[HeldMembership] = []
    after: str | None = ""
    while after is not None:
        page, after = await read_held_memberships(connection, organization_id, agent_id, after, memberships_read_max)
        held.extend(page)
    places = {
        "organization_id": organization_id,
        "principal_id": agent_id,
        "group_ids": [membership.group_id for membership in held],
        "visibility_starts": [membership.visibility_start_sequence for membership in held],
    }
    rows = await (await connection.execute(sql.read_delivery_places, places)).fetchall()
    positions = {group_id: (hidden, settled) for group_id, hidden, settled in rows}
    incarnation, shard_count = current
    return Scope(
        incarnation=incarnation,
        streams=_streams(organization_id, incarnation, shard_count),
        session_epoch=SessionEpoch(session[0] if session else 0),
        shards=tuple(_shard_scopes(organization_id, held, positions)),
    )


def _shard_scopes(
    organization_id: str, held: Iterable[HeldMembership], positions: dict[str, tuple[int, int]]
) -> Iterable[ShardScope]:
    by_shard: dict[ShardId, list[str]] = {}
    for membership in held:
        by_shard.setdefault(ShardId(membership.shard_id), []).append(membership.group_id)
    for shard_id, group_ids in sorted(by_shard.items()):
        yield ShardScope(
            shard_id=shard_id,
            filters=tuple(sorted(subjects.event(organization_id, shard_id, group_id) for group_id in group_ids)),
            hidden=max(positions[group_id][0] for group_id in group_ids),
            settled=min(positions[group_id][1] for group_id in group_ids),
        )


def _streams(organization_id: str, incarnation: str, shard_count: int) -> tuple[str, ...]:
    shards = (ShardId(number) for number in range(organization_shard + 1, shard_count + 1))
    return tuple(subjects.stream_name(organization_id, shard_id, incarnation) for shard_id in shards)


async def _write(consumers: BrokerConsumers, organization_id: str, agent_id: str, scope: Scope) -> None:
    """Write the consumers of every shard, and delete what is no longer allowed anywhere."""
    wanted = {subjects.stream_name(organization_id, s.shard_id, scope.incarnation): s for s in scope.shards}
    name = consumer_name(agent_id, scope.session_epoch)
    limit = asyncio.Semaphore(broker_calls_max)

    async def settle(stream: str) -> None:
        async with limit:
            try:
                existing = await consumers.consumers_of(stream)
            except StreamAbsent:
                if stream in wanted:
                    raise
                return
            for consumer in existing:
                replaced = is_replaced(consumer, agent_id, scope.session_epoch)
                if replaced or (consumer == name and stream not in wanted):
                    await consumers.delete(stream, consumer)
            if stream in wanted:
                await _write_one(consumers, stream, name, wanted[stream])

    await asyncio.gather(*(settle(stream) for stream in scope.streams))


async def _write_one(consumers: BrokerConsumers, stream: str, name: str, scope: ShardScope) -> None:
    """Create the consumer, change its filters, or make it anew where it stands before an Event that is hidden."""
    last = await consumers.last_sequence(stream)
    if last < scope.hidden:
        # The broker moves a start beyond its end back to its end: hidden Events would be delivered as they arrive.
        raise StreamBehind(f"{stream} is at {last}, the Agent's part begins after {scope.hidden}")
    place = await consumers.find(stream, name)
    if place is None:
        await consumers.put(stream, name, scope.filters, min(max(scope.hidden, scope.settled), last) + 1)
    elif place.passed < scope.hidden:
        await consumers.delete(stream, name)
        await consumers.put(stream, name, scope.filters, scope.hidden + 1)
    elif place.filters != scope.filters:
        await consumers.put(stream, name, scope.filters, place.started_at)


class StreamBehind(Exception):
    """The relay has not published far enough for this Agent's consumer to begin."""


async def retire_deliveries(
    nc: Client, pool: Connections, organization_id: str, agent_id: str, epoch: SessionEpoch
) -> None:
    """Delete the Agent's consumers of the sessions before `epoch`, wherever they are.

    Raises `nats.errors.Error` when the broker does not answer; the next provisioning does the same.
    """
    async with pool.connection() as connection:
        asked = {"organization_id": organization_id}
        current = await (await connection.execute(sql.read_current_incarnation, asked)).fetchone()
    assert current is not None  # noqa: S101 - every Organization has an incarnation from its first transaction on
    await _delete_where(
        BrokerConsumers(nc), _streams(organization_id, *current), lambda name: is_replaced(name, agent_id, epoch)
    )


async def _delete_where(consumers: BrokerConsumers, streams: Iterable[str], chosen: Callable[[str], bool]) -> None:
    for stream in streams:
        try:
            for consumer in filter(chosen, await consumers.consumers_of(stream)):
                await consumers.delete(stream, consumer)
        except StreamAbsent:
            continue


def consumer_name(agent_id: str, session_epoch: SessionEpoch) -> str:
    """`worker-<token(agent)>-<sessionEpoch modulo consumer_names>`: the same on every shard's stream."""
    return f"worker-{token(agent_id)}-{session_epoch % consumer_names}"


def is_replaced(consumer: str, agent_id: str, session_epoch: SessionEpoch) -> bool:
    """Whether a consumer is one of this Agent's from a session before `session_epoch`.

    Numbers that go round are compared by the shorter way (RFC 1982): one that is at most half a round behind is older.
    """
    prefix, _, number = consumer.rpartition("-")
    if prefix != f"worker-{token(agent_id)}" or not number.isdecimal():
        return False
    return 0 < (session_epoch - int(number)) % consumer_names <= consumer_names // 2


def _delivery(organization_id: str, agent_id: str, scope: Scope, shard: ShardScope) -> Delivery:
    return Delivery(
        shard_id=shard.shard_id,
        stream=subjects.stream_name(organization_id, shard.shard_id, scope.incarnation),
        consumer=consumer_name(agent_id, scope.session_epoch),
    )


def _too_many_groups(agent_id: str, scope: Scope) -> Rejection | None:
    for shard in scope.shards:
        if len(shard.filters) > delivered_groups_max:
            message = (
                f"{agent_id} is a member of {len(shard.filters)} Groups in shard {shard.shard_id}; at most "
                f"{delivered_groups_max} are delivered to one Worker: end Memberships that are done"
            )
            return reject(Code.RATE_LIMITED, message)
    return None


def _not_ready(why: str) -> Rejection:
    return reject(Code.BACKPRESSURE, f"{why}; ask again", retryable=True, retry_after_ms=retry_after_ms)
