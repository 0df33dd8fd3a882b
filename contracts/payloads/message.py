"""Payloads of the Message family."""

from msgspec import UNSET, UnsetType

from contracts.documents.common import Actor, Document
from contracts.documents.conditions import unique
from contracts.documents.message import Message, MessageContent
from contracts.identifiers import Identifier


class MessagePost(Document, frozen=True, kw_only=True):
    """`message.post`; the Conversation may stand in the envelope instead."""

    message_id: Identifier
    conversation_id: Identifier
    content: MessageContent
    mentions: tuple[Actor, ...] | UnsetType = UNSET
    references: tuple[Identifier, ...] | UnsetType = UNSET

    rules = unique("mentions", "references")


class MessagePosted(Document, frozen=True, kw_only=True):
    """`message.posted`."""

    message: Message
