"""Decisions of the owner at work and of the Coordinator who reviews it (STM-W, MWP-WRK-013, -014, -019, -025)."""

from collections.abc import Iterable, Mapping
from types import MappingProxyType
from typing import Any, Final

from msgspec import UNSET, UnsetType

from contracts.command import lease_renew
from contracts.document_kinds import DocumentKind
from contracts.documents.evidence import Evidence, EvidenceResult
from contracts.documents.lease import Lease, LeaseState, LeaseType
from contracts.documents.work_contract import ExecutionApproval
from contracts.documents.work_item import Submission, WorkItem, WorkItemState
from contracts.event import late_result_recorded
from contracts.identifiers import SessionEpoch
from contracts.payloads import work as payloads
from contracts.rejection import Code, Rejection
from contracts.timestamps import instant
from services.authority.aggregates import work_item_named, work_item_revision, work_places
from services.authority.decision import EventDraft, LateResult
from services.authority.fences import (
    by_work_owner,
    execution_expiry,
    execution_fence,
    execution_lease_named,
    ownership_current,
    ownership_running,
    stale_ownership,
    work_item_known,
)
from services.authority.gates import (
    by_coordinator,
    by_full_member,
    coordinator_entry,
    coordinator_lease_running,
    member_entry,
)
from services.authority.leases import after, closed, extended, renewed, work_lease
from services.authority.rule import Case, Rule


def _lease(lease: Lease | UnsetType) -> Lease:
    """A lease that the checks before have found running."""
    if lease is UNSET:
        raise LookupError("the WorkItem has no such lease")
    return lease


def _session(case: Case[Any]) -> SessionEpoch:
    return SessionEpoch(case.command.session_epoch or 1)


def _ownership_until(case: Case[Any], expires_at: str) -> Lease | None:
    """Ownership lasts at least as long as execution; None when it does so already."""
    return extended(_lease(case.record.ownership_lease), case.context, _session(case), expires_at)


# --- work.start --------------------------------------------------------------------------------------------------


def _dependencies_verified(case: Case[payloads.WorkStart]) -> Rejection | None:
    for dependency in case.record.item.contract.dependency_work_item_ids:
        record = case.state.work_item(dependency)
        if record is None or record.item.state is not WorkItemState.VERIFIED:
            state = "unknown" if record is None else record.item.state.value
            message = f"dependency WorkItem {dependency} is {state}; it must be verified before the start"
            return case.refuse(Code.INVALID_COMMAND, message)
    return None


def _gate_open(case: Case[payloads.WorkStart]) -> Rejection | None:
    """A contract that asks for approval of its execution waits for it (APR-1)."""
    needed = case.record.item.contract.execution_approval
    if needed is ExecutionApproval.NOT_REQUIRED:
        return None
    message = f"the Work Contract holds the start until an execution approval is granted ({needed.value})"
    return case.refuse(Code.APPROVAL_REQUIRED, message)


def _started(case: Case[payloads.WorkStart]) -> tuple[EventDraft, ...]:
    item = case.record.item
    lease = work_lease(
        case.context,
        LeaseType.EXECUTION,
        item,
        holder=case.actor_id,
        session_epoch=_session(case),
        ownership_epoch=case.payload.ownership_epoch,
        seconds=case.payload.execution_lease_seconds,
    )
    event = payloads.WorkStarted(
        work_item_id=item.work_item_id,
        ownership_epoch=case.payload.ownership_epoch,
        execution_lease=lease,
        execution_lease_expires_at=lease.expires_at,
        ownership_lease=_ownership_until(case, lease.expires_at) or UNSET,
    )
    return (case.draft(event, item.revision + 1, **work_places(item)),)


# --- renewal and checkpoint --------------------------------------------------------------------------------------


def _renewal_extends(case: Case[payloads.WorkExecutionLeaseRenew]) -> Rejection | None:
    lease = _lease(case.record.execution_lease)
    expires_at = after(case.context, case.payload.lease_seconds)
    if instant(expires_at) > instant(lease.expires_at):
        return None
    message = f"the renewal until {expires_at} does not extend the lease, which runs until {lease.expires_at}"
    return case.refuse(Code.INVALID_COMMAND, message)


def _progressed(case: Case[payloads.WorkExecutionLeaseRenew]) -> tuple[EventDraft, ...]:
    item = case.record.item
    expires_at = after(case.context, case.payload.lease_seconds)
    event = payloads.WorkProgressed(
        work_item_id=item.work_item_id,
        ownership_epoch=case.payload.ownership_epoch,
        execution_lease=renewed(_lease(case.record.execution_lease), case.context, _session(case), expires_at),
        execution_lease_expires_at=expires_at,
        ownership_lease=_ownership_until(case, expires_at) or UNSET,
    )
    return (case.draft(event, item.revision + 1, **work_places(item)),)


