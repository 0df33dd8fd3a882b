"""Decisions of the Organization's shard: Agent Cards and sessions (RULE-07)."""

import pytest

from contracts.command import agent_card_register, session_open
from contracts.document_kinds import DocumentKind
from contracts.documents.common import Actor, ActorType
from contracts.event import agent_card_registered, session_opened
from contracts.rejection import Code
from contracts.service_principals import authority
from contracts.verification import RegisteredKey
from services.authority.decide import agents_consulted, identifiers_claimed, nested_documents
from services.authority.key_book import KnownKey
from tests.builders import principal, signing_key
from tests.mission_documents import (
    approval,
    artifact,
    card_document,
    contract,
    coordinator,
    creation,
    evidence,
    item,
    message,
    operator,
    owner,
    rival,
    signature_key_id,
    worker,
)
from tests.scene import Scene

new_agent = principal("new-agent")


def registered_as(key_id: str, holder: Actor) -> RegisteredKey:
    key = signing_key(holder.id)
    return RegisteredKey(key_id=key_id, principal=holder, public_key=key.public_key, valid_from="2026-01-01T00:00:00Z")


def opening(scene: Scene, agent: Actor) -> dict[str, str]:
    """The payload for a session of an Agent whose key is registered."""
    key_id = f"urn:weavehold:key:{agent.id}"
    scene.keys.put(KnownKey(registered_as(key_id, agent), 0))
    return {"agentId": agent.id, "keyId": key_id}


def test_a_newer_card_is_registered() -> None:
    """MWP-EVT-007: registration is compare-and-set on the card's version."""
    scene = Scene()
    (draft,) = scene.accept(agent_card_register, {"card": card_document(new_agent, 3)}, operator)
    assert (draft.kind, draft.payload["version"], draft.aggregate_revision) == (agent_card_registered, 3, 3)
    refusal = scene.refuse(agent_card_register, {"card": card_document(worker, 1)}, operator)
    assert (refusal.code, refusal.current_revision) == (Code.REVISION_CONFLICT, 1)
    scene.accept(agent_card_register, {"card": card_document(worker, 2)}, operator)


def test_a_card_of_another_organization_is_refused() -> None:
    """RULE-32: nothing crosses the border of the Organization."""
    card = card_document(new_agent, organizationId="urn:weavehold:organization:other")
    assert Scene().code(agent_card_register, {"card": card}, operator) is Code.INVALID_COMMAND


def test_a_session_is_the_next_epoch() -> None:
    """RULE-07: opening a session raises the Agent's Session Epoch by one."""
    scene = Scene()
    (draft,) = scene.accept(session_open, opening(scene, worker), authority)
    assert (draft.kind, draft.payload) == (session_opened, {"agentId": worker.id, "sessionEpoch": 2})
    assert scene.code(session_open, opening(scene, worker), authority, expectedRevision=7) is Code.REVISION_CONFLICT


def test_a_session_needs_a_card_that_is_not_revoked() -> None:
    """RULE-07: an unknown or revoked Agent opens no session."""
    scene = Scene()
    assert scene.code(session_open, opening(scene, new_agent), authority) is Code.INVALID_COMMAND
    scene.register(worker, status="revoked")
    assert scene.code(session_open, opening(scene, worker), authority) is Code.AUTH_FORBIDDEN


def test_the_authority_alone_opens_sessions() -> None:
    """RULE-07: no other service has seen the Agent's proof."""
    scene = Scene()
    assert scene.code(session_open, opening(scene, worker), operator) is Code.AUTH_FORBIDDEN


@pytest.mark.parametrize("spoiled", ["revoked", "another Agent's", "unknown"])
def test_the_proven_key_is_judged_again_under_the_lock(spoiled: str) -> None:
    """RULE-06: a revocation between the proof and the session counts."""
    scene = Scene()
    payload = opening(scene, worker)
    match spoiled:
        case "revoked":
            scene.keys.end(payload["keyId"], valid_until=None, revoked_at=scene.time)
        case "another Agent's":
            payload = {**opening(scene, new_agent), "agentId": worker.id}
        case _:
            payload["keyId"] = "urn:weavehold:key:unknown"
    refusal = scene.refuse(session_open, payload, authority)
    assert (refusal.code, refusal.message) == (Code.AUTH_INVALID_SIGNATURE, "session proof rejected")


