"""Checks that many Command kinds share: who may see and act, under which epochs, on which revision and state."""

from collections.abc import Iterable
from typing import Any

from msgspec import UNSET

from contracts.command import agent_card_register
from contracts.documents.agent_card import AgentCard, CardStatus
from contracts.documents.common import AcceptanceCriterion, Actor, ActorType
from contracts.documents.membership import MembershipState
from contracts.identifiers import registry_group
from contracts.rejection import Code, Rejection
from contracts.timestamps import instant
from contracts.transitions import mission_transitions, work_item_transitions
from services.authority.decision import DecisionContext
from services.authority.rule import Case

AnyCase = Case[Any]


def extensions_known(case: AnyCase) -> Rejection | None:
    """This authority serves no extension of Commands: one that is critical cannot be honoured."""
    if case.command.extensions is UNSET:
        return None
    for uri, extension in case.command.extensions.items():
        if extension.critical:
            message = f"critical extension {uri} {extension.version} is not supported; send the Command without it"
            details = {"profileUri": uri, "receivedVersion": extension.version}
            return case.refuse(Code.UNKNOWN_CRITICAL_EXTENSION, message, details=details)
    return None


# --- entry -------------------------------------------------------------------------------------------------------


def group_visible(case: AnyCase) -> Rejection | None:
    """One answer for a Group that does not exist and for one that the actor never was a member of."""
    actor = case.command.actor
    if case.state.exists:
        if actor.type is ActorType.SERVICE:
            return None
        membership = case.state.membership(actor.id)
        if membership is not None and membership.member == actor:
            return None
    return case.refuse(Code.GROUP_NOT_FOUND, f"{actor.id} sees no Group {case.state.group_id}")


def membership_held(case: AnyCase) -> Rejection | None:
    """The actor's Membership has not ended, and a provisional one is still in its time."""
    membership = case.state.membership(case.actor_id)
    if membership is None:  # a service: every other actor would have seen no Group
        return None
    if membership.state is MembershipState.ENDED:
        return case.refuse(
            Code.MEMBERSHIP_REQUIRED, f"the Membership of {case.actor_id} has ended; ask to be added again"
        )
    end = membership.provisional_expires_at
    if membership.state is MembershipState.PROVISIONAL and end is not UNSET and is_past(end, case.context):
        return case.refuse(Code.MEMBERSHIP_REQUIRED, f"the provisional Membership of {case.actor_id} ended at {end}")
    return None


def session_current(case: AnyCase) -> Rejection | None:
    """An Agent acts in its one live session (ACC-6)."""
    command = case.command
    if command.actor.type is not ActorType.AGENT:
        return None
    facts = case.context.agents.get(command.actor.id)
    current = 0 if facts is None else facts.session_epoch
    if command.session_epoch == current:
        return None
    message = (
        f"Session Epoch {command.session_epoch} of {command.actor.id} is not the current {current}; open a session"
    )
    return case.refuse(Code.AUTH_STALE_SESSION, message, details=_epochs(current, command.session_epoch))


def membership_epoch_current(case: AnyCase) -> Rejection | None:
    """The Command was made under the actor's Membership as it is now (ACC-6)."""
    membership = case.state.membership(case.actor_id)
    if membership is None:
        return None
    current, received = membership.membership_epoch, case.command.membership_epoch
    if received == current:
        return None
    message = f"Membership Epoch {received} of {case.actor_id} is not the current {current}; read your Membership again"
    return case.refuse(Code.MEMBERSHIP_STALE, message, details=_epochs(current, received))


def coordinator_epoch_current(case: AnyCase) -> Rejection | None:
    """Whoever states a Coordinator Epoch states the current one (LSE-2)."""
    received = case.command.coordinator_epoch
    current = case.state.mission.coordinator.coordinator_epoch
    if received is UNSET or received == current:
        return None
    message = f"Coordinator Epoch {received} is not the current {current}"
    return case.refuse(Code.AUTH_STALE_COORDINATOR, message, details=_epochs(current, received))


