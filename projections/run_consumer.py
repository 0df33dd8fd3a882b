"""Run projections on a live delivery: pull, apply, acknowledge; and bring back what delivery lost.

Several projections may share one delivery: a batch is acknowledged to the broker once all of them have committed it.
Nothing here is authoritative. Whatever dies or lies (broker, stream, consumer, connection, this process), the Cursors
in the stores say what is applied, and the authority's history says what is missing:
- before a commit: the batch is delivered again;
- between commit and acknowledgement: the batch is delivered again and consists of duplicates;
- after an acknowledgement: everything acknowledged is applied, or known to be missing in the same store.

When the rows of a projection were exchanged for rebuilt ones, its next transaction is refused (RULE-22). The run then
begins anew on what the store holds, as after a restart of the process.
"""

import asyncio
import random
from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from typing import Final

from msgspec import Struct
from nats.aio.client import Client

from contracts.identifiers import ShardId, ShardPosition, token
from contracts.payloads.requests import Delivery
from projections.acknowledge import acknowledge_periodically
from projections.apply_event import Applied, DeliveryNote
from projections.delivered import Delivered, read_delivered
from projections.delivery import Acknowledger, DeliveryProvider, DeliveryUnavailable, Provisioned
from projections.history import HistoryBroken, HistoryRefused, HistorySource, HistoryUnavailable, ShardHistory
from projections.projection import Projection
from projections.pull import ConsumerGone, PullBounds, PullConsumer
from projections.quarantine import pause_seconds
from projections.repairs import Repairs, RepairTimes
from projections.shard_holes import AnotherIncarnation, catch_up, receive_unfiltered
from projections.store import EditionReplaced, StreamPosition
from projections.watch_heads import HeadWatch
from projections.watch_quarantine import QuarantineWatch, look_seconds_default
from services.process.logs import get_log

_log = get_log(__name__)


class RunBounds(Struct, frozen=True, kw_only=True):
    """Cadence of a run, in seconds."""

    pull: PullBounds = PullBounds()
    repair: RepairTimes = RepairTimes()
    heads_seconds: float = 60.0
    acknowledge_seconds: float = 2.0
    first_backoff_seconds: float = 0.25
    backoff_seconds_max: float = 10.0
    quarantine_look_seconds: float = look_seconds_default
    quarantine_pause_seconds: float = pause_seconds

    def backoff(self, attempt: int) -> float:
        """Seconds before attempt number `attempt` (from 0, which does not wait): exponential, bounded, full jitter."""
        ceiling = min(self.backoff_seconds_max, self.first_backoff_seconds * 2 ** min(attempt, 16))
        return random.uniform(0, ceiling) if attempt else 0.0  # noqa: S311 - jitter, not a secret


default_bounds: Final = RunBounds()


def no_beat() -> None:
    """For a run whose life nobody watches."""


