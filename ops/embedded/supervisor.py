"""The embedded stack as one object: PostgreSQL, NATS and the services, started, watched, restarted, stopped.

Use it as a library with `async with Supervisor(directory, services) as stack`, or by `weavehold up`. Every process is
a child with a session of its own, so Ctrl-C reaches only the supervisor, which stops the services, then NATS, then
PostgreSQL. When the supervisor is killed, the services notice by a closed pipe and a watchdog stops the servers.
With WEAVEHOLD_DATABASE_URL or WEAVEHOLD_NATS_URL set, those servers are used and not started, watched or stopped.
"""

import asyncio
import os
import signal
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from itertools import groupby
from pathlib import Path
from typing import Final, Self

from ops.embedded.broker_server import BrokerServer
from ops.embedded.directory import DirectoryLock, StackDirectory, default_directory
from ops.embedded.ensure_database import ensure_database
from ops.embedded.fault import EmbeddedFault
from ops.embedded.postgres_server import PostgresServer
from ops.embedded.processes import wait_until
from ops.embedded.unit import ServerUnit, ServiceSpec, ServiceUnit, Unit, to_the_end
from ops.init import Organization, initialize, only_organization
from ops.migrate import migrate
from services.feed.trust_anchors import anchors_file_name, anchors_variable
from services.process.database import connect
from services.process.logs import get_log
from services.process.settings import Environment

restart_wait_seconds: Final = 0.1
"""The wait before the first restart; doubled for each that follows at once."""
restart_wait_seconds_max: Final = 5.0
"""The longest wait before a restart."""
steady_seconds: Final = 20.0
"""A process that ran this long starts again with the first wait."""
liveness_interval_seconds: Final = 2.0
"""Seconds between two looks at a service's `/livez`."""
liveness_failures_max: Final = 5
"""Unanswered looks in a row after which a service is killed and restarted."""
healthy_seconds_max: Final = 60.0
"""Seconds that `wait_healthy` waits by default."""
healthy_poll_seconds: Final = 0.1
"""Seconds between two looks while somebody waits for health; nobody looks otherwise."""

kill_seconds_max: Final = 10.0
"""Seconds that the kernel gets to end a killed process."""

_doubt: Final = "history: the database"
"""How an authority that holds begins to say why it is not ready."""
database_unit: Final = "database"
broker_unit: Final = "broker"

_log = get_log(__name__)


@dataclass(frozen=True, kw_only=True)
class StackOptions:
    """What kind of stack; the defaults suit one machine."""

    organization_name: str | None = None
    """Without one it is the Organization that is there, or a new one of the default name."""
    shard_count: int | None = None
    nats_port: int | None = None
    """A fixed port for NATS; without it one is picked once and kept in the directory."""


class HistoryInDoubt(EmbeddedFault):
    """The authority runs and holds: the database may have lost history, and an operator has to decide."""


