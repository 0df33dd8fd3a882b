"""The other transaction (PRJ-1): one batch of Events becomes rows, intents and Cursors, all or nothing.

begin → ignore duplicates → verify the next contiguous sequence by Cursor and chain hash → rows of the projection →
intents → `advance_cursor` → commit. The broker's message is acknowledged after the commit, never before.

Authoritative here: nothing. The history is the authority's; what stands in the store can be thrown away and replayed.
The Cursor is the only truth about what the rows contain, and it moves in the same transaction as they do. An Event is
recognised by its chain hash at its sequence, which binds its Event ID and all before it.

What a crash leaves behind:
- before the commit: nothing of the batch; the broker delivers it again.
- after the commit, before the acknowledgement: rows and Cursor; the batch comes again and every Event is a duplicate.
- Events beyond a Cursor are acknowledged although they are not applied: the same transaction keeps that the Group
  reaches at least so far (RULE-20), so they are fetched after a restart.
"""

from collections.abc import Iterable, Sequence
from typing import Final

from msgspec import Struct, field
from msgspec.structs import replace

from contracts.cursor import Cursor
from contracts.identifiers import GroupSequence
from contracts.upcasting import EventContracts, EventUnread, require_understood
from projections.advance_cursor import advance_cursor
from projections.arrival import Arrival
from projections.bring_up_event import bring_up_event, is_passed_over
from projections.consumer import Consumer, Statement
from projections.group_run import ApplyRules, GroupRun, Question
from projections.proof import SignatureProof
from projections.quarantine import may_pass, nothing_skipped, raised_reason_of, reason_of, skipped_by_group, trace_of
from projections.store import (
    AppliedEvent,
    ProjectionStore,
    StatementRefused,
    Stop,
    StreamPosition,
    Transaction,
    remembered_pairs_max,
)


class DeliveryNote(Struct, frozen=True):
    """What the transaction keeps of the delivery itself: its position, and (Group, sequence) of mere pointers."""

    position: StreamPosition | None = None
    pointers: tuple[tuple[str, GroupSequence], ...] = ()


no_note: Final = DeliveryNote()


class Unproven(Struct, frozen=True):
    """Events of a Group that were not applied because their newest signature proves nothing, perhaps only `for_now`."""

    group_id: str
    reaches: GroupSequence
    reason: str
    for_now: bool = False


class KeysUnknown(Exception):
    """Nothing was applied: these keys have to be learned first."""

    def __init__(self, key_ids: frozenset[str]) -> None:
        super().__init__(f"not known: {', '.join(sorted(key_ids))}")
        self.key_ids = key_ids


class Applied(Struct):
    """What became of a batch. `cursors` are those that moved; `ahead` are the Events beyond a gap.

    `passed_over` are those of the applied ones whose kind nobody here knows (PRJ-5), `skipped` those that somebody
    decided to skip (DUR-5). `traces` tell, by the Group that stops, through which calls what its consumer raised came.
    """

    applied: int = 0
    passed_over: int = 0
    skipped: int = 0
    duplicates: int = 0
    cursors: list[Cursor] = field(default_factory=list)
    ahead: list[Arrival] = field(default_factory=list)
    questions: list[Question] = field(default_factory=list)
    unproven: list[Unproven] = field(default_factory=list)
    stops: list[Stop] = field(default_factory=list)
    traces: dict[str, str] = field(default_factory=dict)

    def add(self, other: "Applied") -> None:
        """Take in what became of a later batch."""
        self.applied += other.applied
        self.passed_over += other.passed_over
        self.skipped += other.skipped
        self.duplicates += other.duplicates
        self.cursors += other.cursors
        self.ahead += other.ahead
        self.questions += other.questions
        self.unproven += other.unproven
        self.stops += other.stops
        self.traces |= other.traces


async def apply_event(store: ProjectionStore, arrival: Arrival, rules: ApplyRules) -> Applied:
    """Apply one Event in one transaction; see `apply_events`."""
    return await apply_events(store, (arrival,), rules)


