"""First-Admission Record (`first-admission-record.schema.json`): when a signed document was first accepted (TRU-4)."""

from typing import Literal

from contracts.document_kinds import DocumentKind
from contracts.documents.common import Actor, ActorType, Document
from contracts.documents.conditions import always
from contracts.identifiers import Identifier, Sha256
from contracts.timestamps import Timestamp


class FirstAdmissionRecord(Document, frozen=True, kw_only=True):
    """One entry of the append-only log, keyed by Organization and signing hash."""

    protocol_version: Literal["0.1"]
    admission_record_id: Identifier
    organization_id: Identifier
    document_kind: DocumentKind
    signing_hash: Sha256
    key_id: Identifier
    principal: Actor
    trusted_accepted_at: Timestamp
    accepted_by: Actor

    rules = (always(holder="a First-Admission Record", takes={"accepted_by.type": (ActorType.SERVICE,)}),)
