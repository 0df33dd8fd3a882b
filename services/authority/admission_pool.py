"""The admission processes of one authority: verification is CPU work, and one event loop has one core.

An admission process holds nothing of value: killed at any instruction, its batch is verified again by its successor.
"""

import asyncio
import os
import pickle
import subprocess
import sys
from asyncio.subprocess import Process
from collections.abc import Sequence
from contextlib import suppress
from typing import Final

from services.authority.admission_process import encode_frame, length_bytes
from services.authority.admit import Admission, unavailable
from services.process.logs import get_log

admission_batch_max: Final = 32
"""Commands verified in one call to an admission process."""
respawns_max: Final = 3
"""Times that one batch is given to a new process before its Commands get a retryable answer."""
answer_seconds_max: Final = 30.0
"""Seconds for one batch, the start of a process included; one that takes longer is replaced."""
end_seconds_max: Final = 2.0
"""Seconds that a process gets to end once its pipe is closed."""

log = get_log(__name__)


class _Worker:
    """One admission process, started when it is first needed. One batch at a time."""

    def __init__(self, database_url: str, organization_id: str) -> None:
        self._environment = os.environ | {"WEAVEHOLD_DATABASE_URL": database_url}
        self._command = (sys.executable, "-m", "services.authority.admission_process", organization_id)
        self._process: Process | None = None
        self._busy = asyncio.Lock()

    async def ask(self, raws: Sequence[bytes], registry_version: int) -> list[Admission] | None:
        """What the process says of a batch; None when it died or fell silent over it."""
        async with self._busy:
            try:
                async with asyncio.timeout(answer_seconds_max):
                    return await self._exchange(encode_frame((list(raws), registry_version)))
            except (OSError, EOFError, TimeoutError) as fault:
                log.warning("admission_process_lost", fault=str(fault) or type(fault).__name__)
                await self.end()
                return None

    async def _exchange(self, frame: bytes) -> list[Admission]:
        process = self._process or await asyncio.create_subprocess_exec(
            *self._command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=self._environment
        )
        self._process = process
        if process.stdin is None or process.stdout is None:
            raise EOFError("an admission process without pipes")
        process.stdin.write(frame)
        await process.stdin.drain()
        header = await process.stdout.readexactly(length_bytes)
        body = await process.stdout.readexactly(int.from_bytes(header))
        admissions: list[Admission] = pickle.loads(body)  # noqa: S301 - from a process of ours
        return admissions

    @property
    def pid(self) -> int | None:
        """The running process."""
        return None if self._process is None else self._process.pid

    async def end(self) -> None:
        """Close the pipe and wait; whoever does not end by it is killed."""
        process, self._process = self._process, None
        if process is None:
            return
        if process.stdin is not None:
            process.stdin.close()
        try:
            async with asyncio.timeout(end_seconds_max):
                await process.wait()
        except TimeoutError:
            with suppress(ProcessLookupError):
                process.kill()
            await process.wait()


class AdmissionPool:
    """A few admission processes. `admit` may be called from any task of one event loop."""

    def __init__(self, database_url: str, organization_id: str, processes: int) -> None:
        """`processes` of 1 suits two cores: PostgreSQL and the broker want the other."""
        self._workers = [_Worker(database_url, organization_id) for _ in range(processes)]
        self._turn = 0

    @property
    def pids(self) -> list[int]:
        """The running processes."""
        return [worker.pid for worker in self._workers if worker.pid is not None]

    async def admit(self, raws: Sequence[bytes], registry_version: int) -> list[Admission]:
        """Verify up to `admission_batch_max` Commands together. A process that dies is replaced and asked again."""
        self._turn = (self._turn + 1) % len(self._workers)
        worker = self._workers[self._turn]
        for _ in range(respawns_max):
            if (admissions := await worker.ask(raws, registry_version)) is not None:
                return admissions
        return [unavailable("admission processes keep dying") for _ in raws]

    async def close(self) -> None:
        """End the processes."""
        await asyncio.gather(*(worker.end() for worker in self._workers))
