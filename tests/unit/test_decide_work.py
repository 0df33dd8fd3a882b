"""Decisions of the owner at work: leases (MWP-WRK-013, -014), results (MWP-WRK-025), late results (MWP-WRK-019)."""

from collections.abc import Callable
from typing import Any

import pytest
from msgspec import UNSET, convert

from contracts.command import lease_renew
from contracts.documents.lease import Lease, LeaseState
from contracts.documents.work_item import WorkItemState
from contracts.event import CauseType, late_result_recorded, lease_expired, lease_revoked
from contracts.payloads.work import LateResultRecorded, WorkExecutionLeaseExpired, WorkExecutionLeaseRevoked
from contracts.rejection import Code
from contracts.service_principals import authority
from services.authority.decide import overdue
from services.authority.decision import LateResult
from tests.builders import identifier, later
from tests.mission_documents import (
    Document,
    artifact,
    artifact_id,
    content,
    coordinator,
    criteria,
    evidence,
    item,
    message,
    other_content,
    rival,
    worker,
)
from tests.scene import Scene


def execution(scene: Scene) -> Lease:
    """The latest Execution Lease, which must exist."""
    lease = scene.work().execution_lease
    assert lease is not UNSET
    return lease


def ownership(scene: Scene) -> Lease:
    """The latest ownership lease, which must exist."""
    lease = scene.work().ownership_lease
    assert lease is not UNSET
    return lease


def checkpoint(scene: Scene, **members: int) -> Document:
    """Payload of a checkpoint."""
    point = {"phase": "half", "completedMilestones": ["a"], "createdAt": scene.time}
    return {**scene.fences(), "checkpoint": point} | members


def publish(scene: Scene, **members: Any) -> Document:
    """Payload of a publication."""
    return {"artifact": artifact(**members), **scene.fences(named=False)}


def start(scene: Scene) -> Document:
    """Payload of a start."""
    return {"workItemId": item, "ownershipEpoch": scene.epoch()}


# --- start and leases ----------------------------------------------------------------------------------------------


def test_a_start_binds_the_execution_lease() -> None:
    """MWP-WRK-013: Agent, Session Epoch, WorkItem, Ownership Epoch, stable Lease ID, start, expiry, renewals."""
    scene = Scene().with_work("queued")
    scene.accept("work.start", start(scene) | {"executionLeaseSeconds": 60}, worker)
    lease = execution(scene)
    assert (lease.holder_agent_id, lease.session_epoch, lease.work_item_id) == (worker.id, 1, item)
    assert (lease.ownership_epoch, lease.renewal_count, lease.state) == (1, 0, LeaseState.ACTIVE)
    assert (lease.starts_at, lease.expires_at) == (scene.time, later(scene.time, 60))


def test_ownership_lasts_as_long_as_execution_and_is_never_shortened() -> None:
    """MWP-WRK-013: a start or renewal extends the ownership when needed, and only then says so."""
    scene = Scene().with_work("queued")
    (short,) = scene.accept("work.start", start(scene) | {"executionLeaseSeconds": 60}, worker)
    assert "ownershipLease" not in short.payload
    before = ownership(scene).expires_at
    (long,) = scene.accept(lease_renew, {**scene.fences(), "leaseSeconds": 7_200}, worker)
    assert long.payload["ownershipLease"]["expiresAt"] == later(scene.time, 7_200) == ownership(scene).expires_at
    assert before < ownership(scene).expires_at


def test_renewal_keeps_the_lease_id_and_must_extend() -> None:
    """MWP-WRK-013: the Lease ID is stable over renewals; a renewal that extends nothing is refused."""
    scene = Scene().with_work("active")
    first = execution(scene)
    assert scene.code(lease_renew, {**scene.fences(), "leaseSeconds": 300}, worker) is Code.INVALID_COMMAND
    scene.pass_time(1)
    scene.accept(lease_renew, {**scene.fences(), "leaseSeconds": 300}, worker)
    second = execution(scene)
    assert (second.lease_id, second.renewal_count, second.last_renewed_at) == (first.lease_id, 1, scene.time)
    assert second.expires_at == later(scene.time, 300)


