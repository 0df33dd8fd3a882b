"""What the wire hears of a document that failed the six stages, and what the protected record keeps (TRU-5).

The wire's words depend on the document alone, never on what the registry knows: a document without canonical bytes is
told so whether or not its key was found, although only a found key lets the stages get that far.
"""

import hashlib
from collections.abc import Mapping
from typing import Any

from msgspec import UNSET, UnsetType

from contracts.canonical import CanonicalizationFault, parse_strict, signing_bytes
from contracts.rejection import Code, Rejection, reject
from contracts.verification import VerificationFailure
from services.authority.admitted import AuthenticationFailure, Refused

rejected_words = "signed document rejected"
"""All that the wire hears of keys, signatures, admission and freshness."""


def refuse_document(raw: bytes, failure: VerificationFailure, related_action_id: str | UnsetType = UNSET) -> Refused:
    """The refusal of a request with these bytes, itself or a document inside it; no audit for its own malformations."""
    if failure.stage.wire_code is not Code.AUTH_INVALID_SIGNATURE:
        return Refused(reject(failure.stage.wire_code, failure.reason, related_action_id=related_action_id))
    document = parse_strict(raw, len(raw))
    audit = AuthenticationFailure(
        stage=failure.stage.value,
        reason=failure.reason,
        key_id=_claim(document.get("signature"), "keyId"),
        actor_id=_claim(document.get("actor"), "id"),
        action_id=_claim(document, "actionId"),
        document_sha256=hashlib.sha256(raw).digest(),
    )
    return Refused(_words(document), audit)


def _words(document: Mapping[str, Any]) -> Rejection:
    try:
        signing_bytes(document)
    except CanonicalizationFault as fault:
        return reject(Code.PROTOCOL_VIOLATION, str(fault))
    return reject(Code.AUTH_INVALID_SIGNATURE, rejected_words)


def _claim(holder: Any, member: str) -> str | None:
    """What a document says of itself, believed by nobody; None when it has no text there."""
    claimed = holder.get(member) if isinstance(holder, Mapping) else None
    return claimed if isinstance(claimed, str) else None
