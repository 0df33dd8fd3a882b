"""What the broker's answer to a published message proves, and why publishing stops when it proves nothing."""

from enum import Enum
from typing import Final

from msgspec import DecodeError, Struct
from msgspec.json import Decoder
from nats.aio.msg import Msg
from nats.js.api import Header

from contracts.identifiers import ShardPosition

_wrong_last_sequence: Final = frozenset({10_071, 10_164})
_wrong_stream: Final = 10_060
_message_refused: Final = frozenset({10_054, 10_097})
"""The message itself is at fault: it, or its headers, exceed what the stream takes."""
_server_fault: Final = 500
"""Broker errors from this code on say that it cannot, not that it will not."""
_no_responders: Final = "503"


class StopReason(Enum):
    """Why publishing stopped."""

    SEQUENCE = "sequence"
    """The stream does not end where expected: somebody published, or the store is another one."""
    STREAM = "stream"
    """There is no such stream at these subjects."""
    DOUBTFUL = "doubtful"
    """An answer that does not prove that this message stands at its position (duplicate, other sequence)."""
    BATCH = "batch"
    """A batch was refused as a whole, which does not say for which message."""
    MESSAGE = "message"
    """The broker refuses this one message for good (too large, for instance)."""
    BROKER = "broker"
    """The broker cannot store now."""
    SILENT = "silent"
    """No answer for `answer_seconds_max`."""
    CONNECTION = "connection"
    """The connection was lost: what was under way may or may not be stored."""
    LEASE = "lease"
    """The lease is over or about to be, or another relay has had it since."""
    INCARNATION = "incarnation"
    """The log has moved to an incarnation that this stream is not of."""
    INSPECTION = "inspection"
    """Time to compare the stream with the log again."""
    DATABASE = "database"
    """The log cannot be read now."""
    BLOCKED = "blocked"
    """Nothing may be published until somebody has settled what is wrong."""


class Stop(Struct, frozen=True):
    """Why publishing stopped, at which position (the last one of the message or batch), in the broker's words."""

    reason: StopReason
    position: ShardPosition
    detail: str = ""


class _Fault(Struct):
    code: int = 0
    err_code: int = 0
    description: str = ""


class _Answer(Struct):
    stream: str = ""
    seq: int = 0
    duplicate: bool = False
    count: int = 0
    error: _Fault | None = None


_decode: Final = Decoder(_Answer).decode


def judge_answer(message: Msg, stream: str, position: ShardPosition, count: int) -> Stop | None:
    """None when the answer proves that `count` messages up to `position` are stored at their places in `stream`."""
    if message.headers and message.headers.get(Header.STATUS) == _no_responders:
        return Stop(StopReason.STREAM, position, "no stream takes this subject")
    try:
        answer = _decode(message.data)
    except DecodeError as error:
        return Stop(StopReason.DOUBTFUL, position, str(error))
    if answer.error is not None:
        detail = f"{answer.error.description} ({answer.error.err_code})"
        return Stop(_reason(answer.error, count), position, detail)
    placed = answer.stream == stream and answer.seq == position and not answer.duplicate
    if placed and count in (1, answer.count):
        return None
    return Stop(StopReason.DOUBTFUL, position, message.data.decode(errors="replace"))


def _reason(fault: _Fault, count: int) -> StopReason:
    if fault.err_code in _wrong_last_sequence:
        return StopReason.SEQUENCE
    if fault.err_code == _wrong_stream:
        return StopReason.STREAM
    if fault.code >= _server_fault:
        return StopReason.BROKER
    if count > 1:
        return StopReason.BATCH
    # Anything else that is refused (account limits, too many requests) says nothing about this Event.
    return StopReason.MESSAGE if fault.err_code in _message_refused else StopReason.BROKER
