"""The Cursor: the highest contiguous Group sequence durably processed, with proof of what it consumed.

Source: MWP-WRK-029, PRJ-3. A Cursor moves by `advance` only; whether an Event may move it is `classify`'s answer.
"""

from enum import Enum

from msgspec import Struct

from contracts.chain import ChainHash, chain_start
from contracts.identifiers import GroupSequence


class Contact(Enum):
    """What an arriving Event is to a Cursor."""

    NEXT = "next"
    DUPLICATE = "duplicate"
    GAP = "gap"
    FORK = "fork"
    UNKNOWN = "unknown"
    """Below the Cursor with no remembered hash: ask the authority before dropping it."""


class EventMark(Struct, frozen=True, gc=False):
    """Where an Event stands in its history.

    `previous_hash` and `chain_hash` are h_{n-1} and h_n as raw 32-byte digests; `sequence` is n.
    """

    incarnation: str
    group_id: str
    sequence: GroupSequence
    previous_hash: ChainHash
    chain_hash: ChainHash


class Cursor(Struct, frozen=True, gc=False):
    """Position of one consumer in one Group: Events up to `sequence` are applied, and `chain_hash` is h_sequence."""

    incarnation: str
    group_id: str
    sequence: GroupSequence
    chain_hash: ChainHash


def cursor_start(organization_id: str, group_id: str, incarnation: str) -> Cursor:
    """A Cursor before the first Event of a Group."""
    return Cursor(incarnation, group_id, GroupSequence(0), chain_start(organization_id, group_id))


def classify(cursor: Cursor, mark: EventMark, remembered: ChainHash | None = None) -> Contact:
    """Judge an Event against a Cursor.

    `remembered` is the chain hash that this consumer applied at `mark.sequence`, if it still knows it; the
    Cursor's own hash serves for its own sequence. Raises ValueError when the two speak of different Groups.
    """
    if cursor.group_id != mark.group_id:
        raise ValueError(f"Cursor of Group {cursor.group_id} cannot judge an Event of Group {mark.group_id}")
    if mark.sequence > cursor.sequence + 1:
        return Contact.GAP
    if mark.sequence == cursor.sequence + 1:
        return Contact.NEXT if mark.previous_hash == cursor.chain_hash else Contact.FORK
    known = cursor.chain_hash if mark.sequence == cursor.sequence else remembered
    if known is None:
        return Contact.UNKNOWN
    return Contact.DUPLICATE if known == mark.chain_hash else Contact.FORK


def advance(cursor: Cursor, mark: EventMark) -> Cursor:
    """The Cursor after applying a NEXT Event. Raises ValueError for anything else: a Cursor never crosses a gap."""
    contact = classify(cursor, mark)
    if contact is not Contact.NEXT:
        raise ValueError(
            f"Cursor of {cursor.group_id} at {cursor.sequence} cannot take {contact.value} Event {mark.sequence}"
        )
    return Cursor(mark.incarnation, mark.group_id, mark.sequence, mark.chain_hash)
