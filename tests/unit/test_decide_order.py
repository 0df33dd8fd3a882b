"""RULE-01 and ACC-1: the order of checks decides the error, and a refused Command leaves nothing but overdue facts."""

from collections.abc import Callable
from typing import Any, Final

import pytest

from contracts.documents.mission import MissionState
from contracts.event import lease_expired, lease_revoked
from contracts.identifiers import OwnershipEpoch
from contracts.rejection import Code, Rejection
from services.authority.decide import rules
from tests.builders import identifier
from tests.mission_documents import (
    Document,
    artifact,
    contract,
    coordinator,
    creation,
    evidence,
    item,
    message,
    operator,
    other_content,
    owner,
    rival,
    stranger,
    worker,
)
from tests.scene import Scene


class Draft:
    """A Command in the making, and the world it will meet."""

    def __init__(self, scene: Scene, kind: str, payload: Document, actor: Any) -> None:
        self.scene, self.kind, self.payload, self.actor = scene, kind, payload, actor
        self.members: Document = {}

    def code(self) -> Code:
        return self.scene.code(self.kind, self.payload, self.actor, **self.members)


def _set(name: str, value: Any) -> Callable[[Draft], None]:
    return lambda draft: draft.members.update({name: value})


def _pay(name: str, value: Any) -> Callable[[Draft], None]:
    return lambda draft: draft.payload.update({name: value})


def _act(actor: Any) -> Callable[[Draft], None]:
    def act(draft: Draft) -> None:
        draft.actor = actor

    return act


def _end_membership(draft: Draft) -> None:
    draft.scene.end_membership(draft.actor)


def _pass(seconds: float) -> Callable[[Draft], None]:
    def wait(draft: Draft) -> None:
        draft.scene.pass_time(seconds)

    return wait


def _revoke_rival(draft: Draft) -> None:
    draft.scene.register(rival, status="revoked")


def _mission_awaits(draft: Draft) -> None:
    draft.scene.force_mission(MissionState.AWAITING_APPROVAL)


_critical: Final = {"urn:test:extension": {"version": "1.0.0", "critical": True, "data": None}}
Fault = tuple[Code, Callable[[Draft], None]]

start_faults: Final[list[Fault]] = [
    (Code.SCHEMA_VALIDATION_FAILED, _pay("executionLeaseSeconds", 0)),
    (Code.UNKNOWN_CRITICAL_EXTENSION, _set("extensions", _critical)),
    (Code.GROUP_NOT_FOUND, _act(stranger)),
    (Code.MEMBERSHIP_REQUIRED, _end_membership),
    (Code.AUTH_STALE_SESSION, _set("sessionEpoch", 7)),
    (Code.MEMBERSHIP_STALE, _set("membershipEpoch", 7)),
    (Code.AUTH_STALE_COORDINATOR, _set("coordinatorEpoch", 7)),
    (Code.WORK_STALE_OWNERSHIP, _pay("ownershipEpoch", 7)),
    (Code.AUTH_FORBIDDEN, _act(rival)),
    (Code.REVISION_CONFLICT, _set("expectedRevision", 77)),
    (Code.INVALID_STATE_TRANSITION, _mission_awaits),
    (Code.WORK_LEASE_EXPIRED, _pass(3_600)),
    (Code.APPROVAL_REQUIRED, lambda _: None),
]


@pytest.mark.parametrize("first", range(len(start_faults)))
def test_the_first_fault_of_a_start_decides(first: int) -> None:
    """RULE-01: with all later faults present too, the earliest one gives the code (`work.start`)."""
    scene = Scene().with_work("queued", executionApproval="human_required")
    draft = Draft(scene, "work.start", {"workItemId": item, "ownershipEpoch": 1}, worker)
    faults = start_faults[first:]
    # Later faults first, so that an ended Membership is that of whoever acts.
    for code, commit in sorted(faults, key=lambda fault: fault[0] in (Code.GROUP_NOT_FOUND, Code.MEMBERSHIP_REQUIRED)):
        if code is Code.MEMBERSHIP_REQUIRED and draft.actor is stranger:
            continue
        commit(draft)
    if first > 2:
        assert draft.actor is not stranger
    assert draft.code() is faults[0][0]


