"""The authority process: takes shards, serves their lanes, admits Commands, answers reads, announces heads."""

import asyncio
import gc
import stat
import time
from collections import deque
from collections.abc import Callable, Coroutine, Sequence
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any, Final

from nats.aio.client import Client
from nats.errors import Error as BrokerError

from contracts import subjects
from contracts.bounds import freshness_future_seconds, freshness_past_seconds
from contracts.identifiers import ShardId, organization_shard
from contracts.rejection import Code
from contracts.service_principals import authority
from contracts.signature import SigningKey
from services.authority.accept_transition import Committed
from services.authority.admission_pool import AdmissionPool
from services.authority.admitted import AuthenticationFailure
from services.authority.announce_heads import HeadAnnouncer
from services.authority.audit_failure import audit_failure, forget_old_failures
from services.authority.audit_registry import RegistryAuditor
from services.authority.batch_facts import sql
from services.authority.broker_consumers import BrokerConsumers
from services.authority.examined_pool import ExaminedPool
from services.authority.follow_signing_key import SigningKeyFollower
from services.authority.freshness import Freshness
from services.authority.guard_history import HistoryGuard, OnFailover
from services.authority.ingress import Ingress, queue_group
from services.authority.judge_batch import Office
from services.authority.key_cache import KeyRegistryCache
from services.authority.lane import Lane
from services.authority.open_session import SessionOpener
from services.authority.read_request import ReadTrust
from services.authority.resume_groups import GroupResumer
from services.authority.route import ShardFinder
from services.authority.serve_requests import serve as serve_requests
from services.authority.shard_leases import Holdings, ShardLeases, renewal_seconds
from services.process.broker import connect as connect_broker
from services.process.database import Connection, FaultKind, Pool, classify, connect, open_pool
from services.process.logs import get_log
from services.process.run import ServiceProcess, run_service
from services.process.settings import Environment, Settings, SettingsFault
from services.process.unique import default_instance, holder_name, uuid7_urn

collection_thresholds: Final = (50_000, 20, 20)
"""Net allocations before a young collection, and young (middle) ones before a middle (full) one."""
group_lanes: Final = 2
"""Lanes that share the Group shards of this process; the Organization shard has one of its own."""
admission_loops: Final = 2
"""Batches on their way to the admission processes at once: one is verified while the next gathers."""
pool_connections_max: Final = 8
"""Database connections for reads, leases and audit; each lane has one besides."""
loop_silence_seconds_max: Final = 20.0
"""Seconds after which a silent loop makes the process not ready: longer than a batch through transient faults."""
failures_waiting_max: Final = 1_000
"""Authentication failures waiting to be audited; beyond it the oldest is dropped and counted."""
failures_pause_seconds: Final = 1.0
"""Seconds between two looks at the failures to audit."""
failure_days_kept: Final = 90
"""Days for which the protected record keeps an authentication failure, unless WEAVEHOLD_AUDIT_DAYS says otherwise."""
forgetting_pause_seconds: Final = 3_600.0
"""Seconds between two clearings of what the protected record keeps no longer."""

log = get_log(__name__)


