"""One shard's relay: from its log to its stream, in order, nothing lost, doubled or skipped (OBX-1, OBX-2).

Authoritative is the log in PostgreSQL. The stream can be made again from it, and the stream's last sequence is the
relay's exact position; the row in `relay_position` is the lease and a note for people, at most a second behind.
At every start, reconnect, refusal, doubt and every few seconds of silence the relay looks where the stream ends and
goes on from there. What each crash point leaves behind:

- before the commit of a transition: nothing; after it, before publication: a row beyond the stream's end, found by
  the next look at the log.
- between publication and its answer, or before the position is noted: the stream's end says whether it is stored.
- broker killed: messages that it had acknowledged but not synced are gone, its end is lower: published again.
- stream deleted, store wiped: made again from the lowest position kept, and refilled by the same loop. An older
  store come back: the same, from where it ends.
- relay paused and woken after another took the shard, or messages buffered in a client that connects again: each
  message expects its predecessor at the stream's end and names its stream, so it is refused, or it is the one
  missing Event itself.
- database set back: its log ends before the stream or has another Event at the stream's end. Nothing is published
  any more until the operator opens a new incarnation, which has a stream of its own (RULE-16).
"""

import asyncio
from collections.abc import Sequence
from enum import Enum
from typing import Final

import psycopg
from msgspec import Struct
from nats.aio.client import Client
from nats.errors import Error as BrokerError

from contracts.identifiers import ShardPosition
from outbox_relay.message import Message, MessageMaker, header_bytes_reserved
from outbox_relay.outbox import LogFault, Outbox, OutboxPage, OutboxRow
from outbox_relay.publish_answer import Stop, StopReason
from outbox_relay.publish_pipeline import PublishPipeline
from outbox_relay.relay_lease import RelayLease, RelayPlace
from outbox_relay.stream import Condition, ShardStream, judge, message_bytes_max, publishable
from services.process.broker import reconnect_delay
from services.process.database import FaultKind, classify
from services.process.logs import get_log
from services.process.metrics import Metrics

inspection_seconds: Final = 10.0
"""Seconds of silence after which an idle relay compares its stream with the log again."""
blocked_seconds: Final = 2.0
"""Seconds between two looks at a stream that nothing may be published to."""
undelayed: Final = frozenset({StopReason.INSPECTION, StopReason.LEASE})
"""Reasons to look again that are no failures."""

_log = get_log(__name__)


class RelayState(Enum):
    """What a shard's relay is doing."""

    STARTING = "starting"
    RELAYING = "relaying"
    WAITING = "waiting"
    """The broker or the database is away; it goes on by itself."""
    BLOCKED = "blocked"
    """It must not publish; the detail says why, and what to do."""


class RelayCounters:
    """What the shards of one process count together."""

    def __init__(self, metrics: Metrics) -> None:
        """Register the instruments."""
        self.published = metrics.counter("relay_published", "Log rows confirmed by the broker")
        self.repositions = metrics.counter(
            "relay_repositions",
            "Times that publishing stopped and went on from the stream's last sequence",
            labels={"reason": tuple(reason.value for reason in StopReason)},
        )
        self.stubs = metrics.counter("relay_stubs", "Pointers sent in place of Events that the broker refuses")


class _Start(Struct, frozen=True):
    """Where publishing may begin."""

    lineage: tuple[str, ...]
    after: ShardPosition


