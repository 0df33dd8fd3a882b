"""Extension Profile (`extension-profile.schema.json`): an approved extension and the kinds that it adds."""

from contracts.documents.common import (
    Actor,
    CapabilityRef,
    Document,
    ExtensionKind,
    Semver,
    Signature,
    Text200,
)
from contracts.documents.conditions import always, unique
from contracts.identifiers import Identifier, Sha256, Uri
from contracts.timestamps import Timestamp


class ExtensionProfile(Document, frozen=True, kw_only=True):
    """One version of a profile; whatever it adds, the core invariants stand."""

    profile_uri: Identifier
    name: Text200
    version: Semver
    schema_uri: Uri
    schema_hash: Sha256
    required_capabilities: tuple[CapabilityRef, ...]
    critical: bool
    command_kinds: tuple[ExtensionKind, ...]
    event_kinds: tuple[ExtensionKind, ...]
    overrides_core_invariants: bool
    approved_by: Actor
    approved_at: Timestamp
    signature: Signature

    rules = (
        *unique("command_kinds", "event_kinds"),
        always(holder="a profile, which may not override the core,", takes={"overrides_core_invariants": (False,)}),
    )