class ConsumerRun:
    """Projections on one delivery. `run` does everything; `refresh` may be called at any time."""

    def __init__(
        self,
        client: Client,
        organization_id: str,
        projections: Sequence[Projection],
        provider: DeliveryProvider,
        source: HistorySource,
        *,
        shards: ShardHistory | None = None,
        acknowledger: Acknowledger | None = None,
        bounds: RunBounds = default_bounds,
        announced: bool = True,
        beat: Callable[[], None] = no_beat,
    ) -> None:
        """`shards` is needed for an unfiltered delivery; `beat` is called about once a second while reading one.

        Where heads are not `announced` to this client, they are only compared, every `bounds.heads_seconds`.
        """
        self._client = client
        self._organization_id = organization_id
        self._projections = projections
        self._provider = provider
        self._source = source
        self._shards = shards
        self._acknowledger = acknowledger
        self._bounds = bounds
        self._announced = announced
        self._beat = beat
        self._refresh = asyncio.Event()
        self._pulls: dict[tuple[str, str], asyncio.Task[None]] = {}
        self._provisioned: Provisioned
        self._tasks: asyncio.TaskGroup
        self._repairs: Repairs
        self._watch: HeadWatch
        self._incarnations: set[str] = set()
        """Those that were met: of each other one the authority is asked once where delivery goes on."""
        self._relay_epochs: dict[int, int] = {}
        self._attempts = 0
        self._refusals = 0
        """Since heads were compared last."""

    def refresh(self) -> None:
        """Ask the provider again, and compare heads: Memberships changed, or something looks wrong."""
        self._refresh.set()

    def _refused(self) -> None:
        """Who may not read may have no delivery left either: a replaced session hears nothing and is told nothing."""
        self._refusals += 1
        self.refresh()

    async def run(self) -> None:
        """Keep the projections at the head of what is delivered, until cancelled.

        Raises StoreReplaced when another version took a store over, and, in an ExceptionGroup, a store's own error and
        `nats.errors.Error` once the connection is closed for good; all leave the stores consistent.
        """
        while True:
            try:
                await self._run_edition()
            except* EditionReplaced as replaced:
                _log.warning("projection_exchanged", reason=str(replaced.exceptions[0]))
            for projection in self._projections:
                await projection.reopen()

    async def _run_edition(self) -> None:
        """Run until a store's rows are others."""
        async with asyncio.TaskGroup() as self._tasks:
            self._repairs = Repairs(self._source, self._bounds.repair, self._tasks)
            self._watch = HeadWatch(
                self._client,
                self._organization_id,
                self._projections,
                self._source,
                self._repairs,
                meet=self._meet,
                refused=self._refused,
                announced=self._announced,
            )
            quarantine = QuarantineWatch(
                self._projections,
                self._repairs,
                self._bounds.quarantine_look_seconds,
                self._bounds.quarantine_pause_seconds,
            )
            self._tasks.create_task(quarantine.watch(), name="watch-quarantine")
            self._tasks.create_task(self._supervise(), name="provision-delivery")
            self._tasks.create_task(self._watch.judge_announcements(), name="judge-heads")
            self._tasks.create_task(self._watch.compare_periodically(self._bounds.heads_seconds), name="compare-heads")
            if self._acknowledger is not None:
                reporting = acknowledge_periodically(
                    self._projections, self._acknowledger, self._bounds.acknowledge_seconds
                )
                self._tasks.create_task(reporting, name="acknowledge")

    async def _supervise(self) -> None:
        """Provision whenever asked to, start and end pulls accordingly, and compare all heads afterwards."""
        try:
            while True:
                self._refresh.clear()
                await self._adopt(await self._provision())
                for projection in self._projections:
                    for group_id, sequence in (await projection.heads_ahead()).items():
                        self._repairs.reach(projection, group_id, sequence)
                attempt = 0
                while not self._refresh.is_set():
                    if await self._watch.compare():
                        self._refusals = 0
                        break
                    attempt += 1
                    await asyncio.sleep(self._bounds.backoff(attempt))
                await self._refresh.wait()
        finally:
            await self._watch.close()

    async def _provision(self) -> Provisioned:
        while True:
            await asyncio.sleep(self._bounds.backoff(max(self._attempts, self._refusals)))
            try:
                return await self._provider.provision()
            except DeliveryUnavailable as fault:
                self._attempts += 1
                _log.warning("delivery_not_provisioned", reason=str(fault), attempts=self._attempts)

    async def _adopt(self, provisioned: Provisioned) -> None:
        """Follow what is delivered now: visibility, announcements, and one pull per consumer."""
        self._provisioned = provisioned
        self._incarnations.add(provisioned.incarnation)
        for projection in self._projections:
            projection.visible_after = {group.group_id: group.visible_after for group in provisioned.groups}
        await self._watch.follow(provisioned)
        wanted = {(delivery.stream, delivery.consumer): delivery for delivery in provisioned.deliveries}
        for key in self._pulls.keys() - wanted.keys():
            self._pulls.pop(key).cancel()
        for key, delivery in wanted.items():
            if key not in self._pulls or self._pulls[key].done():
                self._pulls[key] = self._tasks.create_task(
                    self._pull(delivery, provisioned.incarnation), name=f"pull-{delivery.stream}"
                )

    async def _pull(self, delivery: Delivery, incarnation: str) -> None:
        """Read one delivery, whose positions are those of `incarnation`, until its consumer is gone."""
        pull = PullConsumer(self._client, delivery.stream, delivery.consumer, self._bounds.pull)
        place = partial(StreamPosition, ShardId(delivery.shard_id), incarnation)
        reconnects = int(self._client.stats["reconnects"])
        await pull.open()
        try:
            if not self._provisioned.filtered:
                await self._compare_position(place(ShardPosition(await pull.acknowledged_position())))
            while True:
                messages = await pull.next_batch()
                self._beat()
                self._attempts = 0
                if int(self._client.stats["reconnects"]) != reconnects:
                    # Whatever happened meanwhile, announcements of it were lost with the connection.
                    reconnects = int(self._client.stats["reconnects"])
                    self.refresh()
                if messages:
                    delivered = read_delivered(messages)
                    for projection in self._projections:
                        await self._receive(projection, delivered, place(delivered.last))
                    await pull.acknowledge(messages[-1])
                    await self._notice(delivery, delivered)
        except ConsumerGone as fault:
            _log.warning("consumer_gone", stream=delivery.stream, consumer=delivery.consumer, reason=str(fault))
            self._attempts += 1
            self.refresh()
        finally:
            await pull.close()

    async def _compare_position(self, acknowledged: StreamPosition) -> None:
        """What the broker has seen acknowledged and a projection does not have will not be delivered again."""
        for projection in self._projections:
            await self._until_answered(projection, partial(catch_up, projection, self._all_of_shards(), acknowledged))

    async def _receive(self, projection: Projection, delivered: Delivered, last: StreamPosition) -> None:
        """Apply a batch that ends at `last` in one projection and see to what it leaves open."""
        if self._provisioned.filtered:
            note = DeliveryNote(pointers=tuple(delivered.pointers))
            self._follow_up(projection, await projection.receive(delivered.arrivals, note))
        else:
            receiving = partial(receive_unfiltered, projection, self._all_of_shards(), delivered, last)
            await self._until_answered(projection, receiving)
        for group_id, sequence in delivered.pointers:
            self._repairs.reach(projection, group_id, sequence)

    async def _until_answered(self, projection: Projection, applying: Callable[[], Awaitable[Applied]]) -> None:
        """Apply with the help of the source, waiting for it as long as it takes: positions must not be passed over."""
        attempt = 0
        while True:
            try:
                return self._follow_up(projection, await applying())
            except (HistoryUnavailable, HistoryRefused, HistoryBroken) as fault:
                if isinstance(fault, AnotherIncarnation):
                    self._meet(fault.incarnation)
                attempt += 1
                _log.warning("positions_not_fetched", consumer=projection.name, reason=str(fault), attempts=attempt)
            await asyncio.sleep(self._bounds.backoff(attempt))
            self._beat()

    def _follow_up(self, projection: Projection, applied: Applied) -> None:
        """See to what an application left open."""
        for arrival in applied.ahead:
            self._repairs.reach(projection, arrival.mark.group_id, arrival.mark.sequence)
        for question in applied.questions:
            self._repairs.ask(projection, question)
        for unproven in applied.unproven:
            report = _log.warning if unproven.for_now else _log.error
            report("events_unproven", consumer=projection.name, group_id=unproven.group_id, reason=unproven.reason)
            self._repairs.reach(projection, unproven.group_id, unproven.reaches)
        for stop in applied.stops:
            place = {"group_id": stop.group_id, "sequence": stop.sequence, "event_id": stop.event_id}
            told = {"owner": projection.store.consumer.owner, "reason": stop.reason}
            if trace := applied.traces.get(stop.group_id):
                told["trace"] = trace
            _log.error("group_quarantined", consumer=projection.name, **told, **place)

    def _meet(self, incarnation: str) -> None:
        """Something bears the name of an incarnation: of one never met before the authority is asked (RULE-18)."""
        if incarnation not in self._incarnations:
            self._incarnations.add(incarnation)
            _log.warning("incarnation_met", incarnation=incarnation)
            self.refresh()

    async def _notice(self, delivery: Delivery, delivered: Delivered) -> None:
        """Messages that say something about the delivery itself (RULE-18): when in doubt, ask the authority."""
        for incarnation in sorted(delivered.incarnations):
            self._meet(incarnation)
        known = self._relay_epochs.setdefault(delivery.shard_id, delivered.relay_epoch)
        if delivered.relay_epoch > known:
            self._relay_epochs[delivery.shard_id] = delivered.relay_epoch
            self.refresh()
        if delivered.unreadable:
            _log.error("messages_unreadable", stream=delivery.stream, positions=[at for at, _ in delivered.unreadable])
            tokens = {subject.rpartition(".")[2] for _, subject in delivered.unreadable}
            groups = {group.group_id for group in self._provisioned.groups if token(group.group_id) in tokens}
            await self._watch.compare(groups)

    def _all_of_shards(self) -> ShardHistory:
        if self._shards is None:
            raise ValueError("an unfiltered delivery needs `shards`, the source of shard positions")
        return self._shards
