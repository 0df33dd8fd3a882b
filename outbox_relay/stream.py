"""A shard's stream at the broker: made for one incarnation, and compared with the log before anything is published.

The stream sequence of a message is its shard position, so the stream's last sequence is the exact position of the
relay. What it means depends on the log: see `Condition`.
"""

import json
from base64 import b64decode
from enum import Enum
from typing import Any, Final

from msgspec import Struct
from nats.aio.client import Client
from nats.errors import Error as BrokerError

from contracts import subjects
from contracts.bounds import event_bytes_max
from contracts.delivery import MessageMark, read_mark
from contracts.identifiers import ShardId, ShardPosition
from outbox_relay.message import header_bytes_reserved
from outbox_relay.outbox import LogHead

call_seconds_max: Final = 5.0
"""Seconds of one call to the broker's API that changes something."""
look_seconds_max: Final = 2.0
"""Seconds of a call that only looks: a stream without a leader answers nothing, and is to be asked again soon."""
consumers_max: Final = 100_000
"""Consumers of one stream: one per Worker and projection. Unset, the broker stops at 1,000."""
message_bytes_max: Final = event_bytes_max + header_bytes_reserved
"""Bytes of one message with its headers."""

_stream_not_found: Final = 10_059
_name_in_use: Final = 10_058
_message_not_found: Final = 10_037
_subjects_overlap: Final = 10_065


class StreamLimits(Struct, frozen=True, kw_only=True):
    """How long a stream keeps messages; the log keeps everything. 0 seconds and −1 bytes mean without limit."""

    max_age_seconds: int = 0
    max_bytes: int = -1
    replicas: int = 1


class Condition(Enum):
    """What a stream is to its log."""

    FRESH = "fresh"
    """There is none: make it."""
    BEHIND = "behind"
    """It ends before the log: publish from there. Lost tails and older stores that came back look like this too."""
    LEVEL = "level"
    """It ends where the log ends."""
    AHEAD = "ahead"
    """It ends beyond the log: the database lost commits (RULE-16). Publish nothing."""
    FORKED = "forked"
    """Its last message is not the Event of that position: stream and log are two histories. Publish nothing."""
    FOREIGN = "foreign"
    """Its subjects belong to an incarnation that this database does not know: it was set back to before that one
    was opened. Publish nothing."""
    FENCED = "fenced"
    """Its last message was published under a higher lease epoch: ask the primary for the lease again (RULE-18)."""


unmarked: Final = MessageMark("", 0, "")
"""The mark of a message that no relay published."""
publishable: Final = frozenset({Condition.BEHIND, Condition.LEVEL})


class StreamState(Struct, frozen=True):
    """A stream as the broker describes it.

    `last` is the mark of its last message, None when that message is gone (aged, purged); `retired` says that a
    later incarnation took the subjects away.
    """

    last_sequence: ShardPosition
    last: MessageMark | None
    retired: bool


def judge(state: StreamState, log: LogHead, relay_epoch: int) -> Condition:
    """Compare a stream with its log.

    `log` must have been read after `state`, with the Event ID at the stream's last sequence: a stream can only be
    ahead of a head that was read later if commits were lost.
    """
    if state.retired:
        return Condition.FOREIGN
    if state.last_sequence > log.position:
        return Condition.AHEAD
    if state.last is not None and state.last.event_id != log.event_id:
        return Condition.FORKED
    if state.last is not None and state.last.relay_epoch > relay_epoch:
        return Condition.FENCED
    return Condition.LEVEL if state.last_sequence == log.position else Condition.BEHIND


class StreamRefusal(BrokerError):
    """The broker answered a call about a stream with an error; `error_code` is its `err_code`."""

    def __init__(self, call: str, description: str, error_code: int) -> None:
        """Keep the broker's words and code."""
        super().__init__(f"{call}: {description}")
        self.error_code = error_code


