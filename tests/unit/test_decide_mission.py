"""Decisions about Missions: creation, coordination (LSE-2), approval (APR-1)."""

import pytest
from msgspec import convert

from contracts.documents.membership import MembershipState, Role
from contracts.documents.mission import MissionState
from contracts.payloads.mission import MissionCreated
from contracts.rejection import Code
from tests.mission_documents import (
    approval,
    content,
    coordinator,
    creation,
    criteria,
    message,
    operator,
    other_content,
    owner,
    rival,
    stranger,
    worker,
)
from tests.scene import Scene

# --- creation ------------------------------------------------------------------------------------------------------


def test_creation_brings_mission_group_conversation_and_memberships() -> None:
    """STM-M: the first Event of a Group holds all that begins to exist in it, at revision and epochs 1."""
    scene = Scene()
    (draft,) = scene.accept("mission.create", creation(permissions=["deploy"]), owner)
    created = convert(draft.payload, MissionCreated)
    assert (draft.kind, draft.aggregate_revision) == ("mission.created", 1)
    assert created.mission.coordinator.coordinator_epoch == 1
    assert created.mission.coordinator.lease_id == created.coordinator_lease.lease_id
    assert created.permissions == ("deploy",)
    assert [(m.role, m.membership_epoch, m.visibility_start_sequence) for m in created.memberships] == [
        (Role.MISSION_OWNER, 1, 0),
        (Role.COORDINATOR, 1, 0),
    ]
    assert scene.state.group.main_conversation_id == created.conversation.conversation_id
    assert scene.state.mission.approval_policy.final_human_approval


def test_creation_without_a_budget_allocates_nothing() -> None:
    """BUD-1: an absent budget is an empty one, not an unlimited one."""
    payload = creation()
    del payload["budget"]
    scene = Scene()
    scene.accept("mission.create", payload, owner)
    assert scene.state.mission.budget.model_token_limit == 0


def test_creation_demands_a_usable_coordinator_and_a_sound_plan() -> None:
    """STM-M: an unknown or revoked Coordinator, a past deadline and doubled criteria are refused."""
    scene = Scene()
    assert scene.code("mission.create", creation(coordinatorId="urn:test:none"), owner) is Code.INVALID_COMMAND
    assert scene.code("mission.create", creation(deadline=scene.time), owner) is Code.INVALID_COMMAND
    doubled = creation(definitionOfDone=criteria("a", "a"))
    assert scene.code("mission.create", doubled, owner) is Code.INVALID_COMMAND
    scene.register(coordinator, status="revoked")
    assert scene.code("mission.create", creation(), owner) is Code.AUTH_FORBIDDEN
    scene.register(coordinator, validUntil=scene.time)
    assert scene.code("mission.create", creation(), owner) is Code.AUTH_FORBIDDEN
    assert not scene.state.exists


def test_one_identifier_never_names_two_members() -> None:
    """A Membership is named by its Principal: an Agent cannot stand in under the MissionOwner's identifier."""
    scene = Scene()
    scene.agents[owner.id] = scene.agents[coordinator.id]
    assert scene.code("mission.create", creation(coordinatorId=owner.id), owner) is Code.INVALID_COMMAND


# --- coordination --------------------------------------------------------------------------------------------------


def test_a_replacement_gets_a_higher_epoch_and_the_old_one_is_refused() -> None:
    """LSE-2: assignment raises the Coordinator Epoch; the old Coordinator's role ends with it."""
    scene = Scene().with_mission()
    (draft,) = scene.accept("mission.assign_coordinator", {"coordinatorId": rival.id}, owner)
    assert draft.payload["coordinatorEpoch"] == 2
    assert draft.payload["previousCoordinatorId"] == coordinator.id
    assert scene.state.mission.revision == 1
    old, new = scene.state.membership(coordinator.id), scene.state.membership(rival.id)
    assert old is not None
    assert new is not None
    assert (old.state, old.membership_epoch) == (MembershipState.ENDED, 2)
    assert (new.role, new.membership_epoch, new.visibility_start_sequence) == (Role.COORDINATOR, 2, 0)
    code = scene.code("mission.renew_coordinator", {}, coordinator, coordinatorEpoch=1)
    assert code is Code.MEMBERSHIP_REQUIRED
    scene.accept("mission.renew_coordinator", {}, rival)


