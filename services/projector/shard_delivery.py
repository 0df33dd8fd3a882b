"""The delivery of a server-side projection: one consumer per shard, of everything in it (RULE-20).

Authoritative here: nothing. Incarnation and number of shards are the authority's answer to a signed read; how far the
projection is stands in its store, which decides where a consumer begins: at the start of the process, and whenever it
must be made. The Organization shard is left out: it holds no Group.
"""

import asyncio
from collections.abc import Callable
from typing import Final

from nats.errors import Error as BrokerError

from contracts import subjects
from contracts.identifiers import ShardId, organization_shard
from contracts.payloads.requests import Delivery
from projections.delivery import DeliveryUnavailable, Provisioned
from projections.projection import Projection
from projections.run_consumer import no_beat
from services.agent.connect import Client
from services.agent.read_history import Standing, Unavailable
from services.agent.send_command import Refusal, ReplyFault
from services.projector.shard_consumers import ShardConsumers, StreamAbsent

shards_at_once_max: Final = 16
"""Shards whose consumers are looked at at the same time."""


class ShardDelivery:
    """`projections.delivery.DeliveryProvider` for one projection, asked for as a service.

    `problem` says why there is no delivery at the moment; None once there is.
    """

    def __init__(self, client: Client, projection: Projection, beat: Callable[[], None] = no_beat) -> None:
        """`beat` is called at each attempt."""
        self.problem: str | None = "delivery has not been asked for yet"
        self._client = client
        self._projection = projection
        self._consumers = ShardConsumers(client.connection)
        self._beat = beat
        self._begun: set[Delivery] = set()
        """Deliveries that began at the projection's position since this process started."""

    async def provision(self) -> Provisioned:
        """The consumers of all shards in the current incarnation. Raises DeliveryUnavailable naming what is missing.

        Where one shard is not ready the others are provisioned all the same.
        """
        self._beat()
        try:
            standing = await self._ask()
            provisioned = await self._provision(standing)
        except DeliveryUnavailable as fault:
            self.problem = str(fault)
            raise
        self.problem = None
        return provisioned

    async def _ask(self) -> Standing:
        """Incarnation and number of shards, as the authority says."""
        try:
            standing = await self._client.history.memberships()
        except (Unavailable, ReplyFault) as fault:
            raise DeliveryUnavailable(str(fault)) from fault
        if isinstance(standing, Refusal):
            raise DeliveryUnavailable(f"{standing.code.value}: {standing.rejection.message}")
        return standing

    async def _provision(self, standing: Standing) -> Provisioned:
        at_once = asyncio.Semaphore(shards_at_once_max)

        async def ensure(delivery: Delivery) -> str | None:
            async with at_once:
                return await self._ensure(delivery, standing.incarnation)

        deliveries = tuple(self._delivery(number, standing.incarnation) for number in _group_shards(standing))
        missing = [problem for problem in await asyncio.gather(*map(ensure, deliveries)) if problem is not None]
        if missing:
            raise DeliveryUnavailable("; ".join(missing))
        return Provisioned(incarnation=standing.incarnation, deliveries=deliveries, filtered=False)

    def _delivery(self, shard_id: ShardId, incarnation: str) -> Delivery:
        return Delivery(
            shard_id=shard_id,
            stream=subjects.stream_name(self._client.organization_id, shard_id, incarnation),
            consumer=f"{self._projection.name}-{shard_id}",
        )

    async def _ensure(self, delivery: Delivery, incarnation: str) -> str | None:
        """Make one shard's consumer; why that is not possible now, or None."""
        shard_id = ShardId(delivery.shard_id)
        stored = await self._projection.store.read(lambda transaction: transaction.position(shard_id))
        # A position of another incarnation says nothing about this stream: it is read from its beginning.
        position = stored.position if stored is not None and stored.incarnation == incarnation else 0
        begins = delivery not in self._begun
        try:
            await self._consumers.ensure(delivery.stream, delivery.consumer, position, begins=begins)
        except StreamAbsent:
            return f"the stream of shard {shard_id} is not there yet ({delivery.stream})"
        except (BrokerError, TimeoutError) as fault:
            return f"the consumer of shard {shard_id} cannot be made: {str(fault) or type(fault).__name__}"
        self._begun.add(delivery)
        return None


def _group_shards(standing: Standing) -> list[ShardId]:
    """The shards that hold Mission trees."""
    return [ShardId(number) for number in range(organization_shard + 1, standing.shard_count + 1)]
