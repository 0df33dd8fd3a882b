"""One projection of a projector: its store, its delivery, and a new beginning after a fault.

Nothing is authoritative here. A fault of one store ends the run of its consumer alone; it is begun anew from what its
store holds, while the other consumers of the process go on. Only when none is at work any more the process ends with
the fault, for whoever watches it to start another.
"""

import asyncio
import contextlib
from collections.abc import MutableSet
from typing import Final

from projections.apply_event import Applied
from projections.consumer import Consumer
from projections.projection import Projection
from projections.proof import SignatureProof
from projections.run_consumer import ConsumerRun, default_bounds
from projections.store import ProjectionStore, StoreReplaced
from projections.store.postgres import PostgresStore
from services.agent.connect import Client
from services.feed.find_quarantine import find_quarantine
from services.feed.report_progress import ProgressReport
from services.feed.signed_history import SignedHistory
from services.feed.trusted_keys import TrustedKeys
from services.process.health import READY, Finding, Heartbeat
from services.process.logs import get_log
from services.process.run import ServiceProcess
from services.process.settings import SettingsFault
from services.projector.projection_store import ProjectionSettings, open_store
from services.projector.shard_delivery import ShardDelivery

store_answer_seconds_max: Final = 1.5
"""Seconds in which a store must give a snapshot to be ready."""

_log = get_log(__name__)


class KeptProjection:
    """One consumer at work on its own store until the process is asked to stop."""

    def __init__(
        self,
        process: ServiceProcess,
        client: Client,
        keys: TrustedKeys,
        where: ProjectionSettings,
        *,
        consumer: Consumer,
        at_work: MutableSet[str],
    ) -> None:
        """`client` acts as a service; Events are judged by `keys`; `at_work` is shared by all of the process."""
        self.name: Final = consumer.name
        self._process = process
        self._client = client
        self._keys = keys
        self._where = where
        self._consumer = consumer
        self._at_work = at_work
        self._store: ProjectionStore | None = None
        self._delivery: ShardDelivery | None = None
        self._problem = "it has not begun"

    async def delivery_finding(self) -> Finding:
        """Whether every shard is delivered, for readiness."""
        problem = self._problem if self._delivery is None else self._delivery.problem
        return READY if problem is None else Finding.failed(problem)

    async def store_finding(self) -> Finding:
        """Whether the store answers and is ours to write, and how many Groups stand.

        While it is away or another process writes, that it is.
        """
        if (store := self._store) is None:
            return Finding.failed(self._problem)
        try:
            async with asyncio.timeout(store_answer_seconds_max):
                return await find_quarantine(store)
        except TimeoutError:
            problem = store.problem if isinstance(store, PostgresStore) else None
            return Finding.failed(problem or "the projection's store does not answer")

    async def run(self, heartbeat: Heartbeat) -> None:
        """Project until asked to stop; after a fault begin anew, as long as another projection is at work.

        Raises SettingsFault, and the fault when nothing else is at work.
        """
        attempt = 0
        while not self._process.stopping.is_set():
            self._at_work.add(self.name)
            try:
                await self._project(heartbeat)
            except SettingsFault:
                raise
            except Exception as fault:
                self._at_work.discard(self.name)
                if not self._at_work:
                    raise
                attempt += 1
                self._problem = f"{type(fault).__name__}: {fault}"
                _log.exception("projection_failed", consumer=self.name, attempts=attempt)
                await self._pause(default_bounds.backoff(attempt), heartbeat)

    async def _project(self, heartbeat: Heartbeat) -> None:
        """One life: open the store and project until asked to stop. What is not acknowledged then comes again."""
        store = await open_store(self._where, self._consumer, self._process.settings.organization_id)
        self._store = store
        try:
            await self._feed(store, heartbeat)
        finally:
            self._store = self._delivery = None
            await store.close()

    async def _feed(self, store: ProjectionStore, heartbeat: Heartbeat) -> None:
        def note(applied: Applied) -> None:
            report.note(applied)

        def note_quarantined(standing: int, tried: int) -> None:
            report.note_quarantined(standing, tried)

        projection = Projection(store, SignatureProof(self._keys), note, note_quarantined)
        report = ProgressReport(self._process.metrics, projection)
        self._delivery = ShardDelivery(self._client, projection, heartbeat.beat)
        history = SignedHistory(self._client.history, shows_all=True)
        run = ConsumerRun(
            self._client.connection,
            self._client.organization_id,
            (projection,),
            self._delivery,
            history,
            shards=history,
            beat=heartbeat.beat,
        )
        projecting = asyncio.create_task(run.run(), name=f"feed-{self.name}")
        stopping = asyncio.create_task(self._process.stopping.wait(), name=f"await-stop-{self.name}")
        try:
            await asyncio.wait({projecting, stopping}, return_when=asyncio.FIRST_COMPLETED)
            if projecting.done():
                _raise_its_end(projecting)
        finally:
            projecting.cancel()
            stopping.cancel()
            await asyncio.gather(projecting, stopping, return_exceptions=True)

    async def _pause(self, seconds: float, heartbeat: Heartbeat) -> None:
        """Wait, unless asked to stop."""
        heartbeat.beat()
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await self._process.stopping.wait()


def _raise_its_end(task: asyncio.Task[None]) -> None:
    """Why a run of consumers ended by itself; a replaced store without the group that it came in."""
    try:
        task.result()
    except ExceptionGroup as group:
        replaced = group.subgroup(StoreReplaced)
        if replaced is None:
            raise
        raise StoreReplaced(str(replaced.exceptions[0])) from group
