"""The code under test with one decision undone at a time: what the simulation must notice.

Each is a context manager that patches exactly one decision where the product takes it; all else stays as it is, so a
second defence may well repair what the first one let through. The checker judges every commit, so that it counts.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import AbstractContextManager, ExitStack, contextmanager
from contextvars import ContextVar
from types import MappingProxyType
from typing import Any, Final
from unittest import mock

import projections.group_run
import projections.repair_group
import projections.run_consumer
import projections.settle_fork
from contracts.chain import ChainHash
from contracts.cursor import Contact, Cursor, EventMark
from contracts.identifiers import GroupSequence
from projections.apply_event import Applied, DeliveryNote
from projections.consumer import Consumer
from projections.group_run import GroupRun
from projections.history import GroupNotShown
from projections.projection import Projection
from projections.proof import SignatureProof
from projections.pull import PullConsumer
from projections.repairs import Repairs
from projections.run_consumer import ConsumerRun
from projections.store import Fork, StreamPosition
from projections.store.sqlite import SqliteStore, SqliteTransaction
from tests.simulation.truth import SimulatedHistory

type Mutant = Callable[[], AbstractContextManager[None]]

_classify: Final = projections.group_run.classify


@contextmanager
def _judging(judge: Callable[[Cursor, EventMark, ChainHash | None], Contact]) -> Iterator[None]:
    """Another `classify`, with an `advance` that believes it."""

    def taken(cursor: Cursor, mark: EventMark) -> Cursor:
        del cursor
        return Cursor(mark.incarnation, mark.group_id, mark.sequence, mark.chain_hash)

    def classified(cursor: Cursor, mark: EventMark, remembered: ChainHash | None = None) -> Contact:
        return judge(cursor, mark, remembered)

    with ExitStack() as stack:
        stack.enter_context(mock.patch.object(projections.group_run, "classify", classified))
        stack.enter_context(mock.patch.object(projections.group_run, "advance", taken))
        yield


def over_a_gap() -> AbstractContextManager[None]:
    """What lies beyond a gap is applied."""

    def judge(cursor: Cursor, mark: EventMark, remembered: ChainHash | None) -> Contact:
        contact = _classify(cursor, mark, remembered)
        return Contact.NEXT if contact is Contact.GAP else contact

    return _judging(judge)


def applied_twice() -> AbstractContextManager[None]:
    """The Event at the Cursor is applied again when it comes again."""

    def judge(cursor: Cursor, mark: EventMark, remembered: ChainHash | None) -> Contact:
        contact = _classify(cursor, mark, remembered)
        again = contact is Contact.DUPLICATE and mark.sequence == cursor.sequence
        return Contact.NEXT if again else contact

    return _judging(judge)


def lower_dropped_unseen() -> AbstractContextManager[None]:
    """RULE-19 undone: whatever is at or below the Cursor is a duplicate, whatever its hash."""

    def judge(cursor: Cursor, mark: EventMark, remembered: ChainHash | None) -> Contact:
        return Contact.DUPLICATE if mark.sequence <= cursor.sequence else _classify(cursor, mark, remembered)

    return _judging(judge)


def unknown_dropped() -> AbstractContextManager[None]:
    """RULE-19 half undone: what is no longer remembered is a duplicate without asking."""

    def judge(cursor: Cursor, mark: EventMark, remembered: ChainHash | None) -> Contact:
        contact = _classify(cursor, mark, remembered)
        return Contact.DUPLICATE if contact is Contact.UNKNOWN else contact

    return _judging(judge)


def chain_unchecked() -> AbstractContextManager[None]:
    """The next sequence is the next Event, whatever stands before it in its chain."""

    def judge(cursor: Cursor, mark: EventMark, remembered: ChainHash | None) -> Contact:
        return Contact.NEXT if mark.sequence == cursor.sequence + 1 else _classify(cursor, mark, remembered)

    return _judging(judge)


@contextmanager
def buffer_drained_unchecked() -> Iterator[None]:
    """RULE-20 undone: what waited for a gap to close is taken by its sequence alone."""
    draining: ContextVar[bool] = ContextVar("draining", default=False)
    drained = Projection.apply_held

    async def apply_held(self: Projection, group_id: str, reached: Any) -> Applied:
        token = draining.set(True)
        try:
            return await drained(self, group_id, reached)
        finally:
            draining.reset(token)

    def judge(cursor: Cursor, mark: EventMark, remembered: ChainHash | None) -> Contact:
        unchecked = draining.get() and mark.sequence == cursor.sequence + 1
        return Contact.NEXT if unchecked else _classify(cursor, mark, remembered)

    with _judging(judge), mock.patch.object(Projection, "apply_held", apply_held):
        yield


@contextmanager
def acknowledged_before_commit() -> Iterator[None]:
    """A batch is acknowledged to the broker as soon as it is there."""
    taken = PullConsumer.next_batch

    async def next_batch(self: PullConsumer) -> list[Any]:
        messages = await taken(self)
        if messages:
            await self.acknowledge(messages[-1])
        return messages

    with mock.patch.object(PullConsumer, "next_batch", next_batch):
        yield


@contextmanager
def fork_ignored() -> Iterator[None]:
    """A history that does not contain the Cursor is taken for the same one."""

    async def settle_fork(*_: Any) -> Fork | None:
        return None

    with mock.patch.object(projections.repair_group, "settle_fork", settle_fork):
        yield


@contextmanager
def _reset_without(tables: Callable[[Consumer], Iterable[str]]) -> Iterator[None]:
    """A reset that leaves the Group's rows in some tables."""
    reset = SqliteTransaction.reset_group

    def reset_group(self: Any, group_id: str) -> None:
        connection = self._connection
        kept = {
            table: connection.execute(f"SELECT * FROM {table} WHERE group_id = ?", (group_id,)).fetchall()
            for table in tables(self._consumer)
        }
        reset(self, group_id)
        for table, rows in kept.items():
            for row in rows:
                connection.execute(f"INSERT INTO {table} VALUES ({','.join('?' * len(row))})", row)

    with mock.patch.object(SqliteTransaction, "reset_group", reset_group):
        yield


