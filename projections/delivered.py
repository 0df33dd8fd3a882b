"""What a batch of messages holds: Events, mere pointers to Events, and what cannot be read."""

from collections.abc import Sequence

from msgspec import Struct, ValidationError, field
from nats.aio.msg import Msg

from contracts.delivery import read_mark, read_stub
from contracts.identifiers import GroupSequence, ShardPosition
from projections.arrival import Arrival, UnreadableEvent, read_arrival


class Delivered(Struct):
    """A batch in the order of the stream.

    `places` gives the shard position of each Event; `unreadable` the positions and subjects of what is neither Event
    nor pointer. `relay_epoch` is the highest seen, `incarnations` are those that the messages name.
    """

    first: ShardPosition
    last: ShardPosition
    places: list[tuple[ShardPosition, Arrival]] = field(default_factory=list)
    pointers: list[tuple[str, GroupSequence]] = field(default_factory=list)
    pointer_positions: set[ShardPosition] = field(default_factory=set)
    unreadable: list[tuple[ShardPosition, str]] = field(default_factory=list)
    relay_epoch: int = 0
    incarnations: set[str] = field(default_factory=set)

    @property
    def arrivals(self) -> list[Arrival]:
        """The Events alone."""
        return [arrival for _, arrival in self.places]


def read_delivered(messages: Sequence[Msg]) -> Delivered:
    """Read a batch of at least one message, as a relay publishes them (`contracts.delivery`)."""
    delivered = Delivered(_position(messages[0]), _position(messages[-1]))
    for message in messages:
        position = _position(message)
        headers = message.headers or {}
        if (mark := read_mark(headers)) is not None:
            delivered.relay_epoch = max(delivered.relay_epoch, mark.relay_epoch)
            delivered.incarnations.add(mark.incarnation)
        try:
            stub = read_stub(headers, message.data)
            if stub is None:
                delivered.places.append((position, read_arrival(message.data)))
            else:
                delivered.pointers.append((stub.group_id, GroupSequence(stub.sequence)))
                delivered.pointer_positions.add(position)
        except (UnreadableEvent, ValidationError, ValueError):
            delivered.unreadable.append((position, message.subject))
    return delivered


def _position(message: Msg) -> ShardPosition:
    """The stream sequence, which is the shard position, from the acknowledgement subject.

    `$JS.ACK.<stream>.<consumer>.<deliveries>.<stream sequence>.<consumer sequence>.<time>.<pending>`; brokers with a
    domain put two tokens before the stream and may add one at the end.
    """
    tokens = message.reply.split(".")
    return ShardPosition(int(tokens[5 if len(tokens) == 9 else 7]))
