"""Committed Message (`message.schema.json`): context only; it can never authorise anything."""

from enum import Enum
from typing import Annotated, Any

from msgspec import UNSET, Meta, UnsetType

from contracts.documents.common import (
    Actor,
    Document,
    Extensions,
    NonEmpty,
    Text4000,
)
from contracts.documents.conditions import always, has_not, unique, when
from contracts.identifiers import Identifier, Sha256, Uri
from contracts.timestamps import Timestamp


class MessageKind(Enum):
    """A Message of its own, or a change to an earlier one."""

    MESSAGE = "message"
    CORRECTION = "correction"
    RETRACTION = "retraction"
    REDACTION = "redaction"


class TextPart(Document, frozen=True, kw_only=True, tag_field="type", tag="text"):
    """Plain text."""

    text: Annotated[str, Meta(min_length=1, max_length=100_000)]


class ArtifactPart(Document, frozen=True, kw_only=True, tag_field="type", tag="artifact_ref"):
    """A reference to an Artifact by its content hash."""

    artifact_hash: Sha256


class DataPart(Document, frozen=True, kw_only=True, tag_field="type", tag="data_ref"):
    """Data of a named schema; `data` may be any JSON value and is kept as it came."""

    schema: Uri
    data: Any


MessageContent = NonEmpty[TextPart | ArtifactPart | DataPart]


class Message(Document, frozen=True, kw_only=True):
    """A Message as committed to its Group's history."""

    message_id: Identifier
    mission_id: Identifier
    group_id: Identifier
    conversation_id: Identifier
    author: Actor
    kind: MessageKind
    authority: bool
    target_message_id: Identifier | UnsetType = UNSET
    content: MessageContent
    mentions: tuple[Actor, ...] | UnsetType = UNSET
    references: tuple[Identifier, ...] | UnsetType = UNSET
    reason: Text4000 | UnsetType = UNSET
    committed_at: Timestamp
    extensions: Extensions | UnsetType = UNSET

    rules = (
        always(holder="a Message, which never authorises anything,", takes={"authority": (False,)}),
        *unique("mentions", "references"),
        when(
            has_not("kind", MessageKind.MESSAGE),
            holder="a {kind}",
            requires=("target_message_id", "reason"),
        ),
    )