class Authority:
    """Everything that one authority process holds while it runs."""

    def __init__(
        self,
        process: ServiceProcess,
        broker: Client,
        pool: Pool,
        key: SigningKey,
        shard_count: int,
    ) -> None:
        """`shard_count` counts the Group shards; `key` signs the Events."""
        settings = process.settings
        environment = Environment()
        self.office = _office(settings, environment, key)
        self._failure_days = environment.integer("WEAVEHOLD_AUDIT_DAYS", failure_days_kept, minimum=1, maximum=36_500)
        self._process = process
        self._broker = broker
        self._pool = pool
        self._examined = ExaminedPool(pool, self.office.history)
        self._held: dict[ShardId, int] = {}
        self._holders: dict[ShardId, str] = {}
        self._serving: dict[ShardId, Lane] = {}
        self._failures: deque[AuthenticationFailure] = deque(maxlen=failures_waiting_max)
        self._lanes = [self._new_lane() for _ in range(group_lanes + 1)]
        self._leases = ShardLeases(pool, settings.organization_id, self.office.holder, shard_count)
        self._admission = AdmissionPool(
            settings.database_url,
            settings.organization_id,
            environment.integer("WEAVEHOLD_ADMISSION_PROCESSES", 1, minimum=1, maximum=64),
        )
        self._finder = ShardFinder(pool, settings.organization_id, shard_count)
        self._keys = KeyRegistryCache(pool, settings.organization_id)
        self._signing_key = SigningKeyFollower(self.office, settings.signing_key_file, pool)
        self._registry = RegistryAuditor(self.office, self._keys, pool)
        process.health.add("signing_key", self._signing_key.check)
        process.health.add("key_registry", self._registry.check)
        self._announcer = HeadAnnouncer(broker, self._examined, settings.organization_id, self._held.keys)
        self._displaced = process.metrics.counter(
            "authentication_failures_displaced", "Authentication failures that were not audited for lack of room"
        )
        self._committed_events = process.metrics.counter("events_committed", "Events committed to the log")
        self._committed_batches = process.metrics.counter("batches_committed", "Accepting transactions committed")
        self.ingress = self._new_ingress()
        self._history = HistoryGuard(
            self.office,
            self._examining_connection,
            BrokerConsumers(broker),
            self.ingress.submit,
            on_failover=OnFailover(
                environment.choice("WEAVEHOLD_ON_FAILOVER", tuple(each.value for each in OnFailover), "hold")
            ),
        )
        process.health.add("history", self._history.check)
        self._resumer = GroupResumer(self.office, pool, self._accepting_connection, self._held, self._after_commit)
        process.health.add("groups_resumed", self._resumer.check)

    async def _accepting_connection(self) -> Connection:
        return await connect(self._process.settings.database_url, name="weavehold-lane", autocommit=False)

    async def _examining_connection(self) -> Connection:
        return await connect(self._process.settings.database_url, name="weavehold-examine")

    def _new_ingress(self) -> Ingress:
        outcomes = ("accepted", "recorded_as_evidence", "forwarded", *(code.value for code in Code))
        return Ingress(
            self._broker,
            self.office.organization_id,
            pool=self._admission,
            finder=self._finder,
            lanes=self._serving,
            holders=self._holders.get,
            registry_version=lambda: self._keys.version,
            answered=self._process.metrics.counter(
                "commands_answered", "Commands answered", labels={"outcome": outcomes}
            ),
            on_failures=self._note_failures,
        )

    def _new_lane(self) -> Lane:
        return Lane(
            self._accepting_connection,
            self.office,
            self._held,
            self._after_commit,
            self._lose,
        )

    async def run(self) -> None:
        """Serve until the process is asked to stop; then finish what was taken, and give the shards up."""
        organization_id = self.office.organization_id
        leases = self._start("leases", self._keep_leases)
        loops = [
            self._start("heads", self._announcer.run),
            self._start("audit", self._audit),
            self._start("signing-key", self._signing_key.run),
            self._start("key-registry", self._registry.run),
            self._start("history", self._history.run),
            self._start("resume-groups", self._resumer.run),
        ]
        loops += [self._start(f"lane-{number}", lane.run) for number, lane in enumerate(self._lanes)]
        loops += [self._start(f"admission-{number}", self.ingress.admit_batches) for number in range(admission_loops)]
        opener = SessionOpener(self.ingress.submit, self._examined, organization_id, lambda: self.office.key)
        broker = self._broker
        commands = await broker.subscribe(
            subjects.command_ingress(organization_id), queue=queue_group, cb=self.ingress.on_command
        )
        forwarded = await broker.subscribe(
            subjects.lanes_of(organization_id, self.office.holder), cb=self.ingress.on_forwarded
        )
        served = await serve_requests(
            broker,
            self._examined,
            ReadTrust(
                organization_id=organization_id,
                keys=self._keys,
                freshness=self.office.freshness,
                registry_fault=lambda: self.office.registry_fault,
            ),
            signing_key=lambda: self.office.key,
            open_session=opener.open,
            metrics=self._process.metrics,
        )
        await self._process.stopping.wait()
        await commands.unsubscribe()
        await forwarded.unsubscribe()
        await served.close()
        await self.ingress.drained()
        leases.cancel()
        await asyncio.wait({leases})
        await self._leases.release(list(self._held))
        for loop in loops:
            loop.cancel()
        await self._admission.close()

    def _start(self, name: str, loop: Callable[[Callable[[], None]], Coroutine[Any, Any, None]]) -> asyncio.Task[None]:
        """Start a loop that marks its life through the function given to it."""
        return self._process.start_loop(
            name, lambda heartbeat: loop(heartbeat.beat), max_silence_seconds=loop_silence_seconds_max
        )

    async def _keep_leases(self, beat: Callable[[], None]) -> None:
        """Renew this process's shards and follow who holds the others. Missed renewals cost work, never histories."""
        while True:
            try:
                self._take_over(await self._leases.renew())
                beat()
            except Exception as fault:
                if classify(fault) is not FaultKind.TRANSIENT:
                    raise
                log.warning("leases_not_renewed", fault=str(fault))
            await asyncio.sleep(renewal_seconds)

    def _take_over(self, holdings: Holdings) -> None:
        if holdings.held != self._held:
            log.info("shards_held", shards=sorted(holdings.held), holder=self.office.holder)
        self._held.clear()
        self._held.update(holdings.held)
        self._holders.clear()
        self._holders.update(holdings.holders)
        self._serving.clear()
        self._serving.update({shard: self._lane_of(shard) for shard in holdings.held})

    def _lane_of(self, shard_id: ShardId) -> Lane:
        return self._lanes[0] if shard_id == organization_shard else self._lanes[1 + shard_id % group_lanes]

    def _lose(self, shard_ids: frozenset[ShardId]) -> None:
        for shard_id in shard_ids:
            self._held.pop(shard_id, None)
            self._serving.pop(shard_id, None)
            self._holders.pop(shard_id, None)

    async def _after_commit(self, committed: Committed) -> None:
        """Wake whoever waits for these Events. All of it is a hint: what is lost here is found by reading."""
        self._note_failures(committed.failures)
        if not committed.events:
            return
        self._committed_batches.add()
        self._committed_events.add(len(committed.events))
        organization_id = self.office.organization_id
        hints = {subjects.log_grown(organization_id, event.shard_id) for event in committed.events}
        hints |= {subjects.membership_changed(organization_id, member) for member in committed.changed_members}
        if committed.keys_changed:
            self._keys.invalidate()
            hints.add(subjects.keys_changed(organization_id))
        for event in committed.events:
            self._announcer.touched(event.shard_id, event.mark)
            if event.mark.sequence == 1 and event.mark.group_id:
                self._finder.learn(event.mark.group_id, event.shard_id)
        try:
            for hint in sorted(hints):
                await self._broker.publish(hint, b"")
        except BrokerError as fault:
            log.warning("hints_not_sent", fault=str(fault) or type(fault).__name__)

    def _note_failures(self, failures: Sequence[AuthenticationFailure]) -> None:
        """Keep failures until they are audited; a flood displaces the oldest, which are counted."""
        room = failures_waiting_max - len(self._failures)
        if len(failures) > room:
            self._displaced.add(len(failures) - room)
        self._failures.extend(failures)

    async def _audit(self, beat: Callable[[], None]) -> None:
        """Write authentication failures to the protected record and clear it, off the path of Commands."""
        forget_at = 0.0
        while True:
            beat()
            await asyncio.sleep(failures_pause_seconds)
            try:
                await self._write_failures(beat)
                if time.monotonic() >= forget_at and not await self._forget_failures():
                    forget_at = time.monotonic() + forgetting_pause_seconds
            except Exception as fault:
                if classify(fault) is not FaultKind.TRANSIENT:
                    raise
                log.warning("failures_not_audited", waiting=len(self._failures), fault=str(fault))

    async def _write_failures(self, beat: Callable[[], None]) -> None:
        while self._failures:
            beat()
            failure = self._failures[0]
            async with self._pool.connection() as connection:
                await audit_failure(connection, self.office.organization_id, failure)
            # A flood may have displaced it meanwhile: then the one at its place is still to be written.
            if self._failures[0] is failure:
                self._failures.popleft()

    async def _forget_failures(self) -> bool:
        """One bounded step; whether more is left to forget."""
        async with self._pool.connection() as connection:
            return await forget_old_failures(connection, self.office.organization_id, days_kept=self._failure_days)