def _checkpointed(case: Case[payloads.WorkCheckpoint]) -> tuple[EventDraft, ...]:
    item, context = case.record.item, case.context
    expires_at = after(context, case.payload.resume_within_seconds)
    event = payloads.WorkCheckpointed(
        work_item_id=item.work_item_id,
        checkpoint=case.payload.checkpoint,
        ownership_lease_expires_at=expires_at,
        ownership_lease=renewed(_lease(case.record.ownership_lease), context, _session(case), expires_at),
        execution_lease=_released(case, "work checkpointed"),
    )
    return (case.draft(event, item.revision + 1, **work_places(item)),)


def _released(case: Case[Any], reason: str) -> Lease:
    return closed(_lease(case.record.execution_lease), LeaseState.RELEASED, case.context, reason)


# --- work.submit -------------------------------------------------------------------------------------------------


def _evidence_of_item(case: Case[payloads.WorkSubmit] | Case[payloads.WorkAcceptResult]) -> Rejection | None:
    """Evidence is about this WorkItem of this Group, each piece once."""
    seen: set[str] = set()
    for evidence in case.payload.evidence:
        if evidence.evidence_id in seen:
            return case.refuse(Code.INVALID_COMMAND, f"Evidence {evidence.evidence_id} stands twice; hand it in once")
        seen.add(evidence.evidence_id)
        if (evidence.group_id, evidence.work_item_id) != (case.command.group_id, case.payload.work_item_id):
            message = f"Evidence {evidence.evidence_id} names another Group or WorkItem than the Command"
            return case.refuse(Code.INVALID_COMMAND, message)
    return None


def _ownership_current_or_late(case: Case[payloads.WorkSubmit]) -> Rejection | LateResult | None:
    """The result of an owner that was fenced is kept as Evidence and refused (MWP-WRK-019, RULE-02)."""
    refusal = ownership_current(case)
    if refusal is None or not case.record.was_owned(case.actor_id, case.payload.ownership_epoch):
        return refusal
    item, payload = case.record.item, case.payload
    late = payloads.LateResultRecorded(
        work_item_id=item.work_item_id,
        ownership_epoch=payload.ownership_epoch,
        artifact_ids=payload.artifact_ids,
        evidence=payload.evidence,
        kind=case.command.kind,
    )
    draft = case.draft(late, item.revision, kind=late_result_recorded, **work_places(item))
    return LateResult(draft, stale_ownership(case, payload.ownership_epoch))


def _mission_of_evidence(case: Case[Any]) -> Rejection | None:
    mission_id = case.state.mission.mission_id
    for evidence in case.payload.evidence:
        if evidence.mission_id != mission_id:
            message = f"Evidence {evidence.evidence_id} names Mission {evidence.mission_id}; this is {mission_id}"
            return case.refuse(Code.INVALID_COMMAND, message)
    return None


def _criteria_known(case: Case[Any]) -> Rejection | None:
    known = _criterion_ids(case.record.item)
    for evidence in case.payload.evidence:
        strange = next((name for name in evidence.criterion_ids if name not in known), None)
        if strange is not None:
            message = f"Evidence {evidence.evidence_id} names criterion {strange}, which the Work Contract lacks"
            return case.refuse(Code.INVALID_COMMAND, message)
    return None


def _criteria_covered(case: Case[payloads.WorkSubmit]) -> Rejection | None:
    """Every acceptance criterion has Evidence (MWP-WRK-025)."""
    covered = {name for evidence in case.payload.evidence for name in evidence.criterion_ids}
    missing = _criterion_ids(case.record.item) - covered
    if not missing:
        return None
    return case.refuse(Code.INVALID_COMMAND, f"no Evidence for acceptance criterion {min(missing)}; hand in Evidence")


def _criterion_ids(item: WorkItem) -> set[str]:
    return {criterion.criterion_id for criterion in item.contract.acceptance_criteria}


def _artifacts_of_item(case: Case[payloads.WorkSubmit]) -> Rejection | None:
    published = set(case.record.artifact_ids)
    for artifact_id in case.payload.artifact_ids:
        if artifact_id not in published:
            message = f"Artifact {artifact_id} is not published for WorkItem {case.record.item.work_item_id}"
            return case.refuse(Code.INVALID_COMMAND, message)
    return None