def test_only_registrars_bind_an_agents_keys() -> None:
    """TRU-2: neither may another service carry a card, nor may a card be signed by one."""
    scene = Scene()
    card = {"card": card_document(new_agent)}
    gateway = principal("gateway", ActorType.SERVICE)
    assert scene.code(agent_card_register, card, gateway) is Code.AUTH_FORBIDDEN
    scene.keys.put(KnownKey(registered_as(signature_key_id, gateway), 0))
    assert scene.code(agent_card_register, card, operator) is Code.AUTH_FORBIDDEN


# --- what the caller asks about a Command ---------------------------------------------------------------------------


def test_the_agents_that_a_decision_consults() -> None:
    """RULE-03: the rows to lock are known before the decision: actor, Coordinator, candidates, members."""
    scene = Scene().with_work("open")
    offer = scene.command("work.offer", scene.offer(worker, rival), coordinator)
    assert agents_consulted(offer) == {coordinator.id, worker.id, rival.id}
    assert agents_consulted(scene.command("mission.create", creation(), owner)) == {coordinator.id}
    change = {"principal": {"type": "agent", "id": rival.id}, "role": "worker"}
    assert agents_consulted(scene.command("membership.change", change, owner)) == {rival.id}
    guest = {"principal": {"type": "human", "id": owner.id}, "role": "mission_owner"}
    assert agents_consulted(scene.command("membership.change", guest, owner)) == frozenset()
    assert agents_consulted(scene.command(session_open, opening(scene, worker), authority)) == {worker.id}
    assert agents_consulted(scene.command("message.post", {"content": []}, worker)) == {worker.id}


def test_the_identifiers_that_a_command_claims() -> None:
    """RULE-03: globally unique names are known before the decision; a misshapen payload claims nothing."""
    scene = Scene().with_mission()
    kinds = {
        "mission.create": (creation(), owner, ["mission", "group", "conversation"]),
        "work.authorize": ({"workItemId": item, "contract": contract()}, coordinator, ["work_item", "conversation"]),
        "message.post": (message(), worker, ["message"]),
        "mission.approve": ({"approval": approval(1)}, owner, ["approval"]),
        "artifact.publish": (
            {"artifact": artifact(), "ownershipEpoch": 1, "executionLeaseId": "urn:test:lease"},
            worker,
            ["artifact"],
        ),
    }
    for kind, (payload, actor, claimed) in kinds.items():
        command = scene.command(kind, payload, actor)
        assert [entity_kind for _, entity_kind in identifiers_claimed(command)] == claimed
    assert identifiers_claimed(scene.command("message.post", message(messageId="\0"), worker)) == ()
    named = {"workItemId": item, "contract": contract(), "conversationId": "urn:test:talk"}
    assert ("urn:test:talk", "conversation") in identifiers_claimed(scene.command("work.authorize", named, coordinator))


@pytest.mark.parametrize("work_item_id", ["urn:test:work", "urn:test:work#part", "https://a.example/" + "w" * 490])
def test_names_of_conversations_are_valid_whatever_the_work_item_is_called(work_item_id: str) -> None:
    """A made-up name never outgrows the bounds of an identifier."""
    scene = Scene().with_mission()
    scene.accept("work.authorize", {"workItemId": work_item_id, "contract": contract()}, coordinator)


def test_the_signed_documents_inside_a_command() -> None:
    """TRU-4: admission verifies cards, Artifacts, Evidence and Approvals as received."""
    scene = Scene().with_work("active")
    card = card_document(new_agent)
    assert nested_documents(scene.command(agent_card_register, {"card": card}, operator)) == (
        (DocumentKind.AGENT_CARD, card),
    )
    submission = scene.command("work.submit", scene.submission(evidence=[evidence(), evidence(by=rival)]), worker)
    assert [kind for kind, _ in nested_documents(submission)] == [DocumentKind.EVIDENCE] * 2
    approve = scene.command("mission.approve", {"approval": approval(1)}, owner)
    assert nested_documents(approve) == ((DocumentKind.APPROVAL, approval(1)),)
    assert nested_documents(scene.command("mission.approve", {"approval": {}}, owner)) == ()
    assert nested_documents(scene.command("message.post", message(), worker)) == ()
    assert nested_documents(scene.command("ext.unknown.kind.at_all", {}, worker)) == ()
