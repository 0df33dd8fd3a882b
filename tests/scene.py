"""A small language for decisions: given a Group, when a Command comes, then Events or a refusal.

A Scene holds one Group's state, the clock and the Agents, and plays the part of the accepting transaction: overdue
facts first, then `decide`, then the fold. Commands carry a placeholder signature; admission is tested elsewhere.
"""

from collections.abc import Iterable, Mapping
from datetime import datetime, timedelta
from itertools import count
from typing import Any

from msgspec import UNSET, convert
from msgspec.structs import replace

from contracts.canonical import canonical_bytes, parse_strict
from contracts.chain import ChainHash, SigningHash, chain_next
from contracts.command import Command, coordinator_only_kinds, creation_kinds, organization_scoped_kinds
from contracts.documents.common import Actor, ActorType
from contracts.documents.membership import MembershipState
from contracts.documents.mission import MissionState
from contracts.documents.work_item import WorkItemState
from contracts.entities import EntityKind, MembershipRecord, WorkItemRecord
from contracts.event import organization_scoped_event_kinds
from contracts.group_entities import changed
from contracts.group_state import Change, EventFacts, GroupState, entity_bytes, evolve, state_digest
from contracts.identifiers import GroupSequence, MembershipEpoch
from contracts.rejection import Code, Rejection
from contracts.timestamps import format_timestamp, instant, parse_timestamp
from contracts.verification import RegisteredKey
from services.authority.decide import agents_consulted, decide, identifiers_claimed, overdue
from services.authority.decision import AgentFacts, Decision, DecisionContext, EventDraft, LateResult
from services.authority.key_book import KeyBook, KnownKey
from services.authority.organization_rows import OrganizationRows, key_event_kinds, record_key_event
from tests.builders import identifier, signing_key, start_time, test_group, test_organization
from tests.mission_documents import (
    Document,
    artifact,
    artifact_id,
    card,
    contract,
    coordinator,
    creation,
    evidence,
    item,
    mission_id,
    owner,
    rival,
    selection_basis,
    signature,
    signature_key_id,
    stranger,
    worker,
)

authority_key_id = "urn:weavehold:key:authority"
"""The key that signs the Events of the scene."""


def _registry_key() -> RegisteredKey:
    """The key that the scene's Agent Cards say they are signed with."""
    key = signing_key("registry", ActorType.SERVICE)
    return RegisteredKey(
        key_id=signature_key_id,
        principal=key.principal,
        public_key=key.public_key,
        valid_from="2026-01-01T00:00:00Z",
    )


