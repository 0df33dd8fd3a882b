"""One lane: the Commands of some shards, committed in batches, one transaction after another.

While one transaction commits, later Commands gather; the next transaction takes them together. There is no timer:
an idle shard adds no delay, a busy one gets group commit. Nothing is answered before its commit is known.
"""

import asyncio
import random
from collections import deque
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any, Final

from msgspec import Struct
from psycopg import AsyncConnection

from contracts.identifiers import ShardId
from contracts.rejection import Code, Rejection, reject
from services.authority.accept_transition import Committed, RaceLost, ShardsLost, accept_transition
from services.authority.admitted import Admitted, Answer
from services.authority.batch_facts import Routed, begins_batch, resumes_history
from services.authority.group_cache import GroupCache
from services.authority.history_standing import HistoryDoubted
from services.authority.judge_batch import Office, SigningKeyRefused
from services.process.database import FaultKind, classify
from services.process.logs import get_log

batch_commands_max: Final = 256
"""Commands in one transaction."""
batch_bytes_max: Final = 4 * 1024 * 1024
"""Command bytes in one transaction (a single larger Command still goes alone)."""
waiting_commands_max: Final = 4_096
"""Commands gathered for one lane; beyond it the answer is BACKPRESSURE."""
attempts_max: Final = 8
"""Runs of one batch through transient faults before its Commands get a retryable answer."""
transition_seconds_max: Final = 12.0
"""Seconds that one run may take. A server that falls silent behind a connection that still stands never says so itself:
its timeouts are its own, and something between (a pooler, a balancer) keeps acknowledging what is sent."""
backoff_seconds_first: Final = 0.02
"""Mean pause before the second run; it doubles up to `backoff_seconds_max`, with full jitter."""
backoff_seconds_max: Final = 1.0
retry_after_ms: Final = 250
"""What a caller is told to wait for after BACKPRESSURE."""

log = get_log(__name__)


class _Waiting(Struct):
    routed: Routed
    answer: asyncio.Future[Answer]


