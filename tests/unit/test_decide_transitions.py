"""STM-M and STM-W: every pair of a state and a Command kind of the spine, against the tables written out again here."""

from collections.abc import Callable
from typing import Any, Final

import pytest

from contracts.command import lease_renew
from contracts.documents.common import Actor
from contracts.documents.mission import MissionState
from contracts.documents.work_item import WorkItemState
from contracts.event import history_resumed, late_result_recorded, lease_expired, lease_revoked
from contracts.group_state import folded_kinds
from contracts.rejection import Code, Rejection
from contracts.transitions import mission_transitions, work_item_transitions
from services.authority.decide import rules
from services.authority.organization_rows import key_event_kinds
from tests.builders import identifier, principal
from tests.mission_documents import (
    Document,
    approval,
    artifact,
    artifact_id,
    content,
    contract,
    coordinator,
    creation,
    evidence,
    item,
    message,
    owner,
    rival,
    worker,
)
from tests.scene import Scene

Step = tuple[str, Callable[[Scene], Document], Actor]

work_steps: Final[dict[str, Step]] = {
    "authorize": ("work.authorize", lambda _: {"workItemId": item, "contract": contract()}, coordinator),
    "offer": ("work.offer", lambda scene: scene.offer(worker, rival), coordinator),
    "accept_offer": ("work.accept_offer", lambda _: {"workItemId": item}, rival),
    "start": ("work.start", lambda s: {"workItemId": item, "ownershipEpoch": s.epoch() or 1}, worker),
    "renew": (lease_renew, lambda scene: {**scene.fences(), "leaseSeconds": 600}, worker),
    "checkpoint": (
        "work.checkpoint",
        lambda s: {**s.fences(), "checkpoint": {"phase": "a", "completedMilestones": [], "createdAt": s.time}},
        worker,
    ),
    "publish": (
        "artifact.publish",
        lambda s: {"artifact": artifact(artifactId=identifier("another")), **s.fences(named=False)},
        worker,
    ),
    "submit": ("work.submit", lambda scene: scene.submission(), worker),
    "accept_result": (
        "work.accept_result",
        lambda _: {"workItemId": item, "evidence": [evidence(by=coordinator)]},
        coordinator,
    ),
}

IST, STALE, OWNED, LEASE = (
    Code.INVALID_STATE_TRANSITION,
    Code.WORK_STALE_OWNERSHIP,
    Code.WORK_ALREADY_OWNED,
    Code.WORK_LEASE_EXPIRED,
)
# What each kind makes of each state: the next state, or the refusal that comes first by RULE-01. A WorkItem that
# nobody owns has no current Ownership Epoch, and one that is not active has no current Execution Lease, so those
# fences answer before the table does.
work_table: Final[dict[str, dict[str, str | Code]]] = {
    #              open     offered     queued      active     blocked  submitted   verified  failed    cancelled
    "authorize": {"open": IST, "offered": IST, "queued": IST, "active": IST, "blocked": IST, "submitted": IST,
                  "verified": IST, "failed": IST, "cancelled": IST},
    "offer": {"open": "offered", "offered": "offered", "queued": OWNED, "active": OWNED, "blocked": OWNED,
              "submitted": IST, "verified": IST, "failed": "offered", "cancelled": IST},
    "accept_offer": {"open": IST, "offered": "queued", "queued": OWNED, "active": OWNED, "blocked": OWNED,
                     "submitted": IST, "verified": IST, "failed": IST, "cancelled": IST},
    "start": {"open": STALE, "offered": STALE, "queued": "active", "active": IST, "blocked": IST, "submitted": IST,
              "verified": IST, "failed": IST, "cancelled": IST},
    "renew": {"open": STALE, "offered": STALE, "queued": LEASE, "active": "active", "blocked": LEASE,
              "submitted": LEASE, "verified": LEASE, "failed": LEASE, "cancelled": LEASE},
    "checkpoint": {"open": STALE, "offered": STALE, "queued": LEASE, "active": "queued", "blocked": LEASE,
                   "submitted": LEASE, "verified": LEASE, "failed": LEASE, "cancelled": LEASE},
    "publish": {"open": STALE, "offered": STALE, "queued": LEASE, "active": "active", "blocked": LEASE,
                "submitted": LEASE, "verified": LEASE, "failed": LEASE, "cancelled": LEASE},
    "submit": {"open": STALE, "offered": STALE, "queued": LEASE, "active": "submitted", "blocked": LEASE,
               "submitted": LEASE, "verified": LEASE, "failed": LEASE, "cancelled": LEASE},
    "accept_result": {"open": IST, "offered": IST, "queued": IST, "active": IST, "blocked": IST,
                      "submitted": "verified", "verified": IST, "failed": IST, "cancelled": IST},
}  # fmt: skip


