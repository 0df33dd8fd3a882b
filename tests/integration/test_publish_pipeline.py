"""Publishing with fences against a real broker: what arrives late, twice or at the wrong place is refused (OBX-2)."""

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager

import pytest
from nats.aio.client import Client

from contracts.identifiers import ShardPosition
from ops.init import Organization
from outbox_relay import publish_pipeline
from outbox_relay.message import Message, MessageMaker
from outbox_relay.outbox import Outbox
from outbox_relay.publish_answer import Stop, StopReason
from outbox_relay.publish_pipeline import PublishPipeline
from outbox_relay.stream import ShardStream, StreamLimits
from services.process import broker
from services.process.database import open_pool
from tests.fault_proxy import FaultProxy
from tests.relay_rig import Shard, api, open_shard


@pytest.fixture
async def shard(database_url: str, nats_url: str, organization: Organization) -> AsyncIterator[Shard]:
    """A log of 300 rows and an empty stream."""
    async with open_shard(database_url, nats_url, organization) as opened:
        stream = ShardStream(opened.client, organization.organization_id, opened.shard_id, StreamLimits())
        assert await stream.create(opened.incarnation, ShardPosition(1))
        await opened.append(300)
        yield opened


async def messages(shard: Shard, first: int, last: int, epoch: int = 1) -> list[Message]:
    pool = await open_pool(shard.database_url, name="test", maximum=1)
    try:
        outbox = Outbox(pool, shard.organization.organization_id)
        page = await outbox.page(shard.shard_id, ShardPosition(first - 1), rows_max=last - first + 1)
    finally:
        await pool.close()
    maker = MessageMaker(shard.organization.organization_id, shard.shard_id, shard.incarnation, epoch)
    return [maker.event(row) for row in page.rows]


@asynccontextmanager
async def pipeline(shard: Shard, after: int, client: Client | None = None) -> AsyncIterator[PublishPipeline]:
    opened = PublishPipeline(client or shard.client, shard.stream, ShardPosition(after))
    await opened.open()
    try:
        yield opened
    finally:
        await opened.close()


async def publish(into: PublishPipeline, given: Sequence[Message], way: str) -> Stop | None:
    ways = {"chained": into.publish, "singly": into.publish_singly, "batch": into.publish_batch}
    return await ways[way](given) or await into.settle()


each_way = pytest.mark.parametrize("way", ["chained", "singly", "batch"])


@each_way
async def test_what_a_stale_publisher_sends_is_refused(shard: Shard, way: str) -> None:
    """OBX-2: one that believes in an older end of the stream doubles nothing."""
    async with pipeline(shard, 0) as first:
        assert await publish(first, await messages(shard, 1, 150), way) is None
        assert first.confirmed == 150
    async with pipeline(shard, 40) as stale:
        stop = await publish(stale, await messages(shard, 41, 150), way)
        assert stop is not None
        assert stop.reason is StopReason.SEQUENCE
        assert stale.confirmed == 40
    assert [message.sequence for message in await shard.messages()] == list(range(1, 151))


async def test_what_a_stale_publisher_may_add_is_the_missing_event_itself(shard: Shard) -> None:
    """OBX-2: its first messages are refused, and the first that fits the stream's end is the right one there."""
    async with pipeline(shard, 0) as first:
        assert await publish(first, await messages(shard, 1, 150), "singly") is None
    async with pipeline(shard, 40) as stale:
        assert await publish(stale, await messages(shard, 41, 300), "singly") is not None
    end = (await shard.state() or {})["last_seq"]
    assert end >= 150
    await shard.compare(last=end)


@each_way
async def test_nothing_is_skipped(shard: Shard, way: str) -> None:
    """OBX-2: one that believes in a later end leaves no hole."""
    async with pipeline(shard, 10) as early:
        stop = await publish(early, await messages(shard, 11, 130), way)
        assert stop is not None
        assert stop.reason is StopReason.SEQUENCE
    assert await shard.messages() == []


@each_way
async def test_a_late_message_never_enters_another_incarnation(shard: Shard, way: str) -> None:
    """RULE-18: the subject is the same in every incarnation, the expected stream is not."""
    stream = ShardStream(shard.client, shard.organization.organization_id, shard.shard_id, StreamLimits())
    await stream.retire(shard.incarnation)
    later = shard.later("f" * 32)
    assert await stream.create(later.incarnation, ShardPosition(1))
    async with pipeline(shard, 0) as late:
        stop = await publish(late, await messages(shard, 1, 120), way)
        assert stop is not None
        assert stop.reason is StopReason.STREAM
    assert await later.messages() == []