class Lane:
    """Serves the shards given to it. One task calls `run`; any task of the same loop may `submit`."""

    def __init__(
        self,
        connect: Callable[[], Awaitable[AsyncConnection[Any]]],
        office: Office,
        held: Mapping[ShardId, int],
        on_committed: Callable[[Committed], Awaitable[None]],
        on_shards_lost: Callable[[frozenset[ShardId]], None],
    ) -> None:
        """`held` is the live view of this process's lease epochs; `on_committed` runs before the replies leave."""
        self._connect = connect
        self._office = office
        self._held = held
        self._on_committed = on_committed
        self._on_shards_lost = on_shards_lost
        self._cache = GroupCache()
        self._waiting: deque[_Waiting] = deque()
        self._committing: list[_Waiting] = []
        self._arrived = asyncio.Event()
        self._connection: AsyncConnection[Any] | None = None

    async def submit(self, admitted: Admitted, shard_id: ShardId) -> Answer:
        """Queue one Command and wait for what it gets."""
        if len(self._waiting) >= waiting_commands_max:
            return overloaded(f"shard {shard_id} has {waiting_commands_max} Commands waiting", admitted)
        answer: asyncio.Future[Answer] = asyncio.get_running_loop().create_future()
        self._waiting.append(_Waiting(Routed(admitted, shard_id), answer))
        self._arrived.set()
        return await answer

    async def run(self, beat: Callable[[], None]) -> None:
        """Commit batches until cancelled; then whoever still waits gets a retryable answer. `beat` marks life."""
        try:
            while True:
                beat()
                if not self._waiting:
                    self._arrived.clear()
                    await _until(self._arrived)
                    continue
                self._committing = self._take()
                answers = await self._commit([waiting.routed for waiting in self._committing])
                for waiting, answer in zip(self._committing, answers, strict=True):
                    if not waiting.answer.done():
                        waiting.answer.set_result(answer)
        finally:
            for waiting in (*self._committing, *self._waiting):
                if not waiting.answer.done():
                    waiting.answer.set_result(overloaded("this authority process is stopping", waiting.routed.admitted))
            await self._close()

    def _take(self) -> list[_Waiting]:
        """The next batch. A Command that ends a key begins one: nothing accepted before it may share its moment.

        One that opens a new incarnation is the whole of its batch.
        """
        batch = [self._waiting.popleft()]
        size = len(batch[0].routed.admitted.raw)
        if resumes_history(batch[0].routed):
            return batch
        while self._waiting and len(batch) < batch_commands_max and not begins_batch(self._waiting[0].routed):
            size += len(self._waiting[0].routed.admitted.raw)
            if size > batch_bytes_max:
                break
            batch.append(self._waiting.popleft())
        return batch

    async def _commit(self, batch: Sequence[Routed]) -> Sequence[Answer]:
        """Run one batch to a known end: committed, retryable for the caller, or split down to what is refused."""
        fault: BaseException | None = None
        for attempt in range(attempts_max):
            if attempt:
                await asyncio.sleep(_pause(attempt, fault))
            try:
                async with asyncio.timeout(transition_seconds_max):
                    connection = await self._connected()
                    committed = await accept_transition(connection, batch, self._office, self._held, self._cache)
            except ShardsLost as lost:
                self._on_shards_lost(lost.shard_ids)
                return await self._without(batch, lost.shard_ids)
            except RaceLost as race:
                fault = race
                continue
            except SigningKeyRefused as refused:
                log.warning("nothing_accepted", commands=len(batch), reason=str(refused))
                return [overloaded("this authority accepts nothing now", r.admitted) for r in batch]
            except HistoryDoubted as doubt:
                # A connection may outlive its server behind a pooler, and lead elsewhere than new ones do.
                fault = doubt
                await self._close()
                continue
            except Exception as error:  # noqa: BLE001 - sorted below: retried, or isolated down to one Command
                fault = error
                if classify(error) is FaultKind.TRANSIENT:
                    await self._replace_broken()
                    continue
                return await self._isolate(batch, error)
            await self._on_committed(committed)
            return committed.answers
        if isinstance(fault, RaceLost) and len(batch) > 1:
            # No race is lost so often by chance: some Command of the batch contradicts what is stored.
            return await self._isolate(batch, fault)
        log.warning("batch_gave_up", commands=len(batch), attempts=attempts_max, fault=repr(fault))
        why = str(fault) if isinstance(fault, HistoryDoubted) else "the database did not take the transition in time"
        return [overloaded(why, r.admitted) for r in batch]

    async def _without(self, batch: Sequence[Routed], lost: frozenset[ShardId]) -> Sequence[Answer]:
        """Serve the rest of a batch some of whose shards passed to another process."""
        rest = iter(await self._commit(kept) if (kept := [r for r in batch if r.shard_id not in lost]) else [])
        return [
            overloaded(f"shard {r.shard_id} passed to another authority process", r.admitted)
            if r.shard_id in lost
            else next(rest)
            for r in batch
        ]

    async def _isolate(self, batch: Sequence[Routed], error: Exception) -> Sequence[Answer]:
        """Halve a batch that cannot commit until the one Command behind the failure stands alone (RULE-05)."""
        await self._replace_broken()
        if len(batch) == 1:
            command = batch[0].admitted.command
            log.error("command_refused_by_fault", action_id=command.action_id, kind=command.kind, exc_info=error)
            message = f"{command.kind} {command.action_id} could not be recorded; nothing was changed"
            return [reject(Code.INTERNAL_ERROR, message, related_action_id=command.action_id)]
        middle = len(batch) // 2
        return [*await self._commit(batch[:middle]), *await self._commit(batch[middle:])]

    async def _connected(self) -> AsyncConnection[Any]:
        if self._connection is None or self._connection.closed:
            self._connection = await self._connect()
        return self._connection

    async def _replace_broken(self) -> None:
        if self._connection is not None and (self._connection.broken or self._connection.closed):
            await self._close()

    async def _close(self) -> None:
        connection, self._connection = self._connection, None
        if connection is not None:
            await connection.close()


def overloaded(why: str, admitted: Admitted) -> Rejection:
    """BACKPRESSURE: the very same bytes may be sent again after `retry_after_ms`."""
    return reject(
        Code.BACKPRESSURE,
        f"{why}; send the same Command again",
        retryable=True,
        retry_after_ms=retry_after_ms,
        related_action_id=admitted.command.action_id,
    )


def _pause(attempt: int, fault: BaseException | None) -> float:
    """Seconds before the next run: none after a lost race, else doubling with full jitter."""
    if isinstance(fault, RaceLost):
        return 0.0
    longest = min(backoff_seconds_max, backoff_seconds_first * 2**attempt)
    return random.uniform(0, longest)  # noqa: S311 - jitter, not a secret


async def _until(event: asyncio.Event) -> None:
    """Wait for work, but come back now and then to show life."""
    try:
        await asyncio.wait_for(event.wait(), timeout=1.0)
    except TimeoutError:
        return