def scene_in(state: str) -> Scene:
    """A Group whose WorkItem is in this state; three of the nine are forced: their Commands are not served yet."""
    if state in ("blocked", "failed", "cancelled"):
        scene = Scene().with_work("queued").force_work(WorkItemState(state))
    else:
        scene = Scene().with_work(state)
    if state == "active":
        scene.accept("artifact.publish", {"artifact": artifact(), **scene.fences(named=False)}, worker)
    return scene


@pytest.mark.parametrize("step", work_table)
@pytest.mark.parametrize("state", [state.value for state in WorkItemState])
def test_every_pair_of_work_item_state_and_command(state: str, step: str) -> None:
    """STM-W: each pair is accepted into the state of the table, or refused as RULE-01 orders."""
    scene = scene_in(state)
    kind, payload, actor = work_steps[step]
    expected = work_table[step][state]
    before = scene.work()
    decision = scene.when(kind, payload(scene), actor)
    if isinstance(expected, Code):
        assert isinstance(decision, Rejection), decision
        assert decision.code is expected, decision
        assert scene.work() == before
    else:
        assert isinstance(decision, tuple), decision
        assert scene.work().item.state.value == expected
        assert scene.work().item.revision == before.item.revision + 1


@pytest.mark.parametrize("state", ["queued", "active", "blocked"])
def test_work_without_live_owner_is_offered_anew(state: str) -> None:
    """STM-W: from `queued`, `active` and `blocked` an offer waits until the ownership has lapsed."""
    scene = scene_in(state).pass_time(3_600)
    scene.accept("work.offer", scene.offer(rival), coordinator)
    assert scene.work().item.state is WorkItemState.OFFERED


def test_the_tables_hold_exactly_the_rows_of_the_spine() -> None:
    """STM-W: the data that code reads has no row beyond the documented ones."""
    states = {state.value for state in WorkItemState}
    unfinished = {"open", "offered", "queued", "active", "blocked", "submitted"}
    documented: dict[str, dict[str | None, str]] = {
        "work.authorized": {None: "open"},
        "work.offer.created": dict.fromkeys(("open", "offered", "queued", "active", "blocked", "failed"), "offered"),
        "work.offer.accepted": {"offered": "queued"},
        "work.started": {"queued": "active"},
        "work.progressed": {"active": "active"},
        "work.checkpointed": {"active": "queued"},
        lease_expired: {"active": "queued"},
        lease_revoked: {"active": "queued"},
        history_resumed: {state: "queued" if state == "active" else state for state in states},
        "artifact.published": {state: state for state in unfinished},
        "work.submitted": {"active": "submitted"},
        "work.result.accepted": {"submitted": "verified"},
        late_result_recorded: {state: state for state in states},
    }
    written = {
        event: {before and before.value: after.value for before, after in row.items()}
        for event, row in work_item_transitions.items()
    }
    assert written == documented
    terminal = {WorkItemState.VERIFIED, WorkItemState.CANCELLED}
    for row in work_item_transitions.values():
        assert all(after is before for before, after in row.items() if before in terminal)


