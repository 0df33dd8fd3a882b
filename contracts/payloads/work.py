"""Payloads of the WorkItem family. The WorkItem may stand in the Command's envelope instead of its payload."""

from typing import Literal

from msgspec import UNSET, UnsetType

from contracts.documents.checkpoint import Checkpoint
from contracts.documents.common import Document, NonEmpty
from contracts.documents.conditions import unique
from contracts.documents.conversation import Conversation
from contracts.documents.evidence import Evidence
from contracts.documents.lease import Lease
from contracts.documents.membership import Membership
from contracts.documents.work_contract import WorkContract
from contracts.documents.work_item import Offer, Owner, SelectionBasis, Submission, WorkItem
from contracts.identifiers import Identifier, OwnershipEpochField, PositiveInteger, SessionEpochField
from contracts.payloads.fields import Seconds
from contracts.timestamps import Timestamp


class WorkAuthorize(Document, frozen=True, kw_only=True):
    """`work.authorize`: a new WorkItem under a complete Work Contract."""

    work_item_id: Identifier
    contract: WorkContract
    conversation_id: Identifier | UnsetType = UNSET


class WorkOffer(Document, frozen=True, kw_only=True):
    """`work.offer`: the first valid acceptance among the candidates wins."""

    work_item_id: Identifier
    candidate_agent_ids: NonEmpty[Identifier]
    selection_basis: SelectionBasis
    offer_expires_in_seconds: Seconds = 300

    rules = unique("candidate_agent_ids")


class WorkAcceptOffer(Document, frozen=True, kw_only=True):
    """`work.accept_offer`: ownership for a time, with a deadline for the start."""

    work_item_id: Identifier
    ownership_lease_seconds: Seconds = 900
    start_by_seconds: Seconds = 300


class WorkStart(Document, frozen=True, kw_only=True):
    """`work.start`: asks for an Execution Lease."""

    work_item_id: Identifier
    ownership_epoch: OwnershipEpochField
    execution_lease_seconds: Seconds = 300


class WorkCheckpoint(Document, frozen=True, kw_only=True):
    """`work.checkpoint`: pause at a safe point, keeping ownership until `resume_within_seconds` have passed."""

    work_item_id: Identifier
    ownership_epoch: OwnershipEpochField
    execution_lease_id: Identifier
    checkpoint: Checkpoint
    resume_within_seconds: Seconds = 900


class WorkExecutionLeaseRenew(Document, frozen=True, kw_only=True):
    """`ext.missionweaveprotocol.core.work_execution_lease_renew`."""

    work_item_id: Identifier
    ownership_epoch: OwnershipEpochField
    execution_lease_id: Identifier
    lease_seconds: Seconds = 300


class WorkSubmit(Document, frozen=True, kw_only=True):
    """`work.submit`: Artifacts and Evidence mapped to the contract's criteria (MWP-WRK-025)."""

    work_item_id: Identifier
    ownership_epoch: OwnershipEpochField
    execution_lease_id: Identifier
    artifact_ids: NonEmpty[Identifier]
    evidence: NonEmpty[Evidence]

    rules = unique("artifact_ids")


class WorkAcceptResult(Document, frozen=True, kw_only=True):
    """`work.accept_result`: the Coordinator's review."""

    work_item_id: Identifier
    evidence: NonEmpty[Evidence]


class WorkAuthorized(Document, frozen=True, kw_only=True):
    """`work.authorized`; `proposal_id` is null when there was no proposal."""

    work_item: WorkItem
    conversation: Conversation
    proposal_id: Identifier | None


class WorkOfferCreated(Document, frozen=True, kw_only=True):
    """`work.offer.created`; carries the contract, so that a late member needs no earlier Event."""

    work_item_id: Identifier
    candidate_agent_ids: NonEmpty[Identifier]
    offers: NonEmpty[Offer]
    offer_expires_at: Timestamp
    selection_basis: SelectionBasis
    contract: WorkContract


class WorkOfferAccepted(Document, frozen=True, kw_only=True):
    """`work.offer.accepted`; `membership` is the one that became active by it, if it was provisional."""

    work_item_id: Identifier
    assignee_id: Identifier
    ownership_epoch: OwnershipEpochField
    ownership_lease_expires_at: Timestamp
    agent_card_version: PositiveInteger
    owner: Owner
    lease: Lease
    membership: Membership | UnsetType = UNSET


class WorkStarted(Document, frozen=True, kw_only=True):
    """`work.started`; `ownership_lease` is present when the start extended it."""

    work_item_id: Identifier
    ownership_epoch: OwnershipEpochField
    execution_lease: Lease
    execution_lease_expires_at: Timestamp
    ownership_lease: Lease | UnsetType = UNSET


class WorkProgressed(Document, frozen=True, kw_only=True):
    """`work.progressed`: the Execution Lease was renewed; `ownership_lease` is present when that extended it."""

    work_item_id: Identifier
    ownership_epoch: OwnershipEpochField
    execution_lease: Lease
    execution_lease_expires_at: Timestamp
    ownership_lease: Lease | UnsetType = UNSET


class WorkCheckpointed(Document, frozen=True, kw_only=True):
    """`work.checkpointed`: `execution_lease` is released, `ownership_lease` bounds the resumption."""

    work_item_id: Identifier
    checkpoint: Checkpoint
    ownership_lease_expires_at: Timestamp
    ownership_lease: Lease
    execution_lease: Lease


class WorkSubmitted(Document, frozen=True, kw_only=True):
    """`work.submitted`; `execution_lease` is released."""

    work_item_id: Identifier
    artifact_ids: NonEmpty[Identifier]
    evidence: NonEmpty[Evidence]
    submission: Submission
    execution_lease: Lease


class WorkResultAccepted(Document, frozen=True, kw_only=True):
    """`work.result.accepted`; `ownership_lease` is released."""

    work_item_id: Identifier
    evidence: NonEmpty[Evidence]
    ownership_lease: Lease


class WorkExecutionLeaseExpired(Document, frozen=True, kw_only=True):
    """`ext.weavehold.work.execution_lease_expired`: the WorkItem waits again (MWP-WRK-014, RULE-10)."""

    work_item_id: Identifier
    execution_lease: Lease
    status: Literal["queued"]


class WorkExecutionLeaseRevoked(Document, frozen=True, kw_only=True):
    """`ext.missionweaveprotocol.core.work_execution_lease_revoked`; `session_epoch` is the one that replaced."""

    work_item_id: Identifier
    execution_lease_id: Identifier
    execution_lease: Lease
    reason: Literal["session_replaced"]
    status: Literal["queued"]
    session_epoch: SessionEpochField


class LateResultRecorded(Document, frozen=True, kw_only=True):
    """`ext.weavehold.work.late_result_recorded`: what a fenced owner still sent, kept without effect (MWP-WRK-019).

    `ownership_epoch` is the one under which it was sent, `kind` that of the Command.
    """

    work_item_id: Identifier
    ownership_epoch: OwnershipEpochField
    artifact_ids: tuple[Identifier, ...]
    evidence: tuple[Evidence, ...]
    kind: str
