"""Decisions of the Organization's own shard: Agent Cards and sessions (RULE-07)."""

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, Final

from msgspec import UNSET

from contracts.command import agent_card_register, session_open
from contracts.document_kinds import DocumentKind
from contracts.documents.agent_card import CardStatus
from contracts.documents.common import Actor, ActorType, PublicKey
from contracts.event import agent_card_registered, session_opened
from contracts.identifiers import SessionEpoch
from contracts.payloads.organization import AgentCardRegister, AgentCardRegistered, SessionOpen, SessionOpened
from contracts.rejection import Code, Rejection
from contracts.service_principals import authority, registrars
from contracts.signature import base64url_bytes
from services.authority.decide_keys import by_a_registrar
from services.authority.decision import EventDraft
from services.authority.gates import card_missing
from services.authority.rule import Case, Rule


def _card_version(case: Case[AgentCardRegister]) -> int:
    facts = case.context.agents.get(case.payload.card.agent_id)
    return 0 if facts is None or facts.card is None else facts.card.card_version


def _card_of_this_organization(case: Case[AgentCardRegister]) -> Rejection | None:
    named = case.payload.card.organization_id
    if named == case.context.organization_id:
        return None
    return case.refuse(Code.INVALID_COMMAND, f"card.organizationId is {named}; this is {case.context.organization_id}")


def _card_newer(case: Case[AgentCardRegister]) -> Rejection | None:
    """Registration is a compare-and-set on the card's version (MWP-EVT-007)."""
    version, current = case.payload.card.card_version, _card_version(case)
    if version > current:
        return None
    message = f"cardVersion {version} of {case.payload.card.agent_id} is not above the registered {current}"
    return case.refuse(Code.REVISION_CONFLICT, message, current_revision=current)


def _keys_bindable(case: Case[AgentCardRegister]) -> Rejection | None:
    """Every key of the card is strong, stands there once, and is free or bound just so already (TRU-2)."""
    card = case.payload.card
    agent = Actor(type=ActorType.AGENT, id=card.agent_id)
    seen: set[str | bytes] = set()
    for key in card.public_keys:
        public_key = base64url_bytes(key.public_key)
        if fault := case.context.keys.binding_fault(key.key_id, agent, public_key):
            return case.refuse(Code.INVALID_COMMAND, fault)
        assert public_key is not None  # noqa: S101 - such a key is a fault
        if key.key_id in seen or public_key in seen:
            message = f"key {key.key_id} stands twice in the card; name each key once, under one key ID"
            return case.refuse(Code.INVALID_COMMAND, message)
        seen |= {key.key_id, public_key}
        known = case.context.keys.find(key.key_id)
        if known is not None and _stated_boundaries(key) != known.key.boundaries:
            message = f"key {key.key_id} is bound with other boundaries, which no card can move; bind a new key"
            return case.refuse(Code.INVALID_COMMAND, f"{message}, or end this one with: weavehold keys revoke")
    return None


def _stated_boundaries(key: PublicKey) -> tuple[str, str | None, str | None]:
    """When a card says that a key begins, ends, and was revoked."""
    until, revoked = key.valid_until, key.revoked_at
    return key.valid_from, None if until is UNSET else until, None if revoked is UNSET else revoked


def _registered(case: Case[AgentCardRegister]) -> tuple[EventDraft, ...]:
    card = case.payload.card
    event = AgentCardRegistered(agent_id=card.agent_id, version=card.card_version, card=card)
    return (case.draft(event, card.card_version),)


def _card_signed_by_a_registrar(case: Case[AgentCardRegister]) -> Rejection | None:
    """A card binds keys, whoever carries it here: its signer must keep the registry too."""
    signed_with = case.payload.card.signature.key_id
    known = case.context.keys.find(signed_with)
    if known is not None and known.key.principal in registrars:
        return None
    message = f"the card is signed with {signed_with}, which is no key of a service that keeps the key registry"
    return case.refuse(Code.AUTH_FORBIDDEN, message)


def _by_the_authority(case: Case[SessionOpen]) -> Rejection | None:
    """The authority alone has seen the proof of the handshake."""
    if case.command.actor == authority:
        return None
    return case.refuse(
        Code.AUTH_FORBIDDEN, f"{case.actor_id} opens no sessions; an Agent proves its key in the handshake"
    )


def _key_opens_sessions(case: Case[SessionOpen]) -> Rejection | None:
    """The proven key as it stands under the lock: a revocation that came since the proof counts (RULE-06)."""
    known = case.context.keys.find(case.payload.key_id)
    agent = Actor(type=ActorType.AGENT, id=case.payload.agent_id)
    if known is not None and known.key.principal == agent and all(map(known.key.covers, case.context.key_moments)):
        return None
    return case.refuse(Code.AUTH_INVALID_SIGNATURE, rejected_proof)


def _session_epoch(case: Case[SessionOpen]) -> int:
    facts = case.context.agents.get(case.payload.agent_id)
    return 0 if facts is None else facts.session_epoch


def _agent_registered(case: Case[SessionOpen]) -> Rejection | None:
    facts = case.context.agents.get(case.payload.agent_id)
    if facts is None or facts.card is None:
        return card_missing(case.payload.agent_id, case)
    if facts.card.status is CardStatus.REVOKED:
        return case.refuse(Code.AUTH_FORBIDDEN, f"the Agent Card of {case.payload.agent_id} is revoked")
    return None


def _opened(case: Case[SessionOpen]) -> tuple[EventDraft, ...]:
    epoch = SessionEpoch(case.context.next_epoch(_session_epoch(case)))
    return (case.draft(SessionOpened(agent_id=case.payload.agent_id, session_epoch=epoch), epoch),)


rejected_proof: Final = "session proof rejected"
"""All that the wire hears of a handshake that failed, wherever it failed."""

organization_rules: Final[Mapping[str, Rule[Any]]] = MappingProxyType(
    {
        agent_card_register: Rule[AgentCardRegister](
            event=agent_card_registered,
            aggregate=_card_version,
            events=_registered,
            agents=lambda payload: (payload.card.agent_id,),
            keys=lambda payload: [(key.key_id, base64url_bytes(key.public_key)) for key in payload.card.public_keys],
            changes_keys=True,
            nested=((DocumentKind.AGENT_CARD, "card"),),
            shape=(_card_of_this_organization,),
            entry=(),
            policy=(by_a_registrar, _card_signed_by_a_registrar),
            state=(_card_newer, _keys_bindable),
        ),
        session_open: Rule[SessionOpen](
            event=session_opened,
            aggregate=_session_epoch,
            events=_opened,
            agents=lambda payload: (payload.agent_id,),
            entry=(),
            keys=lambda payload: ((payload.key_id, None),),
            policy=(_by_the_authority, _agent_registered, _key_opens_sessions),
        ),
    }
)