async def apply_events(
    store: ProjectionStore, arrivals: Sequence[Arrival], rules: ApplyRules, note: DeliveryNote = no_note
) -> Applied:
    """Apply a batch in one transaction; Groups may be mixed, each in order of arrival.

    Applies what continues a Group's Cursor, and reports the rest: nothing is applied across a gap, beyond a fork or a
    stop, or without proof. `note` is kept in the same transaction. An Event whose rows the store refuses is
    isolated by halving the batch, and its Group stops there. Raises `store.CursorMoved`, KeysUnknown for rules that ask
    first, and the store's own errors; nothing of the transaction has happened then.
    """
    try:
        return await store.transaction(lambda transaction: _apply(transaction, store, arrivals, rules, note))
    except StatementRefused as fault:
        if len(arrivals) == 1:
            return await _stop_at(store, arrivals[0], reason_of(fault), rules, note)
    # A key may age meanwhile: with half of the batch committed it is too late to ask.
    rules = replace(rules, asks_first=False)
    middle = len(arrivals) // 2
    applied = await apply_events(store, arrivals[:middle], rules)
    applied.add(await apply_events(store, arrivals[middle:], rules, note))
    return applied


async def resume_stopped(store: ProjectionStore) -> None:
    """Forget which Groups are quarantined, in a store that is nobody's own and is filled once more."""

    def resume(transaction: Transaction) -> None:
        for each in transaction.held():
            transaction.end_quarantine(each.group_id)

    await store.transaction(resume)


def _apply(
    transaction: Transaction,
    store: ProjectionStore,
    arrivals: Sequence[Arrival],
    rules: ApplyRules,
    note: DeliveryNote,
) -> Applied:
    # Before the skips: whoever skips an Event lets its Group go on in the same transaction.
    held = transaction.held_of({arrival.mark.group_id for arrival in arrivals})
    skipped = skipped_by_group(transaction.skipped())
    silences = transaction.silences()
    runs: dict[str, GroupRun] = {}
    for arrival in arrivals:
        group_id = arrival.mark.group_id
        run = runs.get(group_id)
        if run is None:
            run = GroupRun(group_id, transaction.cursor(group_id), _visible_after(rules, group_id), held.get(group_id))
            run.silent_until = silences.get(group_id)
            run.skipped = skipped.get(group_id, nothing_skipped)
            runs[group_id] = run
        run.meet(transaction, arrival, store.organization_id)
    if rules.asks_first and rules.proof is not None:
        _check_keys(rules.proof, runs.values())
    applied = Applied()
    for run in runs.values():
        _apply_run(transaction, store.consumer, run, rules, applied)
    if applied.duplicates:
        transaction.count("duplicates", applied.duplicates)
    if applied.passed_over:
        transaction.count("passed_over", applied.passed_over)
    _keep_note(transaction, note)
    return applied


def _check_keys(proof: SignatureProof, runs: Iterable[GroupRun]) -> None:
    """Raises KeysUnknown when a run's newest signature is by a key that has to be learned."""
    unknown = {proof.unknown_key(run.next[-1]) for run in runs if run.next} - {None}
    if unknown:
        raise KeysUnknown(frozenset(key_id for key_id in unknown if key_id is not None))


def _apply_run(
    transaction: Transaction, consumer: Consumer, run: GroupRun, rules: ApplyRules, applied: Applied
) -> None:
    """Rows, intents and Cursor of one Group."""
    doubt = rules.proof.fault_of(run.next[-1]) if rules.proof and run.next else None
    if doubt is not None:
        run.drop_next()
        applied.unproven.append(Unproven(run.group_id, run.reaches, doubt.reason, doubt.for_now))
    intents_after = (run.silent_until or 0) if rules.keep_intents else None
    statements, intents, stop, trace = _evolve(consumer, run, rules.contracts, intents_after)
    if stop is not None:
        run.cut_next(stop.sequence)
        transaction.stop(stop, rules.clock())
        applied.stops.append(stop)
        if trace:
            applied.traces[stop.group_id] = trace
    transaction.run(statements)
    transaction.run(intents)
    if run.next:
        last = run.next[-1].mark
        after = Cursor(last.incarnation, last.group_id, last.sequence, last.chain_hash)
        advance_cursor(transaction, run.before, after)
        if run.silent_until is not None and after.sequence >= run.silent_until:
            transaction.end_silence(run.group_id)
        transaction.remember(run.group_id, [_remembered(arrival) for arrival in run.next[-remembered_pairs_max:]])
        applied.applied += len(run.next)
        if run.quarantined is not None and stop is None and after.sequence >= run.quarantined.sequence:
            transaction.end_quarantine(run.group_id)
        applied.skipped += sum(map(run.skips, run.next))
        applied.passed_over += sum(is_passed_over(each.event, consumer, rules.contracts) for each in run.next)
        applied.cursors.append(after)
    if run.reaches > run.reached:
        transaction.note_head(run.group_id, run.reaches)
    applied.duplicates += run.duplicates
    applied.ahead += run.ahead
    applied.questions += run.questions


