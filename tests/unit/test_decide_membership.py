"""Decisions about Memberships: roles, epochs, visibility, provisional members (ACC-6, MWP-EVT-007)."""

from typing import Any

import pytest

from contracts.documents.common import ActorType
from contracts.documents.membership import Membership, MembershipState, Role
from contracts.rejection import Code
from tests.builders import later, principal
from tests.mission_documents import Document, coordinator, item, message, operator, owner, rival, stranger, worker
from tests.scene import Scene

guest = principal("guest", ActorType.HUMAN)


def change(who: Any, role: str = "worker", **members: Any) -> Document:
    """Payload of a change."""
    return {"principal": {"type": who.type.value, "id": who.id}, "role": role} | members


def membership(scene: Scene, who: Any) -> Membership:
    """A Membership that must exist."""
    found = scene.state.membership(who.id)
    assert found is not None
    return found


def test_a_new_member_sees_what_follows() -> None:
    """RULE-23: without a word about visibility it starts at the head, so the Membership's own Event is seen."""
    scene = Scene().with_mission()
    head = scene.state.sequence
    (draft,) = scene.accept("membership.change", change(stranger), owner)
    assert draft.aggregate_revision == 1
    assert membership(scene, stranger).visibility_start_sequence == head
    scene.accept("membership.change", change(guest, "observer", visibilityAfterSequence=0), coordinator)
    assert membership(scene, guest).visibility_start_sequence == 0
    beyond = change(guest, "observer", visibilityAfterSequence=scene.state.sequence + 1)
    assert scene.code("membership.change", beyond, owner) is Code.INVALID_COMMAND


def test_a_change_raises_the_epoch_and_keeps_the_view() -> None:
    """MWP-EVT-007, ACC-6, RULE-13: one role per Membership; each change is its next epoch, the old one is stale."""
    scene = Scene().with_mission()
    before = membership(scene, worker)
    scene.accept("membership.change", change(worker, "observer", scopes=["read"]), owner)
    after = membership(scene, worker)
    assert (after.role, after.membership_epoch, after.scopes) == (Role.OBSERVER, 2, ("read",))
    assert after.membership_id == before.membership_id
    assert after.visibility_start_sequence == before.visibility_start_sequence
    assert scene.code("message.post", message(), worker, membershipEpoch=1) is Code.MEMBERSHIP_STALE


def test_an_ended_member_is_required_to_be_added_again() -> None:
    """ACC-6: an ended Membership is MEMBERSHIP_REQUIRED; a new change revives it under a higher epoch."""
    scene = Scene().with_mission().end_membership(worker)
    assert scene.code("message.post", message(), worker) is Code.MEMBERSHIP_REQUIRED
    scene.accept("membership.change", change(worker), owner)
    revived = membership(scene, worker)
    assert (revived.state, revived.membership_epoch) == (MembershipState.ACTIVE, 3)
    assert revived.visibility_start_sequence == scene.state.sequence - 1
    scene.accept("message.post", message(), worker)


@pytest.mark.parametrize(
    ("who", "role"),
    [
        (stranger, "mission_owner"),
        (stranger, "coordinator"),
        (owner, "observer"),
        (coordinator, "worker"),
        (guest, "worker"),
        (guest, "work_delegate"),
    ],
)
def test_single_roles_stay_with_their_holders(who: Any, role: str) -> None:
    """MissionOwner and Coordinator neither lose their role nor share it; work is for Agents."""
    assert Scene().with_mission().code("membership.change", change(who, role), owner) is Code.AUTH_FORBIDDEN


def test_who_may_change_memberships() -> None:
    """The MissionOwner and the Coordinator under its epoch; no member for itself, and no service."""
    scene = Scene().with_mission()
    assert scene.code("membership.change", change(worker, "reviewer"), worker) is Code.AUTH_FORBIDDEN
    assert scene.code("membership.change", change(worker, "reviewer"), operator) is Code.AUTH_FORBIDDEN
    stale = scene.code("membership.change", change(worker, "reviewer"), coordinator, coordinatorEpoch=None)
    assert stale is Code.AUTH_STALE_COORDINATOR
    scene.accept("membership.change", change(worker, "reviewer"), coordinator)


def test_members_are_agents_with_a_card_or_humans() -> None:
    """A service acts without a Membership; an Agent without a card is unknown; one name is one Principal."""
    scene = Scene().with_mission()
    assert scene.code("membership.change", change(operator, "observer"), owner) is Code.INVALID_COMMAND
    assert scene.code("membership.change", change(principal("nobody")), owner) is Code.INVALID_COMMAND
    human = {"principal": {"type": "human", "id": worker.id}, "role": "observer"}
    assert scene.code("membership.change", human, owner) is Code.INVALID_COMMAND


def provisional(scene: Scene, seconds: float = 60) -> Document:
    """Payload that makes the stranger a provisional Worker."""
    return change(
        stranger,
        provisional=True,
        contextPackageId="urn:test:package",
        provisionalExpiresAt=later(scene.time, seconds),
    )


def test_a_provisional_member_only_accepts_an_offer() -> None:
    """A provisional member may not speak; accepting an offer makes it a full member at its next epoch."""
    scene = Scene().with_work("open")
    scene.accept("membership.change", provisional(scene), owner)
    assert membership(scene, stranger).state is MembershipState.PROVISIONAL
    assert scene.code("message.post", message(), stranger) is Code.AUTH_FORBIDDEN
    scene.accept("work.offer", scene.offer(stranger), coordinator)
    (draft,) = scene.accept("work.accept_offer", {"workItemId": item}, stranger)
    assert draft.payload["membership"]["membershipEpoch"] == 2
    assert membership(scene, stranger).state is MembershipState.ACTIVE
    scene.accept("message.post", message(), stranger)


def test_a_provisional_membership_ends_by_the_clock() -> None:
    """Expiry is inclusive and asked when the member acts; a provisional time in the past is refused."""
    scene = Scene().with_mission()
    assert scene.code("membership.change", provisional(scene, 0), owner) is Code.INVALID_COMMAND
    scene.accept("membership.change", provisional(scene, 60), owner)
    scene.pass_time(60)
    assert scene.code("work.accept_offer", {"workItemId": item}, stranger) is Code.MEMBERSHIP_REQUIRED


def test_an_owner_made_provisional_works_no_more() -> None:
    """A provisional member does nothing but accept: what it owned waits."""
    scene = Scene().with_work("active")
    payload = provisional(scene) | {"principal": {"type": "agent", "id": worker.id}}
    scene.accept("membership.change", payload, owner)
    assert scene.code("work.submit", scene.submission(), worker) is Code.AUTH_FORBIDDEN
    assert scene.code("membership.change", provisional(scene) | change(coordinator, "coordinator"), owner) is (
        Code.AUTH_FORBIDDEN
    )
    assert membership(scene, rival).state is MembershipState.ACTIVE
