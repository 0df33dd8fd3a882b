"""Any Commands in any order, at any time, in any session: what must hold of a Group after each of them."""

from datetime import timedelta
from typing import Any, Final

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule
from msgspec import UNSET

from contracts.command import lease_renew
from contracts.documents.common import Actor
from contracts.documents.lease import LeaseState
from contracts.documents.mission import MissionState
from contracts.documents.work_item import WorkItemState
from contracts.entities import EntityKey, WorkItemRecord
from contracts.group_state import GroupState, decode_entity, entity_bytes, evolve, state_digest
from contracts.rejection import Rejection
from tests.builders import identifier, test_group, test_organization
from tests.mission_documents import (
    Document,
    approval,
    artifact,
    content,
    contract,
    coordinator,
    evidence,
    message,
    owner,
    rival,
    worker,
)
from tests.scene import Scene

items: Final = ("urn:test:work:1", "urn:test:work:2")
agents: Final = (worker, rival)
seconds: Final = st.sampled_from((1, 60, 300, 900))
some_item: Final = st.sampled_from(items)
some_agent: Final = st.sampled_from(agents)


class GroupMachine(RuleBasedStateMachine):
    """Commands as anybody might send them: right ones, late ones, by the wrong actor, under a stale session."""

    def __init__(self) -> None:
        super().__init__()
        self.scene = Scene().with_mission(coordinatorLeaseSeconds=3_600)
        self.coordinators: list[Actor] = [coordinator]
        self.seen: dict[str, tuple[Any, ...]] = {}
        self.folded = 0
        self.replay = GroupState.empty(test_organization, test_group)
        self.rows: dict[EntityKey, tuple[int, bytes]] = {}

    @property
    def lead(self) -> Actor:
        """The present Coordinator."""
        return self.coordinators[-1]

    def send(self, kind: str, payload: Document, actor: Actor, **members: Any) -> None:
        rows, count = dict(self.scene.rows), len(self.scene.events)
        decision = self.scene.when(kind, payload, actor, **members)
        if isinstance(decision, Rejection) and len(self.scene.events) == count:
            assert self.scene.rows == rows

    def epoch(self, name: str) -> int:
        record = self.scene.state.work_item(name)
        return 1 if record is None or record.item.owner is UNSET else record.item.owner.ownership_epoch

    def lease(self, name: str) -> str:
        record = self.scene.state.work_item(name)
        known = record is not None and record.execution_lease is not UNSET
        return record.execution_lease.lease_id if record and known and record.execution_lease else "urn:test:none"

    def fences(self, name: str, back: int) -> Document:
        epoch = max(1, self.epoch(name) - back)
        return {"ownershipEpoch": epoch, "executionLeaseId": self.lease(name)}

    # --- the usual way, so that chance gets far ------------------------------------------------------------------

    @initialize(states=st.tuples(*[st.sampled_from(("open", "offered", "queued", "active", "submitted"))] * 2))
    def work_has_begun(self, states: tuple[str, str]) -> None:
        """Both WorkItems stand somewhere on their way."""
        for name, state in zip(items, states, strict=True):
            self.scene.with_work(state, name, budget={"modelTokenLimit": 50_000})

    @rule(name=some_item, agent=some_agent, steps=st.integers(1, 7))
    def work_goes_on(self, name: str, agent: Actor, steps: int) -> None:
        """A few right steps in a row, each by whoever must take it."""
        self.coordinator_renews()
        for _ in range(steps):
            self.next_step(name, agent)

    def next_step(self, name: str, agent: Actor) -> None:
        record = self.scene.state.work_item(name)
        if record is None:
            self.work_is_authorised(name, 0)
            return
        owning = agent if record.item.owner is UNSET else Actor(type=agent.type, id=record.item.owner.agent_id)
        match record.item.state:
            case WorkItemState.OPEN:
                self.work_is_offered(name, {agent}, 300)
            case WorkItemState.OFFERED:
                self.offer_is_accepted(name, agent, 900, 300)
            case WorkItemState.QUEUED:
                self.work_is_started(name, owning, 300, 0)
            case WorkItemState.ACTIVE if not record.artifact_ids:
                self.artifact_is_published(name, owning)
            case WorkItemState.ACTIVE:
                self.work_is_submitted(name, owning, 0)
            case WorkItemState.SUBMITTED:
                self.result_is_accepted(name)
            case _:
                self.mission_is_submitted()

    # --- what may happen ---------------------------------------------------------------------------------------

    @rule(span=st.sampled_from((0.5, 30, 299, 301, 899, 901, 3_601)))
    def time_passes(self, span: float) -> None:
        self.scene.now += timedelta(seconds=span)

    @rule(agent=st.sampled_from((*agents, coordinator)))
    def session_is_replaced(self, agent: Actor) -> None:
        self.scene.replace_session(agent)

    @rule(agent=some_agent, stale=st.booleans())
    def somebody_speaks(self, agent: Actor, stale: bool) -> None:
        number = len(self.scene.events)
        epoch = {"sessionEpoch": 1} if stale else {}
        self.send("message.post", message(number), agent, **epoch)

    @rule(agent=st.sampled_from((*agents, coordinator)), span=seconds)
    def owner_assigns(self, agent: Actor, span: int) -> None:
        before = self.scene.state.mission.coordinator.agent_id
        self.send("mission.assign_coordinator", {"coordinatorId": agent.id, "leaseSeconds": span}, owner)
        if self.scene.state.mission.coordinator.agent_id != before:
            self.coordinators.append(agent)

    @rule()
    def coordinator_renews(self) -> None:
        self.send("mission.renew_coordinator", {"leaseSeconds": 3_600}, self.lead)

    @rule(agent=some_agent)
    def owner_adds(self, agent: Actor) -> None:
        payload = {"principal": {"type": "agent", "id": agent.id}, "role": "worker"}
        self.send("membership.change", payload, owner)

    @rule(name=st.sampled_from((*items, "urn:test:work:3")), tokens=st.sampled_from((0, 1)))
    def work_is_authorised(self, name: str, tokens: int) -> None:
        limits = {"modelTokenLimit": tokens}
        self.send("work.authorize", {"workItemId": name, "contract": contract(budget=limits)}, self.lead)

    @rule(name=some_item, candidates=st.sets(some_agent, min_size=1), span=seconds)
    def work_is_offered(self, name: str, candidates: set[Actor], span: int) -> None:
        chosen = sorted(candidates, key=lambda agent: agent.id)
        payload = self.scene.offer(*chosen, work_item_id=name, offerExpiresInSeconds=span)
        self.send("work.offer", payload, self.lead)

    @rule(name=some_item, agent=some_agent, lease=seconds, start_by=seconds)
    def offer_is_accepted(self, name: str, agent: Actor, lease: int, start_by: int) -> None:
        payload = {"workItemId": name, "ownershipLeaseSeconds": lease, "startBySeconds": start_by}
        self.send("work.accept_offer", payload, agent)

    @rule(name=some_item, agent=some_agent, span=seconds, back=st.integers(0, 1))
    def work_is_started(self, name: str, agent: Actor, span: int, back: int) -> None:
        epoch = max(1, self.epoch(name) - back)
        self.send("work.start", {"workItemId": name, "ownershipEpoch": epoch, "executionLeaseSeconds": span}, agent)

    @rule(name=some_item, agent=some_agent, span=seconds, back=st.integers(0, 1))
    def lease_is_renewed(self, name: str, agent: Actor, span: int, back: int) -> None:
        self.send(lease_renew, {"workItemId": name, **self.fences(name, back), "leaseSeconds": span}, agent)

    @rule(name=some_item, agent=some_agent, span=seconds)
    def work_is_checkpointed(self, name: str, agent: Actor, span: int) -> None:
        point = {"phase": "half", "completedMilestones": [], "createdAt": self.scene.time}
        payload = {"workItemId": name, **self.fences(name, 0), "checkpoint": point, "resumeWithinSeconds": span}
        self.send("work.checkpoint", payload, agent)

    @rule(name=some_item, agent=some_agent)
    def artifact_is_published(self, name: str, agent: Actor) -> None:
        number = len(self.scene.events)
        manifest = artifact(name, agent, artifactId=identifier("made", number), createdAt=self.scene.time)
        self.send("artifact.publish", {"artifact": manifest, **self.fences(name, 0)}, agent)

    @rule(name=some_item, agent=some_agent, back=st.integers(0, 1))
    def work_is_submitted(self, name: str, agent: Actor, back: int) -> None:
        record = self.scene.state.work_item(name)
        artifacts = record.artifact_ids if record is not None else ()
        payload = {
            "workItemId": name,
            **self.fences(name, back),
            "artifactIds": list(artifacts) or [identifier("none")],
            "evidence": [evidence(name, agent)],
        }
        self.send("work.submit", payload, agent)

    @rule(name=some_item)
    def result_is_accepted(self, name: str) -> None:
        self.send("work.accept_result", {"workItemId": name, "evidence": [evidence(name, self.lead)]}, self.lead)

    @rule()
    def mission_is_submitted(self) -> None:
        self.send("mission.submit_for_approval", {"artifactHashes": [content]}, self.lead)

    @rule(approve=st.booleans(), revision_back=st.integers(0, 1))
    def owner_decides(self, approve: bool, revision_back: int) -> None:
        revision = self.scene.state.mission.revision - revision_back
        if approve:
            self.send("mission.approve", {"approval": approval(revision)}, owner)
        else:
            self.send("mission.request_changes", {"missionRevision": revision, "feedback": "More."}, owner)

    # --- what must hold ------------------------------------------------------------------------------------------

    @invariant()
    def the_fold_reproduces_the_state(self) -> None:
        """MWP-EVT-005, NEW-4: another fold of the same Events gives the same bytes, and rows restore the indexes."""
        for event in self.scene.events[self.folded :]:
            changes = evolve(self.replay, event)
            self.replay.apply(changes)
            self.rows |= {change.key: (change.revision, entity_bytes(change.entity)) for change in changes}
        self.folded = len(self.scene.events)
        rows = [(key.kind, key.entity_id, *row) for key, row in self.rows.items()]
        assert state_digest(rows) == self.scene.digest()
        restored = GroupState.empty(test_organization, test_group)
        for kind, entity_id, revision, raw in rows:
            restored.restore(kind.value, entity_id, revision, decode_entity(kind, raw))
        assert restored.reserved == self.scene.state.reserved
        assert restored.unfinished_work_count == self.scene.state.unfinished_work_count
        for agent in agents:
            assert restored.executing(agent.id) == self.scene.state.executing(agent.id)

    @invariant()
    def one_owner_one_lease(self) -> None:
        """MWP-WRK-013: an Execution Lease runs exactly while its WorkItem is active, and under its owner's epoch."""
        for record in self.records():
            lease, holder = record.execution_lease, record.item.owner
            running = lease is not UNSET and lease.state is LeaseState.ACTIVE
            assert running == (record.item.state is WorkItemState.ACTIVE)
            if lease is not UNSET and running:
                assert holder is not UNSET
                assert (lease.holder_agent_id, lease.ownership_epoch) == (holder.agent_id, holder.ownership_epoch)
            if holder is not UNSET:
                assert holder.ownership_epoch == record.ownership_epoch
                assert record.ownership_lease is not UNSET
                assert record.ownership_lease.lease_id == holder.ownership_lease_id
            else:
                assert record.item.state in (WorkItemState.OPEN, WorkItemState.OFFERED)

    @invariant()
    def epochs_and_revisions_only_rise(self) -> None:
        """ACC-6, STM-W, STM-M: epochs and revisions never fall; what is terminal stays as it is."""
        state = self.scene.state
        now: dict[str, tuple[Any, ...]] = {
            "coordinator": (state.mission.coordinator.coordinator_epoch,),
            "mission": (state.mission.revision,),
        }
        for record in self.records():
            now[record.item.work_item_id] = (record.item.revision, record.ownership_epoch)
        for agent in (*agents, coordinator, owner):
            membership = state.membership(agent.id)
            now[f"member {agent.id}"] = (0 if membership is None else membership.membership_epoch,)
        for name, numbers in self.seen.items():
            if not name.startswith("final "):
                assert all(a >= b for a, b in zip(now[name], numbers, strict=True)), name
        for record in self.records():
            if record.item.state.terminal:
                final = self.seen.get(f"final {record.item.work_item_id}", (record,))
                assert final == (record,)
                now[f"final {record.item.work_item_id}"] = final
        if "final mission" in self.seen:
            assert self.seen["final mission"] == (state.mission,)
        if state.mission.state is MissionState.APPROVED:
            now["final mission"] = (state.mission,)
        self.seen = now

    @invariant()
    def budgets_hold(self) -> None:
        """BUD-1: the Mission's budget covers what its WorkItems reserve."""
        limit = self.scene.state.mission.budget.model_token_limit
        assert limit is not UNSET
        assert self.scene.state.reserved[1] <= limit

    def records(self) -> list[WorkItemRecord]:
        """The WorkItems that exist."""
        found = [self.scene.state.work_item(name) for name in items]
        return [record for record in found if record is not None]


TestGroupMachine = GroupMachine.TestCase
TestGroupMachine.settings = settings(
    max_examples=30, stateful_step_count=30, deadline=None, suppress_health_check=[HealthCheck.too_slow]
)
