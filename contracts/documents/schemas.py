"""Which Struct stands for which JSON Schema of MissionWeaveProtocol 0.1.

Of the 22 schemas `common` defines parts only and has no document of its own; `websocket-frame` is a choice of ten.
"""

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, Final

from msgspec import Struct

from contracts.command import Command
from contracts.documents.agent_card import AgentCard
from contracts.documents.approval import Approval
from contracts.documents.artifact import Artifact
from contracts.documents.common import (
    AcceptanceCriterion,
    Actor,
    Budget,
    CapabilityRef,
    Classification,
    Document,
    Duration,
    Extensions,
    Kind,
    PublicKey,
    ResourceGrant,
    Semver,
    Signature,
)
from contracts.documents.context_package import ContextPackage
from contracts.documents.conversation import Conversation
from contracts.documents.error import ProtocolError
from contracts.documents.evidence import Evidence
from contracts.documents.extension_profile import ExtensionProfile
from contracts.documents.first_admission_record import FirstAdmissionRecord
from contracts.documents.group import Group
from contracts.documents.group_snapshot import GroupSnapshot
from contracts.documents.lease import Lease
from contracts.documents.membership import Membership
from contracts.documents.message import Message
from contracts.documents.mission import Mission
from contracts.documents.presence_record import PresenceRecord
from contracts.documents.reading import read
from contracts.documents.websocket_frame import ProtocolVersion, read_frame
from contracts.documents.work_contract import WorkContract
from contracts.documents.work_item import WorkItem
from contracts.event import Event
from contracts.identifiers import Base64Url, Identifier, PositiveInteger, SafeInteger, Sha256
from contracts.timestamps import Timestamp

websocket_frame: Final = "websocket-frame"
common: Final = "common"

common_parts: Final[Mapping[str, Any]] = MappingProxyType(
    {
        "protocolVersion": ProtocolVersion,
        "id": Identifier,
        "kind": Kind,
        "timestamp": Timestamp,
        "safeInteger": SafeInteger,
        "positiveInteger": PositiveInteger,
        "semver": Semver,
        "base64url": Base64Url,
        "sha256": Sha256,
        "duration": Duration,
        "actor": Actor,
        "signature": Signature,
        "publicKey": PublicKey,
        "capabilityRef": CapabilityRef,
        "budget": Budget,
        "acceptanceCriterion": AcceptanceCriterion,
        "resourceGrant": ResourceGrant,
        "classification": Classification,
        "extensions": Extensions,
    }
)
"""Definition of `common.schema.json` → type. Its `agentActor` and `humanActor` are conditions of whoever holds one."""

document_types: Final[Mapping[str, type[Document]]] = MappingProxyType(
    {
        "agent-card": AgentCard,
        "approval": Approval,
        "artifact": Artifact,
        "command": Command,
        "context-package": ContextPackage,
        "conversation": Conversation,
        "error": ProtocolError,
        "event": Event,
        "evidence": Evidence,
        "extension-profile": ExtensionProfile,
        "first-admission-record": FirstAdmissionRecord,
        "group": Group,
        "group-snapshot": GroupSnapshot,
        "lease": Lease,
        "membership": Membership,
        "message": Message,
        "mission": Mission,
        "presence-record": PresenceRecord,
        "work-contract": WorkContract,
        "work-item": WorkItem,
    }
)
"""Schema name (`<name>.schema.json`) → Struct, for the schemas that have one Struct."""

schema_names: Final = frozenset({*document_types, websocket_frame})
"""Every schema with a document of its own; the values of `DocumentKind` are among them."""


def read_document(schema: str, value: Any) -> Struct:
    """`value`, JSON as `parse_strict` gives it, as the document of this schema.

    Raises msgspec.ValidationError when the schema refuses it, and KeyError for an unknown schema name.
    """
    if schema == websocket_frame:
        return read_frame(value)
    return read(value, document_types[schema])