def test_a_former_coordinator_that_stays_a_member_is_stale() -> None:
    """LSE-2, ACC-6: the old Coordinator Epoch is refused with AUTH_STALE_COORDINATOR."""
    scene = Scene().with_mission()
    scene.accept("mission.assign_coordinator", {"coordinatorId": rival.id}, owner)
    scene.add(coordinator)
    code = scene.code("mission.renew_coordinator", {}, coordinator, coordinatorEpoch=1)
    assert code is Code.AUTH_STALE_COORDINATOR
    code = scene.code("mission.renew_coordinator", {}, coordinator, coordinatorEpoch=2)
    assert code is Code.AUTH_FORBIDDEN


def test_the_same_agent_may_be_appointed_again() -> None:
    """LSE-2: a Coordinator that let its lease run out comes back under a higher epoch."""
    scene = Scene().with_mission(coordinatorLeaseSeconds=60).pass_time(60)
    scene.accept("mission.assign_coordinator", {"coordinatorId": coordinator.id}, owner)
    membership = scene.state.membership(coordinator.id)
    assert membership is not None
    assert membership.membership_epoch == 1
    assert scene.code("mission.renew_coordinator", {}, coordinator, coordinatorEpoch=1) is Code.AUTH_STALE_COORDINATOR


def test_a_lapsed_coordinator_lease_stops_the_coordinator_until_renewed() -> None:
    """LSE-2: expiry is inclusive; an unreplaced Coordinator renews the same lease under the same epoch."""
    scene = Scene().with_mission(coordinatorLeaseSeconds=60).with_work("open")
    scene.pass_time(59.999_999)
    scene.accept("work.offer", scene.offer(worker), coordinator)
    scene.pass_time(0.000_001)
    assert scene.code("work.offer", scene.offer(rival), coordinator) is Code.WORK_LEASE_EXPIRED
    before = scene.state.mission_record.coordinator_lease
    scene.accept("mission.renew_coordinator", {"leaseSeconds": 60}, coordinator)
    after = scene.state.mission_record.coordinator_lease
    assert (after.lease_id, after.renewal_count) == (before.lease_id, 1)
    scene.accept("work.offer", scene.offer(rival), coordinator)


def test_renewal_binds_the_lease_to_the_present_session() -> None:
    """LSE-2, RULE-07: a coordinator lease survives a replaced session and is bound to the new one when renewed."""
    scene = Scene().with_mission().replace_session(coordinator)
    scene.accept("mission.renew_coordinator", {}, coordinator)
    assert scene.state.mission_record.coordinator_lease.session_epoch == 2


def test_who_may_assign() -> None:
    """LSE-2: the MissionOwner at any time, the control plane only once the lease has run out, nobody else."""
    scene = Scene().with_mission(coordinatorLeaseSeconds=60)
    payload = {"coordinatorId": rival.id}
    assert scene.code("mission.assign_coordinator", payload, coordinator) is Code.AUTH_FORBIDDEN
    assert scene.code("mission.assign_coordinator", payload, operator) is Code.AUTH_FORBIDDEN
    scene.pass_time(60)
    scene.accept("mission.assign_coordinator", payload, operator)
    assert scene.state.mission.coordinator.agent_id == rival.id


def test_a_new_coordinator_needs_a_card() -> None:
    """LSE-2: only a registered Agent can coordinate."""
    scene = Scene().with_mission()
    code = scene.code("mission.assign_coordinator", {"coordinatorId": "urn:test:none"}, owner)
    assert code is Code.INVALID_COMMAND
    scene.accept("mission.assign_coordinator", {"coordinatorId": stranger.id}, owner)
    membership = scene.state.membership(stranger.id)
    assert membership is not None
    assert (membership.role, membership.membership_epoch) == (Role.COORDINATOR, 1)


# --- approval ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("state", ["open", "offered", "queued", "active", "submitted"])
def test_unfinished_work_holds_up_the_approval(state: str) -> None:
    """APR-1: a Mission is submitted when every WorkItem is finished."""
    scene = Scene().with_work("verified").with_work(state, "urn:test:second")
    code = scene.code("mission.submit_for_approval", {"artifactHashes": [content]}, coordinator)
    assert code is Code.INVALID_STATE_TRANSITION


def test_a_mission_without_work_or_artifact_is_not_submitted() -> None:
    """APR-1: there is something to approve, and it is of this Mission."""
    payload = {"artifactHashes": [content]}
    assert Scene().with_mission().code("mission.submit_for_approval", payload, coordinator) is (
        Code.INVALID_STATE_TRANSITION
    )
    strange = {"artifactHashes": [content, other_content]}
    refusal = Scene().with_work("verified").refuse("mission.submit_for_approval", strange, coordinator)
    assert refusal.code is Code.INVALID_COMMAND
    assert other_content in refusal.message


