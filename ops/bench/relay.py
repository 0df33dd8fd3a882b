"""The relay against bare publishing of the same bytes by the same client library: [relay].

The baseline holds its messages in memory and keeps a window of unanswered ones under way, without headers, order or
fences. The relay starts at an empty stream and does all its work: leases, reading the log, headers, fencing. Both run
in this process on the same connection settings, in turns.
"""

import asyncio
import secrets
import time
from collections.abc import Callable
from typing import Final

from nats.aio.client import Client
from nats.aio.msg import Msg

from contracts import subjects
from contracts.identifiers import ShardId, ShardPosition, organization_shard
from ops.bench.measurement import Measurement, measured
from ops.bench.rig import running_rig
from outbox_relay.held_shards import HeldShards
from outbox_relay.outbox import Outbox
from outbox_relay.stream import ShardStream, StreamLimits
from services.process import broker
from services.process.database import Pool, connect, open_pool
from services.process.metrics import Metrics
from services.process.statements import load
from services.process.unique import holder_name

events_default: Final = 30_000
event_bytes: Final = 1_024
rounds: Final = 5
"""Interleaved pairs of relay and baseline, after one that is not counted."""
window: Final = 512
"""Unanswered messages of the baseline."""
target: Final = 0.7
round_seconds_max: Final = 120.0
"""Seconds that one run may take."""
poll_seconds: Final = 0.005
"""Seconds between two looks at how far the relay is."""
shard_id: Final = ShardId(1)


async def measure() -> Measurement:
    """On a stack of its own, without an authority."""
    async with running_rig(1, authorities=0) as rig:
        organization_id = rig.organization.organization_id
        connection = await connect(rig.database_url, name="bench")
        facts = {
            "organization_id": organization_id,
            "shard_id": shard_id,
            "incarnation": rig.organization.incarnation,
            "events": events_default,
            "bytes": event_bytes,
        }
        await connection.execute(load(__package__).fill_log, facts)
        await connection.close()
        return await compare(rig.database_url, rig.broker.url, organization_id, events_default)


async def compare(database_url: str, nats_url: str, organization_id: str, events: int) -> Measurement:
    """Compare on a log of `events` rows in shard 1, which no other relay may serve meanwhile."""
    pool = await open_pool(database_url, name="bench-relay", maximum=4)
    client = await broker.connect(nats_url, name="bench-relay")
    try:
        outbox = Outbox(pool, organization_id)
        [*_, incarnation] = await outbox.lineage(shard_id)
        bodies = await _bodies(outbox, events)
        pairs: list[tuple[float, float]] = []
        for _ in range(rounds + 1):
            baseline = await _publish_bare(client, organization_id, bodies)
            relayed = await _relay(pool, client, organization_id, incarnation, events)
            pairs.append((events / relayed, events / baseline))
    finally:
        await client.close()
        await pool.close()
    notes: dict[str, float] = {"events": events, "eventBytes": event_bytes, "baselineWindow": window}
    return measured("relay", "Events/s", pairs[1:], target, notes)


async def _bodies(outbox: Outbox, events: int) -> list[tuple[str, bytes]]:
    """The subjects and bytes of the log, in memory."""
    bodies: list[tuple[str, bytes]] = []
    while len(bodies) < events:
        page = await outbox.page(shard_id, ShardPosition(len(bodies)))
        bodies.extend((subjects.event(outbox.organization_id, shard_id, row.group_id), row.event) for row in page.rows)
    return bodies


async def _publish_bare(client: Client, organization_id: str, bodies: list[tuple[str, bytes]]) -> float:
    """Seconds to publish everything in a window, with nothing but an answer for each message."""
    stream = ShardStream(client, organization_id, shard_id, StreamLimits())
    name = secrets.token_hex(16)
    await stream.create(name, ShardPosition(1))
    inbox, room, answered = client.new_inbox(), asyncio.Semaphore(window), 0
    done = asyncio.Event()

    async def on_answer(_message: Msg) -> None:
        nonlocal answered
        answered += 1
        room.release()
        if answered == len(bodies):
            done.set()

    subscription = await client.subscribe(inbox, cb=on_answer)
    started = time.perf_counter()
    async with asyncio.timeout(round_seconds_max):
        for subject, body in bodies:
            await room.acquire()
            await client.publish(subject, body, reply=inbox)
        await done.wait()
    seconds = time.perf_counter() - started
    await subscription.unsubscribe()
    await _delete(client, stream.name(name))
    return seconds


async def _relay(pool: Pool, client: Client, organization_id: str, incarnation: str, events: int) -> float:
    """Seconds from the start of a relay without a stream until the broker has confirmed the whole log."""
    metrics, stopping = Metrics("bench-relay"), asyncio.Event()
    shards = HeldShards(
        pool=pool,
        client=client,
        organization_id=organization_id,
        holder=holder_name("bench"),
        limits=StreamLimits(),
        metrics=metrics,
    )
    started = time.perf_counter()
    task = asyncio.create_task(shards.run(stopping, lambda: None))
    try:
        async with asyncio.timeout(round_seconds_max):
            # At first the place is the one on record from the round before; the relay's look at the stream resets it.
            await _until(lambda: _position(shards) == 0)
            await _until(lambda: _position(shards) == events)
        seconds = time.perf_counter() - started
    finally:
        stopping.set()
        await task
        metrics.close()
    stored = await ShardStream(client, organization_id, shard_id, StreamLimits()).state(incarnation)
    if stored is None or stored.last_sequence != events:
        raise RuntimeError(f"the relay says that {events} Events are stored, the broker {stored}")
    for each in (organization_shard, shard_id):
        await _delete(client, subjects.stream_name(organization_id, each, incarnation))
    return seconds


def _position(shards: HeldShards) -> int | None:
    place = shards.places().get(shard_id)
    return None if place is None else place.position


async def _until(reached: Callable[[], bool]) -> None:
    while not reached():  # noqa: ASYNC110 - the relay announces nothing that one could wait for
        await asyncio.sleep(poll_seconds)


async def _delete(client: Client, stream: str) -> None:
    await client.request(f"$JS.API.STREAM.DELETE.{stream}", timeout=round_seconds_max)