class RelayShard:
    """Relays one shard under one lease. `state` and `detail` say how it goes, `place` how far it is."""

    def __init__(
        self, lease: RelayLease, outbox: Outbox, stream: ShardStream, client: Client, counters: RelayCounters
    ) -> None:
        """Nothing is read or published before `run`."""
        self.lease = lease
        self.state = RelayState.STARTING
        self.detail = ""
        self.place = lease.recorded
        self._outbox = outbox
        self._stream = stream
        self._client = client
        self._counters = counters
        self._grown = asyncio.Event()
        self._pipeline: PublishPipeline | None = None
        self._failures = 0
        self._told: Stop | None = None
        self._singly_until = ShardPosition(0)
        """Positions up to here ask for an answer each, to find a message that the broker refuses."""
        self._refused: ShardPosition | None = None
        """The position whose Event the broker refuses."""

    def wake(self) -> None:
        """The log has grown."""
        self._grown.set()
        if self._pipeline is not None:
            self._pipeline.look()

    def interrupt(self, reason: StopReason, detail: str) -> None:
        """Something happened that needs another look at where the stream ends."""
        if self._pipeline is not None:
            self._pipeline.interrupt(reason, detail)
        self._grown.set()

    async def run(self) -> None:
        """Relay until the lease is over. Raises database errors that no retry can mend."""
        while self.lease.is_live():
            stop = await self._attempt()
            if stop.reason not in undelayed:
                self._counters.repositions.add(reason=stop.reason.value)
                self._tell(stop)
            await self._rest(stop)

    def _tell(self, stop: Stop) -> None:
        """Log why publishing stopped; a stop that repeats itself is told once."""
        if stop != self._told:
            facts = {"reason": stop.reason.value, "position": stop.position, "detail": stop.detail}
            _log.warning("relay_stopped", shard_id=self.lease.shard_id, **facts)
        self._told = stop

    async def _rest(self, stop: Stop) -> None:
        """Wait before the next look: not at all after progress, longer with each failure in a row."""
        if stop.reason is StopReason.BLOCKED:
            await asyncio.sleep(blocked_seconds)
        elif stop.reason not in undelayed:
            await asyncio.sleep(reconnect_delay(self._failures))
            self._failures += 1

    async def _attempt(self) -> Stop:
        """Look where the stream ends, and publish from there until something stops it."""
        try:
            start = await self._look()
            if isinstance(start, Stop):
                return start
            self._pipeline = PublishPipeline(self._client, self._stream.name(start.lineage[-1]), start.after)
            try:
                await self._pipeline.open()
                stop = await self._follow(self._pipeline, start)
            finally:
                await self._pipeline.close()
                self._progress(self._pipeline.confirmed)
            return self._after(stop)
        except LogFault as fault:
            return self._block(str(fault))
        except (BrokerError, TimeoutError) as error:
            return self._wait(StopReason.BROKER, f"{type(error).__name__}: {error}")
        except psycopg.Error as error:
            if classify(error) is FaultKind.PERMANENT:
                raise
            return self._wait(StopReason.DATABASE, str(error))
        finally:
            self._pipeline = None

    async def _look(self) -> _Start | Stop:
        """Compare the stream with the log; make it when there is none."""
        lineage = await self._outbox.lineage(self.lease.shard_id)
        if not lineage:
            return self._block("the Organization has no incarnation; run `weavehold init`")
        state = await self._stream.state(lineage[-1])
        if state is None:
            return await self._make_stream(lineage)
        log = await self._outbox.head(self.lease.shard_id, state.last_sequence)
        condition = judge(state, log, self.lease.epoch)
        name = self._stream.name(lineage[-1])
        if condition is Condition.FENCED:
            _log.warning("relay_fenced", stream=name, epoch=self.lease.epoch, last=state.last)
            self.lease.give_up()
            return Stop(StopReason.LEASE, state.last_sequence, f"{name} was published under a higher epoch")
        if condition not in publishable:
            return self._block(
                f"{name} is {condition.value}: it ends at {state.last_sequence}, the log at {log.position}; "
                "the database was set back: open a new incarnation"
            )
        self.place = RelayPlace(lineage[-1], state.last_sequence)
        return _Start(lineage, state.last_sequence)

    async def _make_stream(self, lineage: tuple[str, ...]) -> Stop:
        """Make the current incarnation's stream, taking the subjects over from an earlier one's."""
        earlier = {self._stream.name(incarnation): incarnation for incarnation in lineage[:-1]}
        current = self._stream.name(lineage[-1])
        for holder in await self._stream.holders():
            if holder in earlier:
                await self._stream.retire(earlier[holder])
                _log.info("stream_retired", stream=holder, shard_id=self.lease.shard_id)
            elif holder != current:
                return self._block(
                    f"{Condition.FOREIGN.value}: {holder} holds the subjects of shard {self.lease.shard_id}, and the "
                    "database knows no such incarnation: it was set back; open a new one"
                )
        first = await self._outbox.first_position(self.lease.shard_id, self._stream.limits.max_age_seconds)
        made = await self._stream.create(lineage[-1], first)
        _log.info("stream_created", stream=current, shard_id=self.lease.shard_id, first=first, made=made)
        return Stop(StopReason.INSPECTION if made else StopReason.STREAM, first, f"{current} is made")

    async def _follow(self, pipeline: PublishPipeline, start: _Start) -> Stop:
        """Publish page after page, and wait for the log to grow at its end."""
        maker = MessageMaker(self._outbox.organization_id, self.lease.shard_id, start.lineage[-1], self.lease.epoch)
        after = start.after
        following = asyncio.create_task(self._read(after))
        try:
            while self.lease.is_live():
                page = await following
                self._progress(pipeline.confirmed)
                rows = page.rows
                if rows and rows[-1].incarnation not in start.lineage:
                    return await pipeline.settle() or Stop(StopReason.INCARNATION, after, rows[-1].incarnation)
                after = ShardPosition(after + len(rows))
                if page.more:
                    # The next page arrives while this one is sent.
                    following = asyncio.create_task(self._read(after))
                if rows and (stop := await self._publish(pipeline, await self._messages(rows, maker))):
                    return stop
                if not page.more:
                    if stop := await self._settle(pipeline):
                        return stop
                    following = asyncio.create_task(self._read(after))
            return await pipeline.settle() or Stop(StopReason.LEASE, after, "the lease is over")
        finally:
            following.cancel()
            await asyncio.gather(following, return_exceptions=True)

    async def _read(self, after: ShardPosition) -> OutboxPage:
        """The next page. A wake-up that comes from now on is about rows that it may have missed."""
        self._grown.clear()
        return await self._outbox.page(self.lease.shard_id, after)

    async def _settle(self, pipeline: PublishPipeline) -> Stop | None:
        """At the end of the log: wait for answers and for more. A Stop after long silence: time to look again.

        What comes next does not wait for the answers: it is fenced by what was sent before it.
        """
        stop = await pipeline.settle(self._grown.is_set)
        self._progress(pipeline.confirmed)
        if stop is not None:
            return stop
        self.state, self.detail = RelayState.RELAYING, ""
        try:
            async with asyncio.timeout(inspection_seconds):
                await self._grown.wait()
        except TimeoutError:
            return Stop(StopReason.INSPECTION, pipeline.confirmed)
        return None

    async def _publish(self, pipeline: PublishPipeline, messages: Sequence[Message]) -> Stop | None:
        self.state, self.detail = RelayState.RELAYING, ""
        if messages[0].position <= self._singly_until:
            return await pipeline.publish_singly(messages)
        return await pipeline.publish(messages)

    async def _messages(self, rows: Sequence[OutboxRow], maker: MessageMaker) -> list[Message]:
        """The rows as messages; a pointer where the Event is too large for this broker or was refused by it."""
        bytes_max = min(self._client.max_payload, message_bytes_max) - header_bytes_reserved
        messages = []
        for row in rows:
            if len(row.event) <= bytes_max and row.position != self._refused:
                messages.append(maker.event(row))
                continue
            messages.append(maker.pointer(row, await self._outbox.pointer(self.lease.shard_id, row.position)))
            self._counters.stubs.add()
            _log.warning("relay_stub", shard_id=self.lease.shard_id, position=row.position, event_id=row.event_id)
        return messages

    def _after(self, stop: Stop) -> Stop:
        """Draw the consequence of a Stop for what is published next."""
        if stop.reason in (StopReason.BATCH, StopReason.SEQUENCE):
            # One of several that were answered together may be what the broker refuses.
            self._singly_until = stop.position
        if stop.reason is StopReason.MESSAGE:
            if self._refused == stop.position:
                return self._block(f"the broker refuses even a pointer at {stop.position}: {stop.detail}")
            self._refused = stop.position
        if stop.reason in (StopReason.BROKER, StopReason.CONNECTION, StopReason.SILENT):
            return self._wait(stop.reason, stop.detail)
        return stop

    def _progress(self, confirmed: ShardPosition) -> None:
        """Note what the broker has confirmed."""
        gained = confirmed - self.place.position
        if gained > 0:
            self._counters.published.add(gained)
            self.place = RelayPlace(self.place.incarnation, confirmed)
            self._failures = 0

    def _wait(self, reason: StopReason, detail: str) -> Stop:
        self.state, self.detail = RelayState.WAITING, detail
        return Stop(reason, self.place.position, detail)

    def _block(self, detail: str) -> Stop:
        self.state, self.detail = RelayState.BLOCKED, detail
        return Stop(StopReason.BLOCKED, self.place.position, detail)
