"""What a message of a shard's stream carries: the Event's stored bytes, or a pointer in its place (OBX-2, RULE-18).

The stream sequence of a message is its shard position. Every message has the three headers below. When the broker
refuses an Event for good, a small pointer stands at its position, marked by `stub_header`: the reader fetches the
Event from the replay service.
"""

from collections.abc import Mapping
from typing import Final

from msgspec import Struct
from msgspec.json import Decoder, Encoder

event_id_header: Final = "Weavehold-Event-Id"
relay_epoch_header: Final = "Weavehold-Relay-Epoch"
"""Lease epoch of the relay that published the message (decimal). A higher one than known: the reader stops and asks."""
incarnation_header: Final = "Weavehold-Incarnation"
"""Incarnation of the stream; an Event of an earlier one keeps its own in its history extension."""
stub_header: Final = "Weavehold-Stub"
"""Present on a pointer only; its value is the format of the body."""
stub_format: Final = "pointer/1"


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
