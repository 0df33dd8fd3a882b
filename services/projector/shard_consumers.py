"""Durable, unfiltered pull consumers on whole shard streams, as raw calls of the broker's API.

A configuration that the broker describes is only compared: it is never written back, since a client drops members that
it does not know. A consumer that is not as it should be, or stands outside its stream, is deleted and made anew. That
loses nothing: how far a projection is stands in its own store, and what comes again are duplicates.
"""

import json
from typing import Any, Final

from msgspec import Struct
from nats.aio.client import Client
from nats.errors import Error as BrokerError

from services.process.logs import get_log

call_seconds_max: Final = 5.0
"""Seconds of one call to the broker's API."""
acknowledgements_pending_max: Final = 8_192
"""Messages that one consumer may have delivered without an acknowledgement."""
acknowledgement_seconds: Final = 30
"""Seconds after which an unacknowledged message is delivered again."""

_stream_not_found: Final = 10_059
_consumer_not_found: Final = 10_014
_settings: Final[dict[str, Any]] = {
    "deliver_policy": "by_start_sequence",
    "ack_policy": "all",
    "ack_wait": acknowledgement_seconds * 1_000_000_000,
    "max_deliver": -1,
    "max_ack_pending": acknowledgements_pending_max,
    "replay_policy": "instant",
}
"""What every consumer is set to, beside its name and the stream sequence that it begins at."""
_narrowing: Final = ("filter_subject", "filter_subjects", "deliver_subject", "inactive_threshold")
"""Members that would leave something out, send it elsewhere, or let the consumer vanish."""

_log = get_log(__name__)


class StreamAbsent(Exception):
    """The stream is not there (yet, or after the broker lost it): its relay makes it."""


class ConsumerRefused(BrokerError):
    """The broker answered a call with an error."""

    def __init__(self, call: str, description: str, error_code: int) -> None:
        super().__init__(f"{call}: {description}")
        self.error_code = error_code


class StreamBounds(Struct, frozen=True):
    """The first and last sequence of a stream; `last` is `first` − 1 when it holds no message."""

    first: int
    last: int

    def start_after(self, position: int) -> int:
        """Where a consumer begins that has everything up to `position`: never outside the stream.

        One that began beyond the end would stall without an error. What was in the stream below its first message is
        passed over by the broker, which the consumer's reader sees and fetches (RULE-20).
        """
        return max(self.first, min(position, self.last) + 1)


class ShardConsumers:
    """The consumers of one projection.

    `ensure` raises StreamAbsent, and `nats.errors.Error` or `TimeoutError` when the broker refuses or is silent.
    """

    def __init__(self, client: Client) -> None:
        """Use this connection; its account needs the consumer API."""
        self._client = client

    async def ensure(self, stream: str, consumer: str, position: int, *, begins: bool) -> None:
        """Make the consumer, after `position`, unless it is there and sound. May be repeated under its reader.

        For a reader that `begins` it is sound only right after `position`: what an earlier reader was given and did not
        acknowledge is due at once then, instead of after its wait.
        """
        described = await self._describe(stream, consumer)
        bounds = await self._bounds(stream)
        start = bounds.start_after(position)
        if described is not None:
            unfit = _unfit(described, bounds) or (_misplaced(described, start) if begins else None)
            if unfit is None:
                return
            _log.warning("consumer_made_anew", stream=stream, consumer=consumer, start=start, reason=unfit)
            await self._delete(stream, consumer)
        config = {**_settings, "name": consumer, "durable_name": consumer, "opt_start_seq": start}
        await self._call(f"CONSUMER.CREATE.{stream}.{consumer}", {"stream_name": stream, "config": config})

    async def _bounds(self, stream: str) -> StreamBounds:
        state = (await self._call(f"STREAM.INFO.{stream}", {}))["state"]
        last = int(state["last_seq"])
        return StreamBounds(int(state["first_seq"]) if state["messages"] else last + 1, last)

    async def _describe(self, stream: str, consumer: str) -> dict[str, Any] | None:
        try:
            return await self._call(f"CONSUMER.INFO.{stream}.{consumer}", {})
        except ConsumerRefused as refusal:
            if refusal.error_code == _consumer_not_found:
                return None
            raise

    async def _delete(self, stream: str, consumer: str) -> None:
        try:
            await self._call(f"CONSUMER.DELETE.{stream}.{consumer}", {})
        except ConsumerRefused as refusal:
            if refusal.error_code != _consumer_not_found:
                raise

    async def _call(self, call: str, asked: dict[str, Any]) -> dict[str, Any]:
        message = await self._client.request(f"$JS.API.{call}", json.dumps(asked).encode(), timeout=call_seconds_max)
        answer: dict[str, Any] = json.loads(message.data)
        if error := answer.get("error"):
            if error.get("err_code") == _stream_not_found:
                raise StreamAbsent(call)
            raise ConsumerRefused(call, str(error.get("description")), int(error.get("err_code", 0)))
        return answer


def _unfit(described: dict[str, Any], bounds: StreamBounds) -> str | None:
    """Why an existing consumer cannot be used, or None."""
    config = described["config"]
    for name, value in _settings.items():
        if config.get(name) != value:
            return f"its {name} is {config.get(name)!r}, not {value!r}"
    for name in _narrowing:
        if config.get(name):
            return f"it has {name} {config[name]!r}"
    # Everything up to here was handed out or lies before its start: it will not be delivered for the first time.
    passed = max(int(described["delivered"]["stream_seq"]), int(config["opt_start_seq"]) - 1)
    if passed > bounds.last:
        return f"it stands at {passed}, beyond the stream's end {bounds.last}"
    return None


def _misplaced(described: dict[str, Any], start: int) -> str | None:
    """Why a consumer does not stand where its reader begins, or None."""
    acknowledged, waiting = int(described["ack_floor"]["stream_seq"]), int(described["num_ack_pending"])
    if acknowledged != start - 1:
        return f"it is acknowledged up to {acknowledged}, its reader begins at {start}"
    return f"{waiting} messages wait for the acknowledgement of an earlier reader" if waiting else None
