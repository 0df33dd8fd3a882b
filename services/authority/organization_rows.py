"""The Organization shard's own rows as one batch changes them: Agent Cards, session epochs, keys and their ends."""

from collections.abc import Mapping
from typing import Any

from msgspec import UNSET, Struct, UnsetType, convert, field
from msgspec import json as msgspec_json

from contracts.canonical import canonical_bytes
from contracts.documents.agent_card import AgentCard
from contracts.documents.common import Actor, ActorType
from contracts.event import agent_card_registered, key_registered, key_retired, key_revoked, session_opened
from contracts.payloads.keys import KeyStanding
from contracts.signature import base64url_bytes
from contracts.verification import RegisteredKey
from services.authority.batch_facts import BatchFacts
from services.authority.decision import AgentFacts
from services.authority.key_book import KeyBook, KnownKey

key_event_kinds = frozenset({key_registered, key_retired, key_revoked})


class OrganizationRows(Struct):
    """Rows to write, keyed by Agent ID; keys and statements of their ends in the order of the statements' columns."""

    cards: dict[str, tuple[int, bytes]] = field(default_factory=dict)
    sessions: dict[str, tuple[int, str]] = field(default_factory=dict)
    keys: list[tuple[str, str, str, bytes, str, str]] = field(default_factory=list)
    key_ends: list[tuple[str, int, str | None, str | None, str]] = field(default_factory=list)


def agents_of(facts: BatchFacts) -> dict[str, AgentFacts]:
    """The Agents read under the locks, as decisions see them."""
    return {
        agent_id: AgentFacts(row.session_epoch, row.session_event_id, msgspec_json.decode(row.card, type=AgentCard))
        for agent_id, row in facts.agents.items()
    }


def record_organization_event(
    kind: str,
    payload: Mapping[str, Any],
    event_id: str,
    *,
    agents: dict[str, AgentFacts],
    book: KeyBook,
    rows: OrganizationRows,
) -> None:
    """Let the Agents, keys and rows of this batch move with one Organization-scoped Event."""
    agent_id = payload["agentId"]
    before = agents.get(agent_id, AgentFacts(0, None, None))
    if kind == agent_card_registered:
        card = convert(payload["card"], AgentCard)
        agents[agent_id] = AgentFacts(before.session_epoch, before.session_event_id, card)
        rows.cards[agent_id] = (card.card_version, canonical_bytes(payload["card"]))
        _bind_card_keys(card, event_id, book, rows)
    elif kind == session_opened:
        epoch = payload["sessionEpoch"]
        agents[agent_id] = AgentFacts(epoch, event_id, before.card)
        rows.sessions[agent_id] = (epoch, event_id)


def record_key_event(
    kind: str, payload: Mapping[str, Any], event_id: str, *, book: KeyBook, rows: OrganizationRows
) -> None:
    """Let the keys of this batch move with one Event of the registry's history."""
    standing = convert(payload["key"], KeyStanding)
    valid_until, revoked_at = _present(standing.valid_until), _present(standing.revoked_at)
    if kind == key_registered:
        _bind(
            RegisteredKey(
                key_id=standing.key_id,
                principal=standing.principal,
                public_key=base64url_bytes(standing.public_key) or b"",
                valid_from=standing.valid_from,
                valid_until=valid_until,
                revoked_at=revoked_at,
            ),
            event_id,
            book,
            rows,
        )
    else:
        known = book.end(standing.key_id, valid_until=valid_until, revoked_at=revoked_at)
        rows.key_ends.append((standing.key_id, known.statements, valid_until, revoked_at, event_id))


def _bind_card_keys(card: AgentCard, event_id: str, book: KeyBook, rows: OrganizationRows) -> None:
    """A card may name again the keys that its Agent already has."""
    for key in card.public_keys:
        if book.find(key.key_id) is None:
            _bind(
                RegisteredKey(
                    key_id=key.key_id,
                    principal=Actor(type=ActorType.AGENT, id=card.agent_id),
                    public_key=base64url_bytes(key.public_key) or b"",
                    valid_from=key.valid_from,
                    valid_until=_present(key.valid_until),
                    revoked_at=_present(key.revoked_at),
                ),
                event_id,
                book,
                rows,
            )


def _bind(key: RegisteredKey, event_id: str, book: KeyBook, rows: OrganizationRows) -> None:
    """A binding, with the first statement of its ends when it comes with any."""
    principal = key.principal
    rows.keys.append((key.key_id, principal.type.value, principal.id, key.public_key, key.valid_from, event_id))
    ends = (key.valid_until, key.revoked_at)
    statements = 0 if ends == (None, None) else 1
    if statements:
        rows.key_ends.append((key.key_id, statements, *ends, event_id))
    book.put(KnownKey(key, statements))


def _present(value: str | UnsetType) -> str | None:
    return None if value is UNSET else value
