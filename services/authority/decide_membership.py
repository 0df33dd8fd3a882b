"""Decisions about Memberships: who takes part in a Group, in which role, from which point of its history on."""

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, Final

from msgspec import UNSET

from contracts.documents.common import ActorType
from contracts.documents.membership import Membership, MembershipState, Role
from contracts.payloads.membership import MembershipChange, MembershipChanged
from contracts.rejection import Code, Rejection
from services.authority.decision import EventDraft
from services.authority.gates import (
    by_mission_owner_or_coordinator,
    coordinator_entry,
    coordinator_lease_running,
    is_past,
    name_unambiguous,
    usable_card,
)
from services.authority.memberships import new_membership, next_membership
from services.authority.rule import Case, Rule

_agents_only: Final = frozenset({Role.COORDINATOR, Role.WORKER, Role.WORK_DELEGATE})
_single_holder: Final = frozenset({Role.MISSION_OWNER, Role.COORDINATOR})


def _epoch(case: Case[MembershipChange]) -> int:
    """The Membership is what changes; 0 for a new one."""
    membership = case.state.membership(case.payload.principal.id)
    return 0 if membership is None else membership.membership_epoch


def _principal_may_join(case: Case[MembershipChange]) -> Rejection | None:
    """Services need no Membership; an Agent needs a card; one identifier names one Principal."""
    principal = case.payload.principal
    if principal.type is ActorType.SERVICE:
        return case.refuse(Code.INVALID_COMMAND, f"{principal.id} is a service, which acts without a Membership")
    if refusal := name_unambiguous(principal, case):
        return refusal
    if principal.type is ActorType.AGENT:
        card = usable_card(principal.id, case)
        return card if isinstance(card, Rejection) else None
    return None


def _role_fits(case: Case[MembershipChange]) -> Rejection | None:
    """MissionOwner and Coordinator keep their role, nobody else gets it; some roles are for Agents."""
    principal, role, mission = case.payload.principal, case.payload.role, case.state.mission
    holds = None
    if principal == mission.mission_owner:
        holds = Role.MISSION_OWNER
    elif principal.type is ActorType.AGENT and principal.id == mission.coordinator.agent_id:
        holds = Role.COORDINATOR
    if holds is not role and (holds is not None or role in _single_holder):
        message = f"{principal.id} cannot become {role.value}: that role passes only with the Mission's own assignment"
        return case.refuse(Code.AUTH_FORBIDDEN, message)
    if holds is not None and case.payload.provisional:
        return case.refuse(
            Code.AUTH_FORBIDDEN, f"the {role.value} of a Mission is a full member, not a provisional one"
        )
    if role in _agents_only and principal.type is not ActorType.AGENT:
        return case.refuse(Code.AUTH_FORBIDDEN, f"{role.value} is a role for Agents; {principal.id} is none")
    return None


def _terms_possible(case: Case[MembershipChange]) -> Rejection | None:
    """A view cannot start in the future, and a provisional Membership not end in the past."""
    after, end = case.payload.visibility_after_sequence, case.payload.provisional_expires_at
    if after is not UNSET and after > case.state.sequence:
        message = f"visibilityAfterSequence {after} is beyond the Group's head {case.state.sequence}"
        return case.refuse(Code.INVALID_COMMAND, message)
    if case.payload.provisional and end is not UNSET and is_past(end, case.context):
        return case.refuse(Code.INVALID_COMMAND, f"provisionalExpiresAt {end} has passed; choose a later moment")
    return None


def _changed(case: Case[MembershipChange]) -> tuple[EventDraft, ...]:
    payload = case.payload
    members: dict[str, Any] = {"scopes": payload.scopes}
    if payload.provisional:
        members |= {
            "state": MembershipState.PROVISIONAL,
            "context_package_id": payload.context_package_id,
            "provisional_expires_at": payload.provisional_expires_at,
            "activated_at": UNSET,
        }
    if payload.visibility_after_sequence is not UNSET:
        members["visibility_start_sequence"] = payload.visibility_after_sequence
    membership = _membership(case, members)
    return (case.draft(MembershipChanged(membership=membership), membership.membership_epoch),)


def _membership(case: Case[MembershipChange], members: dict[str, Any]) -> Membership:
    """A new member sees what follows; one that stays keeps its view unless the Command moves it."""
    payload, mission = case.payload, case.state.mission
    before = case.state.membership(payload.principal.id)
    if before is None or before.state is MembershipState.ENDED:
        members = {"visibility_start_sequence": case.state.sequence} | members
    if before is None:
        return new_membership(
            case.context, mission.mission_id, mission.group_id, payload.principal, payload.role, **members
        )
    return next_membership(case.context, before, payload.role, **members)


membership_rules: Final[Mapping[str, Rule[Any]]] = MappingProxyType(
    {
        "membership.change": Rule[MembershipChange](
            event="membership.changed",
            aggregate=_epoch,
            events=_changed,
            agents=lambda payload: (payload.principal.id,) if payload.principal.type is ActorType.AGENT else (),
            entry=coordinator_entry,
            policy=(by_mission_owner_or_coordinator, _role_fits, _principal_may_join),
            state=(_terms_possible,),
            expiry=(coordinator_lease_running,),
        ),
    }
)
