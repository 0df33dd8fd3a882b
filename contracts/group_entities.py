"""One Group as decisions see it: all entities but Messages, with the few indexes that keep a Command's cost flat."""

from collections import Counter
from collections.abc import Iterable
from typing import Final, Self

from msgspec import UNSET

from contracts.budgets import Allocation, allocation, minus, nothing, plus
from contracts.chain import ChainHash, chain_start
from contracts.documents.artifact import Artifact
from contracts.documents.common import Budget
from contracts.documents.conversation import Conversation
from contracts.documents.group import Group
from contracts.documents.lease import LeaseState
from contracts.documents.membership import Membership
from contracts.documents.mission import Mission
from contracts.documents.work_item import WorkItemState
from contracts.entities import (
    ArtifactRecord,
    Change,
    ConversationRecord,
    Entity,
    EntityKey,
    EntityKind,
    GroupRecord,
    KeyRecord,
    MembershipRecord,
    MessageRecord,
    MissionRecord,
    WorkItemRecord,
)
from contracts.identifiers import GroupSequence
from contracts.transitions import unfinished_work_states

_unreserving: Final = frozenset({WorkItemState.FAILED, WorkItemState.CANCELLED})


class GroupState:
    """State of one Group after the Event at `sequence`, whose chain hash is `chain_hash`.

    Changed in place by `apply` and `move_to`: it belongs to one transaction at a time. Messages are written as
    entities but not kept here, for no decision reads them.
    """

    __slots__ = (
        "_artifacts",
        "_artifacts_by_hash",
        "_conversations",
        "_executing",
        "_group",
        "_keys",
        "_memberships",
        "_mission",
        "_reserved",
        "_work_items",
        "_work_states",
        "chain_hash",
        "group_id",
        "organization_id",
        "sequence",
    )

    def __init__(self, organization_id: str, group_id: str) -> None:
        """A Group before its first Event."""
        self.organization_id = organization_id
        self.group_id = group_id
        self.sequence = GroupSequence(0)
        self.chain_hash = chain_start(organization_id, group_id)
        self._group: GroupRecord | None = None
        self._mission: MissionRecord | None = None
        self._keys: dict[str, KeyRecord] = {}
        self._conversations: dict[str, Conversation] = {}
        self._memberships: dict[str, Membership] = {}
        self._work_items: dict[str, WorkItemRecord] = {}
        self._artifacts: dict[str, Artifact] = {}
        self._artifacts_by_hash: dict[str, list[Artifact]] = {}
        self._executing: dict[str, set[str]] = {}
        self._work_states: Counter[WorkItemState] = Counter()
        self._reserved: Allocation = nothing

    @classmethod
    def empty(cls, organization_id: str, group_id: str) -> Self:
        """A Group before its first Event ("" for the Organization's own history)."""
        return cls(organization_id, group_id)

    # --- reading -------------------------------------------------------------------------------------------------

    @property
    def exists(self) -> bool:
        """Whether the Group has been created."""
        return self._mission is not None

    @property
    def size(self) -> int:
        """Entities held, for the bounds of caches."""
        held = len(self._conversations) + len(self._memberships) + len(self._work_items) + len(self._artifacts)
        return held + 2 * self.exists

    @property
    def mission_record(self) -> MissionRecord:
        """The Mission with its bookkeeping. Raises LookupError before the Group exists."""
        if self._mission is None:
            raise LookupError(f"Group {self.group_id} does not exist")
        return self._mission

    @property
    def mission(self) -> Mission:
        """The Mission. Raises LookupError before the Group exists."""
        return self.mission_record.mission

    @property
    def group(self) -> Group:
        """The Group's own document. Raises LookupError before the Group exists."""
        if self._group is None:
            raise LookupError(f"Group {self.group_id} does not exist")
        return self._group.group

    def conversation(self, conversation_id: str) -> Conversation | None:
        """A Conversation of this Group."""
        return self._conversations.get(conversation_id)

    def membership(self, principal_id: str) -> Membership | None:
        """The latest Membership of a Principal, ended ones too."""
        return self._memberships.get(principal_id)

    def memberships(self) -> tuple[Membership, ...]:
        """All Memberships, ended ones too, in the order of their Principals' identifiers."""
        return tuple(self._memberships[name] for name in sorted(self._memberships))

    def key(self, key_id: str) -> KeyRecord | None:
        """A key that the registry's history speaks of."""
        return self._keys.get(key_id)

    def work_item(self, work_item_id: str) -> WorkItemRecord | None:
        """A WorkItem of this Group."""
        return self._work_items.get(work_item_id)

    def work_items(self) -> tuple[WorkItemRecord, ...]:
        """All WorkItems in the order of their identifiers."""
        return tuple(self._work_items[name] for name in sorted(self._work_items))

    def artifact(self, artifact_id: str) -> Artifact | None:
        """An Artifact of this Group."""
        return self._artifacts.get(artifact_id)

    def artifacts_with(self, content_hash: str) -> tuple[Artifact, ...]:
        """The Artifacts of this Group with this content."""
        return tuple(self._artifacts_by_hash.get(content_hash, ()))

    def executing(self, agent_id: str) -> tuple[WorkItemRecord, ...]:
        """WorkItems on which the Agent holds an active Execution Lease, in the order of their identifiers."""
        return tuple(self._work_items[name] for name in sorted(self._executing.get(agent_id, ())))

    @property
    def reserved(self) -> Allocation:
        """What the Work Contracts reserve of the Mission's budget; failed and cancelled ones give theirs back."""
        return self._reserved

    @property
    def work_item_count(self) -> int:
        """WorkItems ever authorised."""
        return len(self._work_items)

    @property
    def unfinished_work_count(self) -> int:
        """WorkItems that still hold up the Mission's approval."""
        return sum(self._work_states[state] for state in unfinished_work_states)

    # --- changing ------------------------------------------------------------------------------------------------

    def apply(self, changes: Iterable[Change]) -> None:
        """Take over what an Event changed."""
        for change in changes:
            self._put(change.key.entity_id, change.entity)

    def restore(self, kind: str, entity_id: str, revision: int, entity: Entity) -> None:
        """Take over one stored row. Raises ValueError when the row's name or revision is not its content's."""
        if entity.revision != revision:
            raise ValueError(f"{kind} {entity_id} is stored as revision {revision} but holds {entity.revision}")
        self._put(entity_id, entity)

    def move_to(self, sequence: GroupSequence, chain_hash: ChainHash) -> None:
        """Stand after the Event at `sequence`."""
        self.sequence = sequence
        self.chain_hash = chain_hash

    def _put(self, entity_id: str, entity: Entity) -> None:
        match entity:
            case WorkItemRecord():
                self._put_work_item(entity_id, entity)
            case MessageRecord():
                pass
            case MissionRecord():
                self._mission = entity
            case MembershipRecord(membership=membership):
                self._memberships[entity_id] = membership
            case ArtifactRecord(artifact=artifact):
                self._artifacts[entity_id] = artifact
                self._artifacts_by_hash.setdefault(artifact.content_hash, []).append(artifact)
            case ConversationRecord(conversation=conversation):
                self._conversations[entity_id] = conversation
            case KeyRecord():
                self._keys[entity_id] = entity
            case GroupRecord():
                self._group = entity

    def _put_work_item(self, work_item_id: str, record: WorkItemRecord) -> None:
        before = self._work_items.get(work_item_id)
        self._work_items[work_item_id] = record
        if before is not None:
            self._work_states[before.item.state] -= 1
        self._work_states[record.item.state] += 1
        released, taken = _reservation(before), _reservation(record)
        if released != taken:
            self._reserved = plus(minus(self._reserved, _amount(released)), _amount(taken))
        if (holder := _executor(before)) is not None:
            self._executing[holder].discard(work_item_id)
        if (holder := _executor(record)) is not None:
            self._executing.setdefault(holder, set()).add(work_item_id)


def _reservation(record: WorkItemRecord | None) -> Budget | None:
    """The budget that a WorkItem reserves of its Mission's."""
    if record is None or record.item.state in _unreserving:
        return None
    return record.item.contract.budget


def _amount(budget: Budget | None) -> Allocation:
    return nothing if budget is None else allocation(budget)


def _executor(record: WorkItemRecord | None) -> str | None:
    """The Agent that holds an active Execution Lease on a WorkItem."""
    if record is None or record.execution_lease is UNSET or record.execution_lease.state is not LeaseState.ACTIVE:
        return None
    return record.execution_lease.holder_agent_id


def changed(kind: EntityKind, entity_id: str, entity: Entity) -> Change:
    """A Change of one entity."""
    return Change(EntityKey(kind, entity_id), entity)
