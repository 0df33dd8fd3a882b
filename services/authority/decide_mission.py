"""Decisions that create a Mission and say who coordinates it (STM-M, LSE-2)."""

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, Final

from msgspec.structs import replace

from contracts.documents.agent_card import AgentCard
from contracts.documents.common import Actor, ActorType, Budget
from contracts.documents.conversation import (
    AccessMode,
    Conversation,
    ConversationAccess,
    ConversationState,
    ConversationType,
)
from contracts.documents.group import Group, GroupDocumentState
from contracts.documents.lease import Lease
from contracts.documents.membership import Membership, MembershipState, Role
from contracts.documents.mission import ApprovalPolicy, CoordinatorAssignment, Mission, MissionState
from contracts.identifiers import CoordinatorEpoch, MembershipEpoch, SessionEpoch, token
from contracts.payloads import mission as payloads
from contracts.rejection import Code, Rejection
from services.authority.aggregates import mission_revision
from services.authority.decision import EventDraft
from services.authority.gates import (
    by_coordinator,
    by_mission_owner,
    coordinator_entry,
    criteria_distinct,
    deadline_ahead,
    is_past,
    member_entry,
    name_unambiguous,
    registered_card,
    usable_card,
)
from services.authority.leases import after, coordinator_lease, renewed
from services.authority.memberships import new_membership, next_membership, whole_group
from services.authority.rule import Case, Rule

_no_budget: Final = Budget(model_token_limit=0)
_default_policy: Final = ApprovalPolicy(final_human_approval=True, high_risk_execution_approval=True)


def main_conversation_id(group_id: str) -> str:
    """Name of a Group's main Conversation; of constant length, so that it is valid for every Group."""
    return f"urn:weavehold:conversation:{token(group_id)}"


def _creates_its_group(case: Case[payloads.MissionCreate]) -> Rejection | None:
    if case.payload.group_id == case.command.group_id:
        return None
    return case.refuse(Code.INVALID_COMMAND, "groupId differs between envelope and payload; name the new Group in both")


def _coordinator_usable(
    case: Case[payloads.MissionCreate] | Case[payloads.MissionAssignCoordinator],
) -> Rejection | None:
    coordinator = Actor(type=ActorType.AGENT, id=case.payload.coordinator_id)
    if refusal := name_unambiguous(coordinator, case):
        return refusal
    card = usable_card(coordinator.id, case)
    return card if isinstance(card, Rejection) else None


def _plan_sound(case: Case[payloads.MissionCreate]) -> Rejection | None:
    return deadline_ahead(case, case.payload.deadline) or criteria_distinct(case, case.payload.definition_of_done)


def _create_claims(payload: payloads.MissionCreate) -> tuple[tuple[str, str], ...]:
    return (
        (payload.mission_id, "mission"),
        (payload.group_id, "group"),
        (main_conversation_id(payload.group_id), "conversation"),
    )


def _created(case: Case[payloads.MissionCreate]) -> tuple[EventDraft, ...]:
    payload, now, owner = case.payload, case.context.now_text, case.command.actor
    coordinator = Actor(type=ActorType.AGENT, id=payload.coordinator_id)
    lease = _first_lease(case)
    conversation_id = main_conversation_id(payload.group_id)
    event = payloads.MissionCreated(
        mission=_new_mission(case, lease),
        group=Group(
            group_id=payload.group_id,
            mission_id=payload.mission_id,
            state=GroupDocumentState.ACTIVE,
            main_conversation_id=conversation_id,
            created_at=now,
        ),
        title=payload.title,
        permissions=payload.permissions,
        conversation=Conversation(
            conversation_id=conversation_id,
            mission_id=payload.mission_id,
            group_id=payload.group_id,
            type=ConversationType.GROUP,
            title=payload.title,
            access=ConversationAccess(mode=AccessMode.GROUP),
            created_by=owner,
            created_at=now,
            state=ConversationState.ACTIVE,
            revision=1,
        ),
        memberships=(
            new_membership(case.context, payload.mission_id, payload.group_id, owner, Role.MISSION_OWNER),
            new_membership(case.context, payload.mission_id, payload.group_id, coordinator, Role.COORDINATOR),
        ),
        coordinator_lease=lease,
        follow_up_of_mission_id=None,
    )
    return (case.draft(event, event.mission.revision, conversation_id=conversation_id),)


def _first_lease(case: Case[payloads.MissionCreate]) -> Lease:
    payload = case.payload
    return coordinator_lease(
        case.context,
        mission_id=payload.mission_id,
        group_id=payload.group_id,
        holder=payload.coordinator_id,
        session_epoch=case.context.agents[payload.coordinator_id].session_epoch,
        coordinator_epoch=CoordinatorEpoch(case.context.next_epoch(0)),
        seconds=payload.coordinator_lease_seconds,
    )


def _new_mission(case: Case[payloads.MissionCreate], lease: Lease) -> Mission:
    payload = case.payload
    return Mission(
        mission_id=payload.mission_id,
        group_id=payload.group_id,
        revision=1,
        objective=payload.objective,
        definition_of_done=payload.definition_of_done,
        mission_owner=case.command.actor,
        coordinator=_assignment(lease, registered_card(payload.coordinator_id, case)),
        state=MissionState.ACTIVE,
        budget=payload.budget or _no_budget,
        deadline=payload.deadline,
        approval_policy=payload.approval_policy or _default_policy,
        created_at=case.context.now_text,
    )


