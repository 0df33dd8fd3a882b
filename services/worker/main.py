"""The Worker process: one Agent that takes offers, works, and hands in results.

It begins by settling what an earlier run left in doubt, while that run's session is still the current one. Then it
opens its next session, which ends every Execution Lease of the one before (MWP-WRK-014), keeps its queue at the head
of its Groups' histories, and works. A session that is replaced ends all of that; the Worker begins with the next one.
"""

import asyncio
import time
from collections import deque
from collections.abc import Callable
from contextlib import AsyncExitStack
from functools import partial
from typing import Final

from nats.aio.client import Client as BrokerClient
from nats.aio.msg import Msg

from contracts import subjects
from contracts.documents.common import ActorType
from contracts.rejection import Code
from projections.apply_event import Applied
from projections.projection import Projection
from projections.proof import SignatureProof
from projections.run_consumer import ConsumerRun, RunBounds, default_bounds
from projections.store.sqlite import SqliteStore
from projections.work_queue.consumer import WorkQueue
from services.agent.connect import Client, SessionLost
from services.agent.keyring import KeyFault, load_key
from services.agent.open_session import Session
from services.agent.send_command import RetryPolicy, Unresolved
from services.feed.find_quarantine import find_quarantine
from services.feed.report_progress import ProgressReport
from services.feed.signed_history import SignedHistory
from services.feed.trust_anchors import read_anchors
from services.feed.trusted_keys import TrustedKeys
from services.process import broker
from services.process.health import Heartbeat
from services.process.logs import get_log
from services.process.run import ServiceProcess, run_service
from services.process.settings import SettingsFault
from services.worker.artifact_store import ArtifactStore
from services.worker.command_journal import CommandJournal
from services.worker.deliver_queue import AgentDelivery
from services.worker.execute_work import Means
from services.worker.find_acceptance import find_acceptance
from services.worker.runtime import Limits, Runtime
from services.worker.scheduler import Scheduler
from services.worker.settings import WorkerSettings, read_worker_settings
from services.worker.take_step import StepTaker

session_policy: Final = RetryPolicy(deadline_seconds=10.0)
"""One attempt to open a session; there is always another one."""
settle_policy: Final = RetryPolicy(deadline_seconds=3.0)
"""What an earlier run left in doubt is asked for once; the Events tell the rest."""
loop_silence_seconds_max: Final = 30.0
"""Seconds after which a Worker that does not look at its queue is not ready."""
unannounced_heads_seconds: Final = 15.0
"""Seconds between two comparisons of heads where the broker announces none to this Worker."""
finish_fraction: Final = 0.7
"""Part of the grace period in which executions may still reach their checkpoints."""
sessions_max: Final = 6
sessions_window_seconds: Final = 60.0
"""A Worker whose session is replaced more often than this gives up: another process acts as its Agent."""

_log = get_log(__name__)