def _evolve(
    consumer: Consumer, run: GroupRun, contracts: EventContracts, intents_after: int | None
) -> tuple[list[Statement], list[Statement], Stop | None, str]:
    """The statements of a run up to the first Event that cannot be understood, why the Group stops there, and a trace.

    Whatever the consumer raises is a property of the Event, except what may pass. Intents are those of Events with a
    sequence above `intents_after`; None for none at all.
    """
    statements: list[Statement] = []
    intents: list[Statement] = []
    kinds = consumer.kinds
    for arrival in run.next:
        if run.skips(arrival):
            continue
        event = arrival.event
        concerns = kinds is None or event.kind in kinds
        complete = len(statements), len(intents)
        try:
            require_understood(event.kind, event.extensions)
            if concerns:
                event = bring_up_event(event, consumer, contracts)
                statements += consumer.evolve(event)
                if intents_after is not None and arrival.mark.sequence > intents_after:
                    intents += consumer.intents(event)
        except Exception as fault:
            if may_pass(fault):
                raise
            del statements[complete[0] :], intents[complete[1] :]
            if isinstance(fault, EventUnread):
                return statements, intents, _stop(arrival, reason_of(fault)), ""
            reader = f"{consumer.name} version {consumer.version} cannot read this {event.kind}"
            return statements, intents, _stop(arrival, f"{reader}: {raised_reason_of(fault)}"), trace_of(fault)
    return statements, intents, None, ""


def _stop(arrival: Arrival, reason: str) -> Stop:
    mark, event = arrival.mark, arrival.event
    return Stop(mark.group_id, mark.sequence, event.event_id, mark.chain_hash, event.kind, reason)


def _remembered(arrival: Arrival) -> AppliedEvent:
    return AppliedEvent(arrival.mark.sequence, arrival.mark.chain_hash, arrival.event.event_id)


def _keep_note(transaction: Transaction, note: DeliveryNote) -> None:
    for group_id, sequence in note.pointers:
        transaction.note_head(group_id, sequence)
    if note.position is not None:
        transaction.move_position(note.position)


async def _stop_at(
    store: ProjectionStore, arrival: Arrival, reason: str, rules: ApplyRules, note: DeliveryNote
) -> Applied:
    """Stop one Group before an Event whose rows the store refuses, if that is still what comes next there.

    Meanwhile others may have applied, skipped or stopped at it, or found that it is lost: then it is fetched again.
    """
    stop = _stop(arrival, reason)

    def keep(transaction: Transaction) -> bool:
        held = transaction.held_of({stop.group_id}).get(stop.group_id)
        run = GroupRun(stop.group_id, transaction.cursor(stop.group_id), _visible_after(rules, stop.group_id), held)
        run.skipped = skipped_by_group(transaction.skipped()).get(stop.group_id, nothing_skipped)
        run.meet(transaction, arrival, store.organization_id)
        stops = bool(run.next) and not run.skips(arrival)
        if stops:
            transaction.stop(stop, rules.clock())
        transaction.note_head(stop.group_id, stop.sequence)
        _keep_note(transaction, note)
        return stops

    return Applied(stops=[stop]) if await store.transaction(keep) else Applied(ahead=[arrival])


def _visible_after(rules: ApplyRules, group_id: str) -> GroupSequence:
    return rules.visible_after.get(group_id, GroupSequence(0))
