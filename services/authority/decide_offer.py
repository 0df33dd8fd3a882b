"""Decisions that bring a WorkItem to its owner: authorisation, offer, acceptance (STM-W, MWP-WRK-019)."""

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, Final

from msgspec import UNSET

from contracts.budgets import allocation, first_excess, plus
from contracts.documents.common import ActorType, Budget, CapabilityRef
from contracts.documents.conversation import (
    AccessMode,
    Conversation,
    ConversationAccess,
    ConversationState,
    ConversationType,
)
from contracts.documents.lease import Lease, LeaseType
from contracts.documents.membership import Membership, MembershipState, Role
from contracts.documents.work_contract import ExecutionApproval, SideEffectRisk
from contracts.documents.work_item import Offer, OfferStatus, Owner, WorkItem, WorkItemState
from contracts.entities import WorkItemRecord
from contracts.identifiers import OwnershipEpoch, SessionEpoch, token
from contracts.payloads import work as payloads
from contracts.rejection import Code, Rejection
from contracts.timestamps import instant
from services.authority.aggregates import work_item_named, work_item_revision, work_places
from services.authority.capabilities import capability_pins
from services.authority.decision import EventDraft
from services.authority.fences import not_owned, work_item_known
from services.authority.gates import (
    by_coordinator,
    coordinator_entry,
    coordinator_lease_running,
    criteria_distinct,
    deadline_ahead,
    is_past,
    member_entry,
    registered_card,
    usable_card,
)
from services.authority.leases import after, work_lease
from services.authority.memberships import next_membership
from services.authority.rule import Case, Rule

_title_characters_max: Final = 500
_dangerous: Final = frozenset({SideEffectRisk.HIGH_RISK, SideEffectRisk.DESTRUCTIVE})


def work_conversation_id(payload: payloads.WorkAuthorize) -> str:
    """Name of a WorkItem's Conversation: the one that was asked for, else one made from the WorkItem's name."""
    return payload.conversation_id or f"urn:weavehold:conversation:{token(payload.work_item_id)}"


# --- work.authorize ----------------------------------------------------------------------------------------------


def _contract_complete(case: Case[payloads.WorkAuthorize]) -> Rejection | None:
    """What the schema cannot say: dangerous effects wait for a person, and the deadline fits the Mission's."""
    contract, mission = case.payload.contract, case.state.mission
    if contract.side_effect_risk in _dangerous and contract.execution_approval is not ExecutionApproval.HUMAN_REQUIRED:
        risk = contract.side_effect_risk.value
        message = f"sideEffectRisk {risk} needs executionApproval human_required"
        return case.refuse(Code.WORK_CONTRACT_INCOMPLETE, message)
    if refusal := criteria_distinct(case, contract.acceptance_criteria) or deadline_ahead(case, contract.deadline):
        return refusal
    if instant(contract.deadline) > instant(mission.deadline):
        message = f"the contract's deadline {contract.deadline} is after the Mission's {mission.deadline}"
        return case.refuse(Code.INVALID_COMMAND, message)
    return None


def _dependencies_known(case: Case[payloads.WorkAuthorize]) -> Rejection | None:
    """A new WorkItem can only depend on existing ones, so no cycle can close here (MWP-WRK-007)."""
    for dependency in case.payload.contract.dependency_work_item_ids:
        if case.state.work_item(dependency) is None:
            message = f"dependency WorkItem {dependency} is unknown in Group {case.state.group_id}"
            return case.refuse(Code.INVALID_COMMAND, message)
    return None


def _contract_affordable(case: Case[payloads.WorkAuthorize]) -> Rejection | None:
    return budget_fits(case, case.payload.contract.budget)


def budget_fits(case: Case[Any], budget: Budget) -> Rejection | None:
    """What all Work Contracts reserve together stays within the Mission's budget in every dimension (BUD-1)."""
    limit = case.state.mission.budget
    if budget.financial_limit and budget.currency != limit.currency:
        message = f"the contract's money is in {budget.currency or '?'}, the Mission's in {limit.currency or 'none'}"
        return case.refuse(Code.BUDGET_EXCEEDED, message, details={"dimension": "financialLimit"})
    dimension = first_excess(plus(case.state.reserved, allocation(budget)), allocation(limit))
    if dimension is None:
        return None
    message = f"with this contract the WorkItems reserve more {dimension} than the Mission has"
    return case.refuse(Code.BUDGET_EXCEEDED, message, details={"dimension": dimension})


def _authorize_claims(payload: payloads.WorkAuthorize) -> tuple[tuple[str, str], ...]:
    return ((payload.work_item_id, "work_item"), (work_conversation_id(payload), "conversation"))


