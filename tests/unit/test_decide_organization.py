"""Decisions of the Organization's shard: Agent Cards and sessions (RULE-07)."""

import pytest

from contracts.command import agent_card_register, session_open
from contracts.document_kinds import DocumentKind
from contracts.event import agent_card_registered, session_opened
from contracts.rejection import Code
from services.authority.decide import agents_consulted, identifiers_claimed, nested_documents
from tests.builders import principal
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
    worker,
)
from tests.scene import Scene

new_agent = principal("new-agent")


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
    (draft,) = scene.accept(session_open, {"agentId": worker.id}, operator)
    assert (draft.kind, draft.payload) == (session_opened, {"agentId": worker.id, "sessionEpoch": 2})
    assert scene.code(session_open, {"agentId": worker.id}, operator, expectedRevision=7) is Code.REVISION_CONFLICT


def test_a_session_needs_a_card_that_is_not_revoked() -> None:
    """RULE-07: an unknown or revoked Agent opens no session."""
    scene = Scene()
    assert scene.code(session_open, {"agentId": new_agent.id}, operator) is Code.INVALID_COMMAND
    scene.register(worker, status="revoked")
    assert scene.code(session_open, {"agentId": worker.id}, operator) is Code.AUTH_FORBIDDEN


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
    assert agents_consulted(scene.command(session_open, {"agentId": worker.id}, operator)) == {worker.id}
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
