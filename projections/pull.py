"""Pull from one durable JetStream consumer with overlapping requests, as the client library does not.

Two requests are outstanding, so that the next messages are under way while a batch is applied. Each carries an expiry
and a heartbeat: silence longer than two heartbeats, or a reconnection, means that outstanding requests are lost, and
they are made anew. What was lost with them is delivered again by the broker.
"""

import asyncio
import json
import time
from collections import deque
from typing import Final

from msgspec import Struct
from nats.aio.client import Client
from nats.aio.msg import Msg
from nats.aio.subscription import Subscription
from nats.errors import NoRespondersError
from nats.errors import TimeoutError as BrokerTimeout

look_around_seconds: Final = 1.0
"""Seconds after which a caller that got nothing may look around, and a reconnection is noticed."""
heartbeats_missed_max: Final = 2
"""Heartbeats that may be missing before outstanding requests are taken for lost."""
refused_pause_seconds: Final = 0.5
"""Seconds before asking again after the broker refused a request."""
info_seconds_max: Final = 2.0
"""Seconds to wait for what the broker knows of a consumer."""


class PullBounds(Struct, frozen=True, kw_only=True):
    """Bounds of pulling. At most `outstanding` × `batch` messages and × `bytes_max` bytes wait here unapplied."""

    batch: int = 500
    outstanding: int = 2
    bytes_max: int = 16 * 1024 * 1024
    expires_seconds: float = 30.0
    heartbeat_seconds: float = 5.0


class ConsumerGone(Exception):
    """The consumer does not exist at the broker (deleted, its stream lost, or no JetStream): provision it anew."""


class PullConsumer:
    """Pulls from one consumer. One task calls `next_batch` and `acknowledge` in turn."""

    def __init__(self, client: Client, stream: str, consumer: str, bounds: PullBounds) -> None:
        """`stream` and `consumer` are names at the broker; `open` begins."""
        self.stream: Final = stream
        self.consumer: Final = consumer
        self._client = client
        self._bounds = bounds
        self._inbox = client.new_inbox()
        self._subscription: Subscription | None = None
        self._messages: deque[Msg] = deque()
        self._woken = asyncio.Event()
        self._requested = 0
        self._gone: str | None = None
        self._refused: str | None = None
        self._connections = -1
        self._heard = time.monotonic()

    async def open(self) -> None:
        """Listen for what will be pulled. Raises `nats.errors.Error`."""
        self._subscription = await self._client.subscribe(self._inbox, cb=self._on_message, pending_bytes_limit=0)

    async def close(self) -> None:
        """Stop listening; what was delivered and not acknowledged is delivered again to whoever pulls next."""
        if self._subscription is not None and not self._client.is_closed:
            await self._subscription.unsubscribe()
        self._messages.clear()

    async def next_batch(self) -> list[Msg]:
        """What has arrived, at most one batch, waiting for the first message.

        Empty when nothing came for a while. Raises ConsumerGone, and `nats.errors.Error` once the connection is closed
        for good.
        """
        await self._request_more()
        if not self._messages:
            await self._wait_for_message()
        if self._messages:
            taken = min(len(self._messages), self._bounds.batch)
            return [self._messages.popleft() for _ in range(taken)]
        if self._gone is not None:
            raise ConsumerGone(f"consumer {self.consumer} of {self.stream}: {self._gone}")
        if self._refused is not None:
            self._refused = None
            await asyncio.sleep(refused_pause_seconds)
        return []

    async def acknowledge(self, last: Msg) -> None:
        """Acknowledge a message and all before it (ack-all). Lost acknowledgements cost a redelivery, nothing else."""
        await self._client.publish(last.reply, b"+ACK")

    async def acknowledged_position(self) -> int:
        """The stream sequence up to which the consumer is acknowledged. Raises ConsumerGone, also without an answer."""
        subject = f"$JS.API.CONSUMER.INFO.{self.stream}.{self.consumer}"
        try:
            answer = json.loads((await self._client.request(subject, b"", timeout=info_seconds_max)).data)
        except (NoRespondersError, BrokerTimeout) as fault:
            raise ConsumerGone(f"consumer {self.consumer} of {self.stream}: {fault}") from fault
        if "error" in answer:
            raise ConsumerGone(f"consumer {self.consumer} of {self.stream}: {answer['error'].get('description')}")
        return int(answer["ack_floor"]["stream_seq"])

    async def _wait_for_message(self) -> None:
        self._woken.clear()
        try:
            await asyncio.wait_for(self._woken.wait(), look_around_seconds)
        except TimeoutError:
            if time.monotonic() - self._heard > self._bounds.heartbeat_seconds * heartbeats_missed_max:
                self._requested, self._heard = 0, time.monotonic()

    async def _request_more(self) -> None:
        """Keep the outstanding requests up, unless enough messages wait here already."""
        connections = int(self._client.stats["reconnects"])
        if connections != self._connections:
            self._connections, self._requested = connections, 0
        bounds = self._bounds
        room = bounds.batch * bounds.outstanding - self._requested - len(self._messages)
        for _ in range(room // bounds.batch):
            request = {
                "batch": bounds.batch,
                "max_bytes": bounds.bytes_max,
                "expires": int(bounds.expires_seconds * 1e9),
                "idle_heartbeat": int(bounds.heartbeat_seconds * 1e9),
            }
            subject = f"$JS.API.CONSUMER.MSG.NEXT.{self.stream}.{self.consumer}"
            await self._client.publish(subject, json.dumps(request).encode(), reply=self._inbox)
            self._requested += bounds.batch

    async def _on_message(self, message: Msg) -> None:
        self._heard = time.monotonic()
        status = (message.headers or {}).get("Status") if not message.data else None
        if status is None:
            self._requested = max(0, self._requested - 1)
            self._messages.append(message)
        elif not self._on_status(status, message.headers or {}):
            return
        self._woken.set()

    def _on_status(self, status: str, headers: dict[str, str]) -> bool:
        """Account for an answer that is no message; whether it is worth waking up for."""
        description = headers.get("Description", "")
        unused = int(headers.get("Nats-Pending-Messages", 0))
        match status:
            case "100":
                return not self._messages
            case "404" | "408":
                self._requested = max(0, self._requested - unused)
            case "503":
                self._gone = "no responders"
            case "409" if "deleted" in description.lower():
                self._gone = description
            case "409" if unused or "completed" in description.lower():
                self._requested = max(0, self._requested - unused)
            case _:
                self._requested = 0
                self._refused = f"{status} {description}"
        return True
