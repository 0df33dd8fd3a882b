"""The door: Command bytes from the broker, verified in batches, sent to their lane, answered when committed.

A Command whose shard another process holds travels on as its original bytes; that process verifies it again, so
nothing rests on who forwarded it.
"""

import asyncio
from collections import Counter, deque
from collections.abc import Awaitable, Callable, Mapping, Sequence
from functools import partial
from typing import Final

from msgspec import Struct
from nats.aio.client import Client
from nats.aio.msg import Msg
from nats.errors import Error as BrokerError

from contracts import subjects
from contracts.identifiers import ShardId
from contracts.rejection import Code, Rejection, reject
from services.authority.admission_pool import AdmissionPool, admission_batch_max
from services.authority.admit import Admission
from services.authority.admitted import Accepted, Admitted, Answer, AuthenticationFailure, LateRecorded, Refused
from services.authority.encode_answer import encode_answer
from services.authority.lane import Lane, overloaded, retry_after_ms
from services.authority.route import ShardFinder
from services.process.database import FaultKind, classify
from services.process.logs import bind_correlation, get_log
from services.process.metrics import Counter as CounterMetric

queue_group: Final = "authority"
in_flight_max: Final = 8_192
"""Commands between arrival and reply; beyond it the answer is BACKPRESSURE at once."""
in_flight_bytes_max: Final = 64 * 1024 * 1024
"""Bytes of those Commands together."""
forward_seconds_max: Final = 15.0
"""Seconds to wait for the process that holds a Command's shard."""

log = get_log(__name__)


class _Arrived(Struct):
    raw: bytes
    forwarded: bool
    respond: Callable[[bytes], Awaitable[None]]


