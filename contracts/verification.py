"""The six stages of a signed document, in order, ending at the first failure (TRU-1).

parse → schema → signature-envelope → key-resolution → canonicalization → signature.

Whether R lies in the prime-order subgroup belongs to the third stage, yet the equation of the sixth implies it. So the
point is examined only when a later stage fails, to name the right stage: a valid document never pays for it.
"""

import hashlib
from collections.abc import Mapping
from enum import Enum
from functools import lru_cache
from typing import Any, Final, Protocol

import msgspec
from msgspec import UNSET, Struct, ValidationError

from contracts.canonical import (
    CanonicalizationFault,
    ParseFault,
    cut_signature,
    decode_canonical,
    members_behind_signature,
    parse_strict,
    signing_bytes,
)
from contracts.chain import SigningHash
from contracts.document_kinds import DocumentKind
from contracts.documents.common import Actor, ActorType, Document, Signature
from contracts.documents.reading import read
from contracts.documents.schemas import document_types
from contracts.rejection import Code
from contracts.signature import (
    base64url_bytes,
    group_order,
    is_allowed_r,
    is_prime_order_point,
    public_key_bytes,
    signature_bytes,
    verify_ed25519,
)
from contracts.timestamps import Instant, instant, order_text_in_utc

intervals_remembered_max: Final = 16_384
"""Intervals of key validity that one process remembers in the form in which they are compared."""
keys_remembered_max: Final = 16_384
"""Public keys that one process remembers as checked."""
_order_top: Final = group_order >> 248
"""The highest byte of the group order. An S with a lower one is below the order: nearly every S is."""


class Stage(Enum):
    """A stage of verification, in order; the value is the protocol's name of it."""

    PARSE = "parse"
    SCHEMA = "schema"
    SIGNATURE_ENVELOPE = "signature-envelope"
    KEY_RESOLUTION = "key-resolution"
    CANONICALIZATION = "canonicalization"
    SIGNATURE = "signature"

    @property
    def wire_code(self) -> Code:
        """What the wire may say of a failure here: keys and signatures look all the same (TRU-5, ERR-1)."""
        return _wire_codes.get(self, Code.AUTH_INVALID_SIGNATURE)


_wire_codes: Final[Mapping[Stage, Code]] = {
    Stage.PARSE: Code.PROTOCOL_VIOLATION,
    Stage.SCHEMA: Code.SCHEMA_VALIDATION_FAILED,
    Stage.CANONICALIZATION: Code.PROTOCOL_VIOLATION,
}


class RegisteredKey(Struct, frozen=True, kw_only=True):
    """A key as the Organization's registry has it: 32 raw bytes, bound to one Principal for one half-open interval.

    It is valid from `valid_from` up to, not including, the earlier of `valid_until` and `revoked_at`; the three are
    timestamps as registered.
    """

    key_id: str
    principal: Actor
    public_key: bytes
    valid_from: str
    valid_until: str | None = None
    revoked_at: str | None = None

    @property
    def boundaries(self) -> tuple[str, str | None, str | None]:
        """`valid_from`, `valid_until` and `revoked_at`, as registered."""
        return self.valid_from, self.valid_until, self.revoked_at

    def covers(self, moment: Instant) -> bool:
        """Whether the key is valid at this moment, compared exactly. Raises ValueError for a malformed boundary."""
        return self.covers_order_text(moment.order_text)

    def covers_order_text(self, moment: str) -> bool:
        """`covers` the instant of this order text."""
        start, end = _interval(self.valid_from, self.valid_until, self.revoked_at)
        return start <= moment < end


class RegistryFault(Exception):
    """The Organization's key evidence as a whole cannot be trusted, so no key of it can (TRU-2)."""


class KeyResolver(Protocol):
    """The Organization's registered keys, free of reused key IDs and aliased keys."""

    def resolve(self, key_id: str) -> RegisteredKey | None:
        """The key of this ID, None when there is none. Raises RegistryFault when the evidence is invalid."""


class Verified(Struct, frozen=True, kw_only=True):
    """A document that passed all six stages.

    `signing_hash` is the SHA-256 of `canonical`, the RFC 8785 bytes without the top-level `signature`;
    `protected_time` is text as signed; `typed` is the Struct of its kind. `source` is the parsed JSON, or the bytes as
    received where they were canonical.
    """

    kind: DocumentKind
    signing_hash: SigningHash
    key_id: str
    principal: Actor
    protected_time: str
    canonical: bytes
    typed: Document
    source: dict[str, Any] | bytes

    @property
    def document(self) -> dict[str, Any]:
        """The parsed JSON, the signature included."""
        if isinstance(self.source, bytes):
            parsed: dict[str, Any] = parse_strict(self.source, len(self.source))
            return parsed
        return self.source


class VerificationFailure(Struct, frozen=True):
    """Where verification ended and why. `reason` is for the protected audit record; the wire gets `stage.wire_code`."""

    stage: Stage
    reason: str


def verify_document(
    kind: DocumentKind, raw: bytes, keys: KeyResolver, limit_bytes: int
) -> Verified | VerificationFailure:
    """All six stages on bytes as received, of which there may be `limit_bytes`."""
    form = _forms[kind._value_]
    typed = decode_canonical(raw, form.decoder, limit_bytes)
    if typed is not None:
        # Canonical bytes of this very schema: parse and schema are passed.
        return _verify_typed(form, typed, raw, keys)
    try:
        document = parse_strict(raw, limit_bytes)
    except ParseFault as fault:
        return VerificationFailure(Stage.PARSE, str(fault))
    return verify_parsed(kind, document, keys)