def pairs_kept_after_reset() -> AbstractContextManager[None]:
    """What was remembered of a lost history stays remembered after the reset."""
    return _reset_without(lambda _: ("projection_applied",))


def rows_kept_after_reset() -> AbstractContextManager[None]:
    """The rows of a lost history stay after the reset."""
    return _reset_without(lambda consumer: consumer.tables)


@contextmanager
def position_past_a_hole() -> Iterator[None]:
    """RULE-20 undone: an unfiltered delivery takes what it gets and calls the rest passed."""

    async def receive(projection: Projection, _shards: Any, delivered: Any, last: StreamPosition) -> Applied:
        return await projection.receive(delivered.arrivals, DeliveryNote(last, tuple(delivered.pointers)))

    with mock.patch.object(projections.run_consumer, "receive_unfiltered", receive):
        yield


@contextmanager
def head_forgotten() -> Iterator[None]:
    """RULE-20 undone: that a Group reaches beyond its Cursor is not kept when its Events are acknowledged."""

    def note_head(*_: Any) -> None:
        """Nothing."""

    with mock.patch.object(SqliteTransaction, "note_head", note_head):
        yield


@contextmanager
def lower_head_believed() -> Iterator[None]:
    """PRJ-3 half undone: a head below the Cursor says nothing as long as it is one that was applied."""
    judged = Repairs.judge_head

    async def judge_head(self: Repairs, projection: Projection, head: Cursor, _: Any = 0) -> None:
        await judged(self, projection, head)

    with mock.patch.object(Repairs, "judge_head", judge_head):
        yield


@contextmanager
def sequence_only() -> Iterator[None]:
    """PRJ-3 undone: across incarnations too a Cursor is compared with a head by its sequence alone."""

    async def continues(_source: Any, _proof: Any, cursor: Cursor, found: Cursor) -> bool:
        return found.sequence >= cursor.sequence

    with mock.patch.object(projections.settle_fork, "_continues", continues):
        yield


@contextmanager
def lost_group_kept() -> Iterator[None]:
    """PRJ-3 undone for whole Groups: one that the history does not have any more keeps its rows."""

    async def refuse(*_: Any) -> str:
        raise GroupNotShown("kept")

    with mock.patch.object(projections.settle_fork, "_incarnation_without", refuse):
        yield


@contextmanager
def absence_believed() -> Iterator[None]:
    """Who is not shown a Group takes it for lost, also where it may only be hidden."""
    with mock.patch.object(SimulatedHistory, "shows_all", True):
        yield


@contextmanager
def intents_in_refill() -> Iterator[None]:
    """RULE-22 undone: what is replayed after a fork asks again for what was asked for before."""

    def silences(_: Any) -> dict[str, GroupSequence]:
        return {}

    with mock.patch.object(SqliteTransaction, "silences", silences):
        yield


@contextmanager
def silence_kept_in_memory() -> Iterator[None]:
    """RULE-22 half undone: that a Group is silent is forgotten when the process dies."""
    opened = SqliteStore.open

    async def forgetting(*arguments: Any) -> SqliteStore:
        store = await opened(*arguments)

        def forget(transaction: Any) -> None:
            for group_id in transaction.silences():
                transaction.end_silence(group_id)

        await store.transaction(forget)
        return store

    with mock.patch.object(SqliteStore, "open", forgetting):
        yield


@contextmanager
def incarnation_not_followed() -> Iterator[None]:
    """RULE-18 undone: whoever meets another incarnation reads on where it is."""

    def meet(*_: Any) -> None:
        """Nothing."""

    with mock.patch.object(ConsumerRun, "_meet", meet):
        yield


@contextmanager
def signature_unchecked() -> Iterator[None]:
    """NEW-5 undone: whoever can write to the stream is believed."""

    def fault_of(*_: Any) -> None:
        """Nothing is ever wrong."""

    with mock.patch.object(SignatureProof, "fault_of", fault_of):
        yield


@contextmanager
def proven_by_the_first() -> Iterator[None]:
    """What follows the last Event that is proven is taken with it: the proof looks at the oldest of a run."""
    meet = SignatureProof.fault_of
    first: dict[int, Any] = {}
    met = GroupRun.meet

    def noting(self: GroupRun, *arguments: Any) -> None:
        met(self, *arguments)
        if self.next:
            first[id(self.next[-1])] = self.next[0]

    def fault_of(self: SignatureProof, newest: Any) -> Any:
        return meet(self, first.get(id(newest), newest))

    with mock.patch.object(GroupRun, "meet", noting), mock.patch.object(SignatureProof, "fault_of", fault_of):
        yield


mutants: Final[Mapping[str, Mutant]] = MappingProxyType(
    {
        mutant.__name__: mutant
        for mutant in (
            over_a_gap,
            applied_twice,
            lower_dropped_unseen,
            unknown_dropped,
            chain_unchecked,
            buffer_drained_unchecked,
            acknowledged_before_commit,
            fork_ignored,
            pairs_kept_after_reset,
            rows_kept_after_reset,
            position_past_a_hole,
            head_forgotten,
            lower_head_believed,
            sequence_only,
            lost_group_kept,
            absence_believed,
            intents_in_refill,
            silence_kept_in_memory,
            incarnation_not_followed,
            signature_unchecked,
            proven_by_the_first,
        )
    }
)
