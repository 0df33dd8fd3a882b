"""Replies as one JSON object: `{"receipt": …}` or `{"error": …}` (RULE-30).

A stored Receipt travels as its stored bytes, so that every retry gets the same ones (MWP-EVT-003).
"""

from collections.abc import Callable
from typing import Any, Final

import msgspec
from msgspec import UNSET, Struct, UnsetType

from contracts.canonical import canonical_bytes
from contracts.documents.error import ProtocolError
from contracts.receipt import Receipt
from contracts.rejection import Rejection


class ReplyFault(ValueError):
    """A reply is neither a Receipt nor an error of the protocol."""


class Refusal(Struct, frozen=True):
    """A Rejection as it arrived; `occurred_at` is a timestamp of the authority's."""

    rejection: Rejection
    occurred_at: str


class _AnyReply(Struct, frozen=True, kw_only=True):
    error: ProtocolError | UnsetType = UNSET


class _CommandReply(_AnyReply, frozen=True, kw_only=True, forbid_unknown_fields=True):
    receipt: Receipt | UnsetType = UNSET


_decode_reply: Final = msgspec.json.Decoder(_CommandReply).decode
_decode_error: Final = msgspec.json.Decoder(_AnyReply).decode


def encode_receipt(receipt: bytes) -> bytes:
    """The reply that carries a Receipt's stored bytes (canonical JSON) unchanged."""
    return b'{"receipt":' + receipt + b"}"


def encode_error(rejection: Rejection, occurred_at: str) -> bytes:
    """The reply that carries a Rejection; `occurred_at` is the authority's time (`timestamps.format_timestamp`).

    Raises CanonicalizationFault when `details` hold no JSON.
    """
    error: dict[str, Any] = msgspec.to_builtins(rejection)
    # `retryable` false is the Struct's default, yet the schema requires the member.
    return canonical_bytes({"error": {**error, "retryable": rejection.retryable, "occurredAt": occurred_at}})


def decode_reply(raw: bytes) -> Receipt | Rejection:
    """What a Command got. Raises ReplyFault when the reply is neither a Receipt nor an error of the protocol."""
    reply = _read(raw, _decode_reply)
    if reply.receipt is not UNSET and reply.error is UNSET:
        return reply.receipt
    if reply.error is not UNSET and reply.receipt is UNSET:
        return _rejection(reply.error)
    raise ReplyFault(f"a reply holds either a receipt or an error; this one begins {raw[:80]!r}")


def decode_refusal(raw: bytes) -> Refusal | None:
    """The error in the reply to any request, None when it carries none. Raises ReplyFault for a malformed reply."""
    error = _read(raw, _decode_error).error
    return None if error is UNSET else Refusal(_rejection(error), error.occurred_at)


def _read[T](raw: bytes, decode: Callable[[bytes], T]) -> T:
    try:
        return decode(raw)
    except (msgspec.MsgspecError, UnicodeError, RecursionError) as fault:
        raise ReplyFault(f"not a reply of the protocol: {fault}; it begins {raw[:80]!r}") from fault


def _rejection(error: ProtocolError) -> Rejection:
    return Rejection(
        code=error.code,
        message=error.message,
        retryable=error.retryable,
        related_action_id=error.related_action_id,
        group_id=error.group_id,
        expected_revision=error.expected_revision,
        current_revision=error.current_revision,
        retry_after_ms=error.retry_after_ms,
        snapshot_artifact_hash=error.snapshot_artifact_hash,
        details=error.details,
    )