def _authorized(case: Case[payloads.WorkAuthorize]) -> tuple[EventDraft, ...]:
    payload, mission, now, actor = case.payload, case.state.mission, case.context.now_text, case.command.actor
    conversation_id = work_conversation_id(payload)
    item = WorkItem(
        work_item_id=payload.work_item_id,
        mission_id=mission.mission_id,
        group_id=mission.group_id,
        conversation_id=conversation_id,
        revision=1,
        state=WorkItemState.OPEN,
        exclusive=True,
        contract=payload.contract,
        created_by=actor,
        authorized_by=actor,
        created_at=now,
        updated_at=now,
    )
    conversation = Conversation(
        conversation_id=conversation_id,
        mission_id=mission.mission_id,
        group_id=mission.group_id,
        type=ConversationType.WORK_ITEM,
        primary_work_item_id=payload.work_item_id,
        title=payload.contract.goal[:_title_characters_max],
        access=ConversationAccess(mode=AccessMode.GROUP),
        created_by=actor,
        created_at=now,
        state=ConversationState.ACTIVE,
        revision=1,
    )
    event = payloads.WorkAuthorized(work_item=item, conversation=conversation, proposal_id=None)
    return (case.draft(event, item.revision, conversation_id=conversation_id, work_item_id=item.work_item_id),)


# --- work.offer --------------------------------------------------------------------------------------------------


def _candidates_eligible(case: Case[payloads.WorkOffer]) -> Rejection | None:
    """Each candidate is a member with the worker role, registered and capable; the selection says so too."""
    if not case.payload.selection_basis.authorization_eligible:
        return case.refuse(
            Code.AUTH_FORBIDDEN, "selectionBasis.authorizationEligible is false; offer to eligible Agents"
        )
    for agent_id in case.payload.candidate_agent_ids:
        if refusal := _ineligible(case, agent_id):
            return refusal
    return None


def _ineligible(case: Case[Any], agent_id: str) -> Rejection | None:
    membership = case.state.membership(agent_id)
    if membership is None or membership.state is MembershipState.ENDED or membership.role is not Role.WORKER:
        return case.refuse(Code.AUTH_FORBIDDEN, f"{agent_id} is no member with the role worker")
    card = usable_card(agent_id, case)
    if isinstance(card, Rejection):
        return card
    lacking = capability_pins(card, case.record.item.contract.required_capabilities)
    if isinstance(lacking, tuple):
        return None
    message = f"Agent {agent_id} does not offer capability {lacking.id} in a version that serves {lacking.version}"
    return case.refuse(Code.AUTH_FORBIDDEN, message)


def _offer_affordable(case: Case[payloads.WorkOffer]) -> Rejection | None:
    """A failed WorkItem gave its budget back; a new offer reserves it again."""
    item = case.record.item
    return budget_fits(case, item.contract.budget) if item.state is WorkItemState.FAILED else None


def _offered(case: Case[payloads.WorkOffer]) -> tuple[EventDraft, ...]:
    payload, context, item = case.payload, case.context, case.record.item
    expires_at = after(context, payload.offer_expires_in_seconds)
    new = tuple(
        Offer(
            offer_id=context.new_id(),
            agent_id=agent_id,
            agent_card_version=registered_card(agent_id, case).card_version,
            expires_at=expires_at,
            status=OfferStatus.PENDING,
        )
        for agent_id in payload.candidate_agent_ids
    )
    offers = (*_still_open(case), *new)
    event = payloads.WorkOfferCreated(
        work_item_id=item.work_item_id,
        candidate_agent_ids=tuple(offer.agent_id for offer in offers),
        offers=offers,
        offer_expires_at=expires_at,
        selection_basis=payload.selection_basis,
        contract=item.contract,
    )
    return (case.draft(event, item.revision + 1, **work_places(item)),)


def _still_open(case: Case[payloads.WorkOffer]) -> tuple[Offer, ...]:
    """Earlier offers that stand beside the new ones: unexpired, to other Agents."""
    if case.record.item.state is not WorkItemState.OFFERED:
        return ()
    again = set(case.payload.candidate_agent_ids)
    return tuple(
        offer
        for offer in _pending(case.record)
        if offer.agent_id not in again and not is_past(offer.expires_at, case.context)
    )


def _pending(record: WorkItemRecord) -> tuple[Offer, ...]:
    return tuple(offer for offer in record.item.offers or () if offer.status is OfferStatus.PENDING)


# --- work.accept_offer -------------------------------------------------------------------------------------------


def _offer_to(case: Case[Any]) -> Offer | None:
    return next((offer for offer in _pending(case.record) if offer.agent_id == case.actor_id), None)


