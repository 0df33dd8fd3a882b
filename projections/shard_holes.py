"""An unfiltered delivery must show every shard position: fetch those that it left out (RULE-20).

A deleted message leaves a hole without an error, and a projection that lost its state is behind what the broker has
seen acknowledged. Both are fetched by position from the history source, page by page; the position moves with each.
"""

from contracts.identifiers import ShardPosition
from projections.apply_event import Applied, DeliveryNote
from projections.arrival import Arrival, UnreadableEvent, read_arrival
from projections.delivered import Delivered
from projections.history import HistoryBroken, HistoryUnavailable, ShardHistory
from projections.projection import Projection
from projections.store import StreamPosition
from services.process.logs import get_log

_log = get_log(__name__)


class AnotherIncarnation(HistoryUnavailable):
    """The authority is in another incarnation than the stream: positions do not compare, delivery goes on elsewhere."""

    def __init__(self, incarnation: str) -> None:
        super().__init__(f"the history goes on in incarnation {incarnation}")
        self.incarnation = incarnation


async def receive_unfiltered(
    projection: Projection, shards: ShardHistory, delivered: Delivered, last: StreamPosition
) -> Applied:
    """Apply a batch of an unfiltered delivery that ends at `last`, and before it whatever is missing.

    Raises HistoryUnavailable (AnotherIncarnation too), HistoryRefused or HistoryBroken: the batch must not be
    acknowledged then.
    """
    applied = await catch_up(projection, shards, _at(last, delivered.first - 1))
    events = dict(delivered.places)
    expected = delivered.first
    while expected <= delivered.last:
        if expected not in events and expected not in delivered.pointer_positions:
            fetched = await _fetch(shards, _at(last, expected - 1), delivered.last)
            events = dict(fetched) | events
            projection.progress.gaps_filled += 1
        expected = ShardPosition(expected + 1)
    arrivals = [events[position] for position in sorted(events)]
    applied.add(await projection.receive(arrivals, DeliveryNote(last, tuple(delivered.pointers))))
    return applied


async def catch_up(projection: Projection, shards: ShardHistory, last: StreamPosition) -> Applied:
    """Apply a shard's Events from the stored position up to `last`. Raises as `receive_unfiltered` does.

    Positions of another incarnation cannot be compared: then the Cursors and the comparison of heads decide alone.
    """
    applied = Applied()
    stored = await projection.store.read(lambda transaction: transaction.position(last.shard_id))
    if stored is not None and stored.incarnation != last.incarnation:
        return applied
    began = after = stored.position if stored is not None else ShardPosition(0)
    while after < last.position:
        fetched = await _fetch(shards, _at(last, after), last.position)
        if after == began:
            projection.progress.gaps_filled += 1
        after = fetched[-1][0]
        applied.add(await projection.receive([arrival for _, arrival in fetched], DeliveryNote(_at(last, after))))
    return applied


async def _fetch(
    shards: ShardHistory, after: StreamPosition, last: ShardPosition
) -> list[tuple[ShardPosition, Arrival]]:
    """One page of a shard's Events above `after`, up to `last`."""
    page = await shards.shard_page(after.shard_id, after.position)
    if page.head.incarnation != after.incarnation:
        raise AnotherIncarnation(page.head.incarnation)
    _log.warning("positions_fetched", shard_id=after.shard_id, after=after.position, last=last, events=len(page.events))
    found: list[tuple[ShardPosition, Arrival]] = []
    for expected, replayed in enumerate(page.events, after.position + 1):
        if replayed.position != expected:
            raise HistoryBroken(
                f"the page of shard {after.shard_id} holds position {replayed.position} in place of {expected}"
            )
        if expected > last:
            break
        try:
            found.append((ShardPosition(expected), read_arrival(replayed.event)))
        except UnreadableEvent as fault:
            raise HistoryBroken(f"the page of shard {after.shard_id} holds {fault} at position {expected}") from fault
    if not found:
        raise HistoryBroken(
            f"shard {after.shard_id} has no Event after {after.position}, yet its stream reaches {last}"
        )
    return found


def _at(place: StreamPosition, position: int) -> StreamPosition:
    return StreamPosition(place.shard_id, place.incarnation, ShardPosition(position))
