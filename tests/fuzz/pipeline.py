"""The six stages and the registry under arbitrary bytes and changed documents (TRU-1, TRU-2, TRU-5, ACC-5).

Only a failure is ever returned for what is not one of the signed samples; nothing is ever raised. The first byte of
an input says what it is: the kind of document, and whether what follows are its bytes, changes of the sample, changes
of the sample that are signed again, or changes of the registry.
"""

import copy
import hashlib
from collections.abc import Iterator
from typing import Any, Final

from contracts.bounds import command_bytes_max
from contracts.canonical import CanonicalizationFault, ParseFault, canonical_bytes, parse_strict, signing_bytes
from contracts.document_kinds import DocumentKind
from contracts.key_registry import KeyRegistry, UntrustedRegistry, read_registry
from contracts.rejection import Code, reject
from contracts.reply import decode_refusal, encode_error
from contracts.signature import SigningKey, base64url_bytes, sign_document
from contracts.verification import (
    RegistryFault,
    Stage,
    VerificationFailure,
    Verified,
    verify_document,
    verify_parsed,
)
from services.authority.admit import admit_one
from services.authority.admitted import Admitted, Refused
from tests.fuzz.choices import Choices
from tests.fuzz.drive import fuzz
from tests.fuzz.mutations import edited, spelled
from tests.fuzz.signed_samples import (
    commands,
    keys,
    protected_times,
    registry_evidence,
    samples,
    signing_keys,
)
from tests.unit import edwards

kinds: Final = tuple(DocumentKind)
command: Final = DocumentKind.COMMAND
ways: Final = 4
occurred_at: Final = "2026-07-15T00:00:00.000000Z"
known_keys: Final = {key.public_key for key in signing_keys}
known: Final = {
    kind: {signing_bytes(each): each["signature"] for each in (samples[kind], *(commands if kind is command else ()))}
    for kind in kinds
}
"""The bytes that are signed, with their signatures: nothing else may ever verify."""
known_hashes: Final = {hashlib.sha256(signed).digest() for of_kind in known.values() for signed in of_kind}


