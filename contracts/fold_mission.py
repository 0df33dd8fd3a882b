"""Folds of the Mission family."""

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, Final

from msgspec import UNSET
from msgspec.structs import replace

from contracts.documents.membership import Membership
from contracts.documents.mission import CoordinatorAssignment
from contracts.entities import (
    Change,
    ConversationRecord,
    EntityKind,
    GroupRecord,
    MembershipRecord,
    MissionRecord,
    MissionSubmission,
)
from contracts.fold import EventFacts, Fold, mission_after, require, require_revision
from contracts.group_entities import GroupState, changed
from contracts.payloads import mission as payloads


def membership_change(membership: Membership) -> Change:
    """A Membership, new or at its next epoch."""
    return changed(EntityKind.MEMBERSHIP, membership.member.id, MembershipRecord(membership=membership))


def mission_change(record: MissionRecord) -> Change:
    """The Mission, with its bookkeeping."""
    return changed(EntityKind.MISSION, record.mission.mission_id, record)


def bump_mission(state: GroupState) -> Change:
    """The Mission one revision on: its plan or its outcome moved."""
    record = state.mission_record
    return mission_change(replace(record, mission=replace(record.mission, revision=record.mission.revision + 1)))


def _created(state: GroupState, event: EventFacts, payload: payloads.MissionCreated) -> tuple[Change, ...]:
    mission, group, conversation = payload.mission, payload.group, payload.conversation
    require(mission.state is mission_after(state, event.kind), f"a new Mission is not {mission.state.value}")
    require(group.group_id == mission.group_id == event.group_id, "Group and Mission are another Group's")
    require_revision(event, mission.revision)
    record = MissionRecord(
        mission=mission,
        title=payload.title,
        permissions=payload.permissions,
        coordinator_lease=payload.coordinator_lease,
    )
    return (
        changed(EntityKind.GROUP, group.group_id, GroupRecord(group=group)),
        mission_change(record),
        changed(EntityKind.CONVERSATION, conversation.conversation_id, ConversationRecord(conversation=conversation)),
        *map(membership_change, payload.memberships),
    )


def _coordinator_assigned(
    state: GroupState, event: EventFacts, payload: payloads.MissionCoordinatorAssigned
) -> tuple[Change, ...]:
    record = state.mission_record
    mission_after(state, event.kind)
    require_revision(event, record.mission.revision)
    epoch = record.mission.coordinator.coordinator_epoch
    require(payload.coordinator_epoch > epoch, f"Coordinator Epoch {payload.coordinator_epoch} is not above {epoch}")
    coordinator = CoordinatorAssignment(
        agent_id=payload.coordinator_id,
        agent_card_version=payload.agent_card_version,
        coordinator_epoch=payload.coordinator_epoch,
        lease_id=payload.lease.lease_id,
    )
    mission = replace(record.mission, coordinator=coordinator)
    return (
        mission_change(replace(record, mission=mission, coordinator_lease=payload.lease)),
        *map(membership_change, payload.memberships),
    )


def _coordinator_renewed(
    state: GroupState, event: EventFacts, payload: payloads.MissionCoordinatorRenewed
) -> tuple[Change, ...]:
    record = state.mission_record
    mission_after(state, event.kind)
    require_revision(event, record.mission.revision)
    current = record.coordinator_lease.lease_id
    require(payload.lease.lease_id == current, f"lease {payload.lease.lease_id} is not the current {current}")
    return (mission_change(replace(record, coordinator_lease=payload.lease)),)


def _submitted(
    state: GroupState, event: EventFacts, payload: payloads.MissionSubmittedForApproval
) -> tuple[Change, ...]:
    record = state.mission_record
    require_revision(event, record.mission.revision)
    submission = MissionSubmission(
        mission_revision=payload.mission_revision,
        artifact_hashes=payload.artifact_hashes,
        submitted_at=event.occurred_at,
    )
    mission = replace(record.mission, state=mission_after(state, event.kind))
    return (mission_change(replace(record, mission=mission, submission=submission)),)


def _changes_requested(
    state: GroupState, event: EventFacts, payload: payloads.MissionChangesRequested
) -> tuple[Change, ...]:
    record = state.mission_record
    require_revision(event, payload.new_revision)
    require(payload.new_revision == record.mission.revision + 1, "the revision does not rise by one")
    mission = replace(record.mission, state=mission_after(state, event.kind), revision=payload.new_revision)
    return (mission_change(replace(record, mission=mission, submission=UNSET)),)


def _approved(state: GroupState, event: EventFacts, payload: payloads.MissionApproved) -> tuple[Change, ...]:
    record = state.mission_record
    require_revision(event, record.mission.revision)
    mission = replace(record.mission, state=mission_after(state, event.kind))
    return (mission_change(replace(record, mission=mission, approval=payload.approval)),)


mission_folds: Final[Mapping[str, Fold[Any]]] = MappingProxyType(
    {
        "mission.created": Fold(payloads.MissionCreated, _created),
        "mission.coordinator.assigned": Fold(payloads.MissionCoordinatorAssigned, _coordinator_assigned),
        "mission.coordinator.renewed": Fold(payloads.MissionCoordinatorRenewed, _coordinator_renewed),
        "mission.submitted_for_approval": Fold(payloads.MissionSubmittedForApproval, _submitted),
        "mission.changes_requested": Fold(payloads.MissionChangesRequested, _changes_requested),
        "mission.approved": Fold(payloads.MissionApproved, _approved),
    }
)
