"""Fence identity: which WorkItem, under which Ownership Epoch, under which Execution Lease (MWP-WRK-013, MWP-WRK-019).

These checks compare names and numbers only; whether a current lease has run out is asked in the stage `expiry`. An
Execution Lease that has ended is nobody's: `overdue` has recorded its end before any check runs.
"""

from typing import Any, Protocol

from msgspec import UNSET

from contracts.documents.lease import LeaseState
from contracts.documents.work_item import WorkItemState
from contracts.entities import WorkItemRecord
from contracts.identifiers import OwnershipEpoch
from contracts.rejection import Code, Rejection
from services.authority.decision import DecisionContext
from services.authority.gates import is_past
from services.authority.rule import Case


class OwnerPayload(Protocol):
    """Payload of a Command that only the owner gives."""

    @property
    def ownership_epoch(self) -> OwnershipEpoch:
        """The Ownership Epoch that the sender believes to hold."""


class ExecutorPayload(OwnerPayload, Protocol):
    """Payload of a Command that needs the running Execution Lease."""

    @property
    def execution_lease_id(self) -> str:
        """The Execution Lease that the sender believes to hold."""


def work_item_known(case: Case[Any]) -> Rejection | None:
    """The addressed WorkItem stands in this Group (RULE-14)."""
    if case.addressed is not None:
        return None
    work_item_id = case.rule.work_item(case.payload) if case.rule.work_item else ""
    return case.refuse(Code.INVALID_COMMAND, f"WorkItem {work_item_id} is unknown in Group {case.state.group_id}")


def ownership_current(case: Case[OwnerPayload]) -> Rejection | None:
    """The stated Ownership Epoch is that of the present owner."""
    record, received = case.record, case.payload.ownership_epoch
    owner = record.item.owner
    if owner is not UNSET and owner.ownership_epoch == received:
        return None
    return stale_ownership(case, received)


def stale_ownership(case: Case[Any], received: OwnershipEpoch) -> Rejection:
    """The refusal of an Ownership Epoch that is not the current one."""
    record = case.record
    held = "nobody owns it now" if record.item.owner is UNSET else f"the current one is {record.ownership_epoch}"
    message = f"Ownership Epoch {received} of WorkItem {record.item.work_item_id} is not current: {held}"
    details = {"expected": record.ownership_epoch, "received": received}
    return case.refuse(Code.WORK_STALE_OWNERSHIP, message, details=details)


def execution_lease_named(case: Case[ExecutorPayload]) -> Rejection | None:
    """The named Execution Lease is the running one; an older one is refused under an unchanged epoch too."""
    lease, named = case.record.execution_lease, case.payload.execution_lease_id
    if lease is not UNSET and lease.lease_id == named and lease.state is LeaseState.ACTIVE:
        return None
    ended = lease is not UNSET and lease.lease_id == named
    fate = f"is {lease.state.value}" if ended and lease is not UNSET else "is not the current one"
    message = f"Execution Lease {named} of WorkItem {case.record.item.work_item_id} {fate}; start the work again"
    return case.refuse(Code.WORK_LEASE_EXPIRED, message)


def by_work_owner(case: Case[Any]) -> Rejection | None:
    """Only the Agent that owns the WorkItem."""
    owner = case.record.item.owner
    if owner is not UNSET and owner.agent_id == case.actor_id:
        return None
    message = f"{case.command.kind} is for the owner of WorkItem {case.record.item.work_item_id}"
    return case.refuse(Code.AUTH_FORBIDDEN, message)


def ownership_running(case: Case[Any]) -> Rejection | None:
    """The ownership has not lapsed: its lease runs and the start was in time."""
    if not ownership_lapsed(case.record, case.context):
        return None
    message = f"the ownership of WorkItem {case.record.item.work_item_id} has lapsed; it may be offered anew"
    return case.refuse(Code.WORK_LEASE_EXPIRED, message)


def execution_lease_running(case: Case[Any]) -> Rejection | None:
    """The current Execution Lease has not run out."""
    lease = case.record.execution_lease
    if lease is UNSET or not is_past(lease.expires_at, case.context):
        return None
    message = f"Execution Lease {lease.lease_id} ended at {lease.expires_at}; start the work again"
    return case.refuse(Code.WORK_LEASE_EXPIRED, message)


def not_owned(case: Case[Any]) -> Rejection | None:
    """No live owner stands in the way of an offer or an acceptance."""
    record = case.record
    if not has_live_owner(record, case.context):
        return None
    message = f"WorkItem {record.item.work_item_id} is owned under Ownership Epoch {record.ownership_epoch}"
    return case.refuse(Code.WORK_ALREADY_OWNED, message)


_held: frozenset[WorkItemState] = frozenset({WorkItemState.QUEUED, WorkItemState.ACTIVE, WorkItemState.BLOCKED})


def has_live_owner(record: WorkItemRecord, context: DecisionContext) -> bool:
    """Whether somebody holds this WorkItem and may still work on it."""
    return record.item.state in _held and not ownership_lapsed(record, context)


def ownership_lapsed(record: WorkItemRecord, context: DecisionContext) -> bool:
    """Whether the owner let its lease run out or never started in time (MWP-WRK-019)."""
    lease = record.ownership_lease
    if lease is UNSET or lease.state is not LeaseState.ACTIVE or is_past(lease.expires_at, context):
        return True
    never_started = record.execution_lease is UNSET
    return never_started and lease.start_by is not UNSET and is_past(lease.start_by, context)


execution_fence = (work_item_known, ownership_current, execution_lease_named)
"""Fence of what only the running execution may do."""
execution_expiry = (ownership_running, execution_lease_running)
"""Expiry of the same."""
