"""`/livez`, `/readyz` and `/metrics` of one process (OPS-1).

Readiness is one state per named dependency and fails closed: a check that raises, hangs or was never made counts
as failed, and so does a loop whose heartbeat is older than its bound. Liveness says only that the event loop turns.
"""

import asyncio
import contextlib
import os
import socket
import time
from collections.abc import Awaitable, Callable, Iterator
from dataclasses import dataclass
from enum import Enum
from pathlib import Path
from typing import Final

import uvicorn
from nats.aio.client import Client
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from services.process.database import Pool, PrimaryState, primary_state
from services.process.metrics import Metrics

check_seconds_max: Final = 2.0
"""Seconds after which an unanswered check counts as failed."""
backlog_max: Final = 64
"""Connections that wait for the server to take them."""
dependencies_max: Final = 64
"""Named dependencies of one process."""


class State(Enum):
    """The state of one dependency."""

    READY = "ready"
    FAILED = "failed"


@dataclass(frozen=True)
class Finding:
    """What a check found; `detail` names the thing and what is wrong with it."""

    state: State
    detail: str = ""

    @classmethod
    def failed(cls, detail: str) -> "Finding":
        """A failed state with its reason."""
        return cls(State.FAILED, detail)


READY: Final = Finding(State.READY)

type Check = Callable[[], Awaitable[Finding]]


class Heartbeat:
    """Shows that a loop lives. The loop calls `beat()` at least every `max_silence_seconds`."""

    def __init__(self, name: str, max_silence_seconds: float) -> None:
        """Start fresh."""
        self.name = name
        self.max_silence_seconds = max_silence_seconds
        self._last = time.monotonic()
        self._death: str | None = None

    def beat(self) -> None:
        """Say: still turning."""
        self._last = time.monotonic()

    def die(self, reason: str) -> None:
        """Say: this loop has ended and will not come back."""
        self._death = reason

    def finding(self) -> Finding:
        """Ready while the last beat is fresh."""
        if self._death is not None:
            return Finding.failed(f"loop {self.name} ended: {self._death}")
        silence = time.monotonic() - self._last
        if silence > self.max_silence_seconds:
            return Finding.failed(
                f"loop {self.name} has been silent for {silence:.1f} s, at most {self.max_silence_seconds:g} s"
            )
        return READY


class Health:
    """The named dependencies of one process."""

    def __init__(self) -> None:
        """Start with none: a process without any is ready."""
        self._checks: dict[str, Check] = {}
        self._asked: dict[str, asyncio.Task[Finding]] = {}
        self._stopping = False
        self.is_starting = False

    def begin(self) -> None:
        """Not be ready until `begun`: dependencies are still to be named."""
        self.is_starting = True

    def begun(self) -> None:
        """Be as ready as the dependencies."""
        self.is_starting = False

    def add(self, name: str, check: Check) -> None:
        """Register a dependency. Raises `ValueError` for a name that is taken or beyond `dependencies_max`."""
        if name in self._checks or len(self._checks) >= dependencies_max:
            raise ValueError(f"dependency {name!r} is registered already or is one too many of {dependencies_max}")
        self._checks[name] = check

    def remove(self, name: str) -> None:
        """Forget a dependency that the process no longer has."""
        self._checks.pop(name, None)

    def add_database(self, pool: Pool, name: str = "database") -> None:
        """Require a writable primary behind the pool."""

        async def check() -> Finding:
            async with pool.connection(timeout=check_seconds_max) as connection:
                state = await primary_state(connection)
            return READY if state is PrimaryState.WRITABLE else Finding.failed(f"the database is {state.value}")

        self.add(name, check)

    def add_broker(self, client: Client, name: str = "broker") -> None:
        """Require a live connection to the broker."""

        async def check() -> Finding:
            if not client.is_connected:
                return Finding.failed("the broker is not connected")
            await client.flush(timeout=max(1, int(check_seconds_max)))
            return READY

        self.add(name, check)

    def heartbeat(self, name: str, max_silence_seconds: float) -> Heartbeat:
        """Register a loop, shown as dependency `loop:<name>`; give it the returned Heartbeat."""
        heartbeat = Heartbeat(name, max_silence_seconds)

        async def check() -> Finding:
            return heartbeat.finding()

        self.add(f"loop:{name}", check)
        return heartbeat

    def forget_loop(self, name: str) -> None:
        """Forget a loop that ended as planned."""
        self.remove(f"loop:{name}")

    def stop(self) -> None:
        """Never be ready again: the process is stopping."""
        self._stopping = True

    async def findings(self) -> dict[str, Finding]:
        """The state of each dependency, all asked at once, within `check_seconds_max`."""
        names = list(self._checks)
        found = dict(zip(names, await asyncio.gather(*(self._ask(name) for name in names)), strict=True))
        if self._stopping:
            found["process"] = Finding.failed("the process is stopping")
        elif self.is_starting:
            found["process"] = Finding.failed("the process is starting")
        return found

    async def _ask(self, name: str) -> Finding:
        task = self._asked.get(name)
        if task is None or task.done():
            task = asyncio.create_task(self._checked(name), name=f"check-{name}")
            self._asked[name] = task
        # Not cancelled when it is late: a cancelled query may take longer to end than the probe may take to answer.
        # The next probe finds it still running and waits for the same answer, so that checks never pile up.
        await asyncio.wait({task}, timeout=check_seconds_max)
        return task.result() if task.done() else Finding.failed(f"no answer within {check_seconds_max:g} s")

    async def _checked(self, name: str) -> Finding:
        try:
            return await self._checks[name]()
        except Exception as error:  # noqa: BLE001 - fail closed: whatever goes wrong is "not ready"
            return Finding.failed(f"{type(error).__name__}: {error}")

    async def close(self) -> None:
        """End the checks that are still under way."""
        unfinished = [task for task in self._asked.values() if not task.done()]
        for task in unfinished:
            task.cancel()
        await asyncio.gather(*unfinished, return_exceptions=True)


