"""Running one service process: signals, graceful bounded stop, health endpoints, and loops whose death is seen.

A service is an async function `serve(process)` that sets itself up, starts its loops with `process.start_loop` and
returns once `process.stopping` is set. SIGTERM, SIGINT, or the closing of the supervisor's pipe set it. A loop (or
`serve` itself) that ends before that is a fault: readiness fails at once, the others are asked to stop, and the
process exits with 1. Nothing outlives the grace period; a second signal ends it early.
"""

import asyncio
import os
import signal
import sys
from collections.abc import Awaitable, Callable, Coroutine, Mapping
from typing import Any, Final

import uvloop

from services.process.health import Health, HealthServer, Heartbeat, write_port_file
from services.process.logs import configure_logs, get_log
from services.process.metrics import Metrics
from services.process.settings import Settings, SettingsFault, read_settings
from services.process.tracing import Tracing

cancel_seconds_max: Final = 3.0
"""Seconds that cancelled tasks get before the process ends without them."""

_log = get_log(__name__)

type Serve = Callable[["ServiceProcess"], Awaitable[None]]
type Loop = Callable[[Heartbeat], Coroutine[Any, Any, None]]


class ServiceProcess:
    """What a running service has: settings, health, metrics, tracing, and the sign to stop."""

    def __init__(self, name: str, settings: Settings) -> None:
        """Made by `run_service`; tests may make their own inside a running loop."""
        self.name = name
        self.settings = settings
        self.health = Health()
        self.metrics = Metrics(name)
        self.tracing = Tracing(name, settings.otlp_endpoint)
        self.stopping = asyncio.Event()
        self.failures: list[str] = []
        self.unusable: SettingsFault | None = None
        self._tasks: set[asyncio.Task[None]] = set()
        self._group: asyncio.TaskGroup | None = None

    def request_stop(self, reason: str) -> None:
        """Ask everything to finish: readiness fails from now on."""
        if not self.stopping.is_set():
            _log.info("stopping", reason=reason)
            self.health.stop()
            self.stopping.set()

    def fail(self, what: str, reason: str) -> None:
        """Record a fault that ends the process with 1, and stop."""
        self.failures.append(f"{what}: {reason}")
        self.request_stop(f"{what} failed: {reason}")

    def start_loop(self, name: str, loop: Loop, *, max_silence_seconds: float) -> asyncio.Task[None]:
        """Run `loop(heartbeat)` until `stopping`; it must beat at least every `max_silence_seconds`.

        Ending earlier, with or without an exception, fails the process. Cancelling the returned task ends the loop
        as planned.
        """
        if self._group is None:
            raise RuntimeError("loops can be started only while the service runs")
        heartbeat = self.health.heartbeat(name, max_silence_seconds)
        self.health.begun()
        task = self._group.create_task(self._watch(name, loop(heartbeat), heartbeat), name=name)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task

    async def _watch(self, name: str, work: Awaitable[None], heartbeat: Heartbeat | None = None) -> None:
        try:
            await work
        except asyncio.CancelledError:
            if heartbeat is not None:
                self.health.forget_loop(name)
            raise
        except SettingsFault as fault:
            # Nothing is broken: what the process was told cannot be used, which ends it with 2.
            self.unusable = fault
            self.request_stop(str(fault))
        except Exception as error:  # noqa: BLE001 - a dead loop is reported, whatever killed it
            _log.exception("loop_failed", loop=name)
            self._dead(name, heartbeat, f"{type(error).__name__}: {error}")
        else:
            if not self.stopping.is_set():
                _log.error("loop_ended", loop=name)
                self._dead(name, heartbeat, "it returned before the process was asked to stop")

    def _dead(self, name: str, heartbeat: Heartbeat | None, reason: str) -> None:
        if heartbeat is not None:
            heartbeat.die(reason)
        self.fail(f"loop {name}", reason)

    async def run(self, serve: Serve) -> None:
        """Run the service until it has stopped; at most the grace period after `stopping`.

        Until its first loop is started it is not ready, and ends at once when it is asked to.
        """
        self.health.begin()
        enforcer = asyncio.create_task(self._enforce_grace(), name="grace")
        try:
            async with asyncio.TaskGroup() as group:
                self._group = group
                self._tasks.add(group.create_task(self._watch("serve", serve(self)), name="serve"))
        except* asyncio.CancelledError:
            _log.warning("stopped_by_cancellation")
        finally:
            self._group = None
            enforcer.cancel()

    async def _enforce_grace(self) -> None:
        await self.stopping.wait()
        if self.health.is_starting:
            # Whatever it waits for, nothing was taken that would have to be finished.
            for task in list(self._tasks):
                task.cancel()
        await asyncio.sleep(self.settings.stop_grace_seconds)
        self.cancel_all("the grace period is over")

    def cancel_all(self, reason: str) -> None:
        """Cancel what still runs; a task that ignores it is left behind when the process ends."""
        unfinished = sorted(task.get_name() for task in self._tasks)
        if not unfinished:
            return
        _log.error("cancelling", reason=reason, unfinished=unfinished)
        self.failures.append(f"unfinished at the end of the grace period: {', '.join(unfinished)}")
        for task in list(self._tasks):
            task.cancel()
        asyncio.get_running_loop().call_later(cancel_seconds_max, self._end_hard)

    def _end_hard(self) -> None:
        if self._tasks:
            _log.error("ending_hard", unfinished=sorted(task.get_name() for task in self._tasks))
            sys.stderr.flush()
            os._exit(1)


