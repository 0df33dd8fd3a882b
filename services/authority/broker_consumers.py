"""The few calls of the broker's consumer API that delivery needs, as raw JSON.

The client library drops configuration members that it does not know when it parses a reply, so nothing parsed by it
may ever be written back. Here a configuration is only compared and, when it differs, written anew as a whole.
"""

import json
from typing import Any, Final

from msgspec import Struct
from nats.aio.client import Client
from nats.errors import Error as BrokerError

call_seconds_max: Final = 5.0
"""Seconds of one call to the broker's API."""
name_pages_max: Final = 64
"""Pages of consumer names read from one stream (a page holds about a thousand)."""
acknowledgements_pending_max: Final = 8_192
"""Messages that one consumer may have delivered without an acknowledgement."""
acknowledgement_seconds: Final = 30
"""Seconds after which an unacknowledged message is delivered again."""

_stream_not_found: Final = 10_059
_consumer_not_found: Final = 10_014


class StreamAbsent(Exception):
    """The shard's stream is not there (yet, or after the broker lost it): its relay creates it."""


class ConsumerPlace(Struct, frozen=True):
    """What a consumer is set to and how far it came.

    `filters` are subjects, sorted; `started_at` the stream sequence it began at; `delivered` the last stream
    sequence handed out (0 for none).
    """

    filters: tuple[str, ...]
    started_at: int
    delivered: int

    @property
    def passed(self) -> int:
        """All stream sequences up to this one will never be delivered for the first time."""
        return max(self.delivered, self.started_at - 1)


class BrokerConsumers:
    """Durable pull consumers on the shard streams.

    Every method raises `nats.errors.Error` (no answer, refused) as it comes, and StreamAbsent where a stream is named.
    """

    def __init__(self, nc: Client) -> None:
        """Use this connection; its account needs the consumer API."""
        self._nc = nc

    async def last_sequence(self, stream: str) -> int:
        """The last sequence of a stream, 0 when it never held a message."""
        answer = await self._call(f"STREAM.INFO.{stream}", {})
        return int(answer["state"]["last_seq"])

    async def holders(self, subject: str) -> list[str]:
        """Names of the streams that hold a subject."""
        answer = await self._call("STREAM.NAMES", {"subject": subject})
        return list(answer.get("streams") or [])

    async def consumers_of(self, stream: str) -> list[str]:
        """Names of the consumers of a stream."""
        names: list[str] = []
        for _ in range(name_pages_max):
            answer = await self._call(f"CONSUMER.NAMES.{stream}", {"offset": len(names)})
            page = answer.get("consumers") or []
            names.extend(page)
            if not page or len(names) >= int(answer["total"]):
                return names
        raise ApiRefusal(f"{stream} has more than {name_pages_max} pages of consumers", 0)

    async def find(self, stream: str, consumer: str) -> ConsumerPlace | None:
        """A consumer's filters and progress, None when there is no such consumer."""
        try:
            answer = await self._call(f"CONSUMER.INFO.{stream}.{consumer}", {})
        except ApiRefusal as refusal:
            if refusal.error_code == _consumer_not_found:
                return None
            raise
        config = answer["config"]
        single = config.get("filter_subject")
        return ConsumerPlace(
            filters=tuple(sorted(config.get("filter_subjects") or ([single] if single else []))),
            started_at=int(config.get("opt_start_seq", 1)),
            delivered=int(answer["delivered"]["stream_seq"]),
        )

    async def put(self, stream: str, consumer: str, filters: tuple[str, ...], started_at: int) -> None:
        """Create a consumer, or give an existing one that began at the same place these filters.

        Raises ValueError for no filters: the broker would take that for "everything".
        """
        if not filters:
            raise ValueError(f"consumer {consumer} of {stream} needs a filter; without one it would get every Group")
        config = {
            "durable_name": consumer,
            "name": consumer,
            "deliver_policy": "by_start_sequence",
            "opt_start_seq": started_at,
            "ack_policy": "all",
            "ack_wait": acknowledgement_seconds * 1_000_000_000,
            "max_deliver": -1,
            "max_ack_pending": acknowledgements_pending_max,
            "filter_subjects": list(filters),
            "replay_policy": "instant",
        }
        await self._call(f"CONSUMER.CREATE.{stream}.{consumer}", {"stream_name": stream, "config": config})

    async def delete(self, stream: str, consumer: str) -> None:
        """Remove a consumer; one that is gone already is removed."""
        try:
            await self._call(f"CONSUMER.DELETE.{stream}.{consumer}", {})
        except ApiRefusal as refusal:
            if refusal.error_code != _consumer_not_found:
                raise

    async def _call(self, call: str, asked: dict[str, Any]) -> dict[str, Any]:
        message = await self._nc.request(f"$JS.API.{call}", json.dumps(asked).encode(), timeout=call_seconds_max)
        answer: dict[str, Any] = json.loads(message.data)
        if error := answer.get("error"):
            if error.get("err_code") == _stream_not_found:
                raise StreamAbsent(call)
            raise ApiRefusal(f"{call}: {error.get('description')}", int(error.get("err_code", 0)))
        return answer


class ApiRefusal(BrokerError):
    """The broker answered a call with an error; `error_code` is its `err_code`."""

    def __init__(self, message: str, error_code: int) -> None:
        """Keep the broker's words and code."""
        super().__init__(message)
        self.message = message
        self.error_code = error_code

    def __str__(self) -> str:
        """The broker's words."""
        return self.message
