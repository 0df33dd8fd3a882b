"""Context Package (`context-package.schema.json`): what a late member must know, with the Events it comes from."""

from msgspec import UNSET, UnsetType

from contracts.documents.common import (
    Actor,
    ActorType,
    Document,
    Extensions,
    NonEmpty,
    Signature,
    Text4000,
    Text50000,
)
from contracts.documents.conditions import always, unique
from contracts.identifiers import Identifier, PositiveInteger, Sha256
from contracts.timestamps import Timestamp


class SourceEventRange(Document, frozen=True, kw_only=True):
    """The Events that were read, from the first to the last sequence and by name."""

    from_sequence: PositiveInteger
    to_sequence: PositiveInteger
    event_ids: NonEmpty[Identifier]

    rules = unique("event_ids")


class SourcedDecision(Document, frozen=True, kw_only=True):
    """A decision of the Group and the Events that took it."""

    description: Text4000
    source_event_ids: NonEmpty[Identifier]

    rules = unique("source_event_ids")


class ContextPackage(Document, frozen=True, kw_only=True):
    """One version of a package, signed by the Agent that wrote it."""

    context_package_id: Identifier
    version: PositiveInteger
    previous_context_package_id: Identifier | UnsetType = UNSET
    mission_id: Identifier
    group_id: Identifier
    work_item_id: Identifier | UnsetType = UNSET
    source_event_range: SourceEventRange
    artifact_hashes: tuple[Sha256, ...]
    summary: Text50000
    decisions: tuple[SourcedDecision, ...]
    constraints: tuple[Text4000, ...]
    unresolved_questions: tuple[Text4000, ...]
    generated_by: Actor
    generated_at: Timestamp
    extensions: Extensions | UnsetType = UNSET
    signature: Signature

    rules = (
        *unique("artifact_hashes"),
        always(holder="a Context Package", takes={"generated_by.type": (ActorType.AGENT,)}),
    )