def check(data: bytes) -> None:
    """Any bytes."""
    if not data:
        return
    kind = kinds[data[0] // ways % len(kinds)]
    choices = Choices(data[1:])
    match data[0] % ways:
        case 0:
            _nothing_else_verifies(kind, choices.rest())
        case 1:
            _nothing_else_verifies(kind, spelled(edited(_sample(kind, choices), choices), choices))
        case 2:
            _signed_again(kind, choices)
        case _:
            _registry(choices)


def _sample(kind: DocumentKind, choices: Choices) -> dict[str, Any]:
    """A validly signed document to change."""
    return copy.deepcopy(choices.of(commands) if kind is command else samples[kind])


def _nothing_else_verifies(kind: DocumentKind, raw: bytes) -> None:
    """What verifies has a sample's canonical bytes and its very signature."""
    outcome = _judged(kind, raw)
    if isinstance(outcome, Verified):
        signature = known[kind].get(outcome.canonical)
        assert signature is not None, "other canonical bytes were verified"
        assert outcome.document["signature"] == signature, "a second signature was verified"


def _signed_again(kind: DocumentKind, choices: Choices) -> None:
    """What verifies is signed by who the document names, at its protected time, in UTC."""
    sample = _sample(kind, choices)
    keys_by_id = {key.key_id: key for key in signing_keys}
    key = choices.of((keys_by_id[sample["signature"]["keyId"]], *signing_keys))
    document = edited(sample, choices)
    if not isinstance(document, dict):
        return
    created_at = document.get(protected_times[kind])
    try:
        raw = sign_document(document, key, created_at if isinstance(created_at, str) else occurred_at)
    except CanonicalizationFault:
        return
    outcome = _judged(kind, raw)
    if not isinstance(outcome, Verified):
        return
    assert outcome.principal == key.principal
    assert _named_signer(kind, document) in (None, (key.principal.type.value, key.principal.id))
    assert kind is not DocumentKind.AGENT_CARD or key.principal.type.value == "service"
    assert outcome.protected_time == created_at
    assert outcome.protected_time.endswith("Z")
    assert canonical_bytes(outcome.typed) == raw, "the Struct is not the document that was signed"


def _named_signer(kind: DocumentKind, document: dict[str, Any]) -> tuple[str, str] | None:
    match kind:
        case DocumentKind.AGENT_CARD:
            return None
        case DocumentKind.APPROVAL:
            named = document["approver"]
        case DocumentKind.ARTIFACT:
            return "agent", document["producer"]["agentId"]
        case DocumentKind.COMMAND:
            named = document["actor"]
        case DocumentKind.EVENT:
            named = document["acceptedBy"]
        case DocumentKind.EXTENSION_PROFILE:
            named = document["approvedBy"]
        case DocumentKind.GROUP_SNAPSHOT:
            named = document["createdBy"]
        case DocumentKind.CONTEXT_PACKAGE | DocumentKind.EVIDENCE:
            named = document["generatedBy"]
    return named["type"], named["id"]


def _judged(kind: DocumentKind, raw: bytes) -> Verified | VerificationFailure:
    outcome = verify_document(kind, raw, keys, command_bytes_max)
    if isinstance(outcome, VerificationFailure):
        _can_be_said(outcome)
    else:
        assert type(outcome) is Verified
        assert (outcome.kind, outcome.document) == (kind, parse_strict(raw, len(raw)))
    try:
        parsed = parse_strict(raw, command_bytes_max)
    except ParseFault:
        assert isinstance(outcome, VerificationFailure)
        assert outcome.stage is Stage.PARSE
    else:
        assert _told(verify_parsed(kind, parsed, keys)) == _told(outcome), "the same document was judged differently"
    if kind is command:
        _admitted(raw, outcome)
    return outcome


def _admitted(raw: bytes, outcome: Verified | VerificationFailure) -> None:
    """Admission lets a Command in that verifies and holds no documents but validly signed ones."""
    admission = admit_one(raw, keys)
    if isinstance(admission, Admitted):
        assert isinstance(outcome, Verified)
        assert {fact.signing_hash for fact in admission.nested} <= known_hashes, "a forged document was let in"
        return
    assert type(admission) is Refused
    assert decode_refusal(encode_error(admission.rejection, occurred_at)) is not None
    audited = admission.rejection.code is Code.AUTH_INVALID_SIGNATURE
    assert (admission.failure is not None) is audited


def _told(outcome: Verified | VerificationFailure) -> tuple[Any, ...]:
    """All that a caller learns."""
    if isinstance(outcome, VerificationFailure):
        return outcome.stage, outcome.reason
    facts = (outcome.kind, outcome.signing_hash, outcome.key_id, outcome.principal, outcome.protected_time)
    return *facts, outcome.canonical, outcome.document, outcome.typed


def _can_be_said(failure: VerificationFailure) -> None:
    """The wire can carry it, and tells of keys and signatures only the one code."""
    assert isinstance(failure.stage, Stage)
    assert failure.reason.encode(), "a reason that cannot be written down"
    reply = encode_error(reject(failure.stage.wire_code, failure.reason), occurred_at)
    assert decode_refusal(reply) is not None
    early = failure.stage in (Stage.PARSE, Stage.SCHEMA, Stage.CANONICALIZATION)
    assert early is (failure.stage.wire_code is not Code.AUTH_INVALID_SIGNATURE)


def _registry(choices: Choices) -> None:
    """A registry with changes resolves nothing or only strong, unaliased keys."""
    raw = spelled(edited(registry_evidence(), choices), choices)
    try:
        evidence = parse_strict(raw, command_bytes_max)
    except ParseFault:
        return
    registry = read_registry(evidence)
    if isinstance(registry, UntrustedRegistry):
        _refuses(registry, signing_keys[0])
        return
    assert type(registry) is KeyRegistry
    bound = [registry.resolve(binding["keyId"]) for binding in evidence["bindings"]]
    raw_keys = [key.public_key for key in bound if key is not None]
    assert len(set(raw_keys)) == len(evidence["bindings"]), "a key ID or a public key was bound twice"
    for binding, public_key in zip(evidence["bindings"], raw_keys, strict=True):
        assert public_key == base64url_bytes(binding["publicKey"])
        assert public_key in known_keys or _is_strong(public_key), "a weak key was bound"
    outcome = verify_parsed(command, samples[command], registry)
    if isinstance(outcome, VerificationFailure):
        assert outcome.stage in (Stage.KEY_RESOLUTION, Stage.SIGNATURE)


def _refuses(registry: UntrustedRegistry, key: SigningKey) -> None:
    try:
        registry.resolve(key.key_id)
    except RegistryFault as fault:
        told = str(fault)
    else:
        raise AssertionError("an untrusted registry resolved a key")
    assert told.encode()


def _is_strong(public_key: bytes) -> bool:
    y = int.from_bytes(public_key, "little") & (1 << 255) - 1
    x = edwards.x_of(y, public_key[31] >> 7)
    if x is None or edwards.encode((x, y)) != public_key:
        return False
    return (x, y) != edwards.identity and edwards.multiply(edwards.group_order, (x, y)) == edwards.identity


def seeds() -> Iterator[bytes]:
    """Every sample as bytes, and some changes of each and of the registry."""
    for each in commands:
        yield bytes([kinds.index(command) * ways]) + canonical_bytes(each)
    for number, kind in enumerate(kinds):
        yield bytes([number * ways]) + canonical_bytes(samples[kind])
        yield bytes([number * ways + 1 + number % 2, number % 7, number, 0, 5, 0, 3, 1, 2, 1])
    for edit in range(7):
        yield bytes([3, edit, 1, 1, edit % 3, 1, edit, 0, 1, 2])


if __name__ == "__main__":
    fuzz("pipeline")
