"""What the tests of consumers share: a real stream to deliver from, a provider, and a running consumer."""

import asyncio
import json
import signal
import subprocess
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Sequence
from contextlib import asynccontextmanager
from pathlib import Path

import msgspec
from msgspec.structs import replace
from nats.aio.client import Client
from nats.errors import Error as BrokerError

from contracts import subjects
from contracts.cursor import Cursor
from contracts.delivery import (
    PointerStub,
    encode_stub,
    mark_header,
    mark_text,
    stub_format,
    stub_header,
)
from contracts.identifiers import GroupSequence, ShardId, ShardPosition
from contracts.payloads.requests import Delivery, GroupHead
from outbox_relay.stream import ShardStream, StreamLimits
from projections.consumer import Consumer
from projections.copy_skips import copy_skips
from projections.delivery import DeliveredGroup, DeliveryUnavailable, Provisioned
from projections.digest import GroupDigest, projection_digests
from projections.projection import Projection
from projections.pull import PullBounds
from projections.rebuild import rebuild
from projections.repairs import RepairTimes
from projections.run_consumer import ConsumerRun, RunBounds
from projections.store import Decision, ProjectionStore
from projections.store.sqlite import SqliteStore
from services.authority.broker_consumers import BrokerConsumers, StreamAbsent
from tests.builders import BuiltEvent, test_incarnation, test_organization
from tests.history_double import HistoryDouble

shard = ShardId(1)
consumer_name = "worker-test-1"
bounds = RunBounds(
    pull=PullBounds(batch=100, expires_seconds=5, heartbeat_seconds=0.5),
    repair=RepairTimes(gap_wait_seconds=0.05, first_backoff_seconds=0.05, backoff_seconds_max=0.5),
    heads_seconds=600,
    acknowledge_seconds=0.1,
    first_backoff_seconds=0.05,
    backoff_seconds_max=0.5,
    quarantine_look_seconds=0.1,
)

patient = replace(bounds, repair=replace(bounds.repair, gap_wait_seconds=10))
"""Waits so long that delivery, not the source, brings what is merely late."""

type OpenStore = Callable[[Path, Consumer], Awaitable[ProjectionStore]]


async def open_sqlite(path: Path, consumer: Consumer) -> SqliteStore:
    """A SQLite store in a file."""
    return await SqliteStore.open(path.with_suffix(".db"), consumer, test_organization)


class Stream:
    """One shard's stream at a real broker, filled as a relay fills it."""

    def __init__(self, client: Client) -> None:
        self.client = client
        self.incarnation = test_incarnation
        self.last = 0

    @property
    def name(self) -> str:
        """Its name at the broker."""
        return subjects.stream_name(test_organization, shard, self.incarnation)

    async def create(self, first: int = 1) -> None:
        """Make it; the first message gets the position `first`."""
        stream = ShardStream(self.client, test_organization, shard, StreamLimits())
        assert await stream.create(self.incarnation, ShardPosition(first))
        self.last = first - 1

    async def follow(self, incarnation: str) -> None:
        """Be the stream of the next incarnation from now on: it takes the subjects over."""
        await ShardStream(self.client, test_organization, shard, StreamLimits()).retire(self.incarnation)
        self.incarnation = incarnation
        await self.create()

    async def publish(self, events: Iterable[BuiltEvent], *, relay_epoch: int = 1) -> None:
        """Append messages as the relay does."""
        for built in events:
            headers = {mark_header: mark_text(built.event.event_id, relay_epoch, self.incarnation)}
            await self._put(built.mark.group_id, built.raw, headers)

    async def publish_pointer(self, built: BuiltEvent) -> None:
        """Append a pointer in place of an Event (OBX-2)."""
        stub = PointerStub(
            event_id=built.event.event_id,
            group_id=built.mark.group_id,
            sequence=built.mark.sequence,
            position=self.last + 1,
            chain_hash=built.mark.chain_hash.hex(),
        )
        await self._put(built.mark.group_id, encode_stub(stub), {stub_header: stub_format})

    async def publish_raw(self, group_id: str, body: bytes) -> None:
        """Append anything."""
        await self._put(group_id, body, {})

    async def _put(self, group_id: str, body: bytes, headers: dict[str, str]) -> None:
        subject = subjects.event(test_organization, shard, group_id)
        ack = await self.client.jetstream().publish(subject, body, headers=headers)
        self.last = ack.seq

    async def announce(self, built: BuiltEvent) -> None:
        """Announce a Group's head, as the authority does."""
        mark = built.mark
        head = GroupHead(
            incarnation=mark.incarnation,
            group_id=mark.group_id,
            sequence=mark.sequence,
            chain_hash=mark.chain_hash.hex(),
        )
        subject = subjects.head(test_organization, shard, mark.group_id)
        await self.client.publish(subject, msgspec.json.encode(head))

    async def call(self, call: str, body: dict[str, object] | None = None) -> dict[str, object]:
        """Any call of the broker's API."""
        payload = json.dumps(body).encode() if body else b""
        message = await self.client.request(f"$JS.API.{call}", payload, timeout=30)
        answer: dict[str, object] = json.loads(message.data)
        return answer

    async def delete_message(self, position: int) -> None:
        """Remove one message; nothing tells a consumer."""
        await self.call(f"STREAM.MSG.DELETE.{self.name}", {"seq": position})

    async def delete_consumer(self) -> None:
        """Remove the consumer under its reader."""
        await self.call(f"CONSUMER.DELETE.{self.name}.{consumer_name}")

    async def redeliver_after(self, seconds: float) -> None:
        """Let the broker wait only so long for an acknowledgement."""
        answer = await self.call(f"CONSUMER.INFO.{self.name}.{consumer_name}")
        config = answer["config"]
        assert isinstance(config, dict)
        config["ack_wait"] = int(seconds * 1e9)
        await self.call(f"CONSUMER.CREATE.{self.name}.{consumer_name}", {"stream_name": self.name, "config": config})

    async def delete(self) -> None:
        """Remove the whole stream."""
        await self.call(f"STREAM.DELETE.{self.name}")

    async def unacknowledged(self) -> int:
        """Messages that the consumer has not acknowledged, delivered or not."""
        answer = await self.call(f"CONSUMER.INFO.{self.name}.{consumer_name}")
        pending, waiting = answer["num_pending"], answer["num_ack_pending"]
        assert isinstance(pending, int)
        assert isinstance(waiting, int)
        return pending + waiting


