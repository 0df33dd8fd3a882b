"""Making, renewing and ending leases as documents (`lease.schema.json`)."""

from datetime import timedelta

from msgspec import UNSET, UnsetType
from msgspec.structs import replace

from contracts.documents.lease import Lease, LeaseState, LeaseType
from contracts.documents.work_item import WorkItem
from contracts.identifiers import CoordinatorEpoch, OwnershipEpoch, SessionEpoch
from contracts.timestamps import format_timestamp, instant
from services.authority.decision import DecisionContext


def after(context: DecisionContext, seconds: int) -> str:
    """The moment `seconds` from now, as text. Raises OverflowError beyond the year 9999."""
    return format_timestamp(context.now + timedelta(seconds=seconds))


def coordinator_lease(
    context: DecisionContext,
    *,
    mission_id: str,
    group_id: str,
    holder: str,
    session_epoch: int,
    coordinator_epoch: CoordinatorEpoch,
    seconds: int,
) -> Lease:
    """A new coordinator lease. An Agent without a session yet gets it for its first one."""
    return Lease(
        lease_id=context.new_id(),
        lease_type=LeaseType.COORDINATOR,
        mission_id=mission_id,
        group_id=group_id,
        holder_agent_id=holder,
        session_epoch=SessionEpoch(max(session_epoch, 1)),
        coordinator_epoch=coordinator_epoch,
        issued_at=context.now_text,
        starts_at=context.now_text,
        expires_at=after(context, seconds),
        state=LeaseState.ACTIVE,
        renewal_count=0,
    )


def work_lease(
    context: DecisionContext,
    lease_type: LeaseType,
    item: WorkItem,
    *,
    holder: str,
    session_epoch: SessionEpoch,
    ownership_epoch: OwnershipEpoch,
    seconds: int,
    start_by: str | UnsetType = UNSET,
) -> Lease:
    """A new ownership lease (with `start_by`) or execution lease (without)."""
    return Lease(
        lease_id=context.new_id(),
        lease_type=lease_type,
        mission_id=item.mission_id,
        group_id=item.group_id,
        work_item_id=item.work_item_id,
        holder_agent_id=holder,
        session_epoch=session_epoch,
        ownership_epoch=ownership_epoch,
        start_by=start_by,
        issued_at=context.now_text,
        starts_at=context.now_text,
        expires_at=after(context, seconds),
        state=LeaseState.ACTIVE,
        renewal_count=0,
    )


def renewed(lease: Lease, context: DecisionContext, session_epoch: SessionEpoch, expires_at: str) -> Lease:
    """The same lease, bound to the holder's present session, until another moment."""
    return replace(
        lease,
        session_epoch=session_epoch,
        expires_at=expires_at,
        renewal_count=lease.renewal_count + 1,
        last_renewed_at=context.now_text,
    )


def extended(lease: Lease, context: DecisionContext, session_epoch: SessionEpoch, expires_at: str) -> Lease | None:
    """The lease renewed until `expires_at`, or None when it runs that long anyway: an extension never shortens."""
    if instant(lease.expires_at) >= instant(expires_at):
        return None
    return renewed(lease, context, session_epoch, expires_at)


def closed(lease: Lease, state: LeaseState, context: DecisionContext, reason: str) -> Lease:
    """The lease as it ended now."""
    return replace(lease, state=state, closed_at=context.now_text, closure_reason=reason)
