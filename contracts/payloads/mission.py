"""Payloads of the Mission family: creation, coordination, approval."""

from typing import Annotated

from msgspec import UNSET, Meta, UnsetType

from contracts.documents.approval import Approval
from contracts.documents.common import (
    AcceptanceCriterion,
    Budget,
    Document,
    NonEmpty,
    Text500,
    Text10000,
)
from contracts.documents.conditions import always, unique
from contracts.documents.conversation import Conversation
from contracts.documents.group import Group
from contracts.documents.lease import Lease
from contracts.documents.membership import Membership
from contracts.documents.mission import ApprovalPolicy, Mission
from contracts.identifiers import CoordinatorEpochField, Identifier, PositiveInteger, SafeInteger, Sha256
from contracts.payloads.fields import FreeText, Seconds
from contracts.timestamps import Timestamp

Permission = Annotated[str, Meta(min_length=1, max_length=512)]
"""An operation that the Mission may approve, such as `production.deploy`."""


class MissionCreate(Document, frozen=True, kw_only=True):
    """`mission.create`: a root Mission with its Group, by its MissionOwner."""

    mission_id: Identifier
    group_id: Identifier
    coordinator_id: Identifier
    title: Text500
    objective: Text10000
    definition_of_done: NonEmpty[AcceptanceCriterion]
    deadline: Timestamp
    budget: Budget | UnsetType = UNSET
    permissions: tuple[Permission, ...] = ()
    approval_policy: ApprovalPolicy | UnsetType = UNSET
    coordinator_lease_seconds: Seconds = 300

    # A root Mission ends with a person's approval (APR-1).
    rules = (
        *unique("permissions"),
        always(holder="a root Mission", takes={"approval_policy.final_human_approval": (True,)}),
    )


class MissionAssignCoordinator(Document, frozen=True, kw_only=True):
    """`mission.assign_coordinator`: another Agent takes over under the next Coordinator Epoch."""

    coordinator_id: Identifier
    lease_seconds: Seconds = 300


class MissionRenewCoordinator(Document, frozen=True, kw_only=True):
    """`mission.renew_coordinator`: the Coordinator keeps its lease."""

    lease_seconds: Seconds = 300


class MissionSubmitForApproval(Document, frozen=True, kw_only=True):
    """`mission.submit_for_approval`: the Artifacts that the MissionOwner shall judge."""

    artifact_hashes: NonEmpty[Sha256]

    rules = unique("artifact_hashes")


class MissionRequestChanges(Document, frozen=True, kw_only=True):
    """`mission.request_changes`: the submitted revision is sent back."""

    mission_revision: SafeInteger
    feedback: FreeText


class MissionApprove(Document, frozen=True, kw_only=True):
    """`mission.approve`: the signed decision itself."""

    approval: Approval


class MissionCreated(Document, frozen=True, kw_only=True):
    """`mission.created`: first Event of a Group, with all that begins to exist in it."""

    mission: Mission
    group: Group
    title: Text500
    permissions: tuple[Permission, ...]
    conversation: Conversation
    memberships: NonEmpty[Membership]
    coordinator_lease: Lease
    follow_up_of_mission_id: Identifier | None


class MissionCoordinatorAssigned(Document, frozen=True, kw_only=True):
    """`mission.coordinator.assigned`, with every Membership that changed by it."""

    previous_coordinator_id: Identifier
    coordinator_id: Identifier
    agent_card_version: PositiveInteger
    coordinator_epoch: CoordinatorEpochField
    lease_expires_at: Timestamp
    lease: Lease
    memberships: tuple[Membership, ...]


class MissionCoordinatorRenewed(Document, frozen=True, kw_only=True):
    """`mission.coordinator.renewed`."""

    coordinator_epoch: CoordinatorEpochField
    lease_expires_at: Timestamp
    lease: Lease


class MissionSubmittedForApproval(Document, frozen=True, kw_only=True):
    """`mission.submitted_for_approval`: an approval must name this revision and these hashes."""

    mission_id: Identifier
    mission_revision: SafeInteger
    artifact_hashes: NonEmpty[Sha256]

    rules = unique("artifact_hashes")


class MissionChangesRequested(Document, frozen=True, kw_only=True):
    """`mission.changes_requested`."""

    mission_id: Identifier
    feedback: FreeText
    new_revision: SafeInteger


class MissionApproved(Document, frozen=True, kw_only=True):
    """`mission.approved`."""

    approval: Approval