class Provider:
    """Provisions the consumer of `groups` (all of the shard when unfiltered), and counts how often it is asked."""

    def __init__(self, client: Client, groups: Sequence[str], *, filtered: bool = True) -> None:
        self.client = client
        self.groups = list(groups)
        self.filtered = filtered
        self.visible_after: dict[str, GroupSequence] = {}
        self.incarnation = test_incarnation
        self.start = 1
        self.asked = 0

    async def provision(self) -> Provisioned:
        """As `DeliveryProvider.provision`."""
        self.asked += 1
        stream = subjects.stream_name(test_organization, shard, self.incarnation)
        filters = tuple(subjects.event(test_organization, shard, group_id) for group_id in self.groups)
        if not self.filtered:
            filters = (subjects.shard_events(test_organization, shard),)
        consumers = BrokerConsumers(self.client)
        try:
            place = await consumers.find(stream, consumer_name)
            if place is None or place.filters != tuple(sorted(filters)):
                started_at = self.start if place is None else place.started_at
                await consumers.put(stream, consumer_name, filters, started_at)
        except (BrokerError, StreamAbsent, TimeoutError) as fault:
            raise DeliveryUnavailable(str(fault)) from fault
        return Provisioned(
            incarnation=self.incarnation,
            deliveries=(Delivery(shard_id=shard, stream=stream, consumer=consumer_name),),
            groups=tuple(
                DeliveredGroup(group_id, shard, self.visible_after.get(group_id, GroupSequence(0)))
                for group_id in self.groups
            ),
            filtered=self.filtered,
        )


class Acknowledged:
    """Keeps what was acknowledged to the authority."""

    def __init__(self) -> None:
        self.cursors: dict[str, Cursor] = {}

    async def acknowledge(self, cursor: Cursor) -> None:
        """As `Acknowledger.acknowledge`."""
        self.cursors[cursor.group_id] = cursor


@asynccontextmanager
async def running(run: ConsumerRun) -> AsyncIterator[asyncio.Task[None]]:
    """Run consumers for the length of a block."""
    task = asyncio.create_task(run.run())
    try:
        yield task
        assert not task.done(), "the run ended by itself"
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
    if task.done() and not task.cancelled() and task.exception() is not None:
        raise AssertionError("the run failed") from task.exception()


async def until(reached: Callable[[], Awaitable[bool]], seconds: float = 60) -> None:
    """Wait until something holds."""
    deadline = time.monotonic() + seconds
    while not await reached():
        assert time.monotonic() < deadline, f"not reached within {seconds} s"
        await asyncio.sleep(0.02)


async def digests(projection: Projection) -> tuple[GroupDigest, ...]:
    """The digests of a projection's Groups."""
    return await projection.store.read(lambda transaction: projection_digests(transaction, projection.store.consumer))


async def rebuilt(
    open_store: OpenStore,
    path: Path,
    consumer: Consumer,
    source: HistoryDouble,
    visible_after: dict[str, GroupSequence],
    skips: Sequence[Decision] = (),
) -> tuple[GroupDigest, ...]:
    """The digests of the same projection rebuilt from the source into a fresh store, which passes over `skips`."""
    store = await open_store(path, consumer)
    await copy_skips(store, skips)
    fresh = Projection(store)
    fresh.visible_after = visible_after
    await rebuild(fresh, source, sorted(source.groups))
    found = await digests(fresh)
    await store.close()
    return found


async def reached(projection: Projection, source: HistoryDouble) -> bool:
    """Whether every Group of the source is applied to its head."""
    cursors = {cursor.group_id: cursor for cursor in await projection.cursors()}
    return all(cursors.get(group_id) == events[-1][1] for group_id, events in source.groups.items())


async def until_killed(command: Sequence[str], seconds: float = 120.0) -> None:
    """Run a program that kills itself with -9 at a named point; one that does not is ended all the same."""
    process = await asyncio.create_subprocess_exec(*command, cwd=Path(__file__).parents[1], stderr=subprocess.DEVNULL)
    try:
        ended = await asyncio.wait_for(process.wait(), seconds)
        assert ended == -signal.SIGKILL, f"{command[2]} was not killed at its point, it ended with {ended}"
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()
