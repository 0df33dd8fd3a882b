"""Decisions about a Mission's result: submission, changes, human approval of exactly what was submitted (APR-1)."""

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, Final

from msgspec import UNSET

from contracts.document_kinds import DocumentKind
from contracts.documents.approval import ApprovalDecision, ApprovalKind
from contracts.payloads import mission as payloads
from contracts.rejection import Code, Rejection
from services.authority.aggregates import mission_revision
from services.authority.decision import EventDraft
from services.authority.gates import (
    by_coordinator,
    by_mission_owner,
    coordinator_entry,
    coordinator_lease_running,
    member_entry,
)
from services.authority.rule import Case, Rule


def _work_finished(case: Case[Any]) -> Rejection | None:
    if case.state.work_item_count == 0:
        return case.refuse(Code.INVALID_STATE_TRANSITION, "the Mission has no WorkItem whose result could be approved")
    unfinished = case.state.unfinished_work_count
    if unfinished:
        message = f"{unfinished} WorkItems are unfinished; each must be verified, cancelled or failed first"
        return case.refuse(Code.INVALID_STATE_TRANSITION, message)
    return None


def _artifacts_known(case: Case[payloads.MissionSubmitForApproval]) -> Rejection | None:
    for content_hash in case.payload.artifact_hashes:
        if not case.state.artifacts_with(content_hash):
            message = f"no Artifact of Group {case.state.group_id} has the content {content_hash}; publish it first"
            return case.refuse(Code.INVALID_COMMAND, message)
    return None


def _submitted(case: Case[payloads.MissionSubmitForApproval]) -> tuple[EventDraft, ...]:
    mission = case.state.mission
    event = payloads.MissionSubmittedForApproval(
        mission_id=mission.mission_id,
        mission_revision=mission.revision,
        artifact_hashes=tuple(sorted(case.payload.artifact_hashes)),
    )
    return (case.draft(event, mission.revision),)


def _submitted_revision(case: Case[Any], named: int) -> Rejection | None:
    """The decision is about exactly what was submitted (APR-1)."""
    submission = case.state.mission_record.submission
    current = case.state.mission.revision
    if submission is not UNSET and named == submission.mission_revision == current:
        return None
    message = f"the decision names Mission revision {named}; submitted is {current}: look at it again"
    return case.refuse(Code.REVISION_CONFLICT, message, expected_revision=named, current_revision=current)


def _requested_revision(case: Case[payloads.MissionRequestChanges]) -> Rejection | None:
    return _submitted_revision(case, case.payload.mission_revision)


def _changes_requested(case: Case[payloads.MissionRequestChanges]) -> tuple[EventDraft, ...]:
    mission = case.state.mission
    event = payloads.MissionChangesRequested(
        mission_id=mission.mission_id,
        feedback=case.payload.feedback,
        new_revision=mission.revision + 1,
    )
    return (case.draft(event, mission.revision + 1),)


def _approval_in_place(case: Case[payloads.MissionApprove]) -> Rejection | None:
    approval = case.payload.approval
    if approval.group_id != case.command.group_id:
        return case.refuse(Code.INVALID_COMMAND, "approval.groupId is another Group than the envelope's")
    if approval.kind is not ApprovalKind.MISSION_FINAL or approval.decision is not ApprovalDecision.APPROVED:
        message = f"the Approval is a {approval.kind.value} {approval.decision.value}; needed is mission_final approved"
        return case.refuse(Code.INVALID_COMMAND, message)
    return None


def _approved_by_actor(case: Case[payloads.MissionApprove]) -> Rejection | None:
    if case.payload.approval.approver == case.command.actor:
        return None
    return case.refuse(Code.AUTH_FORBIDDEN, "approval.approver is not the acting MissionOwner")


def _approved_set(case: Case[payloads.MissionApprove]) -> Rejection | None:
    """Mission, revision, Artifact set and policy are the submitted ones."""
    approval, mission = case.payload.approval, case.state.mission
    if approval.mission_id != mission.mission_id:
        return case.refuse(Code.INVALID_COMMAND, f"approval.missionId is not {mission.mission_id}")
    policy = mission.approval_policy.policy_version
    if policy is not UNSET and approval.acceptance_policy_version != policy:
        return case.refuse(Code.INVALID_COMMAND, f"approval.acceptancePolicyVersion is not the Mission's {policy}")
    if refusal := _submitted_revision(case, approval.mission_revision):
        return refusal
    submission = case.state.mission_record.submission
    if submission is not UNSET and set(approval.artifact_hashes) == set(submission.artifact_hashes):
        return None
    message = "the approved Artifact hashes are not the submitted ones; look at the submission again"
    return case.refuse(Code.REVISION_CONFLICT, message, current_revision=mission.revision)


def _approved(case: Case[payloads.MissionApprove]) -> tuple[EventDraft, ...]:
    return (case.draft(payloads.MissionApproved(approval=case.payload.approval), case.state.mission.revision),)


approval_rules: Final[Mapping[str, Rule[Any]]] = MappingProxyType(
    {
        "mission.submit_for_approval": Rule[payloads.MissionSubmitForApproval](
            event="mission.submitted_for_approval",
            aggregate=mission_revision,
            events=_submitted,
            entry=coordinator_entry,
            policy=(by_coordinator,),
            state=(_work_finished, _artifacts_known),
            expiry=(coordinator_lease_running,),
        ),
        "mission.request_changes": Rule[payloads.MissionRequestChanges](
            event="mission.changes_requested",
            aggregate=mission_revision,
            events=_changes_requested,
            entry=member_entry,
            policy=(by_mission_owner,),
            state=(_requested_revision,),
        ),
        "mission.approve": Rule[payloads.MissionApprove](
            event="mission.approved",
            aggregate=mission_revision,
            events=_approved,
            claims=lambda payload: ((payload.approval.approval_id, "approval"),),
            nested=((DocumentKind.APPROVAL, "approval"),),
            shape=(_approval_in_place,),
            entry=member_entry,
            policy=(by_mission_owner, _approved_by_actor),
            state=(_approved_set,),
        ),
    }
)
