"""The projector process: it keeps a server-side projection at the head of all Groups.

The projection is a file, or a schema in PostgreSQL, that anyone may read and nobody but this process writes. Losing it,
or the consumers, or the streams, loses nothing: what is missing comes from the authority's history (MWP-FND-023). One
process runs at a time: two on one file would stop each other as soon as one found that the other had moved a Cursor. On
PostgreSQL a second process waits, and goes on where the first one ended.
"""

import asyncio
from contextlib import AsyncExitStack
from typing import Final

from contracts.documents.common import ActorType
from contracts.signature import SigningKey
from projections.apply_event import Applied
from projections.mission_board.consumer import MissionBoard
from projections.projection import Projection
from projections.proof import SignatureProof
from projections.run_consumer import ConsumerRun
from projections.store import ProjectionStore, Transaction
from projections.store.postgres import PostgresStore, StoreReplaced
from services.agent.connect import Client
from services.agent.keyring import KeyFault, load_key
from services.agent.send_command import RetryPolicy
from services.feed.report_progress import ProgressReport
from services.feed.signed_history import SignedHistory
from services.feed.trust_anchors import read_anchors
from services.feed.trusted_keys import TrustedKeys
from services.process import broker
from services.process.health import READY, Finding, Heartbeat
from services.process.run import ServiceProcess, run_service
from services.process.settings import Environment, Settings, SettingsFault
from services.projector.projection_store import open_store, read_projection_settings
from services.projector.shard_delivery import ShardDelivery

read_policy: Final = RetryPolicy(deadline_seconds=8.0)
"""One question to the authority; whoever asked asks again."""
silence_seconds_max: Final = 30.0
"""Seconds after which a projection that neither reads nor asks for its delivery is not ready."""
store_answer_seconds_max: Final = 1.5
"""Seconds in which a projection's database must give a snapshot to be ready."""


class Projector:
    """A projection at work until the process is asked to stop."""

    def __init__(self, process: ServiceProcess, client: Client, store: ProjectionStore, keys: TrustedKeys) -> None:
        """`client` acts as a service; `store` is this process's own; Events are judged by `keys`."""
        self._process = process
        self._client = client
        self._projection = Projection(store, SignatureProof(keys), self._on_applied)
        self._report = ProgressReport(process.metrics, self._projection)
        self._delivery: ShardDelivery | None = None

    async def finding(self) -> Finding:
        """Whether every shard is delivered, for readiness."""
        problem = "it has not begun" if self._delivery is None else self._delivery.problem
        return READY if problem is None else Finding.failed(problem)

    async def run(self, heartbeat: Heartbeat) -> None:
        """Project until asked to stop. What was delivered and is not acknowledged then comes again."""
        self._delivery = ShardDelivery(self._client, self._projection, heartbeat.beat)
        history = SignedHistory(self._client.history)
        feed = ConsumerRun(
            self._client.connection,
            self._client.organization_id,
            (self._projection,),
            self._delivery,
            history,
            shards=history,
            beat=heartbeat.beat,
        )
        projecting = asyncio.create_task(feed.run(), name="feed")
        stopping = asyncio.create_task(self._process.stopping.wait(), name="await-stop")
        try:
            await asyncio.wait({projecting, stopping}, return_when=asyncio.FIRST_COMPLETED)
            if projecting.done():
                _raise_its_end(projecting)
        finally:
            projecting.cancel()
            stopping.cancel()
            await asyncio.gather(projecting, stopping, return_exceptions=True)

    def _on_applied(self, applied: Applied) -> None:
        self._report.note(applied)


async def _serve(process: ServiceProcess) -> None:
    key = _service_key(process.settings)
    anchors = read_anchors(process.settings)
    async with AsyncExitStack() as stack:
        where = read_projection_settings(Environment(), process.settings.keys_directory.parent / "projections")
        store = await open_store(where, MissionBoard(), process.settings.organization_id)
        stack.push_async_callback(store.close)
        if isinstance(store, PostgresStore):
            process.health.add("projection", _StoreCheck(store).finding)
        connection = await broker.connect(
            process.settings.nats_url,
            name="weavehold-projector",
            credentials=process.settings.broker_credentials,
            metrics=process.metrics,
            wait=True,
        )
        stack.push_async_callback(connection.close)
        process.health.add_broker(connection)
        client = Client(connection, process.settings.organization_id, key, policy=read_policy)
        keys = TrustedKeys(client.history, anchors)
        await keys.follow(connection)
        projector = Projector(process, client, store, keys)
        process.health.add("delivery", projector.finding)
        projecting = process.start_loop("project", projector.run, max_silence_seconds=silence_seconds_max)
        await asyncio.wait({projecting})


def _service_key(settings: Settings) -> SigningKey:
    """The key of a service: only a service is shown whole shards. Raises SettingsFault."""
    variable, remedy = "WEAVEHOLD_SIGNING_KEY_FILE", "Name a service's key, such as the operator's"
    try:
        key = load_key(settings.signing_key_file)
    except KeyFault as fault:
        raise SettingsFault(variable, f"cannot be used: {fault}", remedy) from fault
    if key.principal.type is not ActorType.SERVICE:
        raise SettingsFault(variable, f"is the key of {key.principal.id}, which is no service", remedy)
    return key


class _StoreCheck:
    """Whether a projection's database answers and is ours to write."""

    def __init__(self, store: PostgresStore) -> None:
        self._store = store

    async def finding(self) -> Finding:
        """Ask it, briefly; while it is away or another process writes, that is the reason."""
        try:
            async with asyncio.timeout(store_answer_seconds_max):
                await self._store.read(_look)
        except TimeoutError:
            return Finding.failed(self._store.problem or "the projection's database does not answer")
        return READY


def _look(_snapshot: Transaction) -> None:
    """Read nothing: that there is a snapshot says it."""


def _raise_its_end(task: asyncio.Task[None]) -> None:
    """Why a run of consumers ended by itself; a replaced store without the group that it came in."""
    try:
        task.result()
    except ExceptionGroup as group:
        replaced = group.subgroup(StoreReplaced)
        if replaced is None:
            raise
        raise StoreReplaced(str(replaced.exceptions[0])) from group


def run() -> int:
    """Run the projector until it is told to stop; returns the exit code."""
    return run_service("projector", _serve, signing_key="operator", uses_database=False)


if __name__ == "__main__":
    raise SystemExit(run())
