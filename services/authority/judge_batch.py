"""Judges the Commands of one batch in turn, on the facts read under the locks, and gathers what must be written.

No IO: everything it needs has been read, everything it decides is written by `write_batch` afterwards. A Rejection
leaves nothing behind and harms no neighbour; an overdue fact found on the way is recorded whatever becomes of the
Command that found it (ACC-1).
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from datetime import datetime, timedelta
from typing import Any, Final

from msgspec import UNSET, Struct, convert, field, to_builtins
from msgspec import json as msgspec_json

from contracts.canonical import canonical_bytes
from contracts.chain import SigningHash, chain_start, hash_text
from contracts.command import Command
from contracts.documents.first_admission_record import FirstAdmissionRecord
from contracts.group_state import Change, EntityKey, EventFacts, GroupState, evolve
from contracts.identifiers import GroupSequence, ShardId, ShardPosition
from contracts.payloads.history import HistoryResumed
from contracts.receipt import Outcome, Receipt, RecordedEvent
from contracts.rejection import Code, Rejection, reject
from contracts.signature import SigningKey
from contracts.timestamps import Instant, format_timestamp, instant
from services.authority.admission_book import AdmissionBook
from services.authority.admitted import Accepted, Admitted, Answer, AuthenticationFailure, LateRecorded
from services.authority.append_events import AppendedEvent, EventAppender, EventTooLarge, Origin
from services.authority.batch_facts import BatchFacts, Routed, begins_batch, resumes_history
from services.authority.decide import agents_consulted, decide, identifiers_claimed, overdue
from services.authority.decision import DecisionContext, EventDraft, LateResult
from services.authority.freshness import Freshness
from services.authority.history_standing import HistoryStanding
from services.authority.incarnation import Incarnation, OpenedIncarnation
from services.authority.key_book import KeyBook
from services.authority.organization_rows import (
    OrganizationRows,
    agents_of,
    key_event_kinds,
    record_key_event,
    record_organization_event,
)
from services.authority.recheck_trust import TrustDesk
from services.authority.refuse_document import rejected_words
from services.authority.resumption import resumption

misrouted_retry_ms: Final = 100
"""What the sender of a Command that reached the wrong shard's lane waits for."""


class Office(Struct, kw_only=True):
    """Who accepts: the Organization, this process as a lease holder, its service key, and the maker of new names.

    `key` is replaced when the service's key is rotated: each batch is signed with the one that it began with.
    While `registry_fault` says why the key registry cannot be trusted, nothing is accepted; while `history` is in
    doubt, nothing but the decision to go on from what the database holds (RULE-16).
    """

    organization_id: str
    holder: str
    key: SigningKey
    new_id: Callable[[], str]
    freshness: Freshness = Freshness()
    registry_fault: str | None = None
    history: HistoryStanding = field(default_factory=HistoryStanding)


class SigningKeyRefused(Exception):
    """The registry does not let this process's service key sign now, so nothing can be accepted."""


class BatchOutcome(Struct):
    """What a batch decided, ready to be written. Rows are in the order of the statements' columns."""

    events: list[AppendedEvent] = field(default_factory=list)
    changes: dict[tuple[str, EntityKey], Change] = field(default_factory=dict)
    groups: list[tuple[str, ShardId]] = field(default_factory=list)
    identifiers: list[tuple[str, str, str]] = field(default_factory=list)
    admissions: Mapping[SigningHash, FirstAdmissionRecord] = field(default_factory=dict)
    receipts: list[tuple[Any, ...]] = field(default_factory=list)
    organization: OrganizationRows = field(default_factory=OrganizationRows)
    failures: list[AuthenticationFailure] = field(default_factory=list)
    opened: OpenedIncarnation | None = None


