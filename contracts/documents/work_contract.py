"""Work Contract (`work-contract.schema.json`): what a WorkItem asks for, with which means, and until when."""

from enum import Enum
from typing import Annotated

from msgspec import UNSET, Meta, UnsetType

from contracts.documents.common import (
    AcceptanceCriterion,
    Budget,
    CapabilityRef,
    Document,
    Duration,
    Extensions,
    JsonObject,
    LocalName,
    MediaType,
    NonEmpty,
    ResourceGrant,
    Text4000,
    Text10000,
)
from contracts.documents.conditions import unique
from contracts.identifiers import Identifier, PositiveInteger, Sha256, Uri
from contracts.timestamps import Timestamp

FailureCode = Annotated[str, Meta(pattern=r"\A[A-Z][A-Z0-9_]{1,127}\Z")]


class Urgency(Enum):
    """What the Coordinator asks for within its own Mission (SCH-1)."""

    ROUTINE = "routine"
    NORMAL = "normal"
    HIGH = "high"
    CRITICAL = "critical"


class SideEffectRisk(Enum):
    """How far an effect of the work reaches and whether it can be taken back."""

    NONE = "none"
    REVERSIBLE = "reversible"
    EXTERNAL = "external"
    HIGH_RISK = "high_risk"
    DESTRUCTIVE = "destructive"


class ExecutionApproval(Enum):
    """What must open the start gate (APR-1)."""

    NOT_REQUIRED = "not_required"
    POLICY_REQUIRED = "policy_required"
    HUMAN_REQUIRED = "human_required"


class Backoff(Enum):
    """How the delay grows from attempt to attempt."""

    NONE = "none"
    FIXED = "fixed"
    EXPONENTIAL = "exponential"


class Deliverable(Document, frozen=True, kw_only=True):
    """One output that the contract asks for."""

    deliverable_id: LocalName
    description: Text4000
    media_type: MediaType
    schema: Uri


class RetryPolicy(Document, frozen=True, kw_only=True):
    """Bounds of automatic retries (MWP-WRK-018)."""

    max_attempts: PositiveInteger
    backoff: Backoff
    max_delay: Duration
    retryable_failures: tuple[FailureCode, ...]

    rules = unique("retryable_failures")


class WorkContract(Document, frozen=True, kw_only=True):
    """A complete Work Contract; a materially revised one has a higher version and needs a new acceptance."""

    contract_version: PositiveInteger
    goal: Text10000
    required_deliverables: NonEmpty[Deliverable]
    acceptance_criteria: NonEmpty[AcceptanceCriterion]
    input_artifacts: tuple[Sha256, ...]
    dependency_work_item_ids: tuple[Identifier, ...]
    allowed_resources: tuple[ResourceGrant, ...]
    required_capabilities: NonEmpty[CapabilityRef]
    deadline: Timestamp
    requested_urgency: Urgency
    business_impact: Text4000
    retry_policy: RetryPolicy
    budget: Budget
    side_effect_risk: SideEffectRisk
    execution_approval: ExecutionApproval
    constraints: JsonObject | UnsetType = UNSET
    extensions: Extensions | UnsetType = UNSET

    rules = unique("input_artifacts", "dependency_work_item_ids")
