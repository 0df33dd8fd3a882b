"""What the supervisor keeps alive: an embedded server, or a service in a process of its own."""

import asyncio
import contextlib
import json
import os
import signal
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, Protocol

import psutil

from ops.embedded.directory import StackDirectory, write_private
from ops.embedded.http_probe import probe
from ops.embedded.processes import end, log_tail, recognised

service_stop_seconds_max: Final = 15.0
"""Seconds that a service gets for its graceful stop before it is killed."""
log_bytes_max: Final = 16 * 1024 * 1024
"""Bytes of a service's log at which a start sets it aside."""


async def to_the_end[**P, R](function: Callable[P, R], *args: P.args, **kwargs: P.kwargs) -> R:
    """Run a blocking function in a thread; when cancelled, wait for its end first.

    Else what it starts would outlive the one who was to stop it.
    """
    running = asyncio.ensure_future(asyncio.to_thread(function, *args, **kwargs))
    try:
        return await asyncio.shield(running)
    except asyncio.CancelledError:
        await asyncio.wait({running})
        raise


class Unit(Protocol):
    """One process that is started, watched, restarted and stopped."""

    name: str

    @property
    def pid(self) -> int | None:
        """The PID while it runs."""

    async def start(self) -> None:
        """Start it. Raises `EmbeddedFault`."""

    async def wait_end(self) -> int:
        """Wait for its end and return the exit code (negative: the signal)."""

    async def stop(self) -> None:
        """Stop it gracefully within a bound."""

    async def unready(self) -> str | None:
        """Why it is not ready now; None when it is."""


class Server(Protocol):
    """The blocking interface of the embedded servers."""

    @property
    def pid(self) -> int | None:
        """The PID while the server runs."""

    def start(self) -> None:
        """Start and wait until it answers."""

    def stop(self) -> None:
        """Stop and wait for the end."""

    def wait_end(self) -> int | None:
        """Wait for the end."""


class ServerUnit:
    """An embedded server."""

    def __init__(self, name: str, server: Server) -> None:
        """Watch `server` under `name`."""
        self.name = name
        self.server = server
        self._starting = False

    @property
    def pid(self) -> int | None:
        """The PID while it runs."""
        return self.server.pid

    async def start(self) -> None:
        """Start it, recovery included; it answers on return."""
        self._starting = True
        try:
            await to_the_end(self.server.start)
        finally:
            self._starting = False

    async def wait_end(self) -> int:
        """Wait for its end."""
        return await asyncio.to_thread(self.server.wait_end) or 0

    async def stop(self) -> None:
        """Stop it in order."""
        await to_the_end(self.server.stop)

    async def unready(self) -> str | None:
        """A server that runs was made ready by its start."""
        if self._starting:
            return "it is starting"
        return None if self.pid is not None else "it does not run"


@dataclass(frozen=True)
class ServiceSpec:
    """A service to run: `weavehold <arguments>` in a process of its own, under a unique name."""

    name: str
    arguments: tuple[str, ...]
    variables: Mapping[str, str] = field(default_factory=dict)
    """`WEAVEHOLD_…` variables beside those of the stack."""
    withheld: tuple[str, ...] = ()
    """Variables of the stack that this service is never told."""


class ServiceUnit:
    """A service in a process of its own, with its health port and log file."""

    def __init__(
        self, spec: ServiceSpec, directory: StackDirectory, variables: Mapping[str, str], lifeline: int
    ) -> None:
        """`variables` are those of the stack; `lifeline` reads a pipe that closes with the supervisor."""
        self.name = spec.name
        self.spec = spec
        self._directory = directory
        self._variables = variables
        self._lifeline = lifeline
        self._process: asyncio.subprocess.Process | None = None

    @property
    def pid(self) -> int | None:
        """The PID while it runs."""
        return self._process.pid if self._process is not None and self._process.returncode is None else None

    @property
    def log(self) -> Path:
        """Its log file: JSON lines."""
        return self._directory.log(self.name)

    @property
    def health_port(self) -> int | None:
        """The port of its health endpoints; None until it has told."""
        try:
            return int(self._port_file.read_text())
        except (OSError, ValueError):
            return None

    @property
    def _port_file(self) -> Path:
        return self._directory.run / f"{self.name}.port"

    @property
    def _record(self) -> Path:
        return self._directory.run / f"{self.name}.json"

    async def start(self) -> None:
        """Start the process; a process that a killed supervisor left under this name is ended first."""
        await asyncio.to_thread(self._end_leftover)
        self._port_file.unlink(missing_ok=True)
        environment = {
            name: value for name, value in {**os.environ, **self._variables}.items() if name not in self.spec.withheld
        }
        environment |= {
            **self.spec.variables,
            "WEAVEHOLD_HEALTH_PORT": "0",
            "WEAVEHOLD_HEALTH_PORT_FILE": str(self._port_file),
            "WEAVEHOLD_STOP_WHEN_CLOSED": str(self._lifeline),
        }
        if self.log.exists() and self.log.stat().st_size > log_bytes_max:
            self.log.replace(self.log.with_suffix(".log.1"))
        with self.log.open("ab") as output:
            self._process = await asyncio.create_subprocess_exec(
                sys.executable,
                "-m",
                "ops.cli",
                *self.spec.arguments,
                stdin=asyncio.subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                env=environment,
                pass_fds=(self._lifeline,),
                start_new_session=True,
            )
        with contextlib.suppress(psutil.NoSuchProcess):
            started_at = psutil.Process(self._process.pid).create_time()
            write_private(self._record, {"pid": self._process.pid, "started_at": started_at})

    async def wait_end(self) -> int:
        """Wait for its end, and end what it started and left behind."""
        process = self._process
        if process is None:
            return 0
        code = await process.wait()
        with contextlib.suppress(ProcessLookupError, PermissionError):
            # It leads a session of its own, so its group holds nothing but its own helpers.
            os.killpg(process.pid, signal.SIGKILL)
        return code

    async def stop(self) -> None:
        """SIGTERM, then SIGKILL after `service_stop_seconds_max`."""
        process = self._process
        if process is None or process.returncode is not None:
            return
        process.terminate()
        try:
            async with asyncio.timeout(service_stop_seconds_max):
                await process.wait()
        except TimeoutError:
            process.kill()
            await process.wait()
        self._record.unlink(missing_ok=True)
        self._port_file.unlink(missing_ok=True)

    async def readiness(self) -> dict[str, Any] | None:
        """The answer of `/readyz`; None when it does not answer."""
        port = self.health_port
        answer = None if self.pid is None or port is None else await probe(port, "/readyz")
        return None if answer is None else dict(answer[1])

    async def is_live(self) -> bool:
        """Whether `/livez` answers; a process that has not told its port yet counts as live."""
        port = self.health_port
        return port is None or await probe(port, "/livez") is not None

    async def unready(self) -> str | None:
        """What `/readyz` finds wrong; None when ready."""
        if self.pid is None:
            return f"it does not run; the end of {self.log}:\n{log_tail(self.log, 4)}"
        answer = await self.readiness()
        if answer is None:
            return "its health endpoint does not answer"
        failed = [
            f"{name}: {found['detail']}" for name, found in answer["dependencies"].items() if found["state"] != "ready"
        ]
        return None if answer["ready"] else "; ".join(failed) or "it is not ready"

    def _end_leftover(self) -> None:
        try:
            record = json.loads(self._record.read_text())
            process = recognised(int(record["pid"]), float(record["started_at"]))
        except (OSError, ValueError, KeyError, TypeError):
            return
        if process is not None:
            end(process, request=signal.SIGTERM, seconds=service_stop_seconds_max)
