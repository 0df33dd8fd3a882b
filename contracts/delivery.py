"""What a message of a shard's stream carries: the Event's stored bytes, or a pointer in its place (OBX-2, RULE-18).

The stream sequence of a message is its shard position. Every message has a mark, in one header: three would cost each
sender and reader more than the Event's own bytes do. When the broker refuses an Event for good, a small pointer
stands at its position, marked by `stub_header`: the reader fetches the Event from the replay service.
"""

from collections.abc import Mapping
from typing import Final, NamedTuple

from msgspec import Struct
from msgspec.json import Decoder, Encoder

mark_header: Final = "Weavehold-Event"
"""`<Event ID> <relay epoch> <incarnation>`."""
stub_header: Final = "Weavehold-Stub"
"""Present on a pointer only; its value is the format of the body."""
stub_format: Final = "pointer/1"


class MessageMark(NamedTuple):
    """What a message says of its Event and its publisher.

    `relay_epoch` is the lease epoch of the relay that published it: a reader that meets a higher one than it knows
    stops and asks. `incarnation` is that of the stream; an Event of an earlier one keeps its own inside (RULE-18).
    """

    event_id: str
    relay_epoch: int
    incarnation: str


def mark_text(event_id: str, relay_epoch: int, incarnation: str) -> str:
    """The value of the mark header."""
    return f"{event_id} {relay_epoch} {incarnation}"


def read_mark(headers: Mapping[str, str] | None) -> MessageMark | None:
    """The mark of a message, None when it has none or one that no relay of ours writes."""
    match (headers or {}).get(mark_header, "").split(" "):
        case [event_id, epoch, incarnation] if epoch.isdecimal():
            return MessageMark(event_id, int(epoch), incarnation)
    return None


class PointerStub(Struct, frozen=True, kw_only=True, rename="camel"):
    """The body of a pointer, as JSON.

    `group_id` is "" and `sequence` equals `position` for an Organization-scoped Event; `chain_hash` is h_sequence
    in lower-case hex.
    """

    event_id: str
    group_id: str
    sequence: int
    position: int
    chain_hash: str


_encoder: Final = Encoder()
_decoder: Final = Decoder(PointerStub)


def encode_stub(stub: PointerStub) -> bytes:
    """The body of a pointer."""
    return _encoder.encode(stub)


def read_stub(headers: Mapping[str, str] | None, body: bytes) -> PointerStub | None:
    """The pointer in a message, or None for an Event. Raises ValueError for a pointer of an unknown format."""
    form = (headers or {}).get(stub_header)
    if form is None:
        return None
    if form != stub_format:
        raise ValueError(f"a pointer of format {form!r} cannot be read; this version reads {stub_format!r}")
    return _decoder.decode(body)
