"""Refusals as values: the protocol's 27 codes in the order of `error.schema.json`, with what helps the caller.

A Rejection is an expected answer of `decide` and of the checks before it; exceptions are faults.
"""

from enum import Enum
from typing import Any

from msgspec import UNSET, Struct, UnsetType


class Code(Enum):
    """`error.schema.json`: code."""

    UNSUPPORTED_VERSION = "UNSUPPORTED_VERSION"
    AUTH_REQUIRED = "AUTH_REQUIRED"
    AUTH_INVALID_SIGNATURE = "AUTH_INVALID_SIGNATURE"
    AUTH_STALE_SESSION = "AUTH_STALE_SESSION"
    AUTH_STALE_COORDINATOR = "AUTH_STALE_COORDINATOR"
    AUTH_FORBIDDEN = "AUTH_FORBIDDEN"
    GROUP_NOT_FOUND = "GROUP_NOT_FOUND"
    MEMBERSHIP_REQUIRED = "MEMBERSHIP_REQUIRED"
    MEMBERSHIP_STALE = "MEMBERSHIP_STALE"
    SCHEMA_VALIDATION_FAILED = "SCHEMA_VALIDATION_FAILED"
    INVALID_COMMAND = "INVALID_COMMAND"
    INVALID_STATE_TRANSITION = "INVALID_STATE_TRANSITION"
    REVISION_CONFLICT = "REVISION_CONFLICT"
    ACTION_ID_COLLISION = "ACTION_ID_COLLISION"
    UNKNOWN_CRITICAL_EXTENSION = "UNKNOWN_CRITICAL_EXTENSION"
    WORK_CONTRACT_INCOMPLETE = "WORK_CONTRACT_INCOMPLETE"
    WORK_OFFER_EXPIRED = "WORK_OFFER_EXPIRED"
    WORK_ALREADY_OWNED = "WORK_ALREADY_OWNED"
    WORK_LEASE_EXPIRED = "WORK_LEASE_EXPIRED"
    WORK_STALE_OWNERSHIP = "WORK_STALE_OWNERSHIP"
    APPROVAL_REQUIRED = "APPROVAL_REQUIRED"
    BUDGET_EXCEEDED = "BUDGET_EXCEEDED"
    RATE_LIMITED = "RATE_LIMITED"
    BACKPRESSURE = "BACKPRESSURE"
    CURSOR_TOO_OLD = "CURSOR_TOO_OLD"
    PROTOCOL_VIOLATION = "PROTOCOL_VIOLATION"
    INTERNAL_ERROR = "INTERNAL_ERROR"


class Rejection(Struct, frozen=True, kw_only=True, omit_defaults=True, rename="camel"):
    """`error.schema.json` without `occurredAt`, which the reply adds from the clock.

    `retryable` says whether the very same bytes may succeed later; `retry_after_ms` is in milliseconds.
    `message` has 1…2000 characters and names the thing, the value and the remedy.
    """

    code: Code
    message: str
    retryable: bool = False
    related_action_id: str | UnsetType = UNSET
    group_id: str | UnsetType = UNSET
    expected_revision: int | UnsetType = UNSET
    current_revision: int | UnsetType = UNSET
    retry_after_ms: int | UnsetType = UNSET
    snapshot_artifact_hash: str | UnsetType = UNSET
    details: dict[str, Any] | UnsetType = UNSET

    def __post_init__(self) -> None:
        """Bound the message: the schema allows 1…2000 characters."""
        if not 1 <= len(self.message) <= 2000:
            raise ValueError(f"a rejection message has 1 to 2000 characters, not {len(self.message)}")


def reject(code: Code, message: str, **facts: Any) -> Rejection:
    """A Rejection whose message is cut to the schema's 2000 characters."""
    return Rejection(code=code, message=message[:2000], **facts)