mission_steps: Final[dict[str, Step]] = {
    "create": ("mission.create", lambda _: creation(), owner),
    "assign": ("mission.assign_coordinator", lambda _: {"coordinatorId": coordinator.id}, owner),
    "renew": ("mission.renew_coordinator", lambda _: {}, coordinator),
    "submit": ("mission.submit_for_approval", lambda _: {"artifactHashes": [content]}, coordinator),
    "request_changes": (
        "mission.request_changes",
        lambda scene: {"missionRevision": scene.state.mission.revision, "feedback": "More."},
        owner,
    ),
    "approve": ("mission.approve", lambda s: {"approval": approval(s.state.mission.revision)}, owner),
    "member": (
        "membership.change",
        lambda _: {"principal": {"type": "human", "id": principal("guest", "human").id}, "role": "observer"},
        owner,
    ),
    "message": ("message.post", lambda _: message(), worker),
    "authorize": (
        "work.authorize",
        lambda _: {"workItemId": identifier("second work"), "contract": contract()},
        coordinator,
    ),
}
mission_table: Final[dict[str, dict[str, str]]] = {
    "create": {},
    "assign": {"active": "active", "awaiting_approval": "awaiting_approval"},
    "renew": {"active": "active", "awaiting_approval": "awaiting_approval"},
    "submit": {"active": "awaiting_approval"},
    "request_changes": {"awaiting_approval": "active"},
    "approve": {"awaiting_approval": "approved"},
    "member": {"active": "active", "awaiting_approval": "awaiting_approval"},
    "message": {"active": "active", "awaiting_approval": "awaiting_approval"},
    "authorize": {"active": "active"},
}


@pytest.mark.parametrize("step", mission_table)
@pytest.mark.parametrize("state", [state.value for state in MissionState])
def test_every_pair_of_mission_state_and_command(state: str, step: str) -> None:
    """STM-M: each pair is accepted into the state of the table or refused with INVALID_STATE_TRANSITION."""
    scene = Scene().with_work("verified")
    if state != "active":
        scene.accept("mission.submit_for_approval", {"artifactHashes": [content]}, coordinator)
        scene.force_mission(MissionState(state))
    kind, payload, actor = mission_steps[step]
    decision = scene.when(kind, payload(scene), actor)
    expected = mission_table[step].get(state)
    if expected is None:
        assert isinstance(decision, Rejection), decision
        assert decision.code is IST, decision
        assert scene.state.mission.state.value == state
    else:
        assert isinstance(decision, tuple), decision
        assert scene.state.mission.state.value == expected


@pytest.mark.parametrize("kind", [kind for kind in rules if kind.startswith(("work.", "artifact.", lease_renew))])
def test_work_stands_still_while_its_mission_is_not_active(kind: str) -> None:
    """STM-M: no WorkItem of a Mission that awaits approval or has ended moves."""
    steps: dict[str, tuple[Any, Actor]] = {step[0]: step[1:] for step in work_steps.values()}
    payload, actor = steps[kind]
    state = {"work.offer": "open", "work.accept_offer": "offered", "work.start": "queued"}.get(kind, "active")
    if kind == "work.accept_result":
        state = "submitted"
    scene = Scene().with_mission() if kind == "work.authorize" else scene_in(state)
    scene.force_mission(MissionState.CANCELLED)
    assert scene.code(kind, payload(scene), actor) is IST


def test_each_event_of_a_command_has_its_fold_and_its_rows() -> None:
    """STM-M: nothing can be decided that cannot be folded."""
    events = {rule.event for kind, rule in rules.items() if not kind.startswith("ext.missionweaveprotocol.registry")}
    grouped = {event for event in events if "identity" not in event}
    assert grouped <= folded_kinds
    assert folded_kinds == mission_transitions.keys() | key_event_kinds
    assert work_item_transitions.keys() <= mission_transitions.keys()


def test_artifact_names_of_the_scene_are_the_ones_it_publishes() -> None:
    """The rows above speak of the Artifact that the scene's submission names."""
    scene = scene_in("active")
    assert scene.work().artifact_ids == (artifact_id(),)
