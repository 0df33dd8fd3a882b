"""Keeps an authority from accepting on a database that may have lost history (RULE-16).

Every lane's connection passes the guard before its first Command, for only a new connection can lead to another
server. In doubt nothing is accepted and nothing read, except the operator's decision to go on from what is stored; an
announced failover may be decided beforehand, by `WEAVEHOLD_ON_FAILOVER`.
"""

import asyncio
import contextlib
import time
from collections.abc import Awaitable, Callable
from enum import Enum
from typing import Any, Final

from psycopg import AsyncConnection

from contracts.command import history_resume
from contracts.identifiers import registry_group
from contracts.rejection import Rejection
from contracts.reply import decode_reply
from services.authority.broker_consumers import BrokerConsumers
from services.authority.examine_history import HistoryEvidence, examination_faults, examine_history
from services.authority.judge_batch import Office
from services.authority.sign_own_command import sign_own_command
from services.process.database import FaultKind, Pool, classify
from services.process.health import READY, Finding
from services.process.logs import get_log

examination_seconds_max: Final = 30.0
"""Seconds between two examinations while nothing is in doubt."""
doubt_seconds: Final = 1.0
"""Seconds between two while something is."""
look_seconds: Final = 1.0
admission_seconds_max: Final = 5.0
"""Seconds that a new connection waits for its examination."""
not_examined_yet: Final = "the history has not been compared with the broker yet"
remedy: Final = "look with `weavehold incarnation show`, then decide with `weavehold incarnation open`"

log = get_log(__name__)


class OnFailover(Enum):
    """What to do on a later timeline of the same cluster."""

    HOLD = "hold"
    """Wait for an operator: a recovery to an earlier point looks just like a failover."""
    RESUME = "resume"
    """Open a new incarnation at once: replication is asynchronous, and commits may be lost."""
    TRUST = "trust"
    """Go on: replication is synchronous, so nothing that was answered is lost."""


class HistoryGuard:
    """Keeps `office.history_fault`: while it is set, nothing is accepted."""

    def __init__(
        self,
        office: Office,
        pool: Pool,
        broker: BrokerConsumers,
        submit: Callable[[bytes], Awaitable[bytes]],
        *,
        connected: asyncio.Event,
        on_failover: OnFailover,
    ) -> None:
        """Until the first examination the history counts as in doubt. `submit` takes this process's own Commands.

        `connected` is set by whoever opens a connection otherwise: it may lead to another server.
        """
        self._office = office
        self._pool = pool
        self._broker = broker
        self._submit = submit
        self._on_failover = on_failover
        self._woken = connected
        self._judged = asyncio.Condition()
        self._asked = 0
        self._answered = 0
        office.history_fault = not_examined_yet

    async def admit[C: AsyncConnection[Any]](self, connection: C) -> C:
        """Let a new connection through once an examination that began after it has ended, well or not.

        After `admission_seconds_max` without one what the connection leads to counts as in doubt.
        """
        asked = self._asked = self._asked + 1
        self._woken.set()
        try:
            async with asyncio.timeout(admission_seconds_max), self._judged:
                await self._judged.wait_for(lambda: self._answered >= asked)
        except TimeoutError:
            self._office.history_fault = self._office.history_fault or not_examined_yet
        return connection

    async def run(self, beat: Callable[[], None]) -> None:
        """Examine whenever a connection is new, and now and then, until cancelled."""
        while True:
            beat()
            self._woken.clear()
            asked = self._asked
            if await self._examine():
                async with self._judged:
                    self._answered = asked
                    self._judged.notify_all()
            pause = examination_seconds_max if self._office.history_fault is None else doubt_seconds
            await self._wait(pause, beat)

    async def _wait(self, seconds: float, beat: Callable[[], None]) -> None:
        """Wait, with signs of life, until a new connection asks."""
        ends = time.monotonic() + seconds
        while time.monotonic() < ends:
            beat()
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._woken.wait(), look_seconds)
                return

    async def _examine(self) -> bool:
        """Whether the database and the broker answered, so that the history is judged."""
        try:
            async with self._pool.connection() as connection:
                evidence = await examine_history(connection, self._broker, self._office.organization_id)
        except examination_faults as fault:
            # An examination that passed stands as long as no connection is new: the broker may rest meanwhile.
            log.warning("history_not_compared", fault=str(fault) or type(fault).__name__)
            return False
        except Exception as fault:
            if classify(fault) is not FaultKind.TRANSIENT:
                raise
            log.warning("history_not_examined", fault=str(fault))
            return False
        await self._judge(evidence)
        return True

    async def _judge(self, evidence: HistoryEvidence) -> None:
        promoted = evidence.was_promoted
        trusted = promoted and self._on_failover is OnFailover.TRUST
        fault = evidence.stream_fault or (None if trusted else evidence.identity_fault)
        if fault is not None and promoted and self._on_failover is OnFailover.RESUME:
            await self._resume(evidence)
            return
        if fault is not None:
            fault = f"{fault}; {remedy}"
            if fault != self._office.history_fault:
                log.error("history_in_doubt", reason=fault)
        elif self._office.history_fault is not None:
            log.info("history_examined", incarnation=evidence.incarnation)
        self._office.history_fault = fault

    async def _resume(self, evidence: HistoryEvidence) -> None:
        """Decide what was decided beforehand; the next examination finds the new incarnation."""
        payload = {
            "incarnation": evidence.incarnation,
            "reason": f"failover: {evidence.identity_fault}",
            "abandoned": list(evidence.forgotten),
        }
        async with self._pool.connection() as connection:
            raw = await sign_own_command(
                connection,
                self._office.key,
                history_resume,
                payload,
                group_id=registry_group(self._office.organization_id),
            )
        reply = decode_reply(await self._submit(raw))
        if isinstance(reply, Rejection):
            log.error("history_not_resumed", code=reply.code.value, reason=reply.message)

    async def check(self) -> Finding:
        """Readiness: whether the history is beyond doubt."""
        fault = self._office.history_fault
        return READY if fault is None else Finding.failed(fault)
