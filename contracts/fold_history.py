"""Fold of `history.resumed`: what a Group becomes when its history goes on in a new incarnation (RULE-17).

Whoever acted in a history that was given up may come back with its epochs and leases. So every epoch in use rises above
all that it can hold, running executions end, and nothing that waited for an approval waits any longer: what the
approver saw need not be what is stored now.
"""

from collections.abc import Iterable, Mapping
from types import MappingProxyType
from typing import Any, Final

from msgspec import UNSET, UnsetType
from msgspec.structs import replace

from contracts.documents.lease import Lease, LeaseState
from contracts.documents.membership import MembershipState
from contracts.documents.mission import MissionState
from contracts.documents.work_item import WorkItemState
from contracts.entities import Change, EntityKind, PastOwner, WorkItemRecord, past_owners_max
from contracts.epochs import epoch_floor
from contracts.event import history_resumed
from contracts.fold import EventFacts, Fold, mission_after, require, require_revision, work_item_after
from contracts.fold_mission import membership_change, mission_change
from contracts.group_entities import GroupState, changed
from contracts.identifiers import CoordinatorEpoch, MembershipEpoch, OwnershipEpoch
from contracts.payloads.history import HistoryResumed

group_revision: Final = 1
"""The Event is the Group's own, whose revision only archival would raise."""
revocation_reason: Final = "history resumed"
"""Why a running execution ended."""
_settled_missions: Final = frozenset({MissionState.APPROVED, MissionState.CANCELLED, MissionState.FAILED})
_settled_work: Final = frozenset({WorkItemState.VERIFIED, WorkItemState.CANCELLED, WorkItemState.FAILED})


def _resumed(state: GroupState, event: EventFacts, payload: HistoryResumed) -> tuple[Change, ...]:
    """The registry's Group, which has neither Mission nor epochs, changes nothing."""
    require_revision(event, group_revision)
    if not state.exists:
        return ()
    floor = epoch_floor(payload.epoch_base)
    memberships = tuple(_memberships(state, floor))
    work_items = tuple(_work_items(state, event, floor))
    return (*_mission(state, event, floor), *memberships, *work_items)


def _mission(state: GroupState, event: EventFacts, floor: int) -> Iterable[Change]:
    """The Coordinator goes on under a higher epoch; a submission is void."""
    record = state.mission_record
    after = mission_after(state, event.kind)
    if record.mission.state in _settled_missions:
        return
    coordinator = record.mission.coordinator
    require(coordinator.coordinator_epoch < floor, f"Coordinator Epoch {coordinator.coordinator_epoch} is not lower")
    epoch = CoordinatorEpoch(floor)
    mission = replace(record.mission, state=after, coordinator=replace(coordinator, coordinator_epoch=epoch))
    lease = replace(record.coordinator_lease, coordinator_epoch=epoch)
    yield mission_change(replace(record, mission=mission, coordinator_lease=lease, submission=UNSET))


def _memberships(state: GroupState, floor: int) -> Iterable[Change]:
    for membership in state.memberships():
        if membership.state is not MembershipState.ENDED:
            require(membership.membership_epoch < floor, f"Membership Epoch {membership.membership_epoch} is not lower")
            yield membership_change(replace(membership, membership_epoch=MembershipEpoch(floor)))


def _work_items(state: GroupState, event: EventFacts, floor: int) -> Iterable[Change]:
    """Owners keep their WorkItems under a higher epoch; what they do under the old one is a late result."""
    for record in state.work_items():
        owner = record.item.owner
        if owner is UNSET or record.item.state in _settled_work:
            continue
        require(owner.ownership_epoch < floor, f"Ownership Epoch {owner.ownership_epoch} is not lower")
        epoch = OwnershipEpoch(floor)
        item = replace(
            record.item,
            state=work_item_after(record, event.kind),
            revision=record.item.revision + 1,
            updated_at=event.occurred_at,
            owner=replace(owner, ownership_epoch=epoch),
        )
        past = PastOwner(agent_id=owner.agent_id, ownership_epoch=owner.ownership_epoch)
        yield _work_item_change(
            replace(
                record,
                item=item,
                ownership_epoch=epoch,
                past_owners=(*record.past_owners, past)[-past_owners_max:],
                ownership_lease=_under(record.ownership_lease, epoch),
                execution_lease=_revoked(record.execution_lease, event.occurred_at),
            )
        )


def _under(lease: Lease | UnsetType, epoch: OwnershipEpoch) -> Lease | UnsetType:
    """A running ownership lease goes on under the raised epoch."""
    if lease is UNSET or lease.state is not LeaseState.ACTIVE:
        return lease
    return replace(lease, ownership_epoch=epoch)


def _revoked(lease: Lease | UnsetType, now: str) -> Lease | UnsetType:
    if lease is UNSET or lease.state is not LeaseState.ACTIVE:
        return lease
    return replace(lease, state=LeaseState.REVOKED, closed_at=now, closure_reason=revocation_reason)


def _work_item_change(record: WorkItemRecord) -> Change:
    return changed(EntityKind.WORK_ITEM, record.item.work_item_id, record)


history_folds: Final[Mapping[str, Fold[Any]]] = MappingProxyType({history_resumed: Fold(HistoryResumed, _resumed)})
