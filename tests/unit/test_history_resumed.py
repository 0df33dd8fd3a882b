"""What a Group becomes in a new incarnation: no epoch, lease or approval of before counts any more (RULE-17)."""

from datetime import UTC, datetime, timedelta

import pytest
from msgspec import UNSET, to_builtins

from contracts.bounds import safe_integer_max
from contracts.documents.lease import LeaseState
from contracts.documents.mission import MissionState
from contracts.epochs import (
    base_epoch,
    base_of,
    counter_bits,
    epoch_base,
    epoch_floor,
    incarnation_name,
    next_epoch,
)
from contracts.event import history_resumed
from contracts.fold_history import group_revision
from contracts.group_state import EventFacts, FoldFault, evolve
from contracts.identifiers import GroupSequence
from contracts.payloads.history import HistoryResumed
from contracts.rejection import Code, Rejection
from services.authority.decision import LateResult
from tests.scene import Scene, coordinator, item, owner, worker

base = 92_000_000
floor = epoch_floor(base)


def resumed(scene: Scene, epoch: int = base) -> EventFacts:
    """The next Event of a Group."""
    payload = HistoryResumed(incarnation="b" * 32, parent="a" * 32, epoch_base=epoch, reason="restored")
    return EventFacts(
        group_id=scene.state.group_id,
        sequence=GroupSequence(scene.state.sequence + 1),
        kind=history_resumed,
        aggregate_revision=group_revision,
        occurred_at=scene.time,
        payload=to_builtins(payload),
    )


def resume(scene: Scene) -> Scene:
    """The Group goes on."""
    scene.state.apply(evolve(scene.state, resumed(scene)))
    return scene


def test_running_work_waits_again_under_a_higher_epoch() -> None:
    """RULE-17, MWP-WRK-014: the execution is revoked; the owner keeps the WorkItem and must start anew."""
    scene = Scene().with_work("active")
    before = scene.work()
    fences = scene.fences()
    resume(scene)
    after = scene.work()
    assert (after.item.state.value, after.item.revision) == ("queued", before.item.revision + 1)
    assert after.item.owner is not UNSET
    assert after.item.owner.ownership_epoch == after.ownership_epoch == floor
    assert after.execution_lease is not UNSET
    assert after.execution_lease.state is LeaseState.REVOKED
    assert after.ownership_lease is not UNSET
    assert (after.ownership_lease.state, after.ownership_lease.ownership_epoch) == (LeaseState.ACTIVE, floor)
    # The result of the old epoch is late: kept as Evidence, completing nothing (MWP-WRK-019).
    late = scene.when("work.submit", fences | {k: v for k, v in scene.submission().items() if k not in fences}, worker)
    assert isinstance(late, LateResult)
    assert late.rejection.code is Code.WORK_STALE_OWNERSHIP
    scene.accept("work.start", {"workItemId": item, "ownershipEpoch": floor}, worker)


def test_whoever_acts_states_the_raised_epochs() -> None:
    """RULE-17, ACC-6, LSE-2: Membership and Coordinator Epochs of before are stale."""
    scene = Scene().with_work("queued")
    resume(scene)
    stale = scene.when(
        "membership.change",
        {"principal": {"type": "agent", "id": worker.id}, "role": "worker"},
        owner,
        membershipEpoch=1,
    )
    assert isinstance(stale, Rejection)
    assert stale.code is Code.MEMBERSHIP_STALE
    refused = scene.when("mission.renew_coordinator", {}, coordinator, coordinatorEpoch=1)
    assert isinstance(refused, Rejection)
    assert refused.code is Code.AUTH_STALE_COORDINATOR
    assert {m.membership_epoch for m in scene.state.memberships()} == {floor}
    assert scene.state.mission.coordinator.coordinator_epoch == floor
    scene.accept("mission.renew_coordinator", {}, coordinator)


def test_what_waited_for_an_approval_is_submitted_anew() -> None:
    """RULE-17, APR-1: what the approver saw need not be what is stored."""
    scene = Scene().with_work("verified")
    scene.force_mission(MissionState.AWAITING_APPROVAL)
    resume(scene)
    assert scene.state.mission.state is MissionState.ACTIVE
    assert scene.state.mission_record.submission is UNSET


@pytest.mark.parametrize("state", [MissionState.APPROVED, MissionState.CANCELLED, MissionState.FAILED])
def test_a_settled_mission_stays_as_it_is(state: MissionState) -> None:
    """STM-M: a terminal state has no way out."""
    scene = Scene().with_work("verified").force_mission(state)
    before = scene.state.mission
    work = scene.work()
    resume(scene)
    assert scene.state.mission == before
    assert scene.work() == work


def test_a_base_that_does_not_rise_cannot_have_happened() -> None:
    """RULE-17: epochs only rise."""
    scene = Scene().with_work("active")
    resume(scene)
    with pytest.raises(FoldFault, match="is not lower"):
        evolve(scene.state, resumed(scene))


def test_bases_and_epochs_only_rise() -> None:
    """RULE-17: a clock that was set back does not lower the base; an epoch never passes 2^53."""
    now = datetime(2026, 11, 30, tzinfo=UTC)
    assert epoch_base(now, 0) == int((now - base_epoch).total_seconds())
    assert epoch_base(now - timedelta(days=400), 90_000_000) == 90_000_001
    assert next_epoch(0, 0) == 1
    assert next_epoch(5, 0) == 6
    assert next_epoch(5, base) == floor + 1
    assert next_epoch(floor + 7, base) == floor + 8
    # Even a million grants a second for the whole time between two bases stay below the second one.
    assert floor + 60 * (1 << counter_bits) <= epoch_floor(base + 60)
    with pytest.raises(OverflowError):
        next_epoch(safe_integer_max, 0)


def test_a_name_says_its_base() -> None:
    """RULE-17: what is known of a forgotten incarnation is its stream's name; the next one stands above it."""
    now = base_epoch + timedelta(days=900)
    ahead = epoch_base(now + timedelta(hours=23), 0)
    forgotten = incarnation_name(ahead, "ab" * 16)
    assert (len(forgotten), base_of(forgotten)) == (32, ahead)
    assert epoch_base(now, 0, [incarnation_name(0, "cd" * 16), forgotten]) == ahead + 1
    assert epoch_base(now, 0, [incarnation_name(epoch_base(now, 0), "ef" * 16)]) == epoch_base(now, 0) + 1
    # No authority gave itself this name: it must not lift epochs beyond what numbers hold.
    assert epoch_base(now, 0, ["f" * 32]) == epoch_base(now, 0)
    with pytest.raises(ValueError, match="do not fit"):
        incarnation_name(1 << 40, "ab" * 16)
