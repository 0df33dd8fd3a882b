"""The entities of a Group: the normative documents plus the bookkeeping that decisions need.

One entity is one row of table `entity`. Its bytes are the RFC 8785 form of its Struct, so that two folds of the
same Events are equal byte for byte (NEW-4).
"""

import hashlib
from collections.abc import Iterable, Mapping
from enum import Enum
from types import MappingProxyType
from typing import Any, Final, NamedTuple

import msgspec
from msgspec import UNSET, Struct, UnsetType

from contracts.bounds import event_bytes_max
from contracts.canonical import canonical_bytes, parse_strict
from contracts.documents.approval import Approval
from contracts.documents.artifact import Artifact
from contracts.documents.checkpoint import Checkpoint
from contracts.documents.common import Document
from contracts.documents.conversation import Conversation
from contracts.documents.group import Group
from contracts.documents.lease import Lease
from contracts.documents.membership import Membership
from contracts.documents.message import Message
from contracts.documents.mission import Mission
from contracts.documents.work_item import WorkItem
from contracts.identifiers import Identifier, OwnershipEpoch, OwnershipEpochField, PositiveInteger, SafeInteger, Sha256
from contracts.payloads.keys import KeyStanding
from contracts.timestamps import Timestamp

entity_bytes_max: Final = 4 * event_bytes_max
"""Bytes of one entity. Every document of it came in one Event; a WorkItem gathers a few of them."""
past_owners_max: Final = 64
"""Fenced ownerships that a WorkItem remembers; a late result of an older one is refused and not kept."""


class EntityKind(Enum):
    """What an entity is; the value is the `kind` column."""

    GROUP = "group"
    MISSION = "mission"
    CONVERSATION = "conversation"
    MEMBERSHIP = "membership"
    WORK_ITEM = "work_item"
    ARTIFACT = "artifact"
    MESSAGE = "message"
    KEY = "key"


class EntityKey(NamedTuple):
    """The name of an entity inside its Group. A Membership is named by its Principal's identifier."""

    kind: EntityKind
    entity_id: str


class GroupRecord(Document, frozen=True, kw_only=True):
    """The Group itself."""

    group: Group

    @property
    def revision(self) -> int:
        """1: archival, which alone changes a Group, ends its history."""
        return 1


class MissionSubmission(Document, frozen=True, kw_only=True):
    """What awaits approval: the exact revision and the set of Artifact hashes, sorted (APR-1)."""

    mission_revision: SafeInteger
    artifact_hashes: tuple[Sha256, ...]
    submitted_at: Timestamp


class MissionRecord(Document, frozen=True, kw_only=True):
    """A Mission. The Coordinator Epoch in `mission.coordinator` is the highest that there ever was (LSE-2)."""

    mission: Mission
    title: str
    permissions: tuple[str, ...]
    coordinator_lease: Lease
    submission: MissionSubmission | UnsetType = UNSET
    approval: Approval | UnsetType = UNSET

    @property
    def revision(self) -> int:
        """Revision of the Mission: raised by what changes its plan, not by who acts in it."""
        return self.mission.revision


class ConversationRecord(Document, frozen=True, kw_only=True):
    """A Conversation."""

    conversation: Conversation

    @property
    def revision(self) -> int:
        """Revision of the Conversation."""
        return self.conversation.revision


class MembershipRecord(Document, frozen=True, kw_only=True):
    """A Membership at its latest epoch."""

    membership: Membership

    @property
    def revision(self) -> int:
        """The Membership Epoch: it rises with every change."""
        return self.membership.membership_epoch


class PastOwner(Document, frozen=True, kw_only=True):
    """A fenced ownership: whose late result is still kept as Evidence (MWP-WRK-019)."""

    agent_id: Identifier
    ownership_epoch: OwnershipEpochField


