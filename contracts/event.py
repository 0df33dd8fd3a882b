"""The Event envelope (`event.schema.json`) with the history extension: an immutable accepted fact."""

from enum import Enum
from typing import Annotated, Any, Final, Literal

from msgspec import UNSET, Meta, Struct, UnsetType, convert

from contracts.chain import ChainHash, history_extension
from contracts.documents.common import Actor, ActorType, Document, Extensions, Signature, core_or_extension_kind
from contracts.documents.conditions import has, has_not, when
from contracts.identifiers import GroupSequence, Identifier, PositiveInteger, SafeInteger, Sha256
from contracts.timestamps import Timestamp

agent_card_registered: Final = "ext.missionweaveprotocol.registry.agent_card_registered"
session_opened: Final = "ext.missionweaveprotocol.identity.session_opened"
lease_revoked: Final = "ext.missionweaveprotocol.core.work_execution_lease_revoked"
lease_expired: Final = "ext.weavehold.work.execution_lease_expired"
late_result_recorded: Final = "ext.weavehold.work.late_result_recorded"
history_resumed: Final = "ext.weavehold.history.resumed"
key_registered: Final = "ext.weavehold.registry.key_registered"
key_retired: Final = "ext.weavehold.registry.key_retired"
key_revoked: Final = "ext.weavehold.registry.key_revoked"
organization_scoped_event_kinds: Final = frozenset({agent_card_registered, session_opened})
core_event_kinds: Final = frozenset(
    {
        "mission.created",
        "mission.coordinator.assigned",
        "mission.coordinator.renewed",
        "mission.submitted_for_approval",
        "mission.approved",
        "mission.changes_requested",
        "mission.cancelled",
        "mission.terminated",
        "mission.child.created",
        "mission.follow_up.created",
        "membership.changed",
        "membership.ended",
        "membership.delegation.granted",
        "message.posted",
        "message.corrected",
        "message.retracted",
        "message.redacted",
        "work.proposed",
        "work.authorized",
        "work.offer.created",
        "work.offer.accepted",
        "work.contract.revised",
        "work.started",
        "work.progressed",
        "work.checkpointed",
        "work.blocked",
        "work.unblocked",
        "work.submitted",
        "work.result.accepted",
        "work.failed",
        "work.cancelled",
        "artifact.published",
        "approval.execution.granted",
        "policy.cooperation_override.granted",
        "group.snapshot.created",
        "group.archived",
    }
)


class CauseType(Enum):
    """What made an Event happen."""

    COMMAND = "command"
    EVENT = "event"
    TIMER = "timer"
    POLICY = "policy"


class Cause(Document, frozen=True, kw_only=True):
    """The Command, Event, timer or policy behind an Event."""

    type: CauseType
    id: Identifier


_Hex16Bytes = Annotated[str, Meta(pattern=r"\A[0-9a-f]{32}\Z")]
_Hex32Bytes = Annotated[str, Meta(pattern=r"\A[0-9a-f]{64}\Z")]


class History(Struct, frozen=True, kw_only=True, rename="camel"):
    """Data of the history extension (RULE-15): all lower-case hex, `previous_hash` is h_{n-1}."""

    incarnation: _Hex16Bytes
    previous_hash: _Hex32Bytes
    salt: _Hex16Bytes

    @property
    def previous(self) -> ChainHash:
        """h_{n-1} as 32 raw bytes."""
        return ChainHash(bytes.fromhex(self.previous_hash))


class Event(Document, frozen=True, kw_only=True):
    """An Event as signed and stored once."""

    protocol_version: Literal["0.1"]
    event_id: Identifier
    group_id: Identifier | UnsetType = UNSET
    sequence: PositiveInteger | UnsetType = UNSET
    aggregate_revision: SafeInteger | UnsetType = UNSET
    kind: str
    actor: Actor
    cause: Cause
    correlation_id: Identifier
    conversation_id: Identifier | UnsetType = UNSET
    work_item_id: Identifier | UnsetType = UNSET
    occurred_at: Timestamp
    payload: dict[str, Any]
    accepted_by: Actor
    command_hash: Sha256 | UnsetType = UNSET
    extensions: Extensions | UnsetType = UNSET
    signature: Signature

    rules = (
        core_or_extension_kind(core_event_kinds),
        when(
            has("kind", *organization_scoped_event_kinds),
            holder="{kind}",
            takes={"actor.type": (ActorType.SERVICE,)},
            refuses=("group_id", "sequence", "aggregate_revision"),
        ),
        when(
            has_not("kind", *organization_scoped_event_kinds),
            holder="{kind}",
            requires=("group_id", "sequence", "aggregate_revision"),
        ),
    )

    @property
    def group_sequence(self) -> GroupSequence:
        """The Group sequence; raises ValueError for an Organization-scoped Event, which has none in the document."""
        if self.sequence is UNSET:
            raise ValueError(f"{self.kind} {self.event_id} is Organization-scoped: its sequence is its shard position")
        return GroupSequence(self.sequence)

    @property
    def history(self) -> History:
        """The history extension. Raises ValueError when this Event carries none, or one that is malformed."""
        if self.extensions is UNSET or history_extension not in self.extensions:
            raise ValueError(f"Event {self.event_id} carries no {history_extension}")
        return convert(self.extensions[history_extension].data, History)
