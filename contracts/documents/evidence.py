"""Evidence (`evidence.schema.json`): a signed record of a result, mapped to acceptance criteria (MWP-WRK-025)."""

from enum import Enum
from typing import Annotated

from msgspec import UNSET, Meta, UnsetType

from contracts.documents.common import (
    Actor,
    Document,
    EvidenceType,
    JsonObject,
    LocalName,
    NonEmpty,
    Signature,
    Text4000,
)
from contracts.documents.conditions import unique
from contracts.identifiers import Identifier, Sha256
from contracts.timestamps import Timestamp

VersionText = Annotated[str, Meta(max_length=500)]


class SubjectType(Enum):
    """What Evidence is about."""

    WORK_ITEM = "work_item"
    ARTIFACT = "artifact"
    MISSION = "mission"


class EvidenceResult(Enum):
    """What came out."""

    PASSED = "passed"
    FAILED = "failed"
    INCONCLUSIVE = "inconclusive"


class EvidenceSubject(Document, frozen=True, kw_only=True):
    """The thing that was examined. A content hash `sha256:…` is an absolute URI, so one type covers both names."""

    type: SubjectType
    id: Identifier


class Evidence(Document, frozen=True, kw_only=True):
    """One result; `details` is open JSON and kept as it came."""

    evidence_id: Identifier
    mission_id: Identifier
    group_id: Identifier
    work_item_id: Identifier
    type: EvidenceType
    subject: EvidenceSubject
    criterion_ids: NonEmpty[LocalName]
    method: Text4000
    result: EvidenceResult
    details: JsonObject | UnsetType = UNSET
    artifact_hashes: tuple[Sha256, ...]
    generated_by: Actor
    tool_version: VersionText | UnsetType = UNSET
    model_version: VersionText | UnsetType = UNSET
    created_at: Timestamp
    signature: Signature

    rules = unique("criterion_ids", "artifact_hashes")
