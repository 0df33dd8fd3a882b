"""The projector's consumers at a real broker: made, kept, corrected and placed, whatever the stream looks like."""

import json

import pytest
from nats.errors import Error as BrokerError

from contracts import subjects
from contracts.identifiers import ShardPosition
from outbox_relay.stream import ShardStream, StreamLimits
from services.process.broker import connect
from services.projector import shard_consumers
from services.projector.shard_consumers import ShardConsumers, StreamAbsent
from tests.builders import test_incarnation, test_organization
from tests.consumer_rig import shard

name = "board-1"


class Shard:
    """One stream with numbered messages, and the consumer under test."""

    def __init__(self, client):
        self.client = client
        self.stream = subjects.stream_name(test_organization, shard, test_incarnation)
        self.consumers = ShardConsumers(client)

    async def create(self, first=1, messages=0):
        stream = ShardStream(self.client, test_organization, shard, StreamLimits())
        assert await stream.create(test_incarnation, ShardPosition(first))
        await self.publish(messages)

    async def publish(self, messages):
        for _ in range(messages):
            await self.client.jetstream().publish(subjects.event(test_organization, shard, "urn:test:group"), b"x")

    async def ensure(self, position, *, begins=False):
        await self.consumers.ensure(self.stream, name, position, begins=begins)

    async def call(self, call, asked=None):
        body = json.dumps(asked).encode() if asked else b""
        return json.loads((await self.client.request(f"$JS.API.{call}", body, timeout=30)).data)

    async def described(self):
        return await self.call(f"CONSUMER.INFO.{self.stream}.{name}")

    async def put(self, **config):
        """A consumer as somebody else made it."""
        config = {"name": name, "durable_name": name, "ack_policy": "explicit", "deliver_policy": "all"} | config
        made = await self.call(f"CONSUMER.CREATE.{self.stream}.{name}", {"stream_name": self.stream, "config": config})
        assert "error" not in made, made

    async def pull(self, count):
        """The stream sequences of the next messages, the last of them not acknowledged."""
        subscription = await self.client.jetstream().pull_subscribe_bind(name, stream=self.stream)
        messages = await subscription.fetch(count, timeout=30)
        await subscription.unsubscribe()
        return messages

    async def sequences(self, count):
        return [message.metadata.sequence.stream for message in await self.pull(count)]


@pytest.fixture
async def made(nats_url):
    client = await connect(nats_url, name="test")
    yield Shard(client)
    await client.close()


async def test_without_a_stream_there_is_no_consumer(made):
    """RULE-25: the relay makes the stream; until then the projector is told so."""
    with pytest.raises(StreamAbsent):
        await made.ensure(0)


async def test_a_consumer_is_made_once_and_kept(made):
    """RULE-25: asked again, nothing is changed, not even when its reader is in the middle of reading."""
    await made.create(messages=10)
    await made.ensure(0, begins=True)
    first = await made.described()
    await made.ensure(0, begins=True)
    assert await made.sequences(4) == [1, 2, 3, 4]
    await made.ensure(2)
    again = await made.described()
    assert again["created"] == first["created"]
    assert again["num_ack_pending"] == 4
    assert first["config"]["ack_policy"] == "all"


@pytest.mark.parametrize(
    ("first", "messages", "position", "begins_at", "floor"),
    [
        (1, 10, 0, 1, 0),
        (1, 10, 6, 7, 6),
        (1, 10, 10, 11, 10),
        (1, 10, 50, 11, 10),  # the stream was lost and is being refilled: it ends before the position
        (41, 10, 6, 41, 40),  # what lies below its first message is seen as missing, from the floor on
        (41, 0, 6, 41, 40),
        (1, 0, 0, 1, 0),
    ],
)
async def test_it_begins_after_the_position_and_never_outside_the_stream(
    made, first, messages, position, begins_at, floor
):
    """RULE-20: a start beyond the end would stall in silence; one below the first message must not hide the hole."""
    await made.create(first, messages)
    await made.ensure(position, begins=True)
    described = await made.described()
    assert described["config"]["opt_start_seq"] == begins_at
    assert described["ack_floor"]["stream_seq"] == floor
    created = described["created"]
    await made.ensure(position, begins=True)
    assert (await made.described())["created"] == created
    await made.publish(1)
    assert (await made.sequences(1)) == [begins_at]


async def test_what_an_earlier_reader_left_is_due_at_once(made):
    """MWP-WRK-029: a reader killed before its acknowledgement does not make the next one wait."""
    await made.create(messages=10)
    await made.ensure(0, begins=True)
    messages = await made.pull(6)
    await messages[1].ack_sync()
    await made.ensure(2, begins=True)
    assert await made.sequences(3) == [3, 4, 5]


async def test_a_lost_projection_gets_everything_again(made):
    """MWP-FND-023: acknowledged by a reader that lost its file: a consumer for the new one begins at the beginning."""
    await made.create(messages=5)
    await made.ensure(0, begins=True)
    await (await made.pull(5))[-1].ack_sync()
    await made.ensure(0, begins=True)
    assert await made.sequences(2) == [1, 2]


@pytest.mark.parametrize(
    "config",
    [
        {},
        {"filter_subject": subjects.event(test_organization, shard, "urn:test:group")},
        {"ack_policy": "all", "deliver_policy": "by_start_sequence", "opt_start_seq": 1},
        {"ack_policy": "none"},
    ],
    ids=["explicit", "filtered", "other-bounds", "unacknowledged"],
)
async def test_a_consumer_that_is_not_as_it_should_be_is_made_anew(made, config):
    """RULE-25: what would leave something out, or acknowledge otherwise, is replaced and begins at the position."""
    await made.create(messages=5)
    await made.put(**config)
    await made.ensure(3)
    described = await made.described()
    assert described["config"]["ack_policy"] == "all"
    assert "filter_subject" not in described["config"]
    assert await made.sequences(2) == [4, 5]


async def test_a_broker_that_is_away_is_an_error_of_the_broker(made, nats_server, monkeypatch):
    """DUR-3: the caller may ask again."""
    monkeypatch.setattr(shard_consumers, "call_seconds_max", 0.5)
    await made.create()
    nats_server.kill()
    with pytest.raises((BrokerError, TimeoutError)):
        await made.ensure(0)
