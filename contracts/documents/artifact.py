"""Artifact Manifest (`artifact.schema.json`): a content-addressed output, signed by the Agent that produced it."""

from msgspec import UNSET, UnsetType

from contracts.documents.common import (
    CapabilityRef,
    Classification,
    Document,
    Extensions,
    MediaType,
    NonEmpty,
    Signature,
    Text200,
)
from contracts.documents.conditions import unique
from contracts.identifiers import Identifier, PositiveInteger, SafeInteger, Sha256, Uri
from contracts.timestamps import Timestamp


class Producer(Document, frozen=True, kw_only=True):
    """The Agent that made an Artifact, with the Agent Card version and capabilities it used."""

    agent_id: Identifier
    agent_card_version: PositiveInteger
    capabilities: NonEmpty[CapabilityRef]


class ToolVersion(Document, frozen=True, kw_only=True):
    """A tool that took part."""

    name: Text200
    version: Text200


class ModelVersion(Document, frozen=True, kw_only=True):
    """A model that took part."""

    provider: Text200
    model: Text200
    version: Text200


class Artifact(Document, frozen=True, kw_only=True):
    """A manifest; the content itself, `size_bytes` bytes, lies elsewhere under `content_hash` (RULE-33)."""

    artifact_id: Identifier
    content_hash: Sha256
    uri: Uri
    size_bytes: SafeInteger
    media_type: MediaType
    schema_uri: Uri
    producer: Producer
    mission_id: Identifier
    group_id: Identifier
    work_item_id: Identifier
    source_artifact_hashes: tuple[Sha256, ...]
    tool_versions: tuple[ToolVersion, ...]
    model_versions: tuple[ModelVersion, ...]
    classification: Classification
    created_at: Timestamp
    extensions: Extensions | UnsetType = UNSET
    signature: Signature

    rules = unique("source_artifact_hashes")
