"""The relays of the simulation: the real `RelayShard` of each shard, its lease, rivals and zombies."""

import asyncio
import random
from typing import TYPE_CHECKING, Any

from contracts.identifiers import ShardId, ShardPosition
from outbox_relay.publish_answer import StopReason
from outbox_relay.relay_lease import RelayLease, RelayPlace, renewal_seconds
from outbox_relay.relay_shard import RelayShard
from outbox_relay.stream import ShardStream, StreamLimits
from tests.simulation.events import organization
from tests.simulation.network import Link
from tests.simulation.truth import SimulatedOutbox

if TYPE_CHECKING:
    from tests.simulation.world import World


class _Uncounted:
    """Instruments that count nothing."""

    def add(self, amount: int = 1, **labels: str) -> None:
        """As `services.process.metrics.Counter.add`."""


class _Counters:
    published = repositions = stubs = _Uncounted()


class StuckLease(RelayLease):
    """A lease whose holder does not notice that it is over."""

    def is_live(self) -> bool:
        return not self._given_up


class Relays:
    """Keeps one holder per shard.

    `take_over` starts a rival under a higher epoch, while the former goes on for a while.
    """

    def __init__(self, world: "World") -> None:
        self._world = world
        self._epochs: dict[ShardId, int] = {}
        self._holders: dict[ShardId, _Holder] = {}
        self._all: list[_Holder] = []

    def start(self) -> None:
        """A relay for each shard."""
        for shard in self._world.truth.shards:
            self.take_over(shard, zombie_seconds=0.0)

    def take_over(self, shard: ShardId, zombie_seconds: float) -> None:
        """Another relay takes the shard; the former one publishes on for some seconds, under its old epoch."""
        former = self._holders.get(shard)
        if former is not None:
            self._world.loop.call_later(zombie_seconds, former.die)
        epoch = self._epochs[shard] = self._epochs.get(shard, 0) + 1
        holder = _Holder(self._world, shard, epoch)
        self._holders[shard] = holder
        self._all.append(holder)

    async def supervise(self) -> None:
        """Renew leases, and give a shard whose relay gave up to another one, as the processes of relays do."""
        while True:
            await asyncio.sleep(renewal_seconds)
            for shard, holder in self._holders.items():
                if holder.task.done():
                    self.take_over(shard, zombie_seconds=0.0)
                else:
                    holder.renew()

    def wake(self) -> None:
        """The logs have grown."""
        for holder in self._holders.values():
            holder.relay.wake()

    def kill_all(self) -> None:
        """End every relay at once, zombies too, with all that they have under way."""
        for holder in self._all:
            holder.die()

    def cut(self, seconds: float) -> None:
        """All relays lose their connections."""
        for holder in self._holders.values():
            holder.link.cut(seconds)

    async def ended(self) -> None:
        """Until all tasks are over."""
        self.kill_all()
        await asyncio.gather(*(holder.task for holder in self._all), return_exceptions=True)


class _Holder:
    """One relay of one shard in one process."""

    def __init__(self, world: "World", shard: ShardId, epoch: int) -> None:
        rng = random.Random(f"{world.seed}/relay {shard}/{epoch}")
        self.link = Link(world.broker, f"relay{shard}x{epoch}", rng, lambda: world.relay_weather)
        self.link.on_reconnected = lambda: self.relay.interrupt(StopReason.CONNECTION, "connected again")
        self._lease = StuckLease(shard, epoch, RelayPlace("", ShardPosition(0)), world.loop.time())
        outbox: Any = SimulatedOutbox(world.truth, lambda: rng.uniform(0.0005, 0.01))
        client: Any = self.link
        counters: Any = _Counters()
        self.relay = RelayShard(
            self._lease, outbox, ShardStream(client, organization, shard, StreamLimits()), client, counters
        )
        self.task = world.loop.create_task(self.relay.run())
        self.task.add_done_callback(lambda task: self._on_end(world, shard, task))

    def _on_end(self, world: "World", shard: ShardId, task: "asyncio.Task[None]") -> None:
        if not task.cancelled() and task.exception() is not None:
            world.violate(f"the relay of shard {shard} ended by itself: {task.exception()!r}")

    def renew(self) -> None:
        self._lease.extend(self.relay.place, self.link._loop.time())

    def die(self) -> None:
        if not self.link.dead:
            self.link.die()
            self.task.cancel()
