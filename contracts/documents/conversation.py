"""Conversation (`conversation.schema.json`): a thread of Messages inside a Group."""

from enum import Enum

from msgspec import UNSET, UnsetType

from contracts.documents.common import Actor, Document, Extensions, NonEmpty, Text500, require_members
from contracts.identifiers import Identifier, SafeInteger
from contracts.timestamps import Timestamp


class ConversationType(Enum):
    """What a Conversation is about."""

    GROUP = "group"
    WORK_ITEM = "work_item"
    REVIEW = "review"
    RESTRICTED = "restricted"


class AccessMode(Enum):
    """Who may read: the whole Group, or the listed members."""

    GROUP = "group"
    RESTRICTED = "restricted"


class ConversationState(Enum):
    """Whether Messages may still be posted."""

    ACTIVE = "active"
    CLOSED = "closed"


class ConversationAccess(Document, frozen=True, kw_only=True):
    """The readers of a Conversation."""

    mode: AccessMode
    members: NonEmpty[Actor] | UnsetType = UNSET

    def __post_init__(self) -> None:
        """A restricted Conversation lists its members."""
        if self.mode is AccessMode.RESTRICTED:
            require_members("restricted access", {"members": self.members})


class Conversation(Document, frozen=True, kw_only=True):
    """A Conversation as of one revision."""

    conversation_id: Identifier
    mission_id: Identifier
    group_id: Identifier
    type: ConversationType
    primary_work_item_id: Identifier | UnsetType = UNSET
    title: Text500
    access: ConversationAccess
    created_by: Actor
    created_at: Timestamp
    state: ConversationState
    revision: SafeInteger
    extensions: Extensions | UnsetType = UNSET

    def __post_init__(self) -> None:
        """The type decides about WorkItem and access."""
        if self.type is ConversationType.WORK_ITEM:
            require_members("a work_item Conversation", {"primaryWorkItemId": self.primary_work_item_id})
        if self.type is ConversationType.RESTRICTED and self.access.mode is not AccessMode.RESTRICTED:
            raise ValueError("access.mode is group; a restricted Conversation needs restricted")
