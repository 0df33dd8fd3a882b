"""Conversation (`conversation.schema.json`): a thread of Messages inside a Group."""

from enum import Enum

from msgspec import UNSET, UnsetType

from contracts.documents.common import Actor, Document, Extensions, NonEmpty, Text500
from contracts.documents.conditions import has, when
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

    rules = (when(has("mode", AccessMode.RESTRICTED), holder="restricted access", requires=("members",)),)


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

    rules = (
        when(
            has("type", ConversationType.WORK_ITEM),
            holder="a work_item Conversation",
            requires=("primary_work_item_id",),
        ),
        when(
            has("type", ConversationType.RESTRICTED),
            holder="a restricted Conversation",
            takes={"access.mode": (AccessMode.RESTRICTED,)},
        ),
    )
