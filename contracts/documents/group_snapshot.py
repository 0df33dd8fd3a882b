"""Signed Group Snapshot (`group-snapshot.schema.json`): a Group's whole history by name, for the archive (RULE-26)."""

from contracts.documents.common import (
    Actor,
    ActorType,
    Document,
    JsonObject,
    NonEmpty,
    Signature,
    Text4000,
)
from contracts.documents.conditions import always, unique
from contracts.identifiers import Identifier, PositiveInteger, Sha256
from contracts.timestamps import Timestamp


class PolicyLogEntry(Document, frozen=True, kw_only=True):
    """One policy decision; `details` is open JSON and kept as it came."""

    entry_id: Identifier
    decision: Text4000
    actor: Actor
    occurred_at: Timestamp
    details: JsonObject


class GroupSnapshot(Document, frozen=True, kw_only=True):
    """State and history of a Group through one sequence, signed by a service."""

    snapshot_id: Identifier
    group_id: Identifier
    through_sequence: PositiveInteger
    event_ids: NonEmpty[Identifier]
    state_hash: Sha256
    policy_log: NonEmpty[PolicyLogEntry]
    created_by: Actor
    created_at: Timestamp
    signature: Signature

    rules = (
        *unique("event_ids"),
        always(holder="a Group Snapshot", takes={"created_by.type": (ActorType.SERVICE,)}),
    )