def coordinator_epoch_stated(case: AnyCase) -> Rejection | None:
    """The Coordinator acts as such only under its epoch."""
    if acts_as_coordinator(case) and case.command.coordinator_epoch is UNSET:
        current = case.state.mission.coordinator.coordinator_epoch
        message = f"{case.command.kind} of the Coordinator states its Coordinator Epoch, now {current}"
        return case.refuse(Code.AUTH_STALE_COORDINATOR, message, details={"expected": current})
    return None


def _epochs(expected: int, received: object) -> dict[str, Any]:
    return {"expected": expected} if received is UNSET else {"expected": expected, "received": received}


member_entry = (group_visible, membership_held, session_current, membership_epoch_current, coordinator_epoch_current)
"""Entry of a Command in an existing Group."""
coordinator_entry = (*member_entry, coordinator_epoch_stated)
"""Entry of a kind in which the Coordinator acts as such."""


# --- role and policy ---------------------------------------------------------------------------------------------


def acts_as_coordinator(case: AnyCase) -> bool:
    """Whether the actor is the Mission's Coordinator."""
    actor = case.command.actor
    return actor.type is ActorType.AGENT and actor.id == case.state.mission.coordinator.agent_id


def acts_as_owner(case: AnyCase) -> bool:
    """Whether the actor is the MissionOwner."""
    return case.command.actor == case.state.mission.mission_owner


def by_coordinator(case: AnyCase) -> Rejection | None:
    """Only the Coordinator."""
    if acts_as_coordinator(case):
        return None
    coordinator = case.state.mission.coordinator.agent_id
    return case.refuse(Code.AUTH_FORBIDDEN, f"{case.command.kind} is for the Coordinator {coordinator}")


def by_mission_owner(case: AnyCase) -> Rejection | None:
    """Only the MissionOwner."""
    if acts_as_owner(case):
        return None
    owner = case.state.mission.mission_owner.id
    return case.refuse(Code.AUTH_FORBIDDEN, f"{case.command.kind} is for the MissionOwner {owner}")


def by_mission_owner_or_coordinator(case: AnyCase) -> Rejection | None:
    """The MissionOwner or the Coordinator."""
    if acts_as_owner(case) or acts_as_coordinator(case):
        return None
    return case.refuse(Code.AUTH_FORBIDDEN, f"{case.command.kind} is for the MissionOwner or the Coordinator")


def by_full_member(case: AnyCase) -> Rejection | None:
    """A provisional member may do nothing but accept an offer; a service is no member."""
    membership = case.state.membership(case.actor_id)
    if membership is not None and membership.state is MembershipState.ACTIVE:
        return None
    return case.refuse(Code.AUTH_FORBIDDEN, f"{case.command.kind} is for active members, which {case.actor_id} is not")


def name_unambiguous(principal: Actor, case: AnyCase) -> Rejection | None:
    """A Membership is named by its Principal's identifier, so one identifier cannot be two Principals of a Group."""
    before = case.state.membership(principal.id)
    known = case.command.actor if before is None else before.member
    if known.id != principal.id or known == principal:
        return None
    message = f"{principal.id} is a {known.type.value} in this Group and cannot be a member as {principal.type.value}"
    return case.refuse(Code.INVALID_COMMAND, message)


def registered_card(agent_id: str, case: AnyCase) -> AgentCard:
    """The card of an Agent that a check before has found. Raises LookupError when there is none."""
    facts = case.context.agents[agent_id]
    if facts.card is None:
        raise LookupError(f"Agent {agent_id} has no registered Agent Card")
    return facts.card


def card_missing(agent_id: str, case: AnyCase) -> Rejection:
    """The refusal of an Agent that has no card."""
    remedy = f"the Organization's registry has to register one first, by {agent_card_register}"
    return case.refuse(Code.INVALID_COMMAND, f"Agent {agent_id} has no registered Agent Card; {remedy}")


