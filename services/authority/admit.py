"""Admission: bytes in, a verified Command out: size, strict parse, schema, signature."""

import hashlib
from collections.abc import Sequence

from contracts.bounds import command_bytes_max
from contracts.command import Command
from contracts.document_kinds import DocumentKind
from contracts.rejection import Code, reject
from contracts.verification import KeyResolver, VerificationFailure, Verified, verify_document, verify_parsed
from services.authority.admitted import Admitted, Refused, SignedFact
from services.authority.decide import nested_documents
from services.authority.key_cache import KeysUnavailable
from services.authority.refuse_document import refuse_document
from services.process.logs import get_log

log = get_log(__name__)

Admission = Admitted | Refused
"""Admission's answer to one Command."""


def admit_one(raw: bytes, keys: KeyResolver) -> Admission:
    """Size, strict parse, schema and signature of one Command and of the signed documents inside it."""
    if len(raw) > command_bytes_max:
        excess = f"the Command has {len(raw)} bytes; at most {command_bytes_max} are taken"
        return Refused(reject(Code.PROTOCOL_VIOLATION, f"{excess}: publish large content as an Artifact"))
    verified = verify_document(DocumentKind.COMMAND, raw, keys, command_bytes_max)
    if isinstance(verified, VerificationFailure):
        return refuse_document(raw, verified)
    command = verified.typed
    assert isinstance(command, Command)  # noqa: S101 - the Struct of this document kind
    nested: list[SignedFact] = []
    for kind, document in nested_documents(command):
        inner = verify_parsed(kind, document, keys)
        if isinstance(inner, VerificationFailure):
            return refuse_document(raw, inner, command.action_id)
        nested.append(_fact(inner))
    return Admitted(raw=raw, command=command, fact=_fact(verified), nested=tuple(nested))


def _fact(verified: Verified) -> SignedFact:
    return SignedFact(
        kind=verified.kind.value,
        signing_hash=verified.signing_hash,
        key_id=verified.key_id,
        principal=verified.principal,
    )


def admit_batch(raws: Sequence[bytes], keys: KeyResolver) -> list[Admission]:
    """Several Commands, each judged alone: one that admission cannot digest never takes its neighbours down with it."""
    return [_admit_safely(raw, keys) for raw in raws]


def _admit_safely(raw: bytes, keys: KeyResolver) -> Admission:
    try:
        return admit_one(raw, keys)
    except KeysUnavailable as fault:
        # What the database says of itself is for the log, not for whoever sent these bytes.
        log.warning("keys_unavailable", fault=str(fault))
        return unavailable("no key can be looked up now")
    except Exception:
        log.exception("admission_failed", document_sha256=hashlib.sha256(raw).hexdigest())
        return Refused(reject(Code.INTERNAL_ERROR, "the Command could not be examined; nothing was changed"))


def unavailable(why: str) -> Refused:
    """The answer to a Command that could not be verified now."""
    return Refused(
        reject(Code.BACKPRESSURE, f"{why}; send the same Command again", retryable=True, retry_after_ms=1_000)
    )
