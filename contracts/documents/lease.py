"""Lease (`lease.schema.json`): a bounded, fenced right of one Agent session (MWP-WRK-013, LSE-2)."""

from enum import Enum
from typing import Annotated, Final

from msgspec import UNSET, Meta, UnsetType

from contracts.documents.common import Document, refuse_members, require_members
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

    def __post_init__(self) -> None:
        """The type decides about epochs, the count about the renewal time, the state about the closure."""
        self._check_type()
        renewed = {"lastRenewedAt": self.last_renewed_at}
        if self.renewal_count > 0:
            require_members("a renewed lease", renewed)
        else:
            refuse_members("a lease never renewed", renewed)
        closure = {"closedAt": self.closed_at, "closureReason": self.closure_reason}
        if self.state is LeaseState.ACTIVE:
            refuse_members("an active lease", closure)
        else:
            require_members(f"a lease that is {self.state.value}", closure)

    def _check_type(self) -> None:
        """Members that each type of lease needs or excludes."""
        if self.lease_type is LeaseType.COORDINATOR:
            require_members("a coordinator lease", {"coordinatorEpoch": self.coordinator_epoch})
            return
        holder = f"a lease of type {self.lease_type.value}"
        require_members(holder, {"workItemId": self.work_item_id, "ownershipEpoch": self.ownership_epoch})
        if self.lease_type is LeaseType.OWNERSHIP:
            require_members(holder, {"startBy": self.start_by})
        if self.lease_type is LeaseType.EXECUTION:
            refuse_members(
                holder,
                {
                    "coordinatorEpoch": self.coordinator_epoch,
                    "startBy": self.start_by,
                    "graceExpiresAt": self.grace_expires_at,
                },
            )