@pytest.mark.parametrize("kind", ["work.checkpoint", lease_renew, "work.submit", "artifact.publish"])
def test_an_older_lease_is_refused_under_an_unchanged_ownership_epoch(kind: str) -> None:
    """MWP-WRK-013: each of these kinds names the current Lease ID, or hears WORK_LEASE_EXPIRED."""
    scene = Scene().with_work("active")
    scene.accept("artifact.publish", publish(scene), worker)
    old = execution(scene).lease_id
    scene.accept("work.checkpoint", checkpoint(scene), worker)
    payloads: dict[str, Callable[[], Document]] = {
        "work.checkpoint": lambda: checkpoint(scene),
        lease_renew: lambda: {**scene.fences(), "leaseSeconds": 600},
        "work.submit": scene.submission,
        "artifact.publish": lambda: publish(scene, artifactId=identifier("next")),
    }
    assert scene.code(kind, payloads[kind](), worker) is Code.WORK_LEASE_EXPIRED
    scene.accept("work.start", start(scene), worker)
    assert scene.code(kind, payloads[kind]() | {"executionLeaseId": old}, worker) is Code.WORK_LEASE_EXPIRED
    scene.accept(kind, payloads[kind](), worker)


def test_a_checkpoint_releases_the_lease_and_bounds_the_resumption() -> None:
    """MWP-WRK-014: `active` → `queued`, lease released, ownership until the promised resumption."""
    scene = Scene().with_work("active")
    (draft,) = scene.accept("work.checkpoint", checkpoint(scene, resumeWithinSeconds=40), worker)
    assert execution(scene).state is LeaseState.RELEASED
    assert draft.payload["ownershipLeaseExpiresAt"] == later(scene.time, 40) == ownership(scene).expires_at
    assert scene.work().item.state is WorkItemState.QUEUED
    scene.pass_time(40)
    assert scene.code("work.start", start(scene), worker) is Code.WORK_LEASE_EXPIRED


def test_a_lapsed_lease_is_a_fact_of_the_timer() -> None:
    """MWP-WRK-014, RULE-10: timeout expires the lease; an Event of the authority says so; the owner may start again."""
    scene = Scene().with_work("active").pass_time(300)
    before = len(scene.events)
    scene.accept("work.start", start(scene), worker)
    fact = scene.events[before]
    assert fact.kind == lease_expired
    expired = convert(fact.payload, WorkExecutionLeaseExpired)
    assert (expired.execution_lease.state, expired.execution_lease.closed_at) == (LeaseState.EXPIRED, scene.time)
    assert scene.work().item.state is WorkItemState.ACTIVE


def test_a_replaced_session_revokes_what_ran_under_it() -> None:
    """MWP-WRK-014, RULE-07: the lease is revoked before the Agent's next Command; ownership is kept and rebound."""
    scene = Scene().with_work("active").replace_session(worker)
    before = len(scene.events)
    old = execution(scene)
    assert scene.code("work.submit", scene.submission(), worker) is Code.WORK_LEASE_EXPIRED
    fact = scene.events[before]
    assert fact.kind == lease_revoked
    revoked = convert(fact.payload, WorkExecutionLeaseRevoked)
    assert (revoked.execution_lease_id, revoked.session_epoch) == (old.lease_id, 2)
    assert revoked.execution_lease.state is LeaseState.REVOKED
    scene.accept("work.start", start(scene) | {"executionLeaseSeconds": 3_600}, worker)
    assert (execution(scene).session_epoch, ownership(scene).session_epoch) == (2, 2)
    assert scene.epoch() == 1


def test_the_causes_of_overdue_facts() -> None:
    """ACC-1: a timer is named by its lease, a replaced session by the Event that opened the new one."""
    scene = Scene().with_work("active")
    lease_id = execution(scene).lease_id
    command = scene.command("message.post", message(), worker)
    scene.replace_session(worker)
    (revoked,) = overdue(scene.state, command, scene.context(command))
    assert (revoked.cause.type, revoked.cause.id) == (CauseType.EVENT, scene.agents[worker.id].session_event_id)
    scene.pass_time(300)
    (lapsed,) = overdue(scene.state, command, scene.context(command))
    assert (lapsed.kind, lapsed.cause.type, lapsed.cause.id) == (lease_expired, CauseType.TIMER, lease_id)
    assert lapsed.actor == revoked.actor == authority


def test_dependencies_are_verified_before_the_start() -> None:
    """STM-W: a start waits for every dependency of its contract."""
    scene = Scene().with_work("active")
    scene.with_work("queued", "urn:test:second", dependencyWorkItemIds=[item])
    begin = {"workItemId": "urn:test:second", "ownershipEpoch": 1}
    refusal = scene.refuse("work.start", begin, worker)
    assert refusal.code is Code.INVALID_COMMAND
    assert item in refusal.message
    scene.accept("artifact.publish", publish(scene), worker)
    scene.accept("work.submit", scene.submission(), worker)
    review = {"workItemId": item, "evidence": [evidence(by=coordinator)]}
    scene.accept("work.accept_result", review, coordinator)
    scene.accept("work.start", begin, worker)


