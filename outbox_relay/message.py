"""The messages of a shard's stream: the stored bytes of an Event, or a pointer where the broker takes no Event."""

from functools import lru_cache, partial
from typing import Any, Final

from msgspec import Struct

from contracts import subjects
from contracts.delivery import PointerStub, encode_stub, mark_header, mark_text, stub_format, stub_header
from contracts.identifiers import ShardId, ShardPosition
from outbox_relay.outbox import LogFault, OutboxRow

header_bytes_reserved: Final = 1024
"""Bytes of a message kept free for its headers, which the broker counts against its limit."""
subjects_kept_max: Final = 16_384
"""Subjects of Groups kept, so that a Group's name is hashed once and not for each of its Events."""


class HeaderText(str):
    """A header value known to hold no line break and no outer white space.

    The client looks for line breaks in every value character by character, which for an Event ID takes a third of
    the whole cost of sending a message; this type answers that search at once.
    """

    __slots__ = ()

    def strip(self, chars: str | None = None, /) -> str:
        """Itself: there is nothing to strip."""
        return self if chars is None else super().strip(chars)

    def translate(self, table: Any, /) -> str:  # noqa: ARG002 - the client's table replaces line breaks, nothing else
        """Itself: there is nothing to replace."""
        return self


class Message(Struct, frozen=True):
    """One message at its position. `headers` belong to the pipeline that sends it, which adds the fences."""

    position: ShardPosition
    subject: str
    headers: dict[str, str]
    body: bytes


class MessageMaker:
    """Makes the messages of one publisher for one shard in one incarnation."""

    def __init__(self, organization_id: str, shard_id: ShardId, incarnation: str, relay_epoch: int) -> None:
        """Incarnation and epoch go into every message's mark (RULE-18)."""
        self._subject = lru_cache(subjects_kept_max)(partial(subjects.event, organization_id, shard_id))
        self._incarnation = incarnation
        self._relay_epoch = relay_epoch

    def event(self, row: OutboxRow) -> Message:
        """The Event's stored bytes. Raises LogFault for an Event ID that would forge headers."""
        return Message(row.position, self._subject(row.group_id), self._headers(row.event_id), row.event)

    def pointer(self, row: OutboxRow, stub: PointerStub) -> Message:
        """A pointer in the Event's place: small, and marked by a header."""
        headers = self._headers(row.event_id)
        headers[stub_header] = stub_format
        return Message(row.position, self._subject(row.group_id), headers, encode_stub(stub))

    def _headers(self, event_id: str) -> dict[str, str]:
        mark = mark_text(event_id, self._relay_epoch, self._incarnation)
        if not mark.isprintable():
            raise LogFault(f"the Event ID {event_id!r} cannot stand in a header")
        return {mark_header: HeaderText(mark)}
