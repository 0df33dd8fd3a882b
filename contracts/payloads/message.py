"""Payloads of the Message family."""

from msgspec import UNSET, UnsetType

from contracts.documents.common import Actor, Document, refuse_repeats
from contracts.documents.message import Message, MessageContent
from contracts.identifiers import Identifier


class MessagePost(Document, frozen=True, kw_only=True):
    """`message.post`; the Conversation may stand in the envelope instead."""

    message_id: Identifier
    conversation_id: Identifier
    content: MessageContent
    mentions: tuple[Actor, ...] | UnsetType = UNSET
    references: tuple[Identifier, ...] | UnsetType = UNSET

    def __post_init__(self) -> None:
        """Mentions and references are sets."""
        refuse_repeats("mentions", self.mentions)
        refuse_repeats("references", self.references)


class MessagePosted(Document, frozen=True, kw_only=True):
    """`message.posted`."""

    message: Message