class BatchJudge:
    """One transaction's judgement. `outcome` grows with each accepted Command."""

    def __init__(self, office: Office, key: SigningKey, facts: BatchFacts) -> None:
        """`facts` belong to this judge: its states, Agents and identifiers move on with each accepted Command.

        `key` signs the Events. Raises SigningKeyRefused when the registry cannot be trusted or does not let it.
        """
        self.outcome = BatchOutcome()
        self._office = office
        self._facts = facts
        self._book = KeyBook(facts.keys)
        self._appender = EventAppender(facts.incarnation.name, key, office.new_id)
        self._positions = {shard: fence.position for shard, fence in facts.fences.items()}
        self._answered: dict[tuple[str, str], tuple[bytes, Answer]] = {}
        self._agents = agents_of(facts)
        earlier = [fence.accepted_at for fence in facts.fences.values() if fence.accepted_at is not None]
        # The clock may step back; the log's time never does. A key ends after all that it vouched for, in any shard.
        if facts.ends_keys and facts.settled is not None:
            earlier.append(facts.settled + timedelta.resolution)
        self._now = max([facts.now, *earlier])
        now_text = format_timestamp(self._now)
        self._admissions = AdmissionBook(
            office.organization_id, key.principal, now_text, facts.admissions, office.new_id
        )
        self.outcome.admissions = self._admissions.appended
        self._trust = TrustDesk(
            self._book,
            self._admissions,
            # Nor is a key judged as of a moment before it was last changed alone: what is revoked stays so.
            moments=_moments(self._now, facts.settled),
            window=office.freshness.around(facts.now),
        )
        if (fault := office.registry_fault or self._trust.key_fault(key.key_id, key.principal)) is not None:
            raise SigningKeyRefused(fault)
        self._unclaimed = DecisionContext(
            organization_id=office.organization_id,
            now=self._now,
            agents=self._agents,
            taken_identifiers=frozenset(),
            new_id=office.new_id,
            keys=self._book,
            signing_key_id=key.key_id,
            key_moments=self._trust.moments,
            incarnation=facts.incarnation,
        )
        self._organization_head = facts.organization_head or (
            GroupSequence(0),
            chain_start(office.organization_id, ""),
        )

    def judge(self, routed: Routed) -> Answer:
        """Judge one Command in the order of RULE-01, from its Receipt on, and record what it causes."""
        admitted = routed.admitted
        command = admitted.command
        identity = (command.actor.id, command.action_id)
        if (known := self._known(identity, admitted)) is not None:
            return known
        if failure := self._trust.distrust(admitted):
            self.outcome.failures.append(failure)
            return reject(Code.AUTH_INVALID_SIGNATURE, rejected_words)
        if (postponed := self._postponed(routed)) is not None:
            return postponed
        answer = self._decide(routed)
        if not isinstance(answer, Rejection):
            self._answered[identity] = (admitted.fact.signing_hash, answer)
        return answer

    def _postponed(self, routed: Routed) -> Rejection | None:
        """What cannot be judged now, and may be sent again."""
        command = routed.admitted.command
        if begins_batch(routed) and self.outcome.receipts:
            message = f"{command.kind} must come first in its batch; send the same Command again"
        elif self._office.history.fault is not None and not resumes_history(routed):
            message = "this authority accepts nothing until an operator has decided how its history goes on"
        else:
            return None
        return reject(Code.BACKPRESSURE, message, retryable=True, retry_after_ms=misrouted_retry_ms)

    def _known(self, identity: tuple[str, str], admitted: Admitted) -> Answer | None:
        """The answer that this Action ID already has, in the batch or in the database (MWP-EVT-003, RULE-04)."""
        stored = self._facts.receipts.get(identity)
        if identity in self._answered:
            signing_hash, answer = self._answered[identity]
        elif stored is not None:
            signing_hash, answer = stored[0], _stored_answer(stored[1])
        else:
            return None
        if signing_hash == admitted.fact.signing_hash:
            return answer
        message = f"Action ID {identity[1]} of {identity[0]} was used for other content; use a new Action ID"
        return reject(Code.ACTION_ID_COLLISION, message, related_action_id=identity[1])

    def _decide(self, routed: Routed) -> Answer:
        command = routed.admitted.command
        if (misrouted := self._misrouted(routed)) is not None:
            return misrouted
        state = self._state(command)
        context = self._context(command)
        if self._office.history.fault is None:
            # In doubt only a decision is judged, and if it is refused nothing is written.
            self.resume(routed.shard_id, state.group_id)
            self._record_overdue(routed, state, context)
        decision = decide(state, command, context)
        if isinstance(decision, Rejection):
            return decision
        drafts = (decision.draft,) if isinstance(decision, LateResult) else decision
        try:
            events = self._record_events(routed, state, drafts)
        except EventTooLarge as error:
            return reject(Code.INVALID_COMMAND, f"{error}: publish large content as an Artifact")
        late = isinstance(decision, LateResult)
        receipt = self._record(routed, events, Outcome.RECORDED_AS_EVIDENCE if late else Outcome.ACCEPTED)
        return _stored_answer(receipt) if late else Accepted(receipt)

    def _misrouted(self, routed: Routed) -> Rejection | None:
        """A Group's history stands in one shard's log for ever: only that shard's lock excludes everybody else."""
        group_id = routed.admitted.command.group_id
        if group_id is UNSET or self._facts.group_shards.get(group_id, routed.shard_id) == routed.shard_id:
            return None
        message = f"Group {group_id} is in another shard than {routed.shard_id}; send the same Command again"
        return reject(Code.BACKPRESSURE, message, retryable=True, retry_after_ms=misrouted_retry_ms)

    def _state(self, command: Command) -> GroupState:
        if command.group_id is UNSET:
            return GroupState.empty(self._office.organization_id, "")
        return self._facts.states[command.group_id]

    def _context(self, command: Command) -> DecisionContext:
        """The batch's one context, but for the names that this Command claims and somebody has already."""
        taken = frozenset(name for name, _ in identifiers_claimed(command) if name in self._facts.taken)
        return replace(self._unclaimed, taken_identifiers=taken) if taken else self._unclaimed

    def _record_overdue(self, routed: Routed, state: GroupState, context: DecisionContext) -> None:
        """Lapsed leases and replaced sessions are transitions of their own and stand whatever follows."""
        if drafts := overdue(state, routed.admitted.command, context):
            command = routed.admitted.command
            origin = self._origin(command.correlation_id, consulted=self._consulted(command))
            self._append(routed.shard_id, state, drafts, origin)

    def resume(self, shard_id: ShardId, group_id: str) -> None:
        """A Group whose last Event stands in another incarnation goes on with an Event that says so (RULE-17)."""
        parent, current = self._facts.head_incarnations.get(group_id), self._facts.incarnation
        if not group_id or parent in (None, current.name) or current.event_id is None:
            return
        draft = resumption(current, parent)
        self._append(shard_id, self._facts.states[group_id], (draft,), self._origin(current.event_id))

    def _record_events(self, routed: Routed, state: GroupState, drafts: Sequence[EventDraft]) -> list[AppendedEvent]:
        """The Events that a Command causes; those of a new incarnation stand in it already."""
        command = routed.admitted.command
        command_hash = routed.admitted.fact.signing_hash
        origin = self._origin(command.correlation_id, command_hash, self._consulted(command))
        if not resumes_history(routed):
            return self._append(routed.shard_id, state, drafts, origin)
        resumed = convert(drafts[0].payload, HistoryResumed)
        self._appender.move_to(resumed.incarnation)
        [event] = self._append(routed.shard_id, state, drafts, origin)
        self.outcome.opened = OpenedIncarnation(
            incarnation=Incarnation(
                name=resumed.incarnation,
                epoch_base=resumed.epoch_base,
                reason=resumed.reason,
                event_id=event.event_id,
            ),
            abandoned=tuple(command.payload.get("abandoned", ())),
        )
        return [event]

    def _origin(
        self, correlation_id: str, command_hash: SigningHash | None = None, consulted: dict[str, Any] | None = None
    ) -> Origin:
        return Origin(
            correlation_id=correlation_id,
            accepted_at=self._now,
            occurred_at=self._unclaimed.now_text,
            command_hash=command_hash,
            consulted=consulted or {},
        )

    def _append(
        self, shard_id: ShardId, state: GroupState, drafts: Sequence[EventDraft], origin: Origin
    ) -> list[AppendedEvent]:
        """Sign all Events of one decision, then let the state move; nothing is recorded if any is too large."""
        scoped = state.group_id != ""
        position = self._positions[shard_id]
        sequence, head = (state.sequence, state.chain_hash) if scoped else self._organization_head
        events: list[AppendedEvent] = []
        for draft in drafts:
            position, sequence = ShardPosition(position + 1), GroupSequence(sequence + 1)
            place = (shard_id, position, sequence)
            events.append(self._appender.append(draft, origin, state.group_id, place, head))
            head = events[-1].mark.chain_hash
        for draft, event in zip(drafts, events, strict=True):
            if scoped:
                self._evolve(state, draft, event)
            else:
                self._organization_head = (event.mark.sequence, event.mark.chain_hash)
                rows = self.outcome.organization
                record_organization_event(
                    draft.kind, draft.payload, event.event_id, agents=self._agents, book=self._book, rows=rows
                )
        self._positions[shard_id] = position
        self._facts.head_incarnations[state.group_id] = events[-1].mark.incarnation
        self.outcome.events.extend(events)
        return events

    def _evolve(self, state: GroupState, draft: EventDraft, event: AppendedEvent) -> None:
        if state.sequence == 0:
            self.outcome.groups.append((state.group_id, event.shard_id))
        facts = EventFacts(
            group_id=state.group_id,
            sequence=event.mark.sequence,
            kind=draft.kind,
            aggregate_revision=draft.aggregate_revision,
            occurred_at=self._unclaimed.now_text,
            payload=draft.payload,
        )
        changes = evolve(state, facts)
        state.apply(changes)
        state.move_to(event.mark.sequence, event.mark.chain_hash)
        for change in changes:
            self.outcome.changes[(state.group_id, change.key)] = change
        if draft.kind in key_event_kinds:
            rows = self.outcome.organization
            record_key_event(draft.kind, draft.payload, event.event_id, book=self._book, rows=rows)

    def _record(self, routed: Routed, events: Sequence[AppendedEvent], outcome: Outcome) -> bytes:
        """The Receipt and the names that go with an accepted Command. Returns the Receipt's bytes."""
        admitted = routed.admitted
        command = admitted.command
        receipt = canonical_bytes(
            to_builtins(
                Receipt(
                    action_id=command.action_id,
                    actor=command.actor,
                    command_hash=hash_text(admitted.fact.signing_hash),
                    group_id=command.group_id,
                    events=tuple(_recorded(event) for event in events),
                    aggregate_revision=events[0].aggregate_revision,
                    outcome=outcome,
                    accepted_at=self._unclaimed.now_text,
                )
            )
        )
        self.outcome.receipts.append(
            (
                command.actor.id,
                command.action_id,
                admitted.fact.signing_hash,
                routed.shard_id,
                events[0].position,
                len(events),
                receipt,
                admitted.raw,
            )
        )
        for fact in admitted.facts:
            self._admissions.append(fact)
        if outcome is Outcome.ACCEPTED:
            for name, kind in identifiers_claimed(command):
                self._facts.taken.add(name)
                self.outcome.identifiers.append((name, kind, events[0].mark.group_id))
        return receipt

    def _consulted(self, command: Command) -> dict[str, Any]:
        """What the decision took from outside its Group, so that a replay through `decide` is exact (RULE-15)."""
        if command.group_id is UNSET:
            return {}
        known = {a: self._agents[a] for a in sorted(agents_consulted(command)) if a in self._agents}
        agents = {
            agent_id: {"sessionEpoch": facts.session_epoch, "cardVersion": facts.card.card_version if facts.card else 0}
            for agent_id, facts in known.items()
        }
        return {"agents": agents} if agents else {}


def _moments(now: datetime, settled: datetime | None) -> tuple[Instant, ...]:
    """When keys must be valid: at the time that is signed, and at the last change of keys if the clock is behind it."""
    moments = {now} if settled is None or settled <= now else {now, settled}
    return tuple(instant(format_timestamp(moment)) for moment in sorted(moments))


def _recorded(event: AppendedEvent) -> RecordedEvent:
    group_id = event.mark.group_id or UNSET
    return RecordedEvent(event_id=event.event_id, sequence=event.mark.sequence, group_id=group_id)


def _stored_answer(receipt: bytes) -> Answer:
    """What a Receipt tells its sender, the first time and on every retry."""
    found = msgspec_json.decode(receipt, type=Receipt)
    if found.outcome is Outcome.ACCEPTED:
        return Accepted(receipt)
    event_id = found.events[0].event_id
    message = f"the result came too late: its ownership ended; it is kept as Evidence in Event {event_id}"
    late = reject(Code.WORK_STALE_OWNERSHIP, message, related_action_id=found.action_id, details={"eventId": event_id})
    return LateRecorded(receipt, late)
