"""A projection whose store tells what every commit changed, and where its process dies if the seed says so."""

from collections.abc import Callable, Iterable, Sequence
from contextvars import ContextVar
from typing import TYPE_CHECKING, Any

from projections.apply_event import Applied, DeliveryNote
from projections.arrival import Arrival
from projections.consumer import Consumer, Statement
from projections.group_run import ApplyRules
from projections.projection import Projection
from projections.store import Fork, ProjectionStore, Stop, StreamPosition, Transaction
from tests.simulation.ledger import append_entry, append_intent

if TYPE_CHECKING:
    from tests.simulation.process import ConsumerProcess

type Change = tuple[Any, ...]
"""("row" | "cursor" | "reset" | …, values): one change in words of the checker's own."""

arriving: ContextVar[Sequence[Arrival]] = ContextVar("arriving", default=())


class Killed(Exception):
    """The process died here."""


class TracedProjection(Projection):
    """A projection that lets its store know which Events a transaction was given."""

    async def _apply(self, arrivals: Sequence[Arrival], rules: ApplyRules, note: DeliveryNote) -> Applied:
        token = arriving.set(arrivals)
        try:
            return await super()._apply(arrivals, rules, note)
        finally:
            arriving.reset(token)


class TracedTransaction:
    """Passes everything on to the real transaction, and writes down what changes."""

    def __init__(self, inner: Transaction) -> None:
        self._inner = inner
        self.changes: list[Change] = []

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner, name)

    def run(self, statements: Iterable[Statement]) -> None:
        listed = list(statements)
        self._inner.run(listed)
        for statement in listed:
            name, values = statement.name, statement.parameters
            if name == append_intent:
                self.changes.append(("intent", values["group_id"], values["sequence"], values["event_id"]))
                continue
            assert name == append_entry
            row = (values["group_id"], values["sequence"], values["event_id"], values["payload_hash"])
            self.changes.append(("row", *row))

    def move_cursor(self, before: Any, after: Any) -> None:
        self._inner.move_cursor(before, after)
        place = None if before is None else (before.sequence, bytes(before.chain_hash))
        self.changes.append(("cursor", after.group_id, place, (after.sequence, bytes(after.chain_hash))))

    def reset_group(self, group_id: str) -> None:
        self._inner.reset_group(group_id)
        self.changes.append(("reset", group_id, len(self._inner.all_remembered(group_id))))

    def record_fork(self, fork: Fork) -> None:
        self._inner.record_fork(fork)
        seen = (fork.seen.sequence, bytes(fork.seen.chain_hash))
        lost = tuple((each.sequence, bytes(each.chain_hash), each.event_id) for each in fork.lost)
        self.changes.append(("fork", fork.group_id, seen, fork.found.sequence, fork.shared, lost))

    def note_head(self, group_id: str, sequence: int) -> None:
        self._inner.note_head(group_id, sequence)  # type: ignore[arg-type]
        kept = dict(self._inner.heads_ahead()).get(group_id, 0)
        self.changes.append(("head", group_id, sequence, kept))

    def settle_head(self, group_id: str, sequence: int) -> None:
        self._inner.settle_head(group_id, sequence)  # type: ignore[arg-type]
        self.changes.append(("settled", group_id, sequence))

    def stop(self, stop: Stop, at: str) -> None:
        self._inner.stop(stop, at)
        self.changes.append(("stop", stop.group_id, stop.sequence, stop.reason))

    def move_position(self, position: StreamPosition) -> None:
        self._inner.move_position(position)
        self.changes.append(("position", position.shard_id, position.incarnation, position.position))

    def count(self, name: str, amount: int) -> None:
        self._inner.count(name, amount)
        self.changes.append(("count", name, amount))


class TracedStore:
    """`ProjectionStore` around the real one, in one life of a process."""

    def __init__(self, inner: ProjectionStore, process: "ConsumerProcess") -> None:
        self.inner = inner
        self._process = process

    @property
    def consumer(self) -> Consumer:
        return self.inner.consumer

    @property
    def organization_id(self) -> str:
        return self.inner.organization_id

    async def transaction[T](self, work: Callable[[Transaction], T]) -> T:
        """As the real one; the process may die before or after the commit, and the checker hears of each."""
        await self._process.still_there()

        def traced(transaction: Transaction) -> T:
            if self._process.dead:
                raise Killed
            watched = TracedTransaction(transaction)
            result = work(watched)  # type: ignore[arg-type]
            if watched.changes:
                if self._process.reach("before-commit"):
                    raise Killed
                arrivals = [_place(each) for each in arriving.get()]
                self._process.world.loop.once_returned(lambda: self._committed(watched.changes, arrivals))
            return result

        try:
            result = await self.inner.transaction(traced)
        except Exception:
            await self._process.still_there()
            raise
        await self._process.still_there()
        return result

    def _committed(self, changes: list[Change], arrivals: list[tuple[str, int, bytes]]) -> None:
        """At the moment of the commit."""
        self._process.committed(changes, arrivals)
        self._process.reach("after-commit")

    async def read[T](self, work: Callable[[Transaction], T]) -> T:
        """As the real one."""
        await self._process.still_there()
        result = await self.inner.read(work)
        await self._process.still_there()
        return result

    async def close(self) -> None:
        """As the real one."""
        await self.inner.close()


def _place(arrival: Arrival) -> tuple[str, int, bytes]:
    mark = arrival.mark
    return mark.group_id, mark.sequence, bytes(mark.chain_hash)