def _offered_to_actor(case: Case[payloads.WorkAcceptOffer]) -> Rejection | None:
    """The offer is the actor's, who may still take it: role, card and capabilities as of now."""
    if case.command.actor.type is not ActorType.AGENT:
        return case.refuse(Code.AUTH_FORBIDDEN, "only an Agent owns work")
    if case.record.item.state is WorkItemState.OFFERED and _offer_to(case) is None:
        message = f"WorkItem {case.record.item.work_item_id} is not offered to {case.actor_id}"
        return case.refuse(Code.AUTH_FORBIDDEN, message)
    return _ineligible(case, case.actor_id)


def _offer_running(case: Case[payloads.WorkAcceptOffer]) -> Rejection | None:
    offer = _offer_to(case)
    if offer is None or not is_past(offer.expires_at, case.context):
        return None
    message = f"the offer {offer.offer_id} to {offer.agent_id} ended at {offer.expires_at}; ask for a new one"
    return case.refuse(Code.WORK_OFFER_EXPIRED, message)


def _accepted(case: Case[payloads.WorkAcceptOffer]) -> tuple[EventDraft, ...]:
    record, context = case.record, case.context
    item = record.item
    lease = _ownership_lease(case)
    owner = Owner(
        agent_id=case.actor_id,
        agent_card_version=registered_card(case.actor_id, case).card_version,
        capability_pins=_pins(case),
        ownership_epoch=OwnershipEpoch(context.next_epoch(record.ownership_epoch)),
        ownership_lease_id=lease.lease_id,
        accepted_at=context.now_text,
    )
    event = payloads.WorkOfferAccepted(
        work_item_id=item.work_item_id,
        assignee_id=owner.agent_id,
        ownership_epoch=owner.ownership_epoch,
        ownership_lease_expires_at=lease.expires_at,
        agent_card_version=owner.agent_card_version,
        owner=owner,
        lease=lease,
        membership=_activated(case) or UNSET,
    )
    return (case.draft(event, item.revision + 1, **work_places(item)),)


def _ownership_lease(case: Case[payloads.WorkAcceptOffer]) -> Lease:
    payload = case.payload
    return work_lease(
        case.context,
        LeaseType.OWNERSHIP,
        case.record.item,
        holder=case.actor_id,
        session_epoch=SessionEpoch(case.command.session_epoch or 1),
        ownership_epoch=OwnershipEpoch(case.context.next_epoch(case.record.ownership_epoch)),
        seconds=payload.ownership_lease_seconds,
        start_by=after(case.context, min(payload.start_by_seconds, payload.ownership_lease_seconds)),
    )


def _pins(case: Case[payloads.WorkAcceptOffer]) -> tuple[CapabilityRef, ...]:
    pins = capability_pins(registered_card(case.actor_id, case), case.record.item.contract.required_capabilities)
    if isinstance(pins, CapabilityRef):
        raise LookupError(f"Agent {case.actor_id} lacks capability {pins.id}")  # noqa: TRY004 - checked before
    return pins


def _activated(case: Case[payloads.WorkAcceptOffer]) -> Membership | None:
    """Acceptance makes a provisional member a full one."""
    membership = case.state.membership(case.actor_id)
    if membership is None or membership.state is not MembershipState.PROVISIONAL:
        return None
    return next_membership(case.context, membership, membership.role, context_package_id=membership.context_package_id)


offer_rules: Final[Mapping[str, Rule[Any]]] = MappingProxyType(
    {
        "work.authorize": Rule[payloads.WorkAuthorize](
            event="work.authorized",
            aggregate=work_item_revision,
            events=_authorized,
            work_item=work_item_named,
            claims=_authorize_claims,
            entry=coordinator_entry,
            policy=(by_coordinator,),
            state=(_contract_complete, _dependencies_known),
            expiry=(coordinator_lease_running,),
            budget=(_contract_affordable,),
        ),
        "work.offer": Rule[payloads.WorkOffer](
            event="work.offer.created",
            aggregate=work_item_revision,
            events=_offered,
            work_item=work_item_named,
            agents=lambda payload: payload.candidate_agent_ids,
            entry=coordinator_entry,
            fence=(work_item_known, not_owned),
            policy=(by_coordinator, _candidates_eligible),
            expiry=(coordinator_lease_running,),
            budget=(_offer_affordable,),
        ),
        "work.accept_offer": Rule[payloads.WorkAcceptOffer](
            event="work.offer.accepted",
            aggregate=work_item_revision,
            events=_accepted,
            work_item=work_item_named,
            entry=member_entry,
            fence=(work_item_known, not_owned),
            policy=(_offered_to_actor,),
            expiry=(_offer_running,),
        ),
    }
)
