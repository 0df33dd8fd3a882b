"""The Organization shard's own rows as one batch changes them: Agent Cards, the keys they bind, session epochs."""

from collections.abc import Iterator, Mapping
from typing import Any, Final

from msgspec import UNSET, Struct, convert, field
from msgspec import json as msgspec_json

from contracts.canonical import canonical_bytes
from contracts.documents.agent_card import AgentCard
from contracts.event import agent_card_registered, session_opened
from contracts.signature import base64url_bytes, is_prime_order_point
from services.authority.batch_facts import BatchFacts, KeyRow
from services.authority.decision import AgentFacts

_public_key_bytes: Final = 32


class OrganizationRows(Struct):
    """Rows to write, keyed by Agent ID; keys in the order of the statement's columns."""

    cards: dict[str, tuple[int, bytes]] = field(default_factory=dict)
    keys: list[tuple[str, str, bytes, str, str | None, str | None]] = field(default_factory=list)
    sessions: dict[str, tuple[int, str]] = field(default_factory=dict)


def agents_of(facts: BatchFacts) -> dict[str, AgentFacts]:
    """The Agents read under the locks, as decisions see them."""
    return {
        agent_id: AgentFacts(row.session_epoch, row.session_event_id, msgspec_json.decode(row.card, type=AgentCard))
        for agent_id, row in facts.agents.items()
    }


def keys_of_card(card: Any) -> Iterator[tuple[str, bytes]]:
    """Key ID and 32 raw bytes of each readable key of a card that may not be valid."""
    keys = card.get("publicKeys") if isinstance(card, Mapping) else None
    for key in keys if isinstance(keys, list) else ():
        if isinstance(key, Mapping) and isinstance(key.get("keyId"), str) and isinstance(key.get("publicKey"), str):
            raw = base64url_bytes(key["publicKey"])
            if raw is not None and len(raw) == _public_key_bytes:
                yield key["keyId"], raw


def key_conflict(facts: BatchFacts, card: Mapping[str, Any]) -> str | None:
    """Why a card's keys may not be bound (TRU-2): weak, named twice, or known under another key ID or Principal."""
    readable = dict(keys_of_card(card))
    by_public_key = {row.public_key: row for row in facts.keys.values()}
    seen: set[str | bytes] = set()
    for key in card["publicKeys"]:
        key_id = key["keyId"]
        public_key = readable.get(key_id)
        if public_key is None or not is_prime_order_point(public_key):
            return f"key {key_id} of the card is no canonical prime-order Ed25519 key; bind another one"
        if key_id in seen or public_key in seen:
            return f"key {key_id} stands twice in the card; name each key once, under one key ID"
        seen |= {key_id, public_key}
        row = facts.keys.get(key_id) or by_public_key.get(public_key)
        wanted = (key_id, card["agentId"], public_key)
        if row is not None and (row.key_id, row.principal_id, row.public_key) != wanted:
            return f"key {key_id} of the card is already bound otherwise; bind a new key under a new key ID"
        if row is not None and (row.valid_from, row.valid_until, row.revoked_at) != _boundaries(key):
            return f"key {key_id} is bound with other boundaries, which no card can move; bind a new key"
    return None


def _boundaries(key: Mapping[str, Any]) -> tuple[str, str | None, str | None]:
    """When a card says that a key begins, ends, and was revoked."""
    return key["validFrom"], key.get("validUntil"), key.get("revokedAt")


def record_organization_event(
    kind: str,
    payload: Mapping[str, Any],
    event_id: str,
    *,
    agents: dict[str, AgentFacts],
    facts: BatchFacts,
    rows: OrganizationRows,
) -> None:
    """Let the Agents and rows of this batch move with one Organization-scoped Event."""
    agent_id = payload["agentId"]
    before = agents.get(agent_id, AgentFacts(0, None, None))
    if kind == agent_card_registered:
        card = convert(payload["card"], AgentCard)
        agents[agent_id] = AgentFacts(before.session_epoch, before.session_event_id, card)
        rows.cards[agent_id] = (card.card_version, canonical_bytes(payload["card"]))
        _bind_keys(card, facts, rows)
    elif kind == session_opened:
        epoch = payload["sessionEpoch"]
        agents[agent_id] = AgentFacts(epoch, event_id, before.card)
        rows.sessions[agent_id] = (epoch, event_id)


def _bind_keys(card: AgentCard, facts: BatchFacts, rows: OrganizationRows) -> None:
    for key in card.public_keys:
        raw = base64url_bytes(key.public_key)
        if key.key_id in facts.keys or raw is None:
            continue
        until = None if key.valid_until is UNSET else key.valid_until
        revoked = None if key.revoked_at is UNSET else key.revoked_at
        rows.keys.append((key.key_id, card.agent_id, raw, key.valid_from, until, revoked))
        facts.keys[key.key_id] = KeyRow(key.key_id, "agent", card.agent_id, raw, key.valid_from, until, revoked)