def _submitted(case: Case[payloads.WorkSubmit]) -> tuple[EventDraft, ...]:
    payload, item = case.payload, case.record.item
    artifacts = [case.state.artifact(artifact_id) for artifact_id in payload.artifact_ids]
    submission = Submission(
        artifact_hashes=tuple(sorted({artifact.content_hash for artifact in artifacts if artifact is not None})),
        evidence_ids=_evidence_ids(payload.evidence),
        submitted_at=case.context.now_text,
    )
    event = payloads.WorkSubmitted(
        work_item_id=item.work_item_id,
        artifact_ids=payload.artifact_ids,
        evidence=payload.evidence,
        submission=submission,
        execution_lease=_released(case, "work submitted"),
    )
    return (case.draft(event, item.revision + 1, **work_places(item)),)


def _evidence_ids(evidence: Iterable[Evidence]) -> tuple[str, ...]:
    return tuple(piece.evidence_id for piece in evidence)


# --- work.accept_result ------------------------------------------------------------------------------------------


def _reviewed_by_another(case: Case[payloads.WorkAcceptResult]) -> Rejection | None:
    """Nobody accepts their own work."""
    owner = case.record.item.owner
    if owner is UNSET or owner.agent_id != case.actor_id:
        return None
    message = f"{case.actor_id} owns WorkItem {case.record.item.work_item_id} and cannot accept its own result"
    return case.refuse(Code.AUTH_FORBIDDEN, message)


def _evidence_passed(case: Case[payloads.WorkAcceptResult]) -> Rejection | None:
    for evidence in case.payload.evidence:
        if evidence.result is not EvidenceResult.PASSED:
            message = (
                f"Evidence {evidence.evidence_id} is {evidence.result.value}; a result is accepted on passed Evidence"
            )
            return case.refuse(Code.INVALID_COMMAND, message)
    return None


def _result_accepted(case: Case[payloads.WorkAcceptResult]) -> tuple[EventDraft, ...]:
    item = case.record.item
    event = payloads.WorkResultAccepted(
        work_item_id=item.work_item_id,
        evidence=case.payload.evidence,
        ownership_lease=closed(
            _lease(case.record.ownership_lease), LeaseState.RELEASED, case.context, "result accepted"
        ),
    )
    return (case.draft(event, item.revision + 1, **work_places(item)),)


work_rules: Final[Mapping[str, Rule[Any]]] = MappingProxyType(
    {
        "work.start": Rule[payloads.WorkStart](
            event="work.started",
            aggregate=work_item_revision,
            events=_started,
            work_item=work_item_named,
            entry=member_entry,
            fence=(work_item_known, ownership_current),
            policy=(by_full_member, by_work_owner),
            state=(_dependencies_verified,),
            expiry=(ownership_running,),
            approval=(_gate_open,),
        ),
        lease_renew: Rule[payloads.WorkExecutionLeaseRenew](
            event="work.progressed",
            aggregate=work_item_revision,
            events=_progressed,
            work_item=work_item_named,
            entry=member_entry,
            fence=execution_fence,
            policy=(by_full_member, by_work_owner),
            state=(_renewal_extends,),
            expiry=execution_expiry,
        ),
        "work.checkpoint": Rule[payloads.WorkCheckpoint](
            event="work.checkpointed",
            aggregate=work_item_revision,
            events=_checkpointed,
            work_item=work_item_named,
            entry=member_entry,
            fence=execution_fence,
            policy=(by_full_member, by_work_owner),
            expiry=execution_expiry,
        ),
        "work.submit": Rule[payloads.WorkSubmit](
            event="work.submitted",
            aggregate=work_item_revision,
            events=_submitted,
            work_item=work_item_named,
            nested=((DocumentKind.EVIDENCE, "evidence"),),
            shape=(_evidence_of_item,),
            entry=member_entry,
            fence=(work_item_known, _ownership_current_or_late, execution_lease_named),
            policy=(by_full_member, by_work_owner),
            state=(_mission_of_evidence, _artifacts_of_item, _criteria_known, _criteria_covered),
            expiry=execution_expiry,
        ),
        "work.accept_result": Rule[payloads.WorkAcceptResult](
            event="work.result.accepted",
            aggregate=work_item_revision,
            events=_result_accepted,
            work_item=work_item_named,
            nested=((DocumentKind.EVIDENCE, "evidence"),),
            shape=(_evidence_of_item,),
            entry=coordinator_entry,
            fence=(work_item_known,),
            policy=(by_coordinator, _reviewed_by_another),
            state=(_mission_of_evidence, _criteria_known, _evidence_passed),
            expiry=(coordinator_lease_running,),
        ),
    }
)
