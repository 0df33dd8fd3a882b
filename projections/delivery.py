"""Who provisions the delivery of a projection, and to whom it reports how far it is."""

from typing import Protocol

from msgspec import Struct

from contracts.cursor import Cursor
from contracts.identifiers import GroupSequence, ShardId
from contracts.payloads.requests import Delivery


class DeliveryUnavailable(Exception):
    """No delivery could be provisioned now. Asking again later is safe."""


class DeliveredGroup(Struct, frozen=True):
    """A Group that is delivered. `visible_after` is the sequence that a late member's history begins after."""

    group_id: str
    shard_id: ShardId
    visible_after: GroupSequence = GroupSequence(0)


class Provisioned(Struct, frozen=True):
    """The durable pull consumers (ack-all) to read from, in the current incarnation.

    A filtered delivery covers exactly `groups`, and a hole in its stream sequences means nothing. One that is
    unfiltered covers whole shards: every stream sequence is due, and `groups` only names those known already.
    """

    incarnation: str
    deliveries: tuple[Delivery, ...]
    groups: tuple[DeliveredGroup, ...] = ()
    filtered: bool = True


class DeliveryProvider(Protocol):
    """Provisions delivery, idempotently: asked again, it makes what is missing and corrects what changed (RULE-25)."""

    async def provision(self) -> Provisioned:
        """What to read from now. Raises DeliveryUnavailable."""
        ...


class Acknowledger(Protocol):
    """Reports durable Cursors to the authority (MWP-WRK-030)."""

    async def acknowledge(self, cursor: Cursor) -> None:
        """Report one Cursor. Raises HistoryUnavailable to be asked again, HistoryRefused when it is not accepted."""
        ...