class WorkItemRecord(Document, frozen=True, kw_only=True):
    """A WorkItem with its leases.

    `ownership_epoch` is the highest ever granted (0 before the first acceptance). The leases are the latest ones,
    running or closed; `past_owners` is in the order of their epochs.
    """

    item: WorkItem
    ownership_epoch: SafeInteger = 0
    past_owners: tuple[PastOwner, ...] = ()
    ownership_lease: Lease | UnsetType = UNSET
    execution_lease: Lease | UnsetType = UNSET
    latest_checkpoint: Checkpoint | UnsetType = UNSET
    artifact_ids: tuple[Identifier, ...] = ()
    result_evidence_ids: tuple[Identifier, ...] = ()

    @property
    def revision(self) -> int:
        """Revision of the WorkItem."""
        return self.item.revision

    def was_owned(self, agent_id: str, epoch: OwnershipEpoch) -> bool:
        """Whether this Agent held the WorkItem under this fenced Ownership Epoch."""
        return any(past.agent_id == agent_id and past.ownership_epoch == epoch for past in self.past_owners)


class ArtifactRecord(Document, frozen=True, kw_only=True):
    """An Artifact's manifest."""

    artifact: Artifact

    @property
    def revision(self) -> int:
        """1: a manifest never changes."""
        return 1


class MessageRecord(Document, frozen=True, kw_only=True):
    """A Message as first committed."""

    message: Message

    @property
    def revision(self) -> int:
        """1: a Message is amended by Messages of their own."""
        return 1


class KeyRecord(Document, frozen=True, kw_only=True):
    """A registered key as its latest statement left it; `revision` is one more than the statements made of its ends."""

    key: KeyStanding
    revision: PositiveInteger


Entity = (
    GroupRecord
    | MissionRecord
    | ConversationRecord
    | MembershipRecord
    | WorkItemRecord
    | ArtifactRecord
    | MessageRecord
    | KeyRecord
)

_shapes: Final[Mapping[EntityKind, type[Document]]] = MappingProxyType(
    {
        EntityKind.GROUP: GroupRecord,
        EntityKind.MISSION: MissionRecord,
        EntityKind.CONVERSATION: ConversationRecord,
        EntityKind.MEMBERSHIP: MembershipRecord,
        EntityKind.WORK_ITEM: WorkItemRecord,
        EntityKind.ARTIFACT: ArtifactRecord,
        EntityKind.MESSAGE: MessageRecord,
        EntityKind.KEY: KeyRecord,
    }
)


class Change(Struct, frozen=True):
    """What an Event made of one entity: its new content, and its revision."""

    key: EntityKey
    entity: Entity

    @property
    def revision(self) -> int:
        """The entity's revision, the `revision` column."""
        return self.entity.revision


def entity_bytes(entity: Entity) -> bytes:
    """The bytes of an entity's row: RFC 8785."""
    return canonical_bytes(entity)


def decode_entity(kind: EntityKind | str, raw: bytes) -> Entity:
    """An entity from its bytes. Raises ValueError for an unknown kind or other content (msgspec.ValidationError)."""
    decoded: Any = msgspec.convert(parse_strict(raw, entity_bytes_max), _shapes[EntityKind(kind)])
    entity: Entity = decoded
    return entity


state_version: Final = 1
"""Of the entities that a history folds to: raised, with a migration, when an old Event shall fold to others."""
_digest_prefix: Final = f"weavehold/state/{state_version}\n".encode()


def entity_digest(kind: EntityKind | str, entity_id: str, revision: int, raw: bytes) -> bytes:
    """32 bytes that stand for one entity row; the name's length is part of it, so that no two rows can merge."""
    name = f"{EntityKind(kind).value}\n{revision}\n{len(entity_id.encode())}\n{entity_id}\n"
    return hashlib.sha256(name.encode() + raw).digest()


def state_digest(rows: Iterable[tuple[EntityKind | str, str, int, bytes]]) -> str:
    """`sha256:…` of entity rows (kind, id, revision, bytes) in whatever order they come (NEW-4).

    Holds 32 bytes per row, never the rows.
    """
    return combined_digest(entity_digest(*row) for row in rows)


def combined_digest(entity_digests: Iterable[bytes]) -> str:
    """`state_digest` from digests that were taken one by one."""
    total = hashlib.sha256(_digest_prefix)
    for digest in sorted(entity_digests):
        total.update(digest)
    return f"sha256:{total.hexdigest()}"