class Supervisor:
    """One running stack. All methods are for the event loop that started it."""

    def __init__(
        self,
        directory: Path = default_directory,
        services: Sequence[ServiceSpec] = (),
        options: StackOptions | None = None,
        variables: Mapping[str, str] | None = None,
    ) -> None:
        """Describe the stack; nothing is started. `variables` overrides the process environment."""
        self.directory = StackDirectory.at(directory)
        self.options = options or StackOptions()
        self._specs = list(services)
        self._environment = Environment({**os.environ, **(variables or {})})
        self._lock = DirectoryLock(self.directory)
        self._units: dict[str, Unit] = {}
        self._watchers: dict[str, asyncio.Task[None]] = {}
        self._held: set[str] = set()
        self._given_up: dict[str, str] = {}
        self._restarts: dict[str, int] = {}
        self._stopping = asyncio.Event()
        self.started = asyncio.Event()
        """Set once everything has been started, healthy or not yet."""
        self._lifeline: tuple[int, int] | None = None
        self._watchdog: subprocess.Popen[bytes] | None = None
        self._organization: Organization | None = None
        self.database_url = ""
        self.nats_url = ""
        self.nats_token: str | None = None

    async def __aenter__(self) -> Self:
        """Start everything and wait until it is healthy."""
        try:
            await self.start()
            await self.wait_healthy()
        except BaseException:
            await self.stop()
            raise
        return self

    async def __aexit__(self, *_error: object) -> None:
        """Stop everything."""
        await self.stop()

    @property
    def organization(self) -> Organization:
        """The Organization with its first keys. Raises `RuntimeError` before the start."""
        if self._organization is None:
            raise RuntimeError("the stack has not been started")
        return self._organization

    @property
    def service_names(self) -> list[str]:
        """The names of the services, in the order of their start."""
        return [name for name, unit in self._units.items() if isinstance(unit, ServiceUnit)]

    @property
    def unit_names(self) -> list[str]:
        """The names of all supervised processes, `database` and `broker` included when they are ours."""
        return list(self._units)

    def unit(self, name: str) -> Unit:
        """One supervised process. Raises `KeyError`."""
        return self._units[name]

    def log(self, name: str) -> Path:
        """The log file of a supervised process."""
        return self.directory.log({database_unit: "postgres", broker_unit: "nats"}.get(name, name))

    def service(self, name: str) -> ServiceUnit:
        """One service: PID, health port, log. Raises `KeyError`."""
        unit = self._units[name]
        if not isinstance(unit, ServiceUnit):
            raise KeyError(name)
        return unit

    def pid(self, name: str) -> int | None:
        """The PID of a supervised process now."""
        return self._units[name].pid

    def restarts(self, name: str) -> int:
        """How often the supervisor has restarted this process."""
        return self._restarts.get(name, 0)

    def variables(self) -> dict[str, str]:
        """The `WEAVEHOLD_…` variables that every process of this stack gets."""
        found = {
            "WEAVEHOLD_DATABASE_URL": self.database_url,
            "WEAVEHOLD_NATS_URL": self.nats_url,
            "WEAVEHOLD_ORGANIZATION": self.organization.organization_id,
            "WEAVEHOLD_KEYS_DIR": str(self.directory.keys),
            anchors_variable: str(self.directory.keys / anchors_file_name),
            "WEAVEHOLD_PROJECTIONS_DIR": str(self.directory.projections),
        }
        if self.nats_token is not None:
            found["WEAVEHOLD_NATS_TOKEN"] = self.nats_token
        return found

    async def start(self) -> None:
        """Start servers, migrate, initialize, start services. Raises `EmbeddedFault` and other `CommandFault`s."""
        self.directory.prepare()
        await to_the_end(self._lock.acquire)
        self._lifeline = os.pipe()
        await self._start_servers()
        await to_the_end(migrate, self.database_url)
        connection = await connect(self.database_url, name="weavehold-up")
        try:
            self._organization = await initialize(
                connection,
                name=self.options.organization_name or await only_organization(connection),
                keys_directory=self.directory.keys,
                shard_count=self.options.shard_count,
            )
        finally:
            await connection.close()
        self.directory.write_variables(self.variables())
        for spec in self._specs:
            await self.add_service(spec)
        self.started.set()

    async def _start_servers(self) -> None:
        database_url = self._environment.optional("WEAVEHOLD_DATABASE_URL")
        nats_url = self._environment.optional("WEAVEHOLD_NATS_URL")
        if database_url is None or nats_url is None:
            self._start_watchdog()
        if database_url is None:
            server = PostgresServer(self.directory.postgres, log=self.directory.log("postgres"))
            await self._add(ServerUnit(database_unit, server))
            await asyncio.to_thread(ensure_database, server.url())
            database_url = server.url("weavehold")
        if nats_url is None:
            port, self.nats_token = self.directory.broker_address(self.options.nats_port)
            broker = BrokerServer(self.directory.nats, port=port, token=self.nats_token, log=self.directory.log("nats"))
            await self._add(ServerUnit(broker_unit, broker))
            nats_url = broker.url
        else:
            self.nats_token = self._environment.optional("WEAVEHOLD_NATS_TOKEN")
        self.database_url = database_url
        self.nats_url = nats_url

    def _start_watchdog(self) -> None:
        self._watchdog = subprocess.Popen(  # noqa: S603 - our own program
            [sys.executable, "-m", "ops.embedded.watchdog", str(self.directory.path)],
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        )

    async def add_service(self, spec: ServiceSpec) -> ServiceUnit:
        """Start one more service under supervision. Raises `EmbeddedFault` for a name in use."""
        if self._lifeline is None:
            raise RuntimeError("the stack has not been started")
        unit = ServiceUnit(spec, self.directory, self.variables(), self._lifeline[0])
        await self._add(unit)
        return unit

    async def _add(self, unit: Unit) -> None:
        if unit.name in self._units:
            raise EmbeddedFault(f"a process named {unit.name} is running already", "Choose another name")
        self._units[unit.name] = unit
        await unit.start()
        self._watchers[unit.name] = asyncio.create_task(self._watch(unit), name=f"watch-{unit.name}")

    async def _watch(self, unit: Unit) -> None:
        """Restart the process whenever it ends, with a bounded wait, until the stack stops."""
        wait = restart_wait_seconds
        while True:
            began = time.monotonic()
            code = await self._wait_end(unit)
            if self._stopping.is_set() or unit.name in self._held:
                return
            if code == 2:
                self._give_up(unit, "it cannot use its settings (exit code 2)")
                return
            wait = restart_wait_seconds if time.monotonic() - began > steady_seconds else wait
            _log.warning("process_ended", process=unit.name, code=code, restart_in_seconds=wait)
            with suppress(TimeoutError):
                await asyncio.wait_for(self._stopping.wait(), wait)
            wait = min(wait * 2, restart_wait_seconds_max)
            if self._stopping.is_set() or unit.name in self._held:
                return
            self._restarts[unit.name] = self.restarts(unit.name) + 1
            try:
                await unit.start()
            except EmbeddedFault as fault:
                # The next turn finds it ended at once and tries again after a longer wait.
                _log.error("restart_failed", process=unit.name, error=str(fault))

    async def _wait_end(self, unit: Unit) -> int:
        """The exit code; a service whose `/livez` stays silent is killed on the way."""
        if not isinstance(unit, ServiceUnit):
            return await unit.wait_end()
        ended = asyncio.ensure_future(unit.wait_end())
        silent = 0
        while not ended.done():
            await asyncio.wait({ended}, timeout=liveness_interval_seconds)
            if ended.done():
                break
            silent = 0 if await unit.is_live() else silent + 1
            if silent >= liveness_failures_max and unit.pid is not None:
                _log.error("process_hangs", process=unit.name, seconds=silent * liveness_interval_seconds)
                os.kill(unit.pid, signal.SIGKILL)
        return ended.result()

    def _give_up(self, unit: Unit, reason: str) -> None:
        self._given_up[unit.name] = reason
        _log.error("process_given_up", process=unit.name, reason=reason)

    async def kill(self, name: str, *, restart: bool = True) -> int:
        """SIGKILL a process by name (`database`, `broker`, or a service) and return its PID once it has ended.

        It is restarted by supervision; with `restart=False` it stays down until `start_again`. Raises `KeyError`,
        `ProcessLookupError` when it does not run.
        """
        pid = self._units[name].pid
        if pid is None:
            raise ProcessLookupError(f"{name} does not run")
        if not restart:
            self._held.add(name)
        os.kill(pid, signal.SIGKILL)
        await asyncio.to_thread(wait_until, lambda: self._units[name].pid != pid, kill_seconds_max)
        return pid

    async def wait_ended(self, name: str) -> None:
        """Wait until a process killed with `restart=False` has ended."""
        await self._watchers[name]

    async def start_again(self, name: str) -> None:
        """Start a process that was killed with `restart=False`, or that was given up. Raises `EmbeddedFault`."""
        await self.wait_ended(name)
        self._held.discard(name)
        self._given_up.pop(name, None)
        unit = self._units[name]
        await unit.start()
        self._watchers[name] = asyncio.create_task(self._watch(unit), name=f"watch-{name}")

    async def stop_service(self, name: str) -> None:
        """Stop one service gracefully and forget it."""
        self._held.add(name)
        await self.service(name).stop()
        await self.wait_ended(name)
        self._held.discard(name)
        del self._units[name]

    async def wait_healthy(self, seconds: float = healthy_seconds_max) -> None:
        """Wait until every process runs and is ready. Raises `EmbeddedFault` naming what is not, after `seconds`.

        Raises HistoryInDoubt at once where nothing but an operator's decision can help; everything runs on then.
        """
        deadline = time.monotonic() + seconds
        while unready := await self.unready():
            if doubt := next((r for r in unready.values() if r.startswith(_doubt)), None):
                raise HistoryInDoubt(doubt, "Until then nothing is accepted")
            if self._given_up or time.monotonic() > deadline:
                told = "; ".join(f"{name}: {reason}" for name, reason in unready.items())
                raise EmbeddedFault(f"not healthy after {seconds:g} s: {told}", f"See {self.directory.logs}")
            await asyncio.sleep(healthy_poll_seconds)

    async def unready(self) -> dict[str, str]:
        """Why each process that is not ready now is not; empty when all are."""
        names = list(self._units)
        reasons = await asyncio.gather(*(self._units[name].unready() for name in names))
        found = {name: reason for name, reason in zip(names, reasons, strict=True) if reason is not None}
        return found | {name: self._given_up[name] for name in self._given_up if name in self._units}

    async def stop(self) -> None:
        """Stop the services in reverse order of their start, then broker and database; nothing is left running."""
        self._stopping.set()
        for _kind, names in groupby(reversed(self._units), key=self._kind):
            await asyncio.gather(*(self._stop_unit(name) for name in names))
        if self._lock.held:
            self.directory.forget_variables()
        if self._watchdog is not None:
            await asyncio.to_thread(self._watchdog.communicate, b"stopped")
            self._watchdog = None
        if self._lifeline is not None:
            for descriptor in self._lifeline:
                os.close(descriptor)
            self._lifeline = None
        self._lock.release()

    def _kind(self, name: str) -> str:
        """What stops together: services of one command."""
        unit = self._units[name]
        return unit.spec.arguments[0] if isinstance(unit, ServiceUnit) else name

    async def _stop_unit(self, name: str) -> None:
        unit = self._units[name]
        await unit.stop()
        if (watcher := self._watchers.get(name)) is not None:
            # A restart that was under way ends first, so that its process cannot outlive the stop.
            await asyncio.wait({watcher})
            await unit.stop()
