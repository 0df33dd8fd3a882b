"""Keeps an authority from accepting on a database that may have lost history (RULE-16).

The guard examines the server that new connections lead to and keeps the verdict; accepting transactions and reads
compare the life of the server that they run on with it (`history_standing`). In doubt nothing is accepted and nothing
read, except the operator's decision to go on from what is stored; an announced failover may be decided beforehand, by
`WEAVEHOLD_ON_FAILOVER`.
"""

import asyncio
import contextlib
import time
from collections.abc import Awaitable, Callable
from enum import Enum
from typing import Any, Final

import psycopg
from msgspec import Struct
from nats.errors import Error as BrokerError
from psycopg import AsyncConnection

from contracts.command import history_resume
from contracts.identifiers import registry_group
from contracts.rejection import Rejection
from contracts.reply import decode_reply
from services.authority.broker_consumers import BrokerConsumers
from services.authority.examine_history import HistoryEvidence, NotExaminable, examine_history
from services.authority.history_standing import not_examined_yet
from services.authority.judge_batch import Office
from services.authority.sign_own_command import sign_own_command
from services.process.health import READY, Finding
from services.process.logs import get_log

examination_seconds_max: Final = 30.0
"""Seconds between two examinations while nothing is in doubt."""
doubt_seconds: Final = 1.0
"""Seconds between two while something is, or while nothing could be examined."""
look_seconds: Final = 1.0
pause_seconds: Final = 0.2
"""Seconds after an examination within which there is no other."""
round_seconds_max: Final = 15.0
"""Seconds that an examination may take, and as many a decision of this process itself."""
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


class _Unexamined(Struct, frozen=True):
    """Why there was no examination, and whether that lies in the database."""

    reason: str
    of_database: bool


class HistoryGuard:
    """Gives `office.history` its verdicts."""

    def __init__(
        self,
        office: Office,
        connect: Callable[[], Awaitable[AsyncConnection[Any]]],
        broker: BrokerConsumers,
        submit: Callable[[bytes], Awaitable[bytes]],
        *,
        on_failover: OnFailover,
    ) -> None:
        """Until the first examination the history counts as in doubt.

        `connect` opens a connection in autocommit: only a new one shows where connections lead now. `submit` takes
        this process's own Commands.
        """
        self._office = office
        self._standing = office.history
        self._connect = connect
        self._broker = broker
        self._submit = submit
        self._on_failover = on_failover
        self._unexamined: _Unexamined | None = _Unexamined(not_examined_yet, of_database=False)
        self._refused: str | None = None
        self._standing.fault = not_examined_yet

    async def run(self, beat: Callable[[], None]) -> None:
        """Examine now and then, and at once when somebody met another life of the server, until cancelled."""
        while True:
            beat()
            self._note(await self._examine(beat))
            await self._wait(examination_seconds_max if self._standing.fault is None else doubt_seconds, beat)

    async def _wait(self, seconds: float, beat: Callable[[], None]) -> None:
        """Wait, with signs of life, until somebody asks; after an examination that failed, whoever asks waits too."""
        if self._unexamined is not None:
            await asyncio.sleep(doubt_seconds)
            return
        # Who asks again at once met a connection to a server that lives on elsewhere: it does not set the pace.
        await asyncio.sleep(pause_seconds)
        ends = time.monotonic() + seconds
        while time.monotonic() < ends:
            beat()
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._standing.asked.wait(), look_seconds)
                return

    def _note(self, unexamined: _Unexamined | None) -> None:
        """A verdict stands while nobody meets another life: database and broker may rest meanwhile."""
        if unexamined is None:
            self._standing.asked.clear()
        elif unexamined != self._unexamined:
            log.warning("history_not_examined", fault=unexamined.reason)
        self._unexamined = unexamined

    async def _examine(self, beat: Callable[[], None]) -> _Unexamined | None:
        """Judge what new connections lead to; why it could not be examined, or None."""
        try:
            async with asyncio.timeout(round_seconds_max), await self._connect() as connection:
                evidence = await examine_history(connection, self._broker, self._office.organization_id)
            self._judge(evidence)
            if self._standing.fault is not None and self._resumes(evidence):
                beat()
                await self._resume(evidence)
        except (BrokerError, TimeoutError) as fault:
            return _Unexamined(str(fault) or type(fault).__name__, of_database=False)
        except (NotExaminable, LookupError, OSError, psycopg.Error) as fault:
            # Whatever a database says while it is restored in place: it is looked at again.
            return _Unexamined(str(fault) or type(fault).__name__, of_database=True)
        return None

    def _judge(self, evidence: HistoryEvidence) -> None:
        """The verdict, before anything is done about it: whatever becomes of that, nothing is accepted in doubt."""
        trusted = evidence.was_promoted and self._on_failover is OnFailover.TRUST
        fault = evidence.stream_fault or (None if trusted else evidence.identity_fault)
        if fault is not None:
            fault = f"{fault}; {remedy}"
            if fault != self._standing.fault:
                log.error("history_in_doubt", reason=fault)
        elif self._standing.fault is not None or self._standing.examined != evidence.life:
            log.info("history_examined", incarnation=evidence.incarnation)
        self._standing.examined = evidence.life
        self._standing.fault = fault

    def _resumes(self, evidence: HistoryEvidence) -> bool:
        """Whether what to do was decided beforehand."""
        return evidence.was_promoted and self._on_failover is OnFailover.RESUME

    async def _resume(self, evidence: HistoryEvidence) -> None:
        """Ask for what was decided beforehand. Only an examination that then finds no fault ends the doubt."""
        payload = {
            "incarnation": evidence.incarnation,
            "reason": f"failover: {evidence.identity_fault}",
            "abandoned": list(evidence.forgotten),
        }
        registry = registry_group(self._office.organization_id)
        async with asyncio.timeout(round_seconds_max):
            async with await self._connect() as connection:
                raw = await sign_own_command(connection, self._office.key, history_resume, payload, group_id=registry)
            reply = decode_reply(await self._submit(raw))
        refused = f"{reply.code.value}: {reply.message}" if isinstance(reply, Rejection) else None
        if refused is not None and refused != self._refused:
            log.error("history_not_resumed", reason=refused)
        self._refused = refused

    async def check(self) -> Finding:
        """Readiness: whether the history is beyond doubt on the server that new connections lead to, as far as seen.

        A broker that is away takes nothing from a verdict, unless somebody has met another life of the server.
        """
        if self._standing.fault is not None:
            return Finding.failed(self._standing.fault)
        unexamined = self._unexamined
        if unexamined is not None and (unexamined.of_database or self._standing.asked.is_set()):
            return Finding.failed(f"the history cannot be examined: {unexamined.reason}")
        return Finding.failed(not_examined_yet) if self._standing.asked.is_set() else READY