async def test_a_batch_is_stored_as_a_whole_or_not_at_all(shard: Shard) -> None:
    """OBX-1: one message too large in the middle; the answer does not say which."""
    config = (await api(shard.client, f"STREAM.INFO.{shard.stream}"))["config"]
    assert "error" not in await api(shard.client, f"STREAM.UPDATE.{shard.stream}", config | {"max_msg_size": 1000})
    given = await messages(shard, 1, 120)
    given[70] = Message(given[70].position, given[70].subject, given[70].headers, b"x" * 2000)
    async with pipeline(shard, 0) as batch:
        stop = await publish(batch, given, "batch")
        assert stop is not None
        assert stop.reason is StopReason.BATCH
    assert await shard.messages() == []


async def test_one_refused_message_among_many_stops_all_behind_it(shard: Shard) -> None:
    """OBX-1: only the last of a burst is answered, and its answer proves or disproves all before it."""
    config = (await api(shard.client, f"STREAM.INFO.{shard.stream}"))["config"]
    assert "error" not in await api(shard.client, f"STREAM.UPDATE.{shard.stream}", config | {"max_msg_size": 1000})
    given = await messages(shard, 1, 120)
    given[70] = Message(given[70].position, given[70].subject, given[70].headers, b"x" * 2000)
    async with pipeline(shard, 0) as chained:
        stop = await publish(chained, given, "chained")
        assert stop is not None
        assert (stop.reason, stop.position) == (StopReason.SEQUENCE, 120)
        assert chained.confirmed == 0
    await shard.compare(last=70)


async def test_a_slow_broker_gets_batches(shard: Shard, monkeypatch: pytest.MonkeyPatch) -> None:
    """OBX-1: one that needs long for each message, as when it syncs each; a small page goes without."""
    monkeypatch.setattr(publish_pipeline, "slow_message_seconds", 0.0)
    monkeypatch.setattr(publish_pipeline, "slow_spans_min", 1)
    monkeypatch.setattr(publish_pipeline, "span_messages", 100)
    given = await messages(shard, 1, 300)
    async with pipeline(shard, 0) as slow:
        for first, last in ((0, 100), (100, 250), (250, 300)):
            assert await slow.publish(given[first:last]) is None
            assert await slow.settle() is None
    await shard.compare()
    batched = {message.sequence for message in await shard.messages() if "Nats-Batch-Id" in message.headers}
    assert batched == set(range(101, 251))


async def test_batches_follow_each_other_without_waiting(shard: Shard) -> None:
    """OBX-1: three under way at once, still in order."""
    given = await messages(shard, 1, 300)
    async with pipeline(shard, 0) as several:
        for first in (0, 100, 200):
            assert await several.publish_batch(given[first : first + 100]) is None
        assert await several.settle() is None
        assert several.confirmed == 300
    await shard.compare()


async def test_a_wrong_order_is_a_fault_of_the_caller(shard: Shard) -> None:
    """OBX-2: positions are published in order or not at all."""
    given = await messages(shard, 1, 3)
    async with pipeline(shard, 0) as wrong:
        with pytest.raises(ValueError, match="do not follow"):
            await wrong.publish([given[0], given[2]])


@each_way
@pytest.mark.parametrize("cut", [False, True])
async def test_a_ghost_write_after_a_stall_is_refused(
    shard: Shard, broker_proxy: FaultProxy, monkeypatch: pytest.MonkeyPatch, way: str, cut: bool
) -> None:
    """OBX-2: what was sent into a dead network arrives after another relay has published the same positions."""
    monkeypatch.setattr(publish_pipeline, "answer_seconds_max", 0.5)
    slow = await broker.connect(broker_proxy.nats_url, name="slow")
    async with pipeline(shard, 0, slow) as ghost:
        broker_proxy.stall()
        stop = await publish(ghost, await messages(shard, 1, 150), way)
        assert stop is not None
        assert stop.reason is StopReason.SILENT
        async with pipeline(shard, 0) as quick:
            assert await publish(quick, await messages(shard, 1, 300, epoch=2), way) is None
        if cut:
            await broker_proxy.cut()
        broker_proxy.resume()
        await asyncio.sleep(0.5)
        await slow.flush(10)
    await slow.close()
    await shard.compare()
    assert {message.mark.relay_epoch for message in await shard.messages()} == {2}


async def test_nothing_is_given_to_a_client_that_is_not_connected(shard: Shard, broker_proxy: FaultProxy) -> None:
    """OBX-2: the client would keep it and send it whenever it connects again."""
    away = await broker.connect(broker_proxy.nats_url, name="away")
    async with pipeline(shard, 0, away) as refused:
        broker_proxy.refuse()
        await broker_proxy.cut()
        while away.is_connected:
            await asyncio.sleep(0.01)
        stop = await refused.publish(await messages(shard, 1, 3))
        assert stop is not None
        assert stop.reason is StopReason.CONNECTION
        assert away.pending_data_size == 0
        broker_proxy.accept()
    await away.close()
    assert await shard.messages() == []