def health_routes(health: Health, metrics: Metrics) -> list[Route]:
    """The three endpoints."""
    asked = asyncio.Lock()

    async def livez(_request: Request) -> Response:
        return JSONResponse({"live": True})

    async def readyz(_request: Request) -> Response:
        # One evaluation at a time: impatient probes queue here instead of at the database.
        async with asked:
            findings = await health.findings()
        ready = all(finding.state is State.READY for finding in findings.values())
        body = {
            "ready": ready,
            "dependencies": {
                name: {"state": finding.state.value, "detail": finding.detail} for name, finding in findings.items()
            },
        }
        return JSONResponse(body, status_code=200 if ready else 503)

    async def show_metrics(_request: Request) -> Response:
        content, content_type = metrics.exposition()
        return Response(content, headers={"content-type": content_type})

    return [Route("/livez", livez), Route("/readyz", readyz), Route("/metrics", show_metrics)]


class _Server(uvicorn.Server):
    """uvicorn without its own signal handling: the process decides when to stop."""

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Leave signals alone."""
        yield


class HealthServer:
    """Serves the endpoints of one process; `port` is the one really bound."""

    def __init__(self, health: Health, metrics: Metrics, host: str = "127.0.0.1", port: int = 0) -> None:
        """Bind at once. Raises `OSError` when the address is taken."""
        family = socket.AF_INET6 if ":" in host else socket.AF_INET
        self._socket = socket.socket(family, socket.SOCK_STREAM)
        try:
            self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            self._socket.bind((host, port))
            # From here on the kernel holds connections until the server runs: a told port always answers.
            self._socket.listen(backlog_max)
        except BaseException:
            self._socket.close()
            raise
        self.host = host
        self.port: int = self._socket.getsockname()[1]
        config = uvicorn.Config(
            Starlette(routes=health_routes(health, metrics)),
            log_config=None,
            access_log=False,
            lifespan="off",
            ws="none",
            http="h11",
            timeout_graceful_shutdown=1,
            limit_concurrency=32,
            server_header=False,
        )
        self._server = _Server(config)
        self._task: asyncio.Task[None] | None = None

    def start(self) -> None:
        """Serve in the background of the running loop."""
        self._task = asyncio.create_task(self._server.serve(sockets=[self._socket]), name="health-server")

    async def close(self) -> None:
        """Stop serving."""
        self._server.should_exit = True
        if self._task is not None:
            await self._task
        self._socket.close()


def write_port_file(path: Path, port: int) -> None:
    """Tell a supervisor the bound port: one decimal number, written atomically."""
    temporary = path.with_name(f"{path.name}.{os.getpid()}.new")
    temporary.write_text(f"{port}\n")
    temporary.replace(path)
