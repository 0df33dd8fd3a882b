"""Payloads of Organization-scoped facts: Agent Cards and sessions. Their Events have no Group."""

from contracts.documents.agent_card import AgentCard
from contracts.documents.common import Document
from contracts.identifiers import Identifier, PositiveInteger, SessionEpochField


class AgentCardRegister(Document, frozen=True, kw_only=True):
    """`ext.missionweaveprotocol.registry.agent_card_register`: a newer card, which brings the Agent's keys."""

    card: AgentCard


class SessionOpen(Document, frozen=True, kw_only=True):
    """`ext.missionweaveprotocol.identity.session_open`: the Agent proved its key in the handshake."""

    agent_id: Identifier
    key_id: Identifier


class AgentCardRegistered(Document, frozen=True, kw_only=True):
    """`ext.missionweaveprotocol.registry.agent_card_registered`; `version` is the card's `cardVersion`."""

    agent_id: Identifier
    version: PositiveInteger
    card: AgentCard


class SessionOpened(Document, frozen=True, kw_only=True):
    """`ext.missionweaveprotocol.identity.session_opened`: from here on lower Session Epochs are fenced (RULE-07)."""

    agent_id: Identifier
    session_epoch: SessionEpochField