def _office(settings: Settings, environment: Environment, key: SigningKey) -> Office:
    """Who accepts here, by what the settings say. Raises SettingsFault."""
    return Office(
        organization_id=settings.organization_id,
        holder=holder_name(environment.text("WEAVEHOLD_INSTANCE", default_instance("authority"))),
        key=key,
        new_id=uuid7_urn,
        freshness=Freshness(
            past_seconds=environment.integer(
                "WEAVEHOLD_FRESHNESS_PAST_SECONDS", freshness_past_seconds, minimum=1, maximum=86_400
            ),
            future_seconds=environment.integer(
                "WEAVEHOLD_FRESHNESS_FUTURE_SECONDS", freshness_future_seconds, minimum=0, maximum=3_600
            ),
        ),
    )


async def _shard_count(pool: Pool, organization_id: str) -> int:
    async with pool.connection() as connection:
        cursor = await connection.execute(sql.read_current_incarnation, {"organization_id": organization_id})
        row = await cursor.fetchone()
    if row is None:
        raise SettingsFault(
            "WEAVEHOLD_ORGANIZATION", f"is {organization_id!r}, which this database does not hold", "Run weavehold init"
        )
    return int(row[1])


def _warn_of_readers(file: Path) -> None:
    """Say that others may read the signing key: some places of secrets cannot help it, so it refuses nothing."""
    mode = stat.S_IMODE(file.stat().st_mode)
    if mode & 0o077:
        remedy = f"whoever reads it can sign Events: chmod 600 {file}"
        log.warning("signing_key_readable_by_others", path=str(file), mode=f"{mode:04o}", remedy=remedy)