def _watch_signals(process: ServiceProcess) -> None:
    loop = asyncio.get_running_loop()

    def on_signal(number: signal.Signals) -> None:
        if process.stopping.is_set():
            process.cancel_all(f"second signal {number.name}")
        else:
            process.request_stop(number.name)

    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, on_signal, number)
    descriptor = process.settings.stop_when_closed
    if descriptor is not None:
        loop.add_reader(descriptor, _on_supervisor_gone, process, descriptor)


def _on_supervisor_gone(process: ServiceProcess, descriptor: int) -> None:
    if not os.read(descriptor, 1):
        asyncio.get_running_loop().remove_reader(descriptor)
        process.request_stop("the supervisor is gone")


def _bind_health(process: ServiceProcess) -> HealthServer:
    host, port = process.settings.health_host, process.settings.health_port
    try:
        return HealthServer(process.health, process.metrics, host, port)
    except OSError as error:
        raise SettingsFault(
            "WEAVEHOLD_HEALTH_PORT",
            f"is {port}, but {host}:{port} cannot be bound: {error.strerror}",
            "Use a free port, or 0 to let one be picked",
        ) from error


async def _run(name: str, settings: Settings, serve: Serve) -> int:
    process = ServiceProcess(name, settings)
    server = _bind_health(process)
    try:
        _watch_signals(process)
        server.start()
        if settings.health_port_file is not None:
            write_port_file(settings.health_port_file, server.port)
        _log.info("started", health_port=server.port, pid=os.getpid(), settings=settings.redacted())
        await process.run(serve)
        if process.unusable is not None:
            raise process.unusable
    finally:
        await server.close()
        await process.health.close()
        process.metrics.close()
        await asyncio.to_thread(process.tracing.close)
    _log.info("stopped", failures=process.failures)
    return 1 if process.failures else 0


def run_service(
    name: str,
    serve: Serve,
    *,
    signing_key: str = "authority",
    uses_database: bool = True,
    variables: Mapping[str, str] | None = None,
) -> int:
    """Run a service process to its end and return its exit code: 0 stopped as asked, 1 fault, 2 unusable settings."""
    try:
        settings = read_settings(variables, signing_key=signing_key, uses_database=uses_database)
    except SettingsFault as fault:
        sys.stderr.write(f"weavehold {name}: {fault}\n")
        return 2
    configure_logs(name, settings.log_level)
    try:
        with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
            return runner.run(_run(name, settings, serve))
    except SettingsFault as fault:
        sys.stderr.write(f"weavehold {name}: {fault}\n")
        return 2
