"""An Event as it arrives at a consumer: parsed once, with its place in the chain recomputed from its own bytes.

The signing hash is SHA-256 over the canonical bytes without the top-level `signature`. Stored bytes are canonical, so
that member can be cut out of them: in canonical order only `workItemId` can follow it, and the whole tail is compared
with what the parsed members must look like. The rest is hashed as it stands. Bytes that only resemble canonical ones
therefore get another hash than the signed one, never a false match; for them the hash is computed from the parsed
document instead (`contracts.canonical.signing_bytes`), which is the definition.

The Structs here hold nothing that could refer back to them, so the collector of cycles passes them over (`gc=False`):
a replay makes many thousand at once.
"""

import hashlib
from typing import Final

import msgspec
from msgspec import UNSET, Raw, Struct, UnsetType

from contracts.bounds import event_bytes_max
from contracts.canonical import CanonicalizationFault, ParseFault, parse_strict, signing_bytes
from contracts.chain import ChainHash, SigningHash, chain_next, history_extension
from contracts.cursor import EventMark
from contracts.documents.common import ActorType
from contracts.identifiers import GroupSequence


class UnreadableEvent(Exception):
    """Bytes that are no Event of a Group: something else stands at this place of the delivery."""


class Principal(Struct, frozen=True, gc=False):
    """Who acted."""

    type: ActorType
    id: str


class EventCause(Struct, frozen=True, gc=False):
    """What made it happen: `command`, `event`, `timer` or `policy`, and its ID; that of a Command is its action's."""

    type: str
    id: str


class EventExtension(Struct, frozen=True, gc=False):
    """One extension; `data` stays as it came until somebody reads it."""

    version: str
    critical: bool
    data: Raw


class EventSignature(Struct, frozen=True, gc=False, rename="camel"):
    """The four members of a signature, as needed to find its end in the bytes."""

    algorithm: str
    created_at: str
    key_id: str
    value: str


class LoggedEvent(Struct, frozen=True, gc=False, rename="camel"):
    """The members of an Event that consumers read. Whether it is authentic is settled by its chain, not by its shape.

    `payload` is undecoded JSON: a consumer decodes what it needs of the kinds that it cares about.
    """

    event_id: str
    group_id: str
    sequence: int
    aggregate_revision: int
    kind: str
    actor: Principal
    cause: EventCause
    occurred_at: str
    payload: Raw
    extensions: dict[str, EventExtension]
    signature: EventSignature
    conversation_id: str | UnsetType = UNSET
    work_item_id: str | UnsetType = UNSET


type EventBytes = bytes | Raw
"""The bytes of one Event: alone, or as a part of the page that they came in, which copying would double."""


class Arrival(Struct, frozen=True, gc=False):
    """An Event with its place, recomputed, and the bytes that prove it."""

    event: LoggedEvent
    mark: EventMark
    raw: EventBytes

    @property
    def size(self) -> int:
        """How many bytes the Event has."""
        return len(memoryview(self.raw))


class _History(Struct, frozen=True, gc=False, rename="camel"):
    incarnation: str
    previous_hash: str


_decode_event: Final = msgspec.json.Decoder(LoggedEvent).decode
_decode_history: Final = msgspec.json.Decoder(_History).decode


def read_arrival(raw: EventBytes) -> Arrival:
    """Parse the bytes of one Group Event. Raises UnreadableEvent for anything else."""
    # A part of a page is copied for as long as it is read: bytes are compared and cut many times faster than views.
    whole = bytes(raw)
    if len(whole) > event_bytes_max:
        raise UnreadableEvent(f"{len(whole)} bytes; an Event has at most {event_bytes_max}")
    try:
        event = _decode_event(raw)
        history = _decode_history(event.extensions[history_extension].data)
        previous = ChainHash(bytes.fromhex(history.previous_hash))
        signing_hash = _hash_of_canonical(event, whole) or _hash_of_document(whole)
    except KeyError as fault:
        raise UnreadableEvent(f"an Event without {history_extension}") from fault
    except (ValueError, ParseFault, CanonicalizationFault) as fault:
        raise UnreadableEvent(f"no Event of a Group: {fault}") from fault
    mark = EventMark(
        history.incarnation,
        event.group_id,
        GroupSequence(event.sequence),
        previous,
        chain_next(previous, signing_hash),
    )
    return Arrival(event, mark, raw)


def _hash_of_canonical(event: LoggedEvent, whole: bytes) -> SigningHash | None:
    """The signing hash of canonical bytes; None when the tail is not what canonical bytes end with."""
    signature = event.signature
    end = b"}" if event.work_item_id is UNSET else f',"workItemId":"{event.work_item_id}"}}'.encode()
    own = (
        f',"signature":{{"algorithm":"{signature.algorithm}","createdAt":"{signature.created_at}",'
        f'"keyId":"{signature.key_id}","value":"{signature.value}"}}'
    )
    tail = own.encode() + end
    if not whole.endswith(tail):
        return None
    return SigningHash(hashlib.sha256(whole[: -len(tail)] + end).digest())


def _hash_of_document(raw: bytes) -> SigningHash:
    """The signing hash by definition, for bytes that are not canonical."""
    return SigningHash(hashlib.sha256(signing_bytes(parse_strict(raw, event_bytes_max))).digest())