def verify_parsed(kind: DocumentKind, document: Any, keys: KeyResolver) -> Verified | VerificationFailure:
    """The stages after the parse, for a document that was parsed strictly as part of another one."""
    form = _forms[kind._value_]
    try:
        typed = read(document, form.shape)
    except ValidationError as fault:
        return VerificationFailure(Stage.SCHEMA, str(fault))
    return _verify_typed(form, typed, document, keys)


class _Form:
    """How the documents of one kind are read, from parsed JSON or at once from bytes, and taken apart.

    `shape` is the Struct of the kind, `decoder` reads it from bytes, `rule` names its signer and protected time,
    `behind_signature` has the members whose names sort after `signature`, each with its attribute of the Struct.
    """

    def __init__(self, kind: DocumentKind) -> None:
        self.kind = kind
        self.rule = kind.rule
        self.shape = document_types[kind.value]
        self.decoder = msgspec.json.Decoder(self.shape)
        attributes = {field.encode_name: field.name for field in msgspec.structs.fields(self.shape)}
        self.behind_signature = tuple(members_behind_signature(attributes).items())


def _verify_typed(
    form: _Form, typed: Any, source: dict[str, Any] | bytes, keys: KeyResolver
) -> Verified | VerificationFailure:
    """The stages after the schema, of a document of this form that was read from `source`."""
    signature: Signature = typed.signature
    value = base64url_bytes(signature.value)
    if value is None:
        return VerificationFailure(Stage.SIGNATURE_ENVELOPE, "signature.value is not canonical base64url")
    if envelope_fault := _envelope_fault(value, signature.created_at, form.rule.protected_time(typed)):
        return VerificationFailure(Stage.SIGNATURE_ENVELOPE, envelope_fault)
    outcome = _verify_signed(form, typed, source, value, keys)
    if type(outcome) is VerificationFailure and not is_allowed_r(value[:public_key_bytes]):
        return VerificationFailure(Stage.SIGNATURE_ENVELOPE, "R is not a canonical point of the prime-order subgroup")
    return outcome


def _envelope_fault(value: bytes, created_at: str, protected: str) -> str | None:
    if created_at != protected:
        return f"signature.createdAt {created_at} is not the protected time {protected}"
    if created_at[-1] != "Z":
        return f"the protected time {created_at} is not in UTC with an uppercase Z"
    if len(value) != signature_bytes:
        return f"the signature has {len(value)} bytes, not {signature_bytes}"
    if value[-1] >= _order_top and int.from_bytes(value[public_key_bytes:], "little") >= group_order:
        return "S is not below the group order"
    return None


def _verify_signed(
    form: _Form, typed: Any, source: dict[str, Any] | bytes, value: bytes, keys: KeyResolver
) -> Verified | VerificationFailure:
    """Key, canonical bytes, equation: everything behind the envelope. `value` is the signature's 64 raw bytes."""
    signature: Signature = typed.signature
    try:
        key = keys.resolve(signature.key_id)
    except RegistryFault as fault:
        return VerificationFailure(Stage.KEY_RESOLUTION, f"the key registry is not valid: {fault}")
    if key is None:
        return VerificationFailure(Stage.KEY_RESOLUTION, f"no key {signature.key_id} is registered")
    if key_fault := _key_fault(key, form.rule.signer(typed), signature.created_at):
        return VerificationFailure(Stage.KEY_RESOLUTION, key_fault)
    try:
        canonical = _cut(form, typed, source) if isinstance(source, bytes) else signing_bytes(source)
    except CanonicalizationFault as fault:
        return VerificationFailure(Stage.CANONICALIZATION, str(fault))
    if not verify_ed25519(key.public_key, canonical, value):
        return VerificationFailure(Stage.SIGNATURE, f"the signature is not one of {key.key_id} over this document")
    return Verified(
        kind=form.kind,
        signing_hash=SigningHash(hashlib.sha256(canonical).digest()),
        key_id=key.key_id,
        principal=key.principal,
        protected_time=signature.created_at,
        canonical=canonical,
        typed=typed,
        source=source,
    )


def _cut(form: _Form, typed: Any, whole: bytes) -> bytes:
    """The signing bytes, out of the canonical bytes that `typed` was decoded from."""
    found = {name: getattr(typed, attribute) for name, attribute in form.behind_signature}
    return cut_signature(whole, typed.signature, {name: value for name, value in found.items() if value is not UNSET})


def _key_fault(key: RegisteredKey, signer: Actor | None, protected: str) -> str | None:
    """Why this key may not have signed. Without a named signer any service of the Organization may have."""
    if signer is None and key.principal.type is not ActorType.SERVICE:
        return f"{key.key_id} is bound to {key.principal.id}, which is no service"
    if signer is not None and key.principal != signer:
        return f"{key.key_id} is bound to {key.principal.id}, not to {signer.id}"
    try:
        # Stage 2 passed a timestamp, stage 3 its Z.
        if not key.covers_order_text(order_text_in_utc(protected)):
            return f"{key.key_id} is not valid at {protected}"
    except ValueError as fault:
        return f"the validity of {key.key_id} cannot be read: {fault}"
    if not _is_strong(key.public_key):
        return f"the public key of {key.key_id} is not a canonical point of the prime-order subgroup"
    return None


@lru_cache(maxsize=intervals_remembered_max)
def _interval(valid_from: str, valid_until: str | None, revoked_at: str | None) -> tuple[str, str]:
    """Order texts between which a key with these boundaries is valid. Raises ValueError for a malformed one."""
    ends = [instant(end).order_text for end in (valid_until, revoked_at) if end is not None]
    return instant(valid_from).order_text, min(ends, default=_behind_all_instants)


_behind_all_instants: Final = "\x7f"
_is_strong: Final = lru_cache(maxsize=keys_remembered_max)(is_prime_order_point)
_forms: Final = {kind.value: _Form(kind) for kind in DocumentKind}