class Scene:
    """One Group in time. `events` are its history as facts of the fold, `rows` what the entity table would hold."""

    def __init__(self) -> None:
        """Nothing exists but Agents with one session each."""
        self.state = GroupState.empty(test_organization, test_group)
        self.now: datetime = parse_timestamp(start_time)
        self.agents: dict[str, AgentFacts] = {}
        self.taken: set[str] = set()
        self.keys = KeyBook([KnownKey(_registry_key(), 0)])
        self.events: list[EventFacts] = []
        self.rows: dict[tuple[str, str], tuple[int, bytes]] = {}
        self._numbers = count(1)
        for agent in (coordinator, worker, rival, stranger):
            self.agents[agent.id] = AgentFacts(1, identifier("session", agent.id, 1), card(agent))

    # --- given -------------------------------------------------------------------------------------------------

    def pass_time(self, seconds: float) -> "Scene":
        """The database clock moves on."""
        self.now += timedelta(seconds=seconds)
        return self

    def replace_session(self, agent: Actor) -> "Scene":
        """The Agent opened its next session."""
        facts = self.agents[agent.id]
        epoch = facts.session_epoch + 1
        self.agents[agent.id] = AgentFacts(epoch, identifier("session", agent.id, epoch), facts.card)
        return self

    def register(self, agent: Actor, **members: Any) -> "Scene":
        """The Agent has another card."""
        facts = self.agents[agent.id]
        version = facts.card.card_version + 1 if facts.card else 1
        self.agents[agent.id] = AgentFacts(facts.session_epoch, facts.session_event_id, card(agent, version, **members))
        return self

    def with_mission(self, **members: Any) -> "Scene":
        """The Mission exists, with two Workers as members."""
        self.accept("mission.create", creation(**members), owner)
        for agent in (worker, rival):
            self.add(agent)
        return self

    def add(self, agent: Actor, **members: Any) -> "Scene":
        """A new member, a Worker unless `members` say otherwise."""
        payload = {"principal": {"type": agent.type.value, "id": agent.id}, "role": "worker"} | members
        self.accept("membership.change", payload, owner)
        return self

    def force_work(self, state: WorkItemState, work_item_id: str = item) -> "Scene":
        """Put a WorkItem into a state that no Command of this authority reaches yet; its members stay as they are."""
        record = self.work(work_item_id)
        forced = replace(record, item=replace(record.item, state=state))
        self.state.apply([changed(EntityKind.WORK_ITEM, work_item_id, forced)])
        return self

    def force_mission(self, state: MissionState) -> "Scene":
        """Put the Mission into another state, whatever its WorkItems are."""
        record = self.state.mission_record
        forced = replace(record, mission=replace(record.mission, state=state))
        self.state.apply([changed(EntityKind.MISSION, mission_id, forced)])
        return self

    def end_membership(self, member: Actor) -> "Scene":
        """End a Membership, which no Command of this authority does yet but for a replaced Coordinator."""
        before = self.state.membership(member.id)
        assert before is not None
        epoch = MembershipEpoch(before.membership_epoch + 1)
        ended = replace(before, state=MembershipState.ENDED, ended_at=self.time, membership_epoch=epoch)
        self.state.apply([changed(EntityKind.MEMBERSHIP, member.id, MembershipRecord(membership=ended))])
        return self

    def with_work(self, state: str, work_item_id: str = item, **contract_members: Any) -> "Scene":
        """A WorkItem that the usual Commands have brought into this state (not blocked, failed or cancelled)."""
        if not self.state.exists:
            self.with_mission()
        for kind, payload, actor in self._road(work_item_id, contract_members):
            record = self.state.work_item(work_item_id)
            if record is not None and record.item.state.value == state:
                break
            self.accept(kind, payload(), actor)
        assert self.work(work_item_id).item.state.value == state
        return self

    def _road(self, work_item_id: str, contract_members: Document) -> list[tuple[str, Any, Actor]]:
        return [
            (
                "work.authorize",
                lambda: {"workItemId": work_item_id, "contract": contract(**contract_members)},
                coordinator,
            ),
            ("work.offer", lambda: self.offer(worker, rival, work_item_id=work_item_id), coordinator),
            ("work.accept_offer", lambda: {"workItemId": work_item_id}, worker),
            ("work.start", lambda: {"workItemId": work_item_id, "ownershipEpoch": self.epoch(work_item_id)}, worker),
            (
                "artifact.publish",
                lambda: {"artifact": artifact(work_item_id), **self.fences(work_item_id, named=False)},
                worker,
            ),
            ("work.submit", lambda: self.submission(work_item_id), worker),
            (
                "work.accept_result",
                lambda: {"workItemId": work_item_id, "evidence": [evidence(work_item_id, coordinator)]},
                coordinator,
            ),
        ]

    # --- payloads that depend on the state -----------------------------------------------------------------------

    def offer(self, *candidates: Actor, work_item_id: str = item, **members: Any) -> Document:
        """An offer to these Agents."""
        ids = [agent.id for agent in candidates]
        return {"workItemId": work_item_id, "candidateAgentIds": ids, "selectionBasis": selection_basis()} | members

    def fences(self, work_item_id: str = item, *, named: bool = True) -> Document:
        """Current Ownership Epoch and Execution Lease, as the owner states them."""
        lease = self.work(work_item_id).execution_lease
        lease_id = identifier("no lease") if lease is UNSET else lease.lease_id
        fences: Document = {"ownershipEpoch": self.epoch(work_item_id) or 1, "executionLeaseId": lease_id}
        return {"workItemId": work_item_id, **fences} if named else fences

    def submission(self, work_item_id: str = item, **members: Any) -> Document:
        """The owner's result."""
        document = {"artifactIds": [artifact_id(work_item_id)], "evidence": [evidence(work_item_id)]}
        return self.fences(work_item_id) | document | members

    # --- when --------------------------------------------------------------------------------------------------

    def command(self, kind: str, payload: Mapping[str, Any], actor: Actor, **members: Any) -> Command:
        """A Command with the epochs that its actor would state now; a member given as None is left out."""
        document: Document = {
            "protocolVersion": "0.1",
            "actionId": identifier("action", next(self._numbers)),
            "actor": {"type": actor.type.value, "id": actor.id},
            "kind": kind,
            "correlationId": identifier("correlation"),
            "issuedAt": self.time,
            "payload": dict(payload),
            "signature": signature(self.time),
        }
        if kind not in organization_scoped_kinds:
            document["groupId"] = test_group
            document |= self._epochs(kind, actor)
        document |= members
        present = {name: value for name, value in document.items() if value is not None}
        return convert(parse_strict(canonical_bytes(present), 1 << 20), Command)

    def _epochs(self, kind: str, actor: Actor) -> Document:
        epochs: Document = {}
        if actor.type is ActorType.AGENT:
            epochs["sessionEpoch"] = self.agents[actor.id].session_epoch
        if actor.type is not ActorType.SERVICE and kind not in creation_kinds:
            membership = self.state.membership(actor.id)
            epochs["membershipEpoch"] = 1 if membership is None else membership.membership_epoch
        coordinates = self.state.exists and actor.id == self.state.mission.coordinator.agent_id
        if coordinates:
            epochs["coordinatorEpoch"] = self.state.mission.coordinator.coordinator_epoch
        elif kind in coordinator_only_kinds:
            epochs["coordinatorEpoch"] = 1
        return epochs

    def when(self, kind: str, payload: Mapping[str, Any], actor: Actor, **members: Any) -> Decision:
        """What becomes of a Command; Events and overdue facts are folded into the state."""
        return self.judge(self.command(kind, payload, actor, **members))

    def judge(self, command: Command) -> Decision:
        """The part of the accepting transaction."""
        context = self.context(command)
        self._append(overdue(self.state, command, context))
        decision = decide(self.state, command, context)
        if isinstance(decision, LateResult):
            self._append((decision.draft,))
        elif not isinstance(decision, Rejection):
            self._append(decision)
            self.taken.update(name for name, _ in identifiers_claimed(command))
        return decision

    def context(self, command: Command) -> DecisionContext:
        """What is known from outside the Group, and no more than the decision asked for."""
        claimed = {name for name, _ in identifiers_claimed(command)}
        return DecisionContext(
            organization_id=test_organization,
            now=self.now,
            agents={name: self.agents[name] for name in agents_consulted(command) if name in self.agents},
            taken_identifiers=frozenset(claimed & self.taken),
            new_id=lambda: identifier("new", next(self._numbers)),
            keys=self.keys,
            signing_key_id=authority_key_id,
            key_moments=(instant(self.time),),
        )

    def _append(self, drafts: Iterable[EventDraft]) -> None:
        for draft in drafts:
            event = EventFacts(
                group_id=test_group,
                sequence=GroupSequence(self.state.sequence + 1),
                kind=draft.kind,
                aggregate_revision=draft.aggregate_revision,
                occurred_at=self.time,
                # Through bytes, as a reader of the log gets it.
                payload=parse_strict(canonical_bytes(draft.payload), 1 << 20),
            )
            self.events.append(event)
            if draft.kind not in organization_scoped_event_kinds:
                self._fold(event)
            if draft.kind in key_event_kinds:
                rows = OrganizationRows()
                record_key_event(draft.kind, event.payload, identifier("event"), book=self.keys, rows=rows)

    def _fold(self, event: EventFacts) -> None:
        changes = evolve(self.state, event)
        self.state.apply(changes)
        self.state.move_to(event.sequence, ChainHash(chain_next(self.state.chain_hash, SigningHash(b"\0" * 32))))
        self._write(changes)

    def _write(self, changes: Iterable[Change]) -> None:
        for change in changes:
            key = (change.key.kind.value, change.key.entity_id)
            self.rows[key] = (change.revision, entity_bytes(change.entity))

    # --- then --------------------------------------------------------------------------------------------------

    def accept(self, kind: str, payload: Mapping[str, Any], actor: Actor, **members: Any) -> tuple[EventDraft, ...]:
        """The Command must be accepted; its Events."""
        decision = self.when(kind, payload, actor, **members)
        assert isinstance(decision, tuple), f"{kind} was not accepted: {decision}"
        return decision

    def refuse(self, kind: str, payload: Mapping[str, Any], actor: Actor, **members: Any) -> Rejection:
        """The Command must be refused; why."""
        decision = self.when(kind, payload, actor, **members)
        assert isinstance(decision, Rejection), f"{kind} was not refused: {decision}"
        return decision

    def code(self, kind: str, payload: Mapping[str, Any], actor: Actor, **members: Any) -> Code:
        """The code with which the Command is refused."""
        return self.refuse(kind, payload, actor, **members).code

    @property
    def time(self) -> str:
        """Now as text."""
        return format_timestamp(self.now)

    def work(self, work_item_id: str = item) -> WorkItemRecord:
        """A WorkItem that must exist."""
        record = self.state.work_item(work_item_id)
        assert record is not None
        return record

    def epoch(self, work_item_id: str = item) -> int:
        """The highest Ownership Epoch."""
        return self.work(work_item_id).ownership_epoch

    def digest(self) -> str:
        """Digest of the rows as written one change after the other."""
        return state_digest((kind, name, revision, raw) for (kind, name), (revision, raw) in self.rows.items())
