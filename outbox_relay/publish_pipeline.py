"""Publishing messages in order through a bounded window, each fenced by what it expects before it.

Every message goes alone and expects its predecessor at the stream's end, so an answer to one proves all before it:
only the last of a burst asks for one. Where the broker needs long for each message (it syncs every one to disk), a page
goes as one atomic batch instead, of which only the first message is fenced. Either way the fence names the stream too,
so that a late message can never enter the stream of another incarnation.

The pipeline never retries. At the first refusal, doubtful answer, timeout or lost connection it stops and says why;
what is stored then is the stream's last sequence and nothing else. (The client library's own asynchronous publishing
is not used: after a server error its futures never resolve.)
"""

import asyncio
import contextlib
import time
from collections.abc import Callable, Sequence
from typing import Final

from nats.aio.client import Client
from nats.aio.msg import Msg
from nats.aio.subscription import Subscription
from nats.errors import ConnectionClosedError, MaxPayloadError, OutboundBufferLimitError
from nats.js.api import Header

from contracts.identifiers import ShardPosition
from outbox_relay.message import HeaderText, Message
from outbox_relay.publish_answer import Stop, StopReason, judge_answer

burst_messages: Final = 125
"""Messages sent before one asks for an answer and the event loop may write them to the socket."""
bursts_in_flight_max: Final = 24
"""Bursts sent and not yet answered."""
singles_in_flight_max: Final = 256
"""Messages sent and not yet answered when each asks for an answer."""
slow_message_seconds: Final = 0.00025
"""Seconds per message beyond which a broker is slow: atomic batches are faster then, and slower otherwise."""
span_messages: Final = 1_000
"""Messages over which a broker's speed is measured; it answers many at once, so fewer tell nothing."""
slow_spans_min: Final = 2
"""Slow spans in a row that make a broker slow: one alone is a hiccup."""
batch_messages_min: Final = 100
"""Messages that are worth a batch, which costs about 5 ms by itself."""
batch_messages_max: Final = 1_000
"""Messages of one batch: the broker's limit."""
batches_in_flight_max: Final = 3
"""Batches sent and not yet answered."""
answer_seconds_max: Final = 5.0
"""Seconds without any answer after which the pipeline stops."""
stall_seconds: Final = 0.05
"""Seconds for which answers that have arrived may wait to be read."""
quiet_seconds_max: Final = 0.5
"""Seconds to let answers that are still under way arrive after a stop, before the stream is looked at."""

_expected_stream: Final = Header.EXPECTED_STREAM.value
_expected_last_sequence: Final = Header.EXPECTED_LAST_SEQUENCE.value
_batch_id: Final = Header.BATCH_ID.value
_batch_sequence: Final = Header.BATCH_SEQUENCE.value
_batch_commit: Final = Header.BATCH_COMMIT.value
_batch_sequences: Final = tuple(HeaderText(str(number)) for number in range(batch_messages_max + 1))


