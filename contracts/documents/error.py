"""Protocol Error (`error.schema.json`): a refusal as it goes over the wire (ERR-1)."""

from msgspec import UNSET, UnsetType

from contracts.documents.common import Document, JsonObject, Text2000
from contracts.identifiers import Identifier, SafeInteger, Sha256
from contracts.rejection import Code
from contracts.timestamps import Timestamp


class ProtocolError(Document, frozen=True, kw_only=True):
    """`retryable` says whether the same bytes may succeed later; `retry_after_ms` is in milliseconds."""

    code: Code
    message: Text2000
    retryable: bool
    fatal: bool | UnsetType = UNSET
    related_frame_id: Identifier | UnsetType = UNSET
    related_action_id: Identifier | UnsetType = UNSET
    group_id: Identifier | UnsetType = UNSET
    expected_revision: SafeInteger | UnsetType = UNSET
    current_revision: SafeInteger | UnsetType = UNSET
    retry_after_ms: SafeInteger | UnsetType = UNSET
    snapshot_artifact_hash: Sha256 | UnsetType = UNSET
    details: JsonObject | UnsetType = UNSET
    occurred_at: Timestamp