class Ingress:
    """Receives, admits, routes and answers Commands for one Organization."""

    def __init__(
        self,
        broker: Client,
        organization_id: str,
        *,
        pool: AdmissionPool,
        finder: ShardFinder,
        lanes: Mapping[ShardId, Lane],
        holders: Callable[[ShardId], str | None],
        registry_version: Callable[[], int],
        answered: CounterMetric,
        on_failures: Callable[[Sequence[AuthenticationFailure]], None],
    ) -> None:
        """`lanes` is the live map of the shards held here; `holders` names the process that holds another one."""
        self._broker = broker
        self._organization_id = organization_id
        self._pool = pool
        self._finder = finder
        self._lanes = lanes
        self._holders = holders
        self._registry_version = registry_version
        self._answered = answered
        self._on_failures = on_failures
        self._arrived: deque[_Arrived] = deque()
        self._wake = asyncio.Event()
        self._in_flight: set[asyncio.Task[None]] = set()
        self._outcomes: Counter[str] = Counter()
        self._taken = 0
        self._taken_bytes = 0
        self._idle = asyncio.Event()
        self._idle.set()

    async def on_command(self, message: Msg) -> None:
        """A Command from outside."""
        await self._take(_Arrived(message.data, forwarded=False, respond=partial(self._publish, message.reply)))

    async def on_forwarded(self, message: Msg) -> None:
        """A Command that another authority process sent here, because this one holds its shard."""
        await self._take(_Arrived(message.data, forwarded=True, respond=partial(self._publish, message.reply)))

    async def submit(self, raw: bytes) -> bytes:
        """A Command of this process itself; returns the encoded reply."""
        reply: asyncio.Future[bytes] = asyncio.get_running_loop().create_future()

        async def respond(encoded: bytes) -> None:
            if not reply.done():
                reply.set_result(encoded)

        await self._take(_Arrived(raw, forwarded=False, respond=respond))
        return await reply

    async def _publish(self, subject: str, encoded: bytes) -> None:
        if subject:
            await self._broker.publish(subject, encoded)

    async def _take(self, arrived: _Arrived) -> None:
        if self._taken >= in_flight_max or self._taken_bytes + len(arrived.raw) > in_flight_bytes_max:
            message = f"{self._taken} Commands of {self._taken_bytes} bytes are in flight; send the same Command again"
            refusal = reject(Code.BACKPRESSURE, message, retryable=True, retry_after_ms=retry_after_ms)
            self._outcomes[refusal.code.value] += 1
            await arrived.respond(encode_answer(refusal))
            return
        self._idle.clear()
        self._taken += 1
        self._taken_bytes += len(arrived.raw)
        self._arrived.append(arrived)
        self._wake.set()

    async def admit_batches(self, beat: Callable[[], None]) -> None:
        """Verify what arrived, batch after batch. Several tasks may run this; each keeps one admission process busy."""
        while True:
            beat()
            self._count_outcomes()
            if not self._arrived:
                self._wake.clear()
                try:
                    await asyncio.wait_for(self._wake.wait(), timeout=1.0)
                except TimeoutError:
                    continue
                continue
            batch = [self._arrived.popleft() for _ in range(min(len(self._arrived), admission_batch_max))]
            admissions = await self._pool.admit([arrived.raw for arrived in batch], self._registry_version())
            for arrived, admission in zip(batch, admissions, strict=True):
                task = asyncio.create_task(self._answer(arrived, admission))
                self._in_flight.add(task)
                task.add_done_callback(self._in_flight.discard)

    def _count_outcomes(self) -> None:
        """Move what was counted into the metric: once per batch, not once per Command."""
        for outcome, count in self._outcomes.items():
            self._answered.add(count, outcome=outcome)
        self._outcomes.clear()

    async def drained(self) -> None:
        """Wait until everything taken so far is answered, also what is just being verified."""
        await self._idle.wait()

    async def _answer(self, arrived: _Arrived, admission: Admission) -> None:
        """Answer one Command. A reply that is lost costs a retry: the Receipt waits for it."""
        try:
            answer = await self._answer_to(arrived, admission)
            self._outcomes[_outcome(answer)] += 1
            await arrived.respond(answer if isinstance(answer, bytes) else encode_answer(answer))
        except BrokerError as error:
            log.warning("reply_lost", error=str(error) or type(error).__name__)
        finally:
            self._taken -= 1
            self._taken_bytes -= len(arrived.raw)
            if not self._taken:
                self._idle.set()

    async def _answer_to(self, arrived: _Arrived, admission: Admission) -> Answer | bytes:
        if isinstance(admission, Refused):
            if admission.failure is not None:
                self._on_failures((admission.failure,))
            return admission.rejection
        with bind_correlation(admission.command.correlation_id):
            try:
                return await self._decide(arrived, admission)
            except Exception:
                # Whatever failed here, the sender's retry finds the Receipt or starts anew.
                log.exception("answer_failed", action_id=admission.command.action_id)
                message = "the authority failed on this Command; its outcome is unknown: send the same Command again"
                return reject(Code.INTERNAL_ERROR, message, retryable=True, retry_after_ms=retry_after_ms)

    async def _decide(self, arrived: _Arrived, admitted: Admitted) -> Answer | bytes:
        try:
            shard_id = await self._finder.shard_of(admitted.command)
        except Exception as error:
            if classify(error) is not FaultKind.TRANSIENT:
                raise
            return overloaded("the database cannot be reached", admitted)
        if lane := self._lanes.get(shard_id):
            return await lane.submit(admitted, shard_id)
        holder = self._holders(shard_id)
        if arrived.forwarded or holder is None:
            return overloaded(f"no authority process holds shard {shard_id} at the moment", admitted)
        subject = subjects.lane(self._organization_id, holder, shard_id)
        try:
            return (await self._broker.request(subject, arrived.raw, timeout=forward_seconds_max)).data
        except (BrokerError, TimeoutError):
            return overloaded(f"the holder of shard {shard_id} does not answer", admitted)


def _outcome(answer: Answer | bytes) -> str:
    match answer:
        case bytes():
            return "forwarded"
        case Accepted():
            return "accepted"
        case LateRecorded():
            return "recorded_as_evidence"
        case Rejection():
            return answer.code.value
