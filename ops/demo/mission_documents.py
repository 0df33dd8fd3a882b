"""The protocol's documents behind a Mission file: creation, Work Contracts, selection, review, approval."""

from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from typing import Any, Final

from contracts.canonical import parse_strict
from contracts.documents.approval import Approval
from contracts.documents.common import AcceptanceCriterion, Budget, CapabilityRef, EvidenceType
from contracts.documents.evidence import Evidence
from contracts.documents.reading import read
from contracts.documents.work_contract import (
    Backoff,
    Deliverable,
    ExecutionApproval,
    RetryPolicy,
    SideEffectRisk,
    WorkContract,
)
from contracts.documents.work_item import SelectionBasis
from contracts.entities import WorkItemRecord
from contracts.group_state import GroupState
from contracts.payloads.mission import MissionCreate
from contracts.signature import SigningKey, sign_document
from contracts.timestamps import format_timestamp
from ops.demo.mission_tables import Criterion, MissionFile, WorkTable
from services.process.unique import uuid7_urn

capability_version: Final = "1.0.0"
compute_seconds_per_work_item: Final = 120
acceptance_policy_version: Final = "1.0.0"
document_bytes_max: Final = 64 * 1024
"""Bytes of one signed document."""


def agent_id(name: str) -> str:
    """Identifier of an Agent named in a Mission file."""
    return f"urn:weavehold:agent:{name}"


def in_minutes(minutes: int) -> str:
    """Protocol time so many minutes from now."""
    return format_timestamp(datetime.now(UTC) + timedelta(minutes=minutes))


def mission_creation(file: MissionFile, mission_id: str, group_id: str) -> MissionCreate:
    """The payload of `mission.create`."""
    return MissionCreate(
        mission_id=mission_id,
        group_id=group_id,
        coordinator_id=agent_id(file.mission.coordinator),
        title=file.mission.title,
        objective=file.mission.objective,
        definition_of_done=_criteria(file.mission.criterion),
        deadline=in_minutes(file.mission.deadline_minutes),
        budget=Budget(compute_seconds_limit=compute_seconds_per_work_item * len(file.work)),
    )


def work_contract(
    item: WorkTable, mission_deadline: str, dependencies: Sequence[str], inputs: Sequence[str]
) -> WorkContract:
    """The Work Contract; `dependencies` are WorkItem IDs, `inputs` the content hashes of their results."""
    kind = str(item.job["type"])
    deadline = min(in_minutes(item.deadline_minutes), mission_deadline) if item.deadline_minutes else mission_deadline
    return WorkContract(
        contract_version=1,
        goal=item.goal,
        required_deliverables=(
            Deliverable(
                deliverable_id=item.id,
                description=f"The result of: {item.goal}",
                media_type="text/markdown" if kind == "compile-report" else "application/json",
                schema=f"urn:weavehold:schema:result:{kind}",
            ),
        ),
        acceptance_criteria=_criteria(item.criterion),
        input_artifacts=tuple(inputs),
        dependency_work_item_ids=tuple(dependencies),
        allowed_resources=(),
        required_capabilities=(CapabilityRef(id=kind, version=capability_version),),
        deadline=deadline,
        requested_urgency=item.urgency,
        business_impact=item.impact,
        retry_policy=RetryPolicy(max_attempts=3, backoff=Backoff.EXPONENTIAL, max_delay="PT1M", retryable_failures=()),
        budget=Budget(compute_seconds_limit=compute_seconds_per_work_item),
        side_effect_risk=SideEffectRisk.NONE,
        execution_approval=ExecutionApproval.NOT_REQUIRED,
        constraints={"job": item.job},
    )


def selection_basis(item: WorkTable) -> SelectionBasis:
    """Why the candidates of a Mission file are candidates."""
    needed = (CapabilityRef(id=str(item.job["type"]), version=capability_version),)
    return SelectionBasis(
        required_capabilities=needed,
        verified_matches=needed,
        authorization_eligible=True,
        availability_estimate=format_timestamp(datetime.now(UTC)),
        expected_cost=0,
        reliability_evidence=(),
        policy_rules_applied=("candidates named in the Mission file",),
    )


def review_evidence(record: WorkItemRecord, hashes: Sequence[str], reviewer: SigningKey, now: str) -> Evidence:
    """The Coordinator's assessment of a submitted result."""
    item = record.item
    document: dict[str, Any] = {
        "evidenceId": uuid7_urn(),
        "missionId": item.mission_id,
        "groupId": item.group_id,
        "workItemId": item.work_item_id,
        "type": EvidenceType.REVIEWER_ASSESSMENT.value,
        "subject": {"type": "work_item", "id": item.work_item_id},
        "criterionIds": [criterion.criterion_id for criterion in item.contract.acceptance_criteria],
        "method": "The Artifact was fetched by its hash, checked, and read against the Work Contract.",
        "result": "passed",
        "artifactHashes": list(hashes),
        "generatedBy": {"type": reviewer.principal.type.value, "id": reviewer.principal.id},
        "createdAt": now,
    }
    return read(parse_strict(sign_document(document, reviewer, now), document_bytes_max), Evidence)


def final_approval(state: GroupState, owner: SigningKey, now: str) -> Approval:
    """The MissionOwner's approval of exactly what awaits it (APR-1)."""
    record = state.mission_record
    submission = record.submission
    if not submission:
        raise LookupError(f"Mission {record.mission.mission_id} awaits no approval")
    document: dict[str, Any] = {
        "approvalId": uuid7_urn(),
        "kind": "mission_final",
        "decision": "approved",
        "missionId": record.mission.mission_id,
        "groupId": record.mission.group_id,
        "missionRevision": submission.mission_revision,
        "artifactHashes": list(submission.artifact_hashes),
        "acceptancePolicyVersion": acceptance_policy_version,
        "approver": {"type": owner.principal.type.value, "id": owner.principal.id},
        "comments": "",
        "conditions": [],
        "occurredAt": now,
    }
    return read(parse_strict(sign_document(document, owner, now), document_bytes_max), Approval)


def _criteria(criteria: Sequence[Criterion]) -> tuple[AcceptanceCriterion, ...]:
    return tuple(
        AcceptanceCriterion(criterion_id=one.id, description=one.description, evidence_required=one.evidence)
        for one in criteria
    )