def usable_card(agent_id: str, case: AnyCase) -> AgentCard | Rejection:
    """The card of an Agent that may be given a part in the Mission, or why it may not."""
    facts = case.context.agents.get(agent_id)
    if facts is None or facts.card is None:
        return card_missing(agent_id, case)
    card = facts.card
    if card.status is CardStatus.REVOKED:
        return case.refuse(Code.AUTH_FORBIDDEN, f"the Agent Card of {agent_id} is revoked")
    if card.valid_until is not UNSET and is_past(card.valid_until, case.context):
        return case.refuse(Code.AUTH_FORBIDDEN, f"the Agent Card of {agent_id} was valid until {card.valid_until}")
    return card


# --- revision, state, expiry -------------------------------------------------------------------------------------


def revision_expected(case: AnyCase) -> Rejection | None:
    """`expectedRevision`, when given, is the revision of what the Command changes (MWP-EVT-007)."""
    expected = case.command.expected_revision
    if expected is UNSET:
        return None
    current = case.rule.aggregate(case)
    if expected == current:
        return None
    message = f"expectedRevision is {expected} but the revision is {current}; read the present state and decide again"
    return case.refuse(Code.REVISION_CONFLICT, message, expected_revision=expected, current_revision=current)


def transition_exists(case: AnyCase) -> Rejection | None:
    """The tables STM-M and STM-W have a row for this Event from the present states."""
    event = case.rule.event
    if event not in mission_transitions or case.state.group_id == registry_group(case.context.organization_id):
        return None  # Organization-scoped, or in the one Group that has no Mission
    mission_state = case.state.mission.state if case.state.exists else None
    if mission_state not in mission_transitions[event]:
        word = "not created" if mission_state is None else mission_state.value
        message = f"{case.command.kind} does not apply: the Mission of {case.state.group_id} is {word}"
        return case.refuse(Code.INVALID_STATE_TRANSITION, message)
    if event not in work_item_transitions:
        return None
    item_state = None if case.addressed is None else case.addressed.item.state
    if item_state not in work_item_transitions[event]:
        word = "not authorised" if item_state is None else item_state.value
        message = f"{case.command.kind} does not apply: its WorkItem is {word}"
        return case.refuse(Code.INVALID_STATE_TRANSITION, message)
    return None


def identifiers_free(case: AnyCase) -> Rejection | None:
    """New things get new names: none that is taken in the Organization, none twice in one Command."""
    seen = set(case.context.taken_identifiers)
    for identifier, kind in case.rule.claims(case.payload):
        if identifier in seen:
            message = f"{identifier} already names something; a new {kind.replace('_', ' ')} needs a new identifier"
            return case.refuse(Code.INVALID_STATE_TRANSITION, message)
        seen.add(identifier)
    return None


def deadline_ahead(case: AnyCase, deadline: str) -> Rejection | None:
    """A deadline lies in the future."""
    if is_past(deadline, case.context):
        return case.refuse(Code.INVALID_COMMAND, f"the deadline {deadline} has passed; choose a later one")
    return None


def criteria_distinct(case: AnyCase, criteria: Iterable[AcceptanceCriterion]) -> Rejection | None:
    """Criteria are told apart by their names."""
    seen: set[str] = set()
    for criterion in criteria:
        if criterion.criterion_id in seen:
            message = f"criterion {criterion.criterion_id} stands twice; give each criterion its own criterionId"
            return case.refuse(Code.INVALID_COMMAND, message)
        seen.add(criterion.criterion_id)
    return None


def coordinator_lease_running(case: AnyCase) -> Rejection | None:
    """The Coordinator acts as such only while its lease runs (LSE-2)."""
    lease = case.state.mission_record.coordinator_lease
    if acts_as_coordinator(case) and is_past(lease.expires_at, case.context):
        message = f"the coordinator lease {lease.lease_id} ended at {lease.expires_at}; renew it first"
        return case.refuse(Code.WORK_LEASE_EXPIRED, message)
    return None


def is_past(end: str, context: DecisionContext) -> bool:
    """Whether a moment has come: what ends at it is over (expiry is inclusive)."""
    return instant(end) <= context.now_instant
