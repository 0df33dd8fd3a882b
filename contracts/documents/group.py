"""Group (`group.schema.json`): the one collaboration space and Event history of a Mission."""

from enum import Enum

from msgspec import UNSET, UnsetType

from contracts.documents.common import Document, Extensions
from contracts.documents.conditions import has, when
from contracts.identifiers import Identifier
from contracts.timestamps import Timestamp


class GroupDocumentState(Enum):
    """Whether the Group still takes Commands (MWP-MSN-009). The folded state of a Group is another thing."""

    ACTIVE = "active"
    ARCHIVED = "archived"


class Group(Document, frozen=True, kw_only=True):
    """A Group; the two archive members appear with archival, together."""

    group_id: Identifier
    mission_id: Identifier
    state: GroupDocumentState
    main_conversation_id: Identifier
    created_at: Timestamp
    archived_at: Timestamp | UnsetType = UNSET
    archive_snapshot_id: Identifier | UnsetType = UNSET
    extensions: Extensions | UnsetType = UNSET

    rules = (
        when(
            has("state", GroupDocumentState.ARCHIVED),
            holder="an archived Group",
            requires=("archived_at", "archive_snapshot_id"),
        ),
        when(
            has("state", GroupDocumentState.ACTIVE),
            holder="an active Group",
            refuses=("archived_at", "archive_snapshot_id"),
        ),
    )
