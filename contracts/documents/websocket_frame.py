"""WebSocket Frame (`websocket-frame.schema.json`): one closed Struct per frame of the protocol's own transport.

Nine of the ten frames carry documents or cursors; the HELLO frames are four steps told apart by `phase`. Frames
that are not in the schema, such as partial text, do not exist.
"""

from collections.abc import Mapping
from typing import Annotated, Any, Literal

from msgspec import UNSET, Meta, UnsetType

from contracts.command import Command
from contracts.documents.common import Document, Kind, NonEmpty
from contracts.documents.conditions import unique
from contracts.documents.error import ProtocolError
from contracts.documents.presence_record import PresenceRecord
from contracts.documents.reading import read
from contracts.event import Event
from contracts.identifiers import Base64Url, Identifier, SafeInteger, SessionEpochField
from contracts.timestamps import Timestamp

ProtocolVersion = Literal["0.1"]


class HelloClientInit(Document, frozen=True, kw_only=True, tag_field="phase", tag="client_init"):
    """HELLO, first step: who wants a session under which key."""

    protocol_version: ProtocolVersion
    frame_id: Identifier
    frame_type: Literal["HELLO"]
    agent_id: Identifier
    key_id: Identifier
    client_nonce: Base64Url
    supported_versions: NonEmpty[ProtocolVersion]

    rules = unique("supported_versions")


class HelloServerChallenge(Document, frozen=True, kw_only=True, tag_field="phase", tag="server_challenge"):
    """HELLO, second step: the bytes to sign."""

    protocol_version: ProtocolVersion
    frame_id: Identifier
    frame_type: Literal["HELLO"]
    selected_version: ProtocolVersion
    client_nonce: Base64Url
    server_nonce: Base64Url
    challenge: Base64Url


class HelloClientResponse(Document, frozen=True, kw_only=True, tag_field="phase", tag="client_response"):
    """HELLO, third step: the signature over the challenge."""

    protocol_version: ProtocolVersion
    frame_id: Identifier
    frame_type: Literal["HELLO"]
    agent_id: Identifier
    key_id: Identifier
    client_nonce: Base64Url
    server_nonce: Base64Url
    challenge_signature: Base64Url


class HelloServerAccept(Document, frozen=True, kw_only=True, tag_field="phase", tag="server_accept"):
    """HELLO, last step: the session."""

    protocol_version: ProtocolVersion
    frame_id: Identifier
    frame_type: Literal["HELLO"]
    selected_version: ProtocolVersion
    session_token: Annotated[str, Meta(min_length=16, max_length=8192)]
    session_epoch: SessionEpochField
    expires_at: Timestamp


class Attention(Document, frozen=True, kw_only=True):
    """What a subscriber wants to be told of first; it never filters history."""

    event_kinds: tuple[Kind, ...] | UnsetType = UNSET
    conversation_ids: tuple[Identifier, ...] | UnsetType = UNSET
    work_item_ids: tuple[Identifier, ...] | UnsetType = UNSET
    mentions_only: bool | UnsetType = UNSET
    announcements: bool | UnsetType = UNSET

    rules = unique("event_kinds", "conversation_ids", "work_item_ids")


class GroupSubscription(Document, frozen=True, kw_only=True):
    """A Group from strictly after one sequence."""

    group_id: Identifier
    after_sequence: SafeInteger
    attention: Attention | UnsetType = UNSET


class SubscribeFrame(Document, frozen=True, kw_only=True, tag_field="frameType", tag="SUBSCRIBE"):
    """Asks for the Events of some Groups."""

    protocol_version: ProtocolVersion
    frame_id: Identifier
    subscription_id: Identifier
    groups: NonEmpty[GroupSubscription]


class CommandFrame(Document, frozen=True, kw_only=True, tag_field="frameType", tag="COMMAND"):
    """Carries a Command."""

    protocol_version: ProtocolVersion
    frame_id: Identifier
    command: Command


class EventFrame(Document, frozen=True, kw_only=True, tag_field="frameType", tag="EVENT"):
    """Carries an Event."""

    protocol_version: ProtocolVersion
    frame_id: Identifier
    event: Event


class Acknowledgement(Document, frozen=True, kw_only=True):
    """The highest contiguous durable sequence of one Group."""

    group_id: Identifier
    sequence: SafeInteger


class AckFrame(Document, frozen=True, kw_only=True, tag_field="frameType", tag="ACK"):
    """Reports Cursors (MWP-WRK-030)."""

    protocol_version: ProtocolVersion
    frame_id: Identifier
    acknowledgements: NonEmpty[Acknowledgement]
    sent_at: Timestamp


class PingFrame(Document, frozen=True, kw_only=True, tag_field="frameType", tag="PING"):
    """Keeps the connection and may report presence."""

    protocol_version: ProtocolVersion
    frame_id: Identifier
    nonce: Base64Url
    reply_to_nonce: Base64Url | UnsetType = UNSET
    sent_at: Timestamp
    presence: PresenceRecord | UnsetType = UNSET


class ErrorFrame(Document, frozen=True, kw_only=True, tag_field="frameType", tag="ERROR"):
    """Carries a refusal."""

    protocol_version: ProtocolVersion
    frame_id: Identifier
    error: ProtocolError


HelloFrame = HelloClientInit | HelloServerChallenge | HelloClientResponse | HelloServerAccept
PlainFrame = SubscribeFrame | CommandFrame | EventFrame | AckFrame | PingFrame | ErrorFrame


def read_frame(value: Any) -> HelloFrame | PlainFrame:
    """`value`, JSON as `parse_strict` gives it, as a frame. Raises msgspec.ValidationError when it is none."""
    hello = isinstance(value, Mapping) and value.get("frameType") == "HELLO"
    frame: HelloFrame | PlainFrame = read(value, HelloFrame if hello else PlainFrame)
    return frame
