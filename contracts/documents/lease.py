"""Lease (`lease.schema.json`): a bounded, fenced right of one Agent session (MWP-WRK-013, LSE-2)."""

from enum import Enum
from typing import Annotated, Final

from msgspec import UNSET, Meta, UnsetType

from contracts.documents.common import Document
from contracts.documents.conditions import has, has_not, when
from contracts.identifiers import (
    CoordinatorEpochField,
    Identifier,
    OwnershipEpochField,
    SafeInteger,
    SessionEpochField,
)
from contracts.timestamps import Timestamp

# ECMAScript's white space, spelled out: Python's \s has U+001C-U+001F and U+0085 too and lacks U+FEFF.
_ecma_white_space: Final = r"\t\n\x0b\x0c\r \xa0\u1680\u2000-\u200a\u2028\u2029\u202f\u205f\u3000\ufeff"
closure_reason_pattern: Final = rf"[^{_ecma_white_space}]"
ClosureReason = Annotated[str, Meta(pattern=closure_reason_pattern, max_length=512)]


class LeaseType(Enum):
    """What a lease gives the right to."""

    COORDINATOR = "coordinator"
    OWNERSHIP = "ownership"
    EXECUTION = "execution"
    BLOCKED = "blocked"


class LeaseState(Enum):
    """Running, or why it ended: by the clock, by fencing, or by its holder (MWP-WRK-014)."""

    ACTIVE = "active"
    EXPIRED = "expired"
    REVOKED = "revoked"
    RELEASED = "released"


class Lease(Document, frozen=True, kw_only=True):
    """A lease; it runs from `starts_at` up to, not including, `expires_at` on the authority's database clock."""

    lease_id: Identifier
    lease_type: LeaseType
    mission_id: Identifier
    group_id: Identifier
    work_item_id: Identifier | UnsetType = UNSET
    holder_agent_id: Identifier
    session_epoch: SessionEpochField
    coordinator_epoch: CoordinatorEpochField | UnsetType = UNSET
    ownership_epoch: OwnershipEpochField | UnsetType = UNSET
    start_by: Timestamp | UnsetType = UNSET
    issued_at: Timestamp
    starts_at: Timestamp
    expires_at: Timestamp
    grace_expires_at: Timestamp | UnsetType = UNSET
    state: LeaseState
    renewal_count: SafeInteger
    last_renewed_at: Timestamp | UnsetType = UNSET
    closed_at: Timestamp | UnsetType = UNSET
    closure_reason: ClosureReason | UnsetType = UNSET

    rules = (
        when(
            has("lease_type", LeaseType.COORDINATOR),
            holder="a coordinator lease",
            requires=("coordinator_epoch",),
        ),
        when(
            has("lease_type", LeaseType.OWNERSHIP, LeaseType.EXECUTION, LeaseType.BLOCKED),
            holder="a lease of type {lease_type}",
            requires=("work_item_id", "ownership_epoch"),
        ),
        when(
            has("lease_type", LeaseType.OWNERSHIP),
            holder="a lease of type ownership",
            requires=("start_by",),
        ),
        when(
            has("lease_type", LeaseType.EXECUTION),
            holder="a lease of type execution",
            refuses=("coordinator_epoch", "start_by", "grace_expires_at"),
        ),
        when(has_not("renewal_count", 0), holder="a renewed lease", requires=("last_renewed_at",)),
        when(has("renewal_count", 0), holder="a lease never renewed", refuses=("last_renewed_at",)),
        when(
            has("state", LeaseState.ACTIVE),
            holder="an active lease",
            refuses=("closed_at", "closure_reason"),
        ),
        when(
            has_not("state", LeaseState.ACTIVE),
            holder="a lease that is {state}",
            requires=("closed_at", "closure_reason"),
        ),
    )
