"""WorkItem (`work-item.schema.json`): a unit of work with its contract, offers, owner and submission."""

from enum import Enum
from typing import Annotated, Final

from msgspec import UNSET, Meta, UnsetType

from contracts.documents.common import (
    Actor,
    CapabilityRef,
    Document,
    Extensions,
    NonEmpty,
    NonNegativeNumber,
    Text200,
    Text500,
    Text2000,
)
from contracts.documents.conditions import has, unique, when
from contracts.documents.work_contract import WorkContract
from contracts.identifiers import Identifier, OwnershipEpochField, PositiveInteger, SafeInteger, Sha256
from contracts.timestamps import Timestamp


class WorkItemState(Enum):
    """States of table STM-W."""

    OPEN = "open"
    OFFERED = "offered"
    QUEUED = "queued"
    ACTIVE = "active"
    BLOCKED = "blocked"
    SUBMITTED = "submitted"
    VERIFIED = "verified"
    FAILED = "failed"
    CANCELLED = "cancelled"

    @property
    def terminal(self) -> bool:
        """Whether no Command leaves this state; a failed WorkItem may still be offered anew (MWP-WRK-003)."""
        return self in (WorkItemState.VERIFIED, WorkItemState.CANCELLED)


_owned_states: Final = frozenset(
    {
        WorkItemState.QUEUED,
        WorkItemState.ACTIVE,
        WorkItemState.BLOCKED,
        WorkItemState.SUBMITTED,
        WorkItemState.VERIFIED,
    }
)
_submitted_states: Final = frozenset({WorkItemState.SUBMITTED, WorkItemState.VERIFIED})


class OfferStatus(Enum):
    """What became of an offer."""

    PENDING = "pending"
    ACCEPTED = "accepted"
    DECLINED = "declined"
    WITHDRAWN = "withdrawn"
    EXPIRED = "expired"
    LOST_RACE = "lost_race"


class DeclineReason(Enum):
    """Why an Agent declined (SCH-6)."""

    CAPACITY = "capacity"
    DEADLINE = "deadline"
    CAPABILITY = "capability"
    AUTHORIZATION = "authorization"
    DEPENDENCY = "dependency"
    BUDGET = "budget"
    OTHER = "other"


class CapacityStatus(Enum):
    """How busy the Worker says it is, without saying with what (MWP-WRK-012)."""

    AVAILABLE = "available"
    QUEUED = "queued"
    CONSTRAINED = "constrained"
    BLOCKED = "blocked"


class Offer(Document, frozen=True, kw_only=True):
    """An offer to one Agent, valid up to, not including, `expires_at`."""

    offer_id: Identifier
    agent_id: Identifier
    agent_card_version: PositiveInteger
    expires_at: Timestamp
    status: OfferStatus
    decline_reason: DeclineReason | UnsetType = UNSET


class Owner(Document, frozen=True, kw_only=True):
    """The Agent that accepted, with the Agent Card and capability versions it accepted under."""

    agent_id: Identifier
    agent_card_version: PositiveInteger
    capability_pins: NonEmpty[CapabilityRef]
    ownership_epoch: OwnershipEpochField
    ownership_lease_id: Identifier
    accepted_at: Timestamp


class SelectionBasis(Document, frozen=True, kw_only=True):
    """Why these candidates were chosen."""

    required_capabilities: NonEmpty[CapabilityRef]
    verified_matches: NonEmpty[CapabilityRef]
    authorization_eligible: bool
    availability_estimate: Timestamp
    expected_cost: NonNegativeNumber
    reliability_evidence: tuple[Identifier, ...]
    policy_rules_applied: NonEmpty[Text200]


class ScheduleEstimate(Document, frozen=True, kw_only=True):
    """When the Worker expects to start and finish; `confidence` lies between 0 and 1."""

    estimated_start: Timestamp
    estimated_completion: Timestamp
    confidence: Annotated[int, Meta(ge=0, le=1)] | Annotated[float, Meta(ge=0, le=1)]
    capacity_status: CapacityStatus
    last_calculated_at: Timestamp


class Progress(Document, frozen=True, kw_only=True):
    """How far the Worker says it is."""

    current_phase: Text500
    completed_milestones: tuple[Text500, ...]
    next_checkpoint: Text500
    blockers: tuple[Text2000, ...]
    updated_completion_estimate: Timestamp
    evidence_ids: tuple[Identifier, ...]

    rules = unique("evidence_ids")


class Submission(Document, frozen=True, kw_only=True):
    """What the owner handed in for acceptance."""

    artifact_hashes: NonEmpty[Sha256]
    evidence_ids: NonEmpty[Identifier]
    submitted_at: Timestamp

    rules = unique("artifact_hashes", "evidence_ids")


class WorkItem(Document, frozen=True, kw_only=True):
    """A WorkItem as of one revision."""

    work_item_id: Identifier
    mission_id: Identifier
    group_id: Identifier
    conversation_id: Identifier
    revision: SafeInteger
    state: WorkItemState
    exclusive: bool
    contract: WorkContract
    offers: tuple[Offer, ...] | UnsetType = UNSET
    owner: Owner | UnsetType = UNSET
    selection_basis: SelectionBasis | UnsetType = UNSET
    schedule_estimate: ScheduleEstimate | UnsetType = UNSET
    progress: Progress | UnsetType = UNSET
    submission: Submission | UnsetType = UNSET
    created_by: Actor
    authorized_by: Actor | UnsetType = UNSET
    created_at: Timestamp
    updated_at: Timestamp | UnsetType = UNSET
    extensions: Extensions | UnsetType = UNSET

    rules = (
        when(
            has("state", *_owned_states),
            holder="a WorkItem that is {state}",
            requires=("owner", "selection_basis"),
        ),
        when(
            has("state", WorkItemState.SUBMITTED, WorkItemState.VERIFIED),
            holder="a WorkItem that is {state}",
            requires=("submission",),
        ),
    )