class ShardStream:
    """The streams of one shard, one per incarnation.

    Every method raises `nats.errors.Error`, of which StreamRefusal is the broker's own answer, and `TimeoutError`.
    """

    def __init__(self, client: Client, organization_id: str, shard_id: ShardId, limits: StreamLimits) -> None:
        """`limits` hold for streams that are made from now on."""
        self._client = client
        self._organization_id = organization_id
        self._shard_id = shard_id
        self.limits = limits
        self._subjects = subjects.shard_events(organization_id, shard_id)

    def name(self, incarnation: str) -> str:
        """The stream's name in an incarnation."""
        return subjects.stream_name(self._organization_id, self._shard_id, incarnation)

    async def state(self, incarnation: str) -> StreamState | None:
        """The stream of an incarnation, or None when there is none."""
        name = self.name(incarnation)
        described = await self._describe(name)
        if described is None:
            return None
        sequence = ShardPosition(described["state"]["last_seq"])
        last = await self._last_mark(name, sequence) if described["state"]["messages"] else None
        return StreamState(sequence, last, retired=described["config"]["subjects"] != [self._subjects])

    async def holders(self) -> list[str]:
        """Names of the streams that hold subjects of this shard; the broker allows one at a time."""
        answer = await self._call("STREAM.NAMES", {"subject": self._subjects}, look_seconds_max)
        return list(answer.get("streams") or [])

    async def create(self, incarnation: str, first: ShardPosition) -> bool:
        """Make the stream of an incarnation so that its first message gets the sequence `first`.

        False when it could not be made now because another one is in the way (made meanwhile): look again.
        """
        try:
            await self._call(f"STREAM.CREATE.{self.name(incarnation)}", self._configuration(incarnation, first))
        except StreamRefusal as refusal:
            if refusal.error_code in (_name_in_use, _subjects_overlap):
                return False
            raise
        return True

    async def retire(self, incarnation: str) -> None:
        """Take the subjects from the stream of an earlier incarnation; its messages stay for reconciliation.

        The configuration is changed as raw JSON, since the client library drops members that it does not know.
        """
        name = self.name(incarnation)
        described = await self._describe(name)
        if described is not None:
            retired = subjects.retired_events(self._organization_id, self._shard_id, incarnation)
            await self._call(f"STREAM.UPDATE.{name}", described["config"] | {"subjects": [retired]})

    def _configuration(self, incarnation: str, first: ShardPosition) -> dict[str, Any]:
        return {
            "name": self.name(incarnation),
            "subjects": [self._subjects],
            "retention": "limits",
            "discard": "old",
            "storage": "file",
            "num_replicas": self.limits.replicas,
            "first_seq": first,
            "max_age": self.limits.max_age_seconds * 1_000_000_000,
            "max_bytes": self.limits.max_bytes,
            "max_msgs": -1,
            "max_msgs_per_subject": -1,
            "max_msg_size": message_bytes_max,
            "max_consumers": consumers_max,
            "allow_direct": True,
            "allow_atomic": True,
        }

    async def _describe(self, name: str) -> dict[str, Any] | None:
        try:
            return await self._call(f"STREAM.INFO.{name}", {}, look_seconds_max)
        except StreamRefusal as refusal:
            if refusal.error_code == _stream_not_found:
                return None
            raise

    async def _last_mark(self, name: str, sequence: ShardPosition) -> MessageMark | None:
        """The mark of the last message, None when the message is gone.

        Asked of the stream's leader, which also said where the stream ends: any replica answers a direct get, and one
        that lags would call the message gone, which would leave history and epoch of the stream unjudged.
        """
        try:
            answer = await self._call(f"STREAM.MSG.GET.{name}", {"seq": sequence}, look_seconds_max)
        except StreamRefusal as refusal:
            if refusal.error_code == _message_not_found:
                return None
            raise
        return read_mark(_headers(answer["message"].get("hdrs", ""))) or unmarked

    async def _call(self, call: str, asked: dict[str, Any], seconds_max: float = call_seconds_max) -> dict[str, Any]:
        message = await self._client.request(
            f"$JS.API.{call}", json.dumps(asked).encode() if asked else b"", timeout=seconds_max
        )
        answer: dict[str, Any] = json.loads(message.data)
        if error := answer.get("error"):
            raise StreamRefusal(call, str(error.get("description")), int(error.get("err_code", 0)))
        return answer


def _headers(encoded: str) -> dict[str, str]:
    """The headers of a stored message, as the broker's API spells them: a version line, then one per line, base64."""
    lines = b64decode(encoded).decode().splitlines()[1:]
    return {name: value.strip() for name, separator, value in (line.partition(":") for line in lines) if separator}
