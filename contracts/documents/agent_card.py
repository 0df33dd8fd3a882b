"""Agent Card (`agent-card.schema.json`): an Agent's identity, keys and capabilities, signed by the registry."""

from enum import Enum
from typing import Annotated, Literal

from msgspec import UNSET, Meta, UnsetType

from contracts.documents.common import (
    Actor,
    CapabilityId,
    Document,
    Extensions,
    JsonObject,
    NonEmpty,
    PublicKey,
    Semver,
    Signature,
    Text200,
)
from contracts.documents.conditions import unique
from contracts.identifiers import Identifier, PositiveInteger, Sha256, Uri, uri_pattern
from contracts.timestamps import Timestamp

SecureWebSocketUri = Annotated[str, Meta(pattern=rf"\A(?=wss://){uri_pattern}")]


class CardStatus(Enum):
    """Whether the Agent may be given work."""

    ACTIVE = "active"
    DEPRECATED = "deprecated"
    REVOKED = "revoked"


class Endpoint(Document, frozen=True, kw_only=True):
    """Where the Agent can be reached."""

    transport: Literal["wss"]
    uri: SecureWebSocketUri


class Capability(Document, frozen=True, kw_only=True):
    """One thing that the Agent can do, with hashed schemas and the Evidence behind the claim."""

    id: CapabilityId
    version: Semver
    input_schema: Uri
    input_schema_hash: Sha256
    output_schema: Uri
    output_schema_hash: Sha256
    constraints: JsonObject
    verified_evidence: NonEmpty[Identifier]

    rules = unique("verified_evidence")


class AgentCard(Document, frozen=True, kw_only=True):
    """One version of an Agent's card."""

    agent_id: Identifier
    organization_id: Identifier
    card_version: PositiveInteger
    display_name: Text200
    description: Annotated[str, Meta(max_length=4000)] | UnsetType = UNSET
    owner: Actor
    status: CardStatus
    protocol_versions: NonEmpty[Literal["0.1"]]
    endpoints: NonEmpty[Endpoint]
    public_keys: NonEmpty[PublicKey]
    capabilities: NonEmpty[Capability]
    max_concurrency: PositiveInteger
    issued_at: Timestamp
    valid_until: Timestamp | UnsetType = UNSET
    extensions: Extensions | UnsetType = UNSET
    signature: Signature

    rules = unique("protocol_versions")
