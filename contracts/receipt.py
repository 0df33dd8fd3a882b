"""The Receipt: what an accepted Command got. Stored once, returned byte for byte on every retry (MWP-EVT-003)."""

from enum import Enum

from msgspec import UNSET, Struct, UnsetType

from contracts.documents.common import Actor
from contracts.identifiers import GroupSequence, Identifier, SafeInteger, Sha256


class Outcome(Enum):
    """How an accepted Command was recorded."""

    ACCEPTED = "accepted"
    RECORDED_AS_EVIDENCE = "recorded_as_evidence"
    """A late result: an Event keeps it, nothing else changed; the caller gets WORK_STALE_OWNERSHIP (MWP-WRK-019)."""


class RecordedEvent(Struct, frozen=True, kw_only=True, omit_defaults=True, rename="camel"):
    """One Event of the Command; `group_id` is absent for an Organization-scoped Event."""

    event_id: Identifier
    sequence: GroupSequence
    group_id: Identifier | UnsetType = UNSET


class Receipt(Struct, frozen=True, kw_only=True, omit_defaults=True, rename="camel"):
    """All that a Command got. `aggregate_revision` is that of the aggregate which the primary (first) Event changed."""

    action_id: Identifier
    actor: Actor
    command_hash: Sha256
    group_id: Identifier | UnsetType = UNSET
    events: tuple[RecordedEvent, ...]
    aggregate_revision: SafeInteger
    outcome: Outcome
    accepted_at: str
