"""The shards that this process relays: an even share of them all, taken, renewed and given up once a second.

One beat does everything that is not publishing, for all shards together, so that an idle process asks the database
once a second and not once per shard: renew leases and note positions, keep to the fair share, wake relays whose
wake-up message was lost, measure the lag, and notice a reconnected broker.
"""

import asyncio
import time
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import Final

import psycopg
from nats.aio.client import Client
from nats.aio.msg import Msg
from nats.aio.subscription import Subscription

from contracts import subjects
from contracts.identifiers import ShardId
from outbox_relay.outbox import Outbox
from outbox_relay.publish_answer import StopReason
from outbox_relay.relay_lease import RelayLease, RelayLeases, RelayPlace, fair_share, renewal_seconds
from outbox_relay.relay_shard import RelayCounters, RelayShard, RelayState
from outbox_relay.stream import ShardStream, StreamLimits
from services.process.database import FaultKind, Pool, classify
from services.process.health import READY, Finding
from services.process.logs import get_log
from services.process.metrics import Metrics

beat_seconds: Final = 1.0
"""Seconds between two beats."""
announcement_seconds: Final = 2.0
"""Seconds between two announcements that this process lives."""
blocked_shown_max: Final = 3
"""Blocked shards that a readiness answer names."""

_log = get_log(__name__)


class BrokerClosed(Exception):
    """The client has closed its connection for good; only a new process helps."""


class _Held:
    """One shard in the hands of this process."""

    def __init__(self, relay: RelayShard, wake_up: Subscription) -> None:
        self.relay = relay
        self.wake_up = wake_up
        self.task = asyncio.create_task(relay.run(), name=f"relay-shard-{relay.lease.shard_id}")

    async def end(self) -> None:
        """Stop publishing."""
        self.task.cancel()
        await asyncio.gather(self.task, return_exceptions=True)

    @property
    def place(self) -> tuple[RelayLease, RelayPlace]:
        return self.relay.lease, self.relay.place