async def _serve(process: ServiceProcess) -> None:
    settings = process.settings
    try:
        key = SigningKey.from_file(settings.signing_key_file)
    except (OSError, ValueError) as fault:
        raise SettingsFault(
            "WEAVEHOLD_SIGNING_KEY_FILE",
            f"is {settings.signing_key_file}, which cannot be used: {fault}",
            "Run weavehold init",
        ) from fault
    if key.principal != authority:
        raise SettingsFault(
            "WEAVEHOLD_SIGNING_KEY_FILE",
            f"is {settings.signing_key_file}, a key of {key.principal.id}",
            f"Name a key of {authority.id}, whose Events alone are believed",
        )
    _warn_of_readers(settings.signing_key_file)
    async with AsyncExitStack() as stack:
        pool = await open_pool(
            settings.database_url,
            name="weavehold-authority",
            maximum=pool_connections_max,
        )
        stack.push_async_callback(pool.close)
        broker = await connect_broker(
            settings.nats_url,
            name="weavehold-authority",
            credentials=settings.broker_credentials,
            metrics=process.metrics,
            wait=True,
        )
        stack.push_async_callback(broker.close)
        process.health.add_database(pool)
        process.health.add_broker(broker)
        shard_count = await _shard_count(pool, settings.organization_id)
        await Authority(process, broker, pool, key, shard_count).run()


def run() -> int:
    """Run the authority until it is told to stop; returns the exit code."""
    # Commands make many short-lived objects without cycles: looking for cycles after every 700 of them is waste.
    gc.set_threshold(*collection_thresholds)
    return run_service("authority", _serve)


if __name__ == "__main__":
    raise SystemExit(run())