def _assignment(lease: Lease, card: AgentCard) -> CoordinatorAssignment:
    return CoordinatorAssignment(
        agent_id=lease.holder_agent_id,
        agent_card_version=card.card_version,
        coordinator_epoch=CoordinatorEpoch(lease.coordinator_epoch or 1),
        lease_id=lease.lease_id,
    )


# --- coordination ------------------------------------------------------------------------------------------------


def _by_owner_or_control_plane(case: Case[Any]) -> Rejection | None:
    """A service steps in only where the Coordinator let its lease run out."""
    if case.command.actor.type is not ActorType.SERVICE:
        return by_mission_owner(case)
    lease = case.state.mission_record.coordinator_lease
    if is_past(lease.expires_at, case.context):
        return None
    message = f"the coordinator lease {lease.lease_id} runs until {lease.expires_at}; only the MissionOwner may replace"
    return case.refuse(Code.AUTH_FORBIDDEN, message)


def _coordinator_assigned(case: Case[payloads.MissionAssignCoordinator]) -> tuple[EventDraft, ...]:
    payload, mission, context = case.payload, case.state.mission, case.context
    lease = coordinator_lease(
        context,
        mission_id=mission.mission_id,
        group_id=mission.group_id,
        holder=payload.coordinator_id,
        session_epoch=context.agents[payload.coordinator_id].session_epoch,
        coordinator_epoch=CoordinatorEpoch(context.next_epoch(mission.coordinator.coordinator_epoch)),
        seconds=payload.lease_seconds,
    )
    assignment = _assignment(lease, registered_card(payload.coordinator_id, case))
    event = payloads.MissionCoordinatorAssigned(
        previous_coordinator_id=mission.coordinator.agent_id,
        coordinator_id=assignment.agent_id,
        agent_card_version=assignment.agent_card_version,
        coordinator_epoch=assignment.coordinator_epoch,
        lease_expires_at=lease.expires_at,
        lease=lease,
        memberships=_handover(case),
    )
    return (case.draft(event, mission.revision),)


def _handover(case: Case[payloads.MissionAssignCoordinator]) -> tuple[Membership, ...]:
    """The old Coordinator's Membership ends with its only role; the new one sees the whole history."""
    mission, successor = case.state.mission, case.payload.coordinator_id
    if successor == mission.coordinator.agent_id:
        return ()
    changed: list[Membership] = []
    old = case.state.membership(mission.coordinator.agent_id)
    if old is not None and old.state is not MembershipState.ENDED:
        epoch = MembershipEpoch(case.context.next_epoch(old.membership_epoch))
        changed.append(
            replace(old, state=MembershipState.ENDED, membership_epoch=epoch, ended_at=case.context.now_text)
        )
    member = Actor(type=ActorType.AGENT, id=successor)
    before = case.state.membership(successor)
    if before is None:
        changed.append(new_membership(case.context, mission.mission_id, mission.group_id, member, Role.COORDINATOR))
    else:
        whole = {"scopes": whole_group, "visibility_start_sequence": 0}
        changed.append(next_membership(case.context, before, Role.COORDINATOR, **whole))
    return tuple(changed)


def _coordinator_renewed(case: Case[payloads.MissionRenewCoordinator]) -> tuple[EventDraft, ...]:
    mission, context = case.state.mission, case.context
    session_epoch = SessionEpoch(case.command.session_epoch or 1)
    expires_at = after(context, case.payload.lease_seconds)
    lease = renewed(case.state.mission_record.coordinator_lease, context, session_epoch, expires_at)
    event = payloads.MissionCoordinatorRenewed(
        coordinator_epoch=mission.coordinator.coordinator_epoch,
        lease_expires_at=expires_at,
        lease=lease,
    )
    return (case.draft(event, mission.revision),)


mission_rules: Final[Mapping[str, Rule[Any]]] = MappingProxyType(
    {
        "mission.create": Rule[payloads.MissionCreate](
            event="mission.created",
            aggregate=mission_revision,
            events=_created,
            agents=lambda payload: (payload.coordinator_id,),
            claims=_create_claims,
            shape=(_creates_its_group,),
            entry=(),
            policy=(_coordinator_usable,),
            state=(_plan_sound,),
        ),
        "mission.assign_coordinator": Rule[payloads.MissionAssignCoordinator](
            event="mission.coordinator.assigned",
            aggregate=mission_revision,
            events=_coordinator_assigned,
            agents=lambda payload: (payload.coordinator_id,),
            entry=member_entry,
            policy=(_by_owner_or_control_plane, _coordinator_usable),
        ),
        "mission.renew_coordinator": Rule[payloads.MissionRenewCoordinator](
            event="mission.coordinator.renewed",
            aggregate=mission_revision,
            events=_coordinator_renewed,
            entry=coordinator_entry,
            policy=(by_coordinator,),
        ),
    }
)