class HeldShards:
    """Keeps an even share of one Organization's shards relayed."""

    def __init__(
        self,
        *,
        pool: Pool,
        client: Client,
        organization_id: str,
        holder: str,
        limits: StreamLimits,
        metrics: Metrics,
    ) -> None:
        """`holder` is unique to one life of one process."""
        self._outbox = Outbox(pool, organization_id)
        self._leases = RelayLeases(pool, organization_id, holder)
        self._client = client
        self._organization_id = organization_id
        self._limits = limits
        self._held: dict[ShardId, _Held] = {}
        self._shards: tuple[ShardId, ...] = ()
        """All shards of the Organization; their number is fixed when it is made."""
        self._holders: tuple[str, ...] = (holder,)
        self._announced_at = float("-inf")
        self._reconnects = client.stats["reconnects"]
        self._counters = RelayCounters(metrics)
        self._lag = metrics.gauge("relay_lag", "Age of the oldest log row not relayed, all held shards", unit="seconds")
        self._held_gauge = metrics.gauge("relay_shards", "Shards of this process", labels={"state": _states})

    async def run(self, stopping: asyncio.Event, beat: Callable[[], None]) -> None:
        """Relay until `stopping`; `beat` is called at least every few seconds.

        Raises BrokerClosed, and database errors that no retry can mend.
        """
        try:
            while not stopping.is_set():
                beat()
                await self.beat()
                with suppress(TimeoutError):
                    async with asyncio.timeout(beat_seconds):
                        await stopping.wait()
        finally:
            await self.close()

    async def beat(self) -> None:
        """Everything that is due now. A database that is away is left for the next beat; leases lapse by themselves."""
        self._watch_broker()
        await self._collect_ended()
        for duty in (self._renew, self._announce, self._keep_share, self._measure):
            if not await self._try(duty):
                break
        for state in RelayState:
            self._held_gauge.set(sum(h.relay.state is state for h in self._held.values()), state=state.value)

    async def close(self) -> None:
        """Give all shards up, so that other relays take them at once."""
        ended = list(self._held.values())
        await asyncio.gather(*(self._drop(held) for held in ended))
        if ended:
            await self._try(lambda: self._leases.release([held.place for held in ended]))
        await self._try(self._leases.withdraw)

    def places(self) -> dict[ShardId, RelayPlace]:
        """How far each shard of this process is relayed."""
        return {shard_id: held.relay.place for shard_id, held in self._held.items()}

    async def finding(self) -> Finding:
        """Ready unless the Organization is unknown or a held shard is blocked: that needs a person."""
        if not self._shards:
            return Finding.failed(
                f"no shards of {self._organization_id} are known yet; if it stays so, run `weavehold init`"
            )
        blocked = [
            f"shard {shard_id}: {held.relay.detail}"
            for shard_id, held in sorted(self._held.items())
            if held.relay.state is RelayState.BLOCKED
        ]
        if not blocked:
            return READY
        more = f" (and {len(blocked) - blocked_shown_max} more)" if len(blocked) > blocked_shown_max else ""
        return Finding.failed("; ".join(blocked[:blocked_shown_max]) + more)

    async def _try(self, duty: Callable[[], Awaitable[None]]) -> bool:
        try:
            await duty()
        except psycopg.Error as error:
            if classify(error) is FaultKind.PERMANENT:
                raise
            _log.warning("relay_beat_failed", error=str(error), error_type=type(error).__name__)
            return False
        return True

    def _watch_broker(self) -> None:
        """A connection that was lost and made again may have answered nothing of what was sent before."""
        if self._client.is_closed:
            raise BrokerClosed("the broker closed the connection for good; see the broker's error before this")
        if self._client.stats["reconnects"] != self._reconnects:
            self._reconnects = self._client.stats["reconnects"]
            for held in self._held.values():
                held.relay.interrupt(StopReason.CONNECTION, "the broker connected again")

    async def _collect_ended(self) -> None:
        """Drop shards whose relay ended because its lease was over, so that they can be taken anew."""
        ended = [held for held in self._held.values() if held.task.done()]
        for held in ended:
            held.task.result()
            await self._drop(held)
        if ended:
            await self._try(lambda: self._leases.release([held.place for held in ended]))

    async def _drop(self, held: _Held) -> None:
        await held.end()
        if not self._client.is_closed:
            await held.wake_up.unsubscribe()
        self._held.pop(held.relay.lease.shard_id, None)

    async def _renew(self) -> None:
        """Renew what is due; a place that has moved is noted at every beat, an unmoved one only with its lease."""
        due = [
            (lease, place)
            for lease, place in (held.place for held in self._held.values())
            if place != lease.recorded or lease.age_seconds() >= renewal_seconds
        ]
        if not due:
            return
        for lost in await self._leases.renew(due):
            _log.warning("relay_lease_lost", shard_id=lost.shard_id, epoch=lost.epoch)
            lost.give_up()
            await self._drop(self._held[lost.shard_id])

    async def _announce(self) -> None:
        if time.monotonic() - self._announced_at >= announcement_seconds:
            self._holders = await self._leases.announce()
            self._announced_at = time.monotonic()

    async def _keep_share(self) -> None:
        """Give up what is beyond the fair share, take what is free up to it."""
        self._shards = self._shards or await self._outbox.shards()
        share = fair_share(len(self._shards), self._holders, self._leases.holder)
        surplus = [held for _, held in sorted(self._held.items())[share:]]
        for held in surplus:
            await self._drop(held)
        if surplus:
            await self._leases.release([held.place for held in surplus])
        if len(self._held) < share:
            for lease in await self._leases.acquire(share - len(self._held)):
                await self._take(lease)

    async def _take(self, lease: RelayLease) -> None:
        stream = ShardStream(self._client, self._organization_id, lease.shard_id, self._limits)
        relay = RelayShard(lease, self._outbox, stream, self._client, self._counters)

        async def on_growth(_message: Msg) -> None:
            relay.wake()

        subject = subjects.log_grown(self._organization_id, lease.shard_id)
        self._held[lease.shard_id] = _Held(relay, await self._client.subscribe(subject, cb=on_growth))
        _log.info("relay_lease_taken", shard_id=lease.shard_id, epoch=lease.epoch)

    async def _measure(self) -> None:
        """The lag, and a wake-up for each relay that is behind its log: its message may have been lost."""
        relayed = {shard_id: place.position for shard_id, place in self.places().items()}
        backlogs = await self._outbox.backlog(relayed) if relayed else {}
        for shard_id, backlog in backlogs.items():
            if backlog.head > relayed[shard_id]:
                self._held[shard_id].relay.wake()
            elif backlog.head < relayed[shard_id]:
                self._held[shard_id].relay.interrupt(StopReason.INSPECTION, "the log ends before its stream")
        self._lag.set(max((backlog.age_seconds for backlog in backlogs.values()), default=0.0))


_states: Final = tuple(state.value for state in RelayState)
