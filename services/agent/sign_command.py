"""Build and sign Commands: what a caller wants becomes the one document that the authority admits.

An Action ID names one business action of one actor for ever (MWP-EVT-003). A retry sends the same bytes again;
anything that changes the bytes needs a new Action ID (MWP-EXT-005), which is why signing and sending are apart.
"""

import hashlib
from datetime import UTC, datetime, timedelta
from typing import Any, Final

import msgspec
from msgspec import Struct

from contracts.command import creation_kinds, organization_scoped_kinds
from contracts.documents.common import ActorType, Document
from contracts.identifiers import CoordinatorEpoch, MembershipEpoch, SessionEpoch
from contracts.signature import SigningKey, sign_document
from contracts.timestamps import format_timestamp
from services.process.unique import uuid7_urn

protocol_version: Final = "0.1"


class Intent(Struct, frozen=True, kw_only=True):
    """What a caller wants, before identity, epochs, time and signature."""

    kind: str
    payload: Document | dict[str, Any]
    group_id: str | None = None
    conversation_id: str | None = None
    work_item_id: str | None = None
    coordinator_epoch: CoordinatorEpoch | None = None
    expected_revision: int | None = None
    correlation_id: str | None = None
    caused_by_event_id: str | None = None
    extensions: dict[str, Any] | None = None


class Epochs(Struct, frozen=True, kw_only=True):
    """The fencing numbers that the actor believes current (ACC-6); those its kind of actor lacks are left out."""

    session: SessionEpoch | None = None
    membership: MembershipEpoch | None = None


class SignedCommand(Struct, frozen=True, kw_only=True):
    """One Command as it travels. `raw` is canonical JSON with its signature and never changes."""

    action_id: str
    kind: str
    issued_at: str
    raw: bytes


class _Carried(Struct, frozen=True, rename="camel"):
    membership_epoch: MembershipEpoch | None = None


def current_time(offset: timedelta = timedelta(0)) -> str:
    """The local clock plus `offset` as protocol time."""
    return format_timestamp(datetime.now(UTC) + offset)


def derived_token(*parts: str | int) -> str:
    """64 hex digits that these parts always give.

    The parts are length-prefixed before hashing: no two lists of parts share a token by concatenation.
    """
    digest = hashlib.sha256(b"weavehold/derived/1\n")
    for part in parts:
        text = str(part).encode()
        digest.update(len(text).to_bytes(4, "big") + text)
    return digest.hexdigest()


def derived_action_id(*parts: str | int) -> str:
    """The Action ID that these parts always give, so that a repeated step is recognised as the same one."""
    return f"urn:weavehold:action:{derived_token(*parts)}"


def sign_command(
    intent: Intent,
    epochs: Epochs,
    key: SigningKey,
    *,
    issued_at: str | None = None,
    action_id: str | None = None,
) -> SignedCommand:
    """Sign what `intent` asks as the key's Principal; a fresh Action ID and the local time unless given."""
    issued = issued_at or current_time()
    action = action_id or uuid7_urn()
    document: dict[str, Any] = {
        "protocolVersion": protocol_version,
        "actionId": action,
        "actor": {"type": key.principal.type.value, "id": key.principal.id},
        "kind": intent.kind,
        "correlationId": intent.correlation_id or uuid7_urn(),
        "issuedAt": issued,
        "payload": msgspec.to_builtins(intent.payload),
    }
    optional = {
        "groupId": intent.group_id,
        "conversationId": intent.conversation_id,
        "workItemId": intent.work_item_id,
        "coordinatorEpoch": intent.coordinator_epoch,
        "expectedRevision": intent.expected_revision,
        "causedByEventId": intent.caused_by_event_id,
        "extensions": intent.extensions,
        **_epoch_members(intent.kind, key.principal.type, epochs),
    }
    document.update({name: value for name, value in optional.items() if value is not None})
    return SignedCommand(action_id=action, kind=intent.kind, issued_at=issued, raw=sign_document(document, key, issued))


def signed_membership_epoch(command: SignedCommand) -> MembershipEpoch | None:
    """The Membership Epoch that a Command carries."""
    return msgspec.json.decode(command.raw, type=_Carried).membership_epoch


def _epoch_members(kind: str, actor: ActorType, epochs: Epochs) -> dict[str, int | None]:
    """The epochs that this actor's Command of this kind carries (ACC-6)."""
    if actor is ActorType.SERVICE or kind in creation_kinds or kind in organization_scoped_kinds:
        return {}
    if actor is ActorType.HUMAN:
        return {"membershipEpoch": epochs.membership}
    return {"sessionEpoch": epochs.session, "membershipEpoch": epochs.membership}
