"""Approval Decision (`approval.schema.json`): a signed decision about one Mission revision (APR-1)."""

from enum import Enum
from typing import Annotated

from msgspec import UNSET, Meta, UnsetType

from contracts.documents.common import (
    Actor,
    ActorType,
    Document,
    Semver,
    Signature,
    Text2000,
    refuse_repeats,
    require_actor,
    require_members,
)
from contracts.identifiers import Identifier, SafeInteger, Sha256
from contracts.timestamps import Timestamp


class ApprovalKind(Enum):
    """What is decided about."""

    MISSION_FINAL = "mission_final"
    CHILD_MISSION = "child_mission"
    WORK_EXECUTION = "work_execution"


class ApprovalDecision(Enum):
    """How it was decided."""

    APPROVED = "approved"
    CHANGES_REQUESTED = "changes_requested"
    DENIED = "denied"
    REVOKED = "revoked"


class Approval(Document, frozen=True, kw_only=True):
    """A decision on an exact Mission revision and Artifact hash set."""

    approval_id: Identifier
    kind: ApprovalKind
    decision: ApprovalDecision
    mission_id: Identifier
    group_id: Identifier
    work_item_id: Identifier | UnsetType = UNSET
    mission_revision: SafeInteger
    artifact_hashes: tuple[Sha256, ...]
    acceptance_policy_version: Semver
    approver: Actor
    comments: Annotated[str, Meta(max_length=10000)]
    conditions: tuple[Text2000, ...]
    revokes_approval_id: Identifier | UnsetType = UNSET
    occurred_at: Timestamp
    signature: Signature

    def __post_init__(self) -> None:
        """Kind and decision settle approver, Artifacts, WorkItem and the revoked Approval."""
        refuse_repeats("artifactHashes", self.artifact_hashes)
        execution = self.kind is ApprovalKind.WORK_EXECUTION
        if self.decision is ApprovalDecision.APPROVED and not execution and not self.artifact_hashes:
            raise ValueError(f"artifactHashes is empty; an approved {self.kind.value} names at least one Artifact")
        if self.kind is ApprovalKind.MISSION_FINAL:
            require_actor("approver", self.approver, ActorType.HUMAN)
        if execution:
            require_members("a work_execution Approval", {"workItemId": self.work_item_id})
        if self.decision is ApprovalDecision.REVOKED:
            require_members("a revocation", {"revokesApprovalId": self.revokes_approval_id})