def awaiting_approval() -> Scene:
    """A Mission whose result was submitted."""
    scene = Scene().with_work("verified")
    scene.accept("mission.submit_for_approval", {"artifactHashes": [content]}, coordinator)
    return scene


def test_the_mission_owner_approves_exactly_what_was_submitted() -> None:
    """APR-1: exact revision and exact Artifact set; the signed Approval is kept."""
    scene = awaiting_approval()
    revision = scene.state.mission.revision
    refusal = scene.refuse("mission.approve", {"approval": approval(revision - 1)}, owner)
    assert (refusal.code, refusal.current_revision) == (Code.REVISION_CONFLICT, revision)
    for hashes in ([content, other_content], [other_content]):
        payload = {"approval": approval(revision, hashes)}
        assert scene.code("mission.approve", payload, owner) is Code.REVISION_CONFLICT
    scene.accept("mission.approve", {"approval": approval(revision)}, owner)
    assert scene.state.mission.state is MissionState.APPROVED
    assert scene.state.mission.revision == revision
    assert scene.state.mission_record.approval


def test_a_revision_changed_in_between_is_a_conflict() -> None:
    """APR-1: after changes were asked for, an Approval of the old revision does not count for the new submission."""
    scene = awaiting_approval()
    old = scene.state.mission.revision
    scene.accept("mission.request_changes", {"missionRevision": old, "feedback": "More tests."}, owner)
    assert scene.state.mission.revision == old + 1
    scene.accept("mission.submit_for_approval", {"artifactHashes": [content]}, coordinator)
    assert scene.code("mission.approve", {"approval": approval(old)}, owner) is Code.REVISION_CONFLICT
    scene.accept("mission.approve", {"approval": approval(old + 1)}, owner)


def test_changes_are_asked_for_the_submitted_revision() -> None:
    """APR-1: feedback on another revision is a conflict."""
    scene = awaiting_approval()
    payload = {"missionRevision": 1, "feedback": "Old."}
    assert scene.code("mission.request_changes", payload, owner) is Code.REVISION_CONFLICT


def test_only_the_mission_owner_approves() -> None:
    """APR-1: neither Coordinator nor another human, and the Approval is the acting owner's own."""
    scene = awaiting_approval()
    revision = scene.state.mission.revision
    assert scene.code("mission.approve", {"approval": approval(revision)}, coordinator) is Code.AUTH_FORBIDDEN
    assert scene.code("mission.approve", {"approval": approval(revision)}, operator) is Code.AUTH_FORBIDDEN
    another = approval(revision, approver={"type": "human", "id": "urn:weavehold:human:another"})
    assert scene.code("mission.approve", {"approval": another}, owner) is Code.AUTH_FORBIDDEN


@pytest.mark.parametrize(
    "members",
    [
        {"missionId": "urn:test:other"},
        {"groupId": "urn:test:other"},
        {"decision": "denied"},
        {"kind": "work_execution", "workItemId": "urn:test:work"},
    ],
)
def test_an_approval_of_something_else_is_refused(members: dict[str, str]) -> None:
    """APR-1: the document is a final approval of this Mission."""
    scene = awaiting_approval()
    payload = {"approval": approval(scene.state.mission.revision, **members)}
    assert scene.code("mission.approve", payload, owner) is Code.INVALID_COMMAND


def test_a_pinned_policy_version_must_be_the_approved_one() -> None:
    """APR-1: an Approval under another acceptance policy is none of this Mission's."""
    policy = {"finalHumanApproval": True, "highRiskExecutionApproval": True, "policyVersion": "2.0.0"}
    scene = Scene().with_mission(approvalPolicy=policy).with_work("verified")
    scene.accept("mission.submit_for_approval", {"artifactHashes": [content]}, coordinator)
    revision = scene.state.mission.revision
    assert scene.code("mission.approve", {"approval": approval(revision)}, owner) is Code.INVALID_COMMAND
    right = approval(revision, acceptancePolicyVersion="2.0.0")
    scene.accept("mission.approve", {"approval": right}, owner)


def test_an_approved_mission_takes_no_message() -> None:
    """STM-M: terminal is terminal, for words too."""
    scene = awaiting_approval()
    scene.accept("mission.approve", {"approval": approval(scene.state.mission.revision)}, owner)
    assert scene.code("message.post", message(), worker) is Code.INVALID_STATE_TRANSITION