authorize_faults: Final[list[Fault]] = [
    (Code.WORK_CONTRACT_INCOMPLETE, lambda draft: draft.payload["contract"].update(acceptanceCriteria=[])),
    (Code.AUTH_STALE_COORDINATOR, _set("coordinatorEpoch", 7)),
    (Code.AUTH_FORBIDDEN, _act(worker)),
    (Code.REVISION_CONFLICT, _set("expectedRevision", 1)),
    (Code.INVALID_STATE_TRANSITION, lambda draft: draft.scene.taken.add(item)),
    (Code.INVALID_COMMAND, lambda draft: draft.payload["contract"].update(dependencyWorkItemIds=["urn:test:none"])),
    (Code.WORK_LEASE_EXPIRED, _pass(86_400)),
    (Code.BUDGET_EXCEEDED, lambda draft: draft.payload["contract"].update(budget={"toolCallLimit": 1})),
]


@pytest.mark.parametrize("first", range(len(authorize_faults)))
def test_the_first_fault_of_an_authorisation_decides(first: int) -> None:
    """RULE-01: content and budget come after role, revision and state (`work.authorize`)."""
    draft = Draft(Scene().with_mission(), "work.authorize", {"workItemId": item, "contract": contract()}, coordinator)
    for _, commit in authorize_faults[first:]:
        commit(draft)
    assert draft.code() is authorize_faults[first][0]


accept_faults: Final[list[Fault]] = [
    (Code.INVALID_COMMAND, _pay("workItemId", "urn:test:unknown")),
    (Code.AUTH_FORBIDDEN, _revoke_rival),
    (Code.REVISION_CONFLICT, _set("expectedRevision", 1)),
    (Code.WORK_OFFER_EXPIRED, _pass(300)),
]


@pytest.mark.parametrize("first", range(len(accept_faults)))
def test_the_first_fault_of_an_acceptance_decides(first: int) -> None:
    """RULE-01, RULE-14: an unknown WorkItem is INVALID_COMMAND; an expired offer is told last (`work.accept_offer`)."""
    draft = Draft(Scene().with_work("offered"), "work.accept_offer", {"workItemId": item}, rival)
    for _, commit in accept_faults[first:]:
        commit(draft)
    assert draft.code() is accept_faults[first][0]


def test_an_owned_work_item_is_told_before_the_role() -> None:
    """RULE-01: the loser of a race hears WORK_ALREADY_OWNED, even when it may not accept at all any more."""
    scene = Scene().with_work("queued").register(rival, status="revoked")
    assert scene.code("work.accept_offer", {"workItemId": item}, rival, expectedRevision=1) is Code.WORK_ALREADY_OWNED


@pytest.mark.parametrize("kind", sorted(rules))
def test_a_payload_of_another_shape_is_refused_before_anything_else(kind: str) -> None:
    """RULE-01: payloads are checked after the signature and before the Group is looked at, for every kind."""
    scene = Scene()
    agent_only = kind in ("work.accept_result", "mission.renew_coordinator", "mission.submit_for_approval")
    service_only = kind.startswith(("ext.missionweaveprotocol.registry", "ext.missionweaveprotocol.identity"))
    actor = operator if service_only else coordinator if agent_only else owner
    code = scene.code(kind, {"unknown": 1}, actor)
    assert code in (Code.SCHEMA_VALIDATION_FAILED, Code.WORK_CONTRACT_INCOMPLETE)


def test_the_path_of_a_payload_fault_is_told() -> None:
    """RULE-01: SCHEMA_VALIDATION_FAILED names where the payload goes wrong."""
    scene = Scene().with_work("active")
    refusal = scene.refuse("work.submit", scene.submission(evidence=[evidence(result="perfect")]), worker)
    assert refusal.code is Code.SCHEMA_VALIDATION_FAILED
    assert "$.evidence[...].result" in refusal.message or "$.evidence[0].result" in refusal.message