@pytest.mark.parametrize("gate", ["policy_required", "human_required"])
def test_a_gated_contract_holds_the_start(gate: str) -> None:
    """APR-1: an execution gate answers APPROVAL_REQUIRED."""
    scene = Scene().with_work("queued", executionApproval=gate)
    assert scene.code("work.start", start(scene), worker) is Code.APPROVAL_REQUIRED
    assert scene.work().item.state is WorkItemState.QUEUED


def test_only_the_owner_works() -> None:
    """STM-W: another member with all the right numbers is AUTH_FORBIDDEN."""
    scene = Scene().with_work("queued")
    assert scene.code("work.start", start(scene), rival) is Code.AUTH_FORBIDDEN
    scene.accept("work.start", start(scene), worker)
    assert scene.code("work.checkpoint", checkpoint(scene), rival) is Code.AUTH_FORBIDDEN


# --- Artifacts -----------------------------------------------------------------------------------------------------


def test_an_artifact_belongs_to_its_owner_card_and_work() -> None:
    """MWP-WRK-013: producer, pinned card version, Mission, time and sources are checked; the WorkItem moves."""
    scene = Scene().with_work("active")
    refused: dict[Code, Document] = {
        Code.AUTH_FORBIDDEN: {"producer": artifact()["producer"] | {"agentId": rival.id}},
        Code.REVISION_CONFLICT: {"producer": artifact()["producer"] | {"agentCardVersion": 2}},
    }
    for code, members in refused.items():
        assert scene.code("artifact.publish", publish(scene, **members), worker) is code
    invalid: list[Document] = [
        {"missionId": "urn:test:other"},
        {"createdAt": later(scene.time, 0.000_001)},
        {"sourceArtifactHashes": [content]},
        {"sourceArtifactHashes": [other_content]},
    ]
    for members in invalid:
        assert scene.code("artifact.publish", publish(scene, **members), worker) is Code.INVALID_COMMAND
    (draft,) = scene.accept("artifact.publish", publish(scene), worker)
    assert draft.aggregate_revision == scene.work().item.revision
    assert scene.code("artifact.publish", publish(scene), worker) is Code.INVALID_STATE_TRANSITION


def test_sources_are_known_and_keep_their_classification() -> None:
    """An Artifact names Artifacts of its Group or inputs of its contract, and is classified as high as they are."""
    scene = Scene().with_work("active", inputArtifacts=[other_content])
    scene.accept("artifact.publish", publish(scene, classification="confidential"), worker)
    derived = {
        "artifactId": identifier("derived"),
        "contentHash": f"sha256:{'d' * 64}",
        "sourceArtifactHashes": [content, other_content],
    }
    assert scene.code("artifact.publish", publish(scene, **derived), worker) is Code.AUTH_FORBIDDEN
    scene.accept("artifact.publish", publish(scene, **derived, classification="restricted"), worker)


# --- results -------------------------------------------------------------------------------------------------------


def ready(scene: Scene) -> Scene:
    """The WorkItem is active with its Artifact published."""
    scene.accept("artifact.publish", publish(scene), worker)
    return scene


def test_a_submission_hands_in_artifacts_and_evidence() -> None:
    """MWP-WRK-025: `active` → `submitted`; the lease is released, the submission names hashes and Evidence."""
    scene = ready(Scene().with_work("active"))
    scene.accept("work.submit", scene.submission(), worker)
    submission = scene.work().item.submission
    assert submission
    assert (submission.artifact_hashes, submission.submitted_at) == ((content,), scene.time)
    assert submission.evidence_ids == (evidence()["evidenceId"],)
    assert execution(scene).state is LeaseState.RELEASED


def test_every_acceptance_criterion_has_evidence() -> None:
    """MWP-WRK-025: unmapped criteria, unknown criteria, doubled Evidence and foreign Artifacts are refused by name."""
    scene = ready(Scene().with_work("active", acceptanceCriteria=criteria("a", "b")))

    def submit(*pieces: Document, **members: Any) -> Document:
        return scene.submission(evidence=list(pieces), **members)

    only_a = evidence(criterionIds=["a"])
    refusal = scene.refuse("work.submit", submit(only_a), worker)
    assert refusal.code is Code.INVALID_COMMAND
    assert "criterion b" in refusal.message
    both = evidence(criterionIds=["a", "b"])
    for payload in (
        submit(evidence(criterionIds=["a", "b", "c"])),
        submit(both, both),
        submit(both, artifactIds=[artifact_id(), identifier("none")]),
        submit(evidence(criterionIds=["a", "b"], missionId="urn:test:other")),
    ):
        assert scene.code("work.submit", payload, worker) is Code.INVALID_COMMAND
    with_b = evidence(criterionIds=["b"], evidenceId=identifier("second piece"))
    scene.accept("work.submit", submit(only_a, with_b), worker)


