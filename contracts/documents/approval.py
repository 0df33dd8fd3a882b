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
)
from contracts.documents.conditions import has, unique, when
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

    rules = (
        *unique("artifact_hashes"),
        when(
            has("kind", ApprovalKind.MISSION_FINAL, ApprovalKind.CHILD_MISSION),
            has("decision", ApprovalDecision.APPROVED),
            holder="an approved {kind}",
            fills=("artifact_hashes",),
        ),
        when(
            has("kind", ApprovalKind.MISSION_FINAL),
            holder="a mission_final Approval",
            takes={"approver.type": (ActorType.HUMAN,)},
        ),
        when(
            has("kind", ApprovalKind.WORK_EXECUTION),
            holder="a work_execution Approval",
            requires=("work_item_id",),
        ),
        when(
            has("decision", ApprovalDecision.REVOKED),
            holder="a revocation",
            requires=("revokes_approval_id",),
        ),
    )