def test_a_kind_without_a_rule_is_an_invalid_command() -> None:
    """RULE-01: a kind that the protocol has but this authority does not serve says so."""
    assert Scene().with_mission().code("mission.cancel", {"reason": "x"}, owner) is Code.INVALID_COMMAND


# --- embedded identifiers ------------------------------------------------------------------------------------------


def test_identifiers_in_envelope_and_payload_agree() -> None:
    """RULE-01: whatever stands twice must be equal, wherever it stands."""
    scene = Scene().with_work("active")
    other = "urn:test:other"
    published = {"artifact": artifact(), **scene.fences(named=False)}
    strange_artifact = {"artifact": artifact(groupId=other), **scene.fences(named=False)}
    assert Scene().code("mission.create", creation(groupId=other), owner) is Code.INVALID_COMMAND
    assert scene.code("message.post", message(), worker, conversationId=other) is Code.INVALID_COMMAND
    assert scene.code("work.submit", scene.submission(), worker, workItemId=other) is Code.INVALID_COMMAND
    assert scene.code("artifact.publish", published, worker, workItemId=other) is Code.INVALID_COMMAND
    assert scene.code("artifact.publish", strange_artifact, worker) is Code.INVALID_COMMAND
    for wrong in ("groupId", "workItemId"):
        submission = scene.submission(evidence=[evidence() | {wrong: other}])
        assert scene.code("work.submit", submission, worker) is Code.INVALID_COMMAND


def test_an_identifier_of_the_envelope_serves_a_payload_without_one() -> None:
    """RULE-01: WorkItem and Conversation may stand in the envelope alone."""
    scene = Scene().with_work("offered")
    scene.accept("work.accept_offer", {}, worker, workItemId=item)
    text = message()
    conversation = text.pop("conversationId")
    scene.accept("message.post", text, worker, conversationId=conversation)


def test_a_taken_identifier_is_named() -> None:
    """RULE-01: globally unique names are claimed once; INVALID_STATE_TRANSITION names the taken one."""
    scene = Scene().with_mission()
    scene.accept("message.post", message(), worker)
    refusal = scene.refuse("message.post", message(), rival)
    assert refusal.code is Code.INVALID_STATE_TRANSITION
    assert message()["messageId"] in refusal.message
    twice = creation(missionId=identifier("same"), groupId=None)
    assert Scene().code(
        "mission.create", twice | {"groupId": twice["missionId"]}, owner, groupId=twice["missionId"]
    ) is (Code.INVALID_STATE_TRANSITION)


# --- epochs --------------------------------------------------------------------------------------------------------


def test_each_kind_of_actor_states_its_epochs() -> None:
    """ACC-6: an Agent's session and Membership, a human's Membership, the Coordinator's epoch: each must be current."""
    scene = Scene().with_work("queued")
    scene.replace_session(worker)
    start = {"workItemId": item, "ownershipEpoch": OwnershipEpoch(1)}
    assert scene.code("work.start", start, worker, sessionEpoch=1) is Code.AUTH_STALE_SESSION
    assert scene.code("work.start", start, worker, sessionEpoch=3) is Code.AUTH_STALE_SESSION
    assert scene.code("message.post", message(), owner, membershipEpoch=2) is Code.MEMBERSHIP_STALE
    offer = scene.offer(rival)
    assert scene.code("work.offer", offer, coordinator, coordinatorEpoch=None) is Code.AUTH_STALE_COORDINATOR
    assert scene.code("work.offer", offer, coordinator, coordinatorEpoch=2) is Code.AUTH_STALE_COORDINATOR
    scene.accept("work.start", start, worker)