def test_an_artifact_of_another_work_item_is_not_handed_in() -> None:
    """MWP-WRK-025: a submission names what was published for this WorkItem."""
    scene = ready(Scene().with_work("active")).with_work("active", "urn:test:second")
    payload = scene.submission("urn:test:second", artifactIds=[artifact_id()])
    assert scene.code("work.submit", payload, worker) is Code.INVALID_COMMAND


def test_the_coordinator_accepts_on_passed_evidence() -> None:
    """STM-W: `submitted` → `verified`; the ownership ends, the Mission's revision rises."""
    scene = Scene().with_work("submitted")
    revision = scene.state.mission.revision
    for result in ("failed", "inconclusive"):
        payload = {"workItemId": item, "evidence": [evidence(by=coordinator, result=result)]}
        assert scene.code("work.accept_result", payload, coordinator) is Code.INVALID_COMMAND
    scene.accept("work.accept_result", {"workItemId": item, "evidence": [evidence(by=coordinator)]}, coordinator)
    assert scene.work().item.state is WorkItemState.VERIFIED
    assert ownership(scene).state is LeaseState.RELEASED
    assert scene.state.mission.revision == revision + 1


def test_nobody_accepts_their_own_work() -> None:
    """STM-W: a Worker that became Coordinator leaves the review of its result to another."""
    scene = Scene().with_work("submitted")
    scene.accept("mission.assign_coordinator", {"coordinatorId": worker.id}, scene.state.mission.mission_owner)
    payload = {"workItemId": item, "evidence": [evidence(by=worker)]}
    assert scene.code("work.accept_result", payload, worker) is Code.AUTH_FORBIDDEN


# --- late results --------------------------------------------------------------------------------------------------


def fenced() -> tuple[Scene, Document]:
    """A Worker that was fenced while it worked, and the result it is about to send."""
    scene = ready(Scene().with_work("active"))
    late = scene.submission()
    scene.pass_time(3_600)
    scene.accept("work.offer", scene.offer(rival), coordinator)
    return scene, late


@pytest.mark.parametrize("taken_over", [False, True])
def test_a_late_result_is_kept_as_evidence_and_refused(taken_over: bool) -> None:
    """MWP-WRK-019, RULE-02: an Event keeps it, nothing else changes, the sender hears WORK_STALE_OWNERSHIP."""
    scene, late = fenced()
    if taken_over:
        scene.accept("work.accept_offer", {"workItemId": item}, rival)
    before, digest = scene.work(), scene.digest()
    decision = scene.when("work.submit", late, worker)
    assert isinstance(decision, LateResult)
    assert decision.rejection.code is Code.WORK_STALE_OWNERSHIP
    assert decision.draft.kind == late_result_recorded
    assert decision.draft.aggregate_revision == before.item.revision
    kept = convert(decision.draft.payload, LateResultRecorded)
    assert (kept.ownership_epoch, kept.artifact_ids, kept.kind) == (1, (artifact_id(),), "work.submit")
    assert (scene.work(), scene.digest()) == (before, digest)


def test_a_late_result_counts_even_after_the_work_is_done() -> None:
    """MWP-WRK-019: whatever became of the WorkItem, what the old owner made is not thrown away."""
    scene, late = fenced()
    scene.force_work(WorkItemState.CANCELLED)
    assert isinstance(scene.when("work.submit", late, worker), LateResult)


def test_only_the_former_owner_of_that_epoch_is_late() -> None:
    """MWP-WRK-019: a stranger to the epoch, a future epoch and other kinds are plainly refused and leave nothing."""
    scene, late = fenced()
    before = len(scene.events)
    assert scene.code("work.submit", late, rival) is Code.WORK_STALE_OWNERSHIP
    assert scene.code("work.submit", late | {"ownershipEpoch": 2}, worker) is Code.WORK_STALE_OWNERSHIP
    payload = {"workItemId": item, "ownershipEpoch": 1, "executionLeaseId": late["executionLeaseId"]}
    assert scene.code(lease_renew, payload, worker) is Code.WORK_STALE_OWNERSHIP
    assert len(scene.events) == before


def test_a_late_result_still_needs_membership_and_session() -> None:
    """RULE-01: the checks before the fence come first for a late result too."""
    scene, late = fenced()
    scene.replace_session(worker)
    assert scene.code("work.submit", late, worker, sessionEpoch=1) is Code.AUTH_STALE_SESSION
    assert isinstance(scene.when("work.submit", late, worker), LateResult)
    scene.end_membership(worker)
    assert scene.code("work.submit", late, worker) is Code.MEMBERSHIP_REQUIRED