class PublishPipeline:
    """Publishes to one stream from one position on. Used once: after a Stop a new one starts at the stream's end."""

    def __init__(self, client: Client, stream: str, after: ShardPosition) -> None:
        """`after` is the stream's last sequence; `confirmed`, all that is known to be stored, starts there."""
        self.confirmed = after
        self._client = client
        self._stream = HeaderText(stream)
        self._inbox = client.new_inbox()
        self._subscription: Subscription | None = None
        self._sent = after
        self._flights: dict[ShardPosition, int] = {}
        """Position → messages in its batch (1 without) of what asked for an answer and has none yet, in order."""
        self._heard_at = 0.0
        """When the broker was last heard, or began to owe an answer, on the monotonic clock."""
        self._span_started = 0.0
        self._span_messages = 0
        self._slow_spans = 0
        self._answered = asyncio.Event()
        self._stop: Stop | None = None

    async def open(self) -> None:
        """Listen for answers."""
        self._subscription = await self._client.subscribe(f"{self._inbox}.*", cb=self._on_answer)

    async def close(self) -> None:
        """Give answers that are still under way a moment to arrive, then listen no more."""
        began = time.monotonic()
        while self._client.is_connected and self._flights:
            ends = max(began, self._heard_at) + quiet_seconds_max
            if time.monotonic() >= ends:
                break
            await self._wait(ends)
        if self._subscription is not None and not self._client.is_closed:
            await self._subscription.unsubscribe()

    def interrupt(self, reason: StopReason, detail: str) -> None:
        """Stop from outside."""
        self._note(reason, self._sent, detail)

    async def publish(self, messages: Sequence[Message]) -> Stop | None:
        """Send messages the way that suits the broker. They must continue what was sent before."""
        if await self._room(bursts_in_flight_max):
            return self._stop
        if self._slow_spans >= slow_spans_min and batch_messages_min <= len(messages) <= batch_messages_max:
            return await self.publish_batch(messages)
        return await self.publish_chained(messages, burst_messages, bursts_in_flight_max)

    async def publish_singly(self, messages: Sequence[Message]) -> Stop | None:
        """Send messages of which each asks for an answer, which tells what the broker refuses."""
        return await self.publish_chained(messages, 1, singles_in_flight_max)

    async def publish_chained(self, messages: Sequence[Message], burst_max: int, in_flight_max: int) -> Stop | None:
        """Send messages each fenced; the last of every `burst_max` asks for an answer."""
        self._require_next(messages)
        for message in messages:
            self._fence(message)
        for start in range(0, len(messages), burst_max):
            if await self._room(in_flight_max):
                break
            burst = messages[start : start + burst_max]
            self._expect_answer(burst[-1].position, 1)
            await self._send_burst(burst, f"{self._inbox}.{burst[-1].position}")
            await asyncio.sleep(0)
        return self._stop

    async def publish_batch(self, messages: Sequence[Message]) -> Stop | None:
        """Send up to `batch_messages_max` messages as one atomic batch."""
        self._require_next(messages)
        if await self._room(batches_in_flight_max):
            return self._stop
        last = messages[-1]
        batch_id = HeaderText(f"{self._inbox.rpartition('.')[2]}-{messages[0].position}")
        for number, message in enumerate(messages, 1):
            message.headers[_batch_id] = batch_id
            message.headers[_batch_sequence] = _batch_sequences[number]
        self._fence(messages[0])
        last.headers[_batch_commit] = "1"
        for start in range(0, len(messages), burst_messages):
            if self._stop is not None:
                break
            burst = messages[start : start + burst_messages]
            if burst[-1] is last:
                self._expect_answer(last.position, len(messages))
            await self._send_burst(burst, f"{self._inbox}.{last.position}" if burst[-1] is last else "")
            await asyncio.sleep(0)
        return self._stop

    async def settle(self, unless: Callable[[], bool] = lambda: False) -> Stop | None:
        """Wait until everything sent is confirmed, or until there is something better to do: see `look`."""
        await self._room(1, unless)
        return self._stop

    def look(self) -> None:
        """Make `settle` ask again whether there is something better to do."""
        self._answered.set()

    async def _room(self, flights_max: int, unless: Callable[[], bool] = lambda: False) -> bool:
        """Wait until fewer than `flights_max` flights are under way; True when the pipeline has stopped instead."""
        while self._stop is None and len(self._flights) >= flights_max and not unless() and not self._is_silent():
            await self._wait(self._heard_at + answer_seconds_max)
        if self._is_silent():
            # Answers may lie in the socket of a process that did not run meanwhile.
            await asyncio.sleep(stall_seconds)
        if self._is_silent():
            self._note(StopReason.SILENT, self._sent, f"no answer for {answer_seconds_max:g} s")
        return self._stop is not None

    def _is_silent(self) -> bool:
        return bool(self._flights) and time.monotonic() >= self._heard_at + answer_seconds_max

    def _fence(self, message: Message) -> None:
        """Make the broker refuse the message anywhere but in this stream behind its predecessor."""
        message.headers[_expected_stream] = self._stream
        message.headers[_expected_last_sequence] = HeaderText(str(message.position - 1))

    def _expect_answer(self, position: ShardPosition, count: int) -> None:
        if not self._flights:
            # The broker was idle: its time counts from here.
            self._heard_at = self._span_started = time.monotonic()
            self._span_messages = 0
        self._flights[position] = count

    def _require_next(self, messages: Sequence[Message]) -> None:
        first = messages[0].position
        if first != self._sent + 1 or messages[-1].position != self._sent + len(messages):
            raise ValueError(f"{len(messages)} messages from {first} on do not follow {self._sent} in {self._stream}")

    async def _send_burst(self, messages: Sequence[Message], reply: str) -> None:
        """Hand messages to the client; `reply` is where the last of them is answered, empty for no answer."""
        if not self._client.is_connected:
            # A message given to the client now would be sent whenever it connects again.
            self._note(StopReason.CONNECTION, messages[0].position, "the broker is not connected")
            return
        publish, last = self._client.publish, messages[-1]
        try:
            for message in messages:
                await publish(message.subject, message.body, reply if message is last else "", message.headers)
            self._sent = last.position
        except MaxPayloadError:
            self._note(StopReason.MESSAGE, message.position, f"{len(message.body)} bytes are beyond max_payload")
        except (OutboundBufferLimitError, ConnectionClosedError) as error:
            self._note(StopReason.CONNECTION, message.position, str(error))

    async def _wait(self, ends: float) -> None:
        """Until something is heard, at most until `ends` on the monotonic clock."""
        self._answered.clear()
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(ends - time.monotonic()):
                await self._answered.wait()

    async def _on_answer(self, answer: Msg) -> None:
        position = ShardPosition(int(answer.subject.rpartition(".")[2]))
        count = self._flights.pop(position, 0)
        if count == 0:
            return
        self._heard_at = time.monotonic()
        refusal = judge_answer(answer, self._stream, position, count)
        if refusal is not None:
            self._note(refusal.reason, refusal.position, refusal.detail)
            return
        # It stands where it should, so everything before it does too, answered or not.
        self._judge_speed(position - self.confirmed)
        self.confirmed = max(self.confirmed, position)
        for earlier in list(self._flights):
            if earlier > position:
                break
            del self._flights[earlier]
        self._answered.set()

    def _judge_speed(self, messages: int) -> None:
        """Once slow, always slow: a batch is fast on a slow broker too, so its speed tells nothing."""
        self._span_messages += messages
        if self._span_messages < span_messages or self._slow_spans >= slow_spans_min:
            return
        now = time.monotonic()
        slow = now - self._span_started > self._span_messages * slow_message_seconds
        self._slow_spans = self._slow_spans + 1 if slow else 0
        self._span_started, self._span_messages = now, 0

    def _note(self, reason: StopReason, position: ShardPosition, detail: str) -> None:
        """Keep the first reason to stop: what follows it is only its echo."""
        if self._stop is None:
            self._stop = Stop(reason, position, detail)
        self._answered.set()