def test_an_invisible_group_looks_like_none() -> None:
    """ACC-6: a stranger cannot tell a Group that exists from one that does not."""
    hidden = Scene().with_mission().refuse("message.post", message(), stranger, membershipEpoch=1)
    absent = Scene().refuse("message.post", message(), stranger, membershipEpoch=1)
    assert hidden.code is absent.code is Code.GROUP_NOT_FOUND
    assert hidden.message == absent.message


# --- expected revisions --------------------------------------------------------------------------------------------


def test_expected_revision_is_compared_for_every_kind() -> None:
    """MWP-EVT-007: a wrong `expectedRevision` is REVISION_CONFLICT with the current one, whatever the kind."""
    scene = Scene().with_work("active")
    scene.accept("artifact.publish", {"artifact": artifact(), **scene.fences(named=False)}, worker)
    cases: list[tuple[str, Document, Any, int]] = [
        ("mission.assign_coordinator", {"coordinatorId": coordinator.id}, owner, scene.state.mission.revision),
        ("membership.change", {"principal": {"type": "agent", "id": rival.id}, "role": "worker"}, owner, 1),
        ("message.post", message(), worker, 0),
        ("work.authorize", {"workItemId": "urn:test:new", "contract": contract()}, coordinator, 0),
        ("work.submit", scene.submission(), worker, scene.work().item.revision),
    ]
    for kind, payload, actor, current in cases:
        refusal = scene.refuse(kind, payload, actor, expectedRevision=current + 1)
        assert (refusal.code, refusal.current_revision) == (Code.REVISION_CONFLICT, current), kind
        assert refusal.expected_revision == current + 1
    for kind, payload, actor, current in cases:
        scene.accept(kind, payload, actor, expectedRevision=current)


# --- what a refusal leaves -----------------------------------------------------------------------------------------


def test_overdue_facts_commit_although_the_command_is_refused() -> None:
    """ACC-1, RULE-10: the lapse of the addressed WorkItem's lease is recorded, then the Command is refused."""
    scene = Scene().with_work("active").pass_time(300)
    before = len(scene.events)
    assert scene.code("work.submit", scene.submission(), worker) is Code.WORK_LEASE_EXPIRED
    assert [event.kind for event in scene.events[before:]] == [lease_expired]
    assert scene.work().item.state.value == "queued"
    assert scene.code("work.start", {"workItemId": item, "ownershipEpoch": 9}, worker) is Code.WORK_STALE_OWNERSHIP
    assert len(scene.events) == before + 1


def test_overdue_facts_need_no_well_formed_payload() -> None:
    """ACC-1: what is true is recorded whatever becomes of the Command that came by."""
    scene = Scene().with_work("active").pass_time(300)
    before = len(scene.events)
    scene.refuse("work.start", {"workItemId": item, "nonsense": True}, rival)
    assert [event.kind for event in scene.events[before:]] == [lease_expired]


def test_a_replaced_session_is_found_by_any_command_of_the_agent() -> None:
    """ACC-1, ACC-4, RULE-07: before the Agent's next Command its old executions are revoked, all in one transition."""
    scene = Scene().with_work("active").with_work("active", "urn:test:second", inputArtifacts=[other_content])
    scene.replace_session(worker)
    before = len(scene.events)
    assert scene.code("message.post", message(), worker, sessionEpoch=1) is Code.AUTH_STALE_SESSION
    assert [event.kind for event in scene.events[before:]] == [lease_revoked, lease_revoked]
    assert [event.sequence for event in scene.events[before:]] == [before + 1, before + 2]
    assert {scene.work(name).item.state.value for name in (item, "urn:test:second")} == {"queued"}
    scene.accept("message.post", message(), worker)
    assert len(scene.events) == before + 3


def test_a_rejection_names_its_command_and_group() -> None:
    """ACC-1: the refusal is a value that says what it answers."""
    scene = Scene().with_mission()
    command = scene.command("mission.renew_coordinator", {}, worker)
    refusal = scene.judge(command)
    assert isinstance(refusal, Rejection)
    assert (refusal.related_action_id, refusal.group_id) == (command.action_id, command.group_id)