class Worker:
    """Everything that one Worker process holds while it runs."""

    def __init__(
        self,
        process: ServiceProcess,
        settings: WorkerSettings,
        client: Client,
        store: SqliteStore,
        journal: CommandJournal,
        *,
        keys: TrustedKeys,
    ) -> None:
        """`store` holds the work queue of the client's Agent; its Events are judged by `keys`."""
        outcomes = ("accepted", "unresolved", *(code.value for code in Code))
        counted = process.metrics.counter(
            "worker_commands", "Commands of this Worker", labels={"kind": 16, "outcome": outcomes}
        )
        self._process = process
        self._client = client
        self._store = store
        self._journal = journal
        self._limits = Limits(
            slots=settings.slots,
            queue_length_max=settings.queue_length_max,
            finish_seconds=process.settings.stop_grace_seconds * finish_fraction,
        )
        self._announced = settings.announced
        self._bounds = default_bounds if settings.announced else RunBounds(heads_seconds=unannounced_heads_seconds)
        self._scheduler = Scheduler()
        self._opened: deque[float] = deque(maxlen=sessions_max)
        self._wake: Callable[[], None] = lambda: None
        proof = SignatureProof(keys)
        self._projection = Projection(store, proof, self._on_applied, self._on_quarantined)
        self._report = ProgressReport(process.metrics, self._projection)
        self._means = Means(
            client=client,
            steps=StepTaker(client, journal, counted),
            store=ArtifactStore(settings.artifacts),
            lease_seconds=settings.lease_seconds,
            stopping=process.stopping,
            find_acceptance=partial(find_acceptance, store, client, proof),
        )

    async def run(self, heartbeat: Heartbeat) -> None:
        """Session after session until the process is asked to stop."""
        await self._settle_leftovers()
        while not self._process.stopping.is_set():
            heartbeat.beat()
            try:
                session = await self._open_session()
                await self._journal.clear()
                await self._hold(session, heartbeat)
            except SessionLost as lost:
                _log.warning("session_lost", reason=str(lost))

    async def _settle_leftovers(self) -> None:
        """Send what an earlier run left in doubt once more, unchanged, under the session that it belongs to."""
        for step, command in await self._journal.unsettled():
            answer = await self._client.resend(command, settle_policy)
            _log.info("leftover_settled", kind=command.kind, outcome=type(answer).__name__)
            if isinstance(answer, Unresolved):
                return
            await self._journal.settle(step)

    async def _open_session(self) -> Session:
        """The next session. Raises SessionLost, or RuntimeError when sessions are replaced too often."""
        now = time.monotonic()
        if len(self._opened) == sessions_max and now - self._opened[0] < sessions_window_seconds:
            raise RuntimeError(
                f"{sessions_max} sessions of {self._client.principal_id} were replaced within "
                f"{sessions_window_seconds:g} s: another process acts as this Agent, stop one of them"
            )
        session = await self._client.open_session(session_policy)
        self._opened.append(now)
        _log.info("session_opened", agent=session.agent_id, epoch=session.epoch)
        return session

    async def _hold(self, session: Session, heartbeat: Heartbeat) -> None:
        """Deliver and work until the session is lost or the process stops. Raises SessionLost."""
        runtime = Runtime(self._store, session.epoch, self._means, self._scheduler, self._limits)
        self._wake = runtime.wake.set
        history = SignedHistory(self._client.history)
        feed = ConsumerRun(
            self._client.connection,
            self._client.organization_id,
            (self._projection,),
            AgentDelivery(self._client, runtime.end),
            history,
            acknowledger=history,
            bounds=self._bounds,
            announced=self._announced,
        )

        async def on_membership_changed(_message: Msg) -> None:
            feed.refresh()

        subject = subjects.membership_changed(self._client.organization_id, self._client.principal_id)
        hints = await self._client.connection.subscribe(subject, cb=on_membership_changed)
        feeding = asyncio.create_task(feed.run(), name="deliver-queue")
        working = asyncio.create_task(runtime.run(heartbeat.beat), name="work")
        try:
            await asyncio.wait({feeding, working}, return_when=asyncio.FIRST_COMPLETED)
            if feeding.done():
                feeding.result()
            await working
        finally:
            feeding.cancel()
            working.cancel()
            await asyncio.gather(feeding, working, return_exceptions=True)
            if not self._client.connection.is_closed:
                await hints.unsubscribe()

    def _on_applied(self, applied: Applied) -> None:
        self._report.note(applied)
        self._wake()

    def _on_quarantined(self, standing: int, tried: int) -> None:
        self._report.note_quarantined(standing, tried)


async def _serve(process: ServiceProcess) -> None:
    settings = read_worker_settings(process.settings)
    try:
        key = load_key(process.settings.signing_key_file)
    except KeyFault as fault:
        raise SettingsFault("WEAVEHOLD_SIGNING_KEY_FILE", f"cannot be used: {fault}", "Name an Agent's key") from fault
    if key.principal.type is not ActorType.AGENT:
        raise SettingsFault(
            "WEAVEHOLD_SIGNING_KEY_FILE", f"is the key of {key.principal.id}, which is no Agent", "Name an Agent's key"
        )
    anchors = read_anchors(process.settings)
    async with AsyncExitStack() as stack:
        connection = await _connect(process, settings, stack)
        client = Client(connection, process.settings.organization_id, key, reopens_session=False)
        settings.database.parent.mkdir(parents=True, exist_ok=True)
        store = await SqliteStore.open(settings.database, WorkQueue(client.principal_id), client.organization_id)
        stack.push_async_callback(store.close)
        journal = CommandJournal(settings.database)
        await journal.open()
        stack.push_async_callback(journal.close)
        keys = TrustedKeys(client.history, anchors)
        await keys.follow(connection)
        process.health.add(f"projection:{store.consumer.name}", partial(find_quarantine, store))
        worker = Worker(process, settings, client, store, journal, keys=keys)
        working = process.start_loop("work", worker.run, max_silence_seconds=loop_silence_seconds_max)
        await asyncio.wait({working})


async def _connect(process: ServiceProcess, settings: WorkerSettings, stack: AsyncExitStack) -> BrokerClient:
    connection = await broker.connect(
        process.settings.nats_url,
        name=f"weavehold-worker-{settings.name}",
        credentials=process.settings.broker_credentials,
        metrics=process.metrics,
        wait=True,
    )
    stack.push_async_callback(connection.close)
    process.health.add_broker(connection)
    return connection


def run() -> int:
    """Run a Worker until it is told to stop; returns the exit code."""
    return run_service("worker", _serve, signing_key="worker", uses_database=False)


if __name__ == "__main__":
    raise SystemExit(run())
