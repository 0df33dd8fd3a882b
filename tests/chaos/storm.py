"""A stack whose every connection leads through a proxy, and the acts of a plan done to it."""

import asyncio
import shutil
import sys
import time
from collections.abc import AsyncIterator, Iterable, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import replace
from itertools import takewhile
from pathlib import Path

import psycopg

from ops.embedded.services import authority, projector, relay, worker
from ops.embedded.supervisor import StackOptions, Supervisor, broker_unit
from ops.embedded.unit import ServiceSpec
from services.projector.projection_store import database_variable, store_variable
from tests.chaos.plan import Act, Kind, links
from tests.fault_proxy import FaultProxy

projections_database = "projections"
shard_count = 2
healthy_seconds_max = 180.0
"""Seconds until what was started must be ready, beside whatever else the machine does."""
lease_seconds = 15
"""Length of the Worker's Execution Leases: some run out under the storm."""


class Storm:
    """A running stack behind proxies. `restore` ends every act that lasts; processes come back by supervision alone."""

    def __init__(self, stack: Supervisor, proxies: Mapping[str, FaultProxy], projections_url: str) -> None:
        self.stack = stack
        self.proxies = proxies
        self.projections_url = projections_url
        self.began = time.monotonic()
        self._older_store = stack.directory.path / "older-store"
        self._lasting: set[asyncio.Task[None]] = set()

    @property
    def seconds(self) -> float:
        """How long the stack has run."""
        return time.monotonic() - self.began

    @property
    def projection_variables(self) -> dict[str, str]:
        """Where the board lives, for who wants to look at it without a proxy."""
        return {store_variable: "postgres", database_variable: self.projections_url}

    async def start(self, spec: ServiceSpec) -> None:
        """Start a service that reaches the servers through its own proxies."""
        told = dict(spec.variables) | {"WEAVEHOLD_NATS_URL": self.proxies[f"{spec.name}/broker"].nats_url}
        to_database = self.proxies.get(f"{spec.name}/database")
        if spec.name == "projector":
            told |= {store_variable: "postgres", database_variable: to_database.database_url(self.projections_url)}
        elif to_database is not None:
            told["WEAVEHOLD_DATABASE_URL"] = to_database.database_url(self.stack.database_url)
        await self.stack.add_service(replace(spec, variables=told))

    async def start_worker(self, key_file: Path) -> None:
        """Start the Worker of a registered Agent."""
        spec = worker(key_file)
        told = {"WEAVEHOLD_WORKER_LEASE_SECONDS": str(lease_seconds)}
        await self.start(replace(spec, variables=dict(spec.variables) | told))

    def _tell(self, what: str) -> None:
        sys.stdout.write(f"{self.seconds:6.1f}  {what}\n")

    async def stop_services(self) -> None:
        """End all services in good order."""
        await asyncio.gather(*(self.stack.stop_service(name) for name in self.stack.service_names))

    async def run(self, plan: Iterable[Act], seconds: float) -> None:
        """Do what comes until so many seconds have passed."""
        ends = time.monotonic() + seconds
        for act in takewhile(lambda _: time.monotonic() < ends, plan):
            self._tell(str(act))
            await self._do(act)
            await asyncio.sleep(act.pause)

    async def _do(self, act: Act) -> None:
        match act.kind:
            case Kind.KILL:
                await self._kill(act.target)
            case Kind.CUT:
                proxy = self.proxies[act.target]
                proxy.refuse()
                await proxy.cut()
                self._after(act.seconds, proxy.accept)
            case Kind.STALL:
                proxy = self.proxies[act.target]
                proxy.stall()
                self._after(act.seconds, proxy.resume)
            case Kind.SWAP:
                await self._replace_store(self._set_back)
            case Kind.WIPE:
                await self._replace_store(self._wipe)

    def _after(self, seconds: float, end) -> None:
        async def last() -> None:
            await asyncio.sleep(seconds)
            end()

        task = asyncio.create_task(last())
        self._lasting.add(task)
        task.add_done_callback(self._lasting.discard)

    async def _kill(self, name: str, *, restart: bool = True) -> bool:
        """Kill a process; False when an earlier kill has not been mended yet."""
        try:
            await self.stack.kill(name, restart=restart)
        except ProcessLookupError:
            self._tell(f"{name} is down anyway")
            return False
        return True

    async def _replace_store(self, change) -> None:
        """Kill the broker, change its store, start it."""
        if await self._kill(broker_unit, restart=False):
            await self.stack.wait_ended(broker_unit)
            await asyncio.to_thread(change, self.stack.directory.nats / "jetstream")
            await self.stack.start_again(broker_unit)

    async def keep_copy(self) -> None:
        """Keep a copy of the broker's store to come back later."""
        await self._replace_store(lambda store: shutil.copytree(store, self._older_store))

    def _set_back(self, store: Path) -> None:
        """The older copy comes back; what was there is the older copy of the next time."""
        passing = store.with_name("passing")
        store.rename(passing)
        self._older_store.rename(store)
        passing.rename(self._older_store)

    @staticmethod
    def _wipe(store: Path) -> None:
        shutil.rmtree(store)

    async def restore(self) -> None:
        """The network is whole again."""
        for task in list(self._lasting):
            task.cancel()
        await asyncio.gather(*self._lasting, return_exceptions=True)
        for proxy in self.proxies.values():
            proxy.accept()
            proxy.resume()


@asynccontextmanager
async def storm_over(directory: Path) -> AsyncIterator[Storm]:
    """Servers, authority, relay and projector, healthy, each behind its proxies."""
    nothing = {"WEAVEHOLD_DATABASE_URL": "", "WEAVEHOLD_NATS_URL": ""}
    options = StackOptions(organization_name="chaos", shard_count=shard_count)
    async with AsyncExitStack() as closing:
        stack = await closing.enter_async_context(Supervisor(directory, (), options, nothing))
        with psycopg.connect(stack.database_url, autocommit=True) as connection:
            connection.execute("CREATE EXTENSION pgstattuple")
            connection.execute(f"CREATE DATABASE {projections_database}")
        upstream = {
            "database": lambda: FaultProxy.to_database(stack.database_url),
            "broker": lambda: FaultProxy.to_broker(stack.nats_url),
        }
        proxies = {link: await closing.enter_async_context(upstream[link.partition("/")[2]]()) for link in links}
        projections_url = stack.database_url.replace("/weavehold?", f"/{projections_database}?")
        storm = Storm(stack, proxies, projections_url)
        # Before the proxies close: a service that reaches nothing takes its whole time to end.
        closing.push_async_callback(storm.stop_services)
        for spec in (authority(1), relay(1), projector()):
            await storm.start(spec)
        await stack.wait_healthy(healthy_seconds_max)
        yield storm
