"""The Organization's rows as one batch moves them: keys that cards and the registry bind, and their ends (TRU-2)."""

from typing import Any

from contracts.event import agent_card_registered, key_registered, key_revoked
from contracts.signature import base64url_text
from services.authority.key_book import KeyBook
from services.authority.organization_rows import OrganizationRows, record_key_event, record_organization_event
from tests.builders import principal, signing_key
from tests.mission_documents import card_document

agent = principal("new-agent")
first = signing_key("first")
from_moment = "2026-01-01T00:00:00Z"


def card_key(**members: str) -> dict[str, Any]:
    return {
        "keyId": "urn:weavehold:key:a",
        "algorithm": "Ed25519",
        "publicKey": base64url_text(first.public_key),
        "validFrom": from_moment,
        **members,
    }


def register(card: Any, book: KeyBook, rows: OrganizationRows) -> None:
    payload = {"agentId": agent.id, "card": card}
    record_organization_event(agent_card_registered, payload, "urn:event:1", agents={}, book=book, rows=rows)


def test_a_key_is_bound_with_all_its_boundaries() -> None:
    """TRU-2: a key that its card already calls revoked is never believed after that moment."""
    ends = {"validUntil": "2027-01-01T00:00:00Z", "revokedAt": "2026-02-01T00:00:00Z"}
    book, rows = KeyBook(), OrganizationRows()
    register(card_document(agent, publicKeys=[card_key(**ends)]), book, rows)
    assert rows.keys == [("urn:weavehold:key:a", "agent", agent.id, first.public_key, from_moment, "urn:event:1")]
    assert rows.key_ends == [("urn:weavehold:key:a", 1, ends["validUntil"], ends["revokedAt"], "urn:event:1")]
    known = book.find("urn:weavehold:key:a")
    assert known is not None
    assert known.key.boundaries == (from_moment, ends["validUntil"], ends["revokedAt"])


def test_a_card_that_names_a_bound_key_again_writes_nothing_of_it() -> None:
    """TRU-2: bindings are written once."""
    book, rows = KeyBook(), OrganizationRows()
    register(card_document(agent, publicKeys=[card_key()]), book, rows)
    register(card_document(agent, publicKeys=[card_key()]), book, again := OrganizationRows())
    assert (len(rows.keys), again.keys, again.key_ends) == (1, [], [])


def test_ends_stated_in_one_batch_follow_each_other() -> None:
    """TRU-2, RULE-06: a later Command of the same batch sees what an earlier one ended."""
    book, rows = KeyBook(), OrganizationRows()
    standing = {**card_key(), "principal": {"type": "service", "id": "urn:weavehold:service:one"}}
    record_key_event(key_registered, {"key": standing}, "urn:event:1", book=book, rows=rows)
    ended = {**standing, "revokedAt": "2026-02-01T00:00:00Z"}
    record_key_event(key_revoked, {"key": ended, "reason": "lost"}, "urn:event:2", book=book, rows=rows)
    assert rows.key_ends == [("urn:weavehold:key:a", 1, None, "2026-02-01T00:00:00Z", "urn:event:2")]
    known = book.find("urn:weavehold:key:a")
    assert known is not None
    assert (known.statements, known.key.revoked_at) == (1, "2026-02-01T00:00:00Z")
