"""Keys that an Agent Card binds: what may be bound, and with which boundaries (TRU-2)."""

from datetime import UTC, datetime
from typing import Any

import pytest

from contracts.event import agent_card_registered
from contracts.signature import base64url_text
from services.authority.batch_facts import BatchFacts
from services.authority.organization_rows import OrganizationRows, key_conflict, record_organization_event
from tests.builders import principal, signing_key
from tests.mission_documents import card_document

agent = principal("new-agent")
first, second = signing_key("first"), signing_key("second")


def no_keys_yet() -> BatchFacts:
    return BatchFacts(
        now=datetime(2026, 1, 1, tzinfo=UTC),
        incarnation="0" * 32,
        fences={},
        agents={},
        receipts={},
        taken=set(),
        admissions={},
        keys={},
        states={},
        organization_head=None,
        group_shards={},
    )


def key(key_id: str, public_key: bytes, **members: str) -> dict[str, Any]:
    return {
        "keyId": f"urn:weavehold:key:{key_id}",
        "algorithm": "Ed25519",
        "publicKey": base64url_text(public_key),
        "validFrom": "2026-01-01T00:00:00Z",
        **members,
    }


@pytest.mark.parametrize(
    "keys",
    [
        [key("a", first.public_key), key("a", second.public_key)],
        [key("a", bytes(32)), key("a", second.public_key)],
        [key("a", first.public_key), key("b", first.public_key)],
    ],
    ids=["one key ID for two keys", "a weak key behind a good one", "one key under two key IDs"],
)
def test_a_card_names_each_key_once(keys: list[dict[str, Any]]) -> None:
    """TRU-2: a key ID or a public key that stands twice in a card is refused before anything is written."""
    assert key_conflict(no_keys_yet(), card_document(agent, publicKeys=keys)) is not None


def test_different_keys_of_one_card_are_bound() -> None:
    """TRU-2: a card may bind several keys."""
    keys = [key("a", first.public_key), key("b", second.public_key)]
    assert key_conflict(no_keys_yet(), card_document(agent, publicKeys=keys)) is None


def test_a_key_is_bound_with_all_its_boundaries() -> None:
    """TRU-2: a key that its card already calls revoked is never believed after that moment."""
    ends = {"validUntil": "2027-01-01T00:00:00Z", "revokedAt": "2026-02-01T00:00:00Z"}
    card = card_document(agent, publicKeys=[key("a", first.public_key, **ends)])
    facts, rows = no_keys_yet(), OrganizationRows()
    payload = {"agentId": agent.id, "card": card}
    record_organization_event(agent_card_registered, payload, "urn:event:1", agents={}, facts=facts, rows=rows)
    assert rows.keys[0][3:] == ("2026-01-01T00:00:00Z", ends["validUntil"], ends["revokedAt"])
    assert facts.keys["urn:weavehold:key:a"].revoked_at == ends["revokedAt"]


@pytest.mark.parametrize(
    "moved",
    [
        {"revokedAt": "2026-02-01T00:00:00Z"},
        {"validUntil": "2026-03-01T00:00:00Z"},
        {"validFrom": "2025-01-01T00:00:00Z"},
    ],
    ids=["revoked", "shortened", "begun earlier"],
)
def test_a_later_card_cannot_move_the_boundaries_of_a_key(moved: dict[str, str]) -> None:
    """TRU-2: a boundary that would be accepted and ignored is refused; the same key named unchanged is fine."""
    facts, rows = no_keys_yet(), OrganizationRows()
    payload = {"agentId": agent.id, "card": card_document(agent, publicKeys=[key("a", first.public_key)])}
    record_organization_event(agent_card_registered, payload, "urn:event:1", agents={}, facts=facts, rows=rows)
    assert key_conflict(facts, payload["card"]) is None
    later = card_document(agent, 2, publicKeys=[key("a", first.public_key, **moved)])
    assert "boundaries" in (key_conflict(facts, later) or "")
