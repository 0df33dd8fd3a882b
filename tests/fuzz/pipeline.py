"""The six stages and the registry under arbitrary bytes and changed documents (TRU-1, TRU-2, TRU-5, ACC-5).

Only a failure is ever returned for what is not one of the signed samples; nothing is ever raised. The first byte of
an input says what it is: the kind of document, and whether what follows are its bytes, changes of the sample, changes
of the sample that are signed again, or changes of the registry.
"""

import copy
from collections.abc import Iterator
from typing import Any, Final

from contracts.bounds import command_bytes_max
from contracts.canonical import CanonicalizationFault, ParseFault, canonical_bytes, parse_strict
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
from tests.fuzz.choices import Choices
from tests.fuzz.drive import fuzz
from tests.fuzz.mutations import edited, spelled
from tests.fuzz.signed_samples import (
    keys,
    protected_times,
    registry_evidence,
    sample_bytes,
    samples,
    signers,
    signing_keys,
)
from tests.unit import edwards

kinds: Final = tuple(DocumentKind)
ways: Final = 4
occurred_at: Final = "2026-07-15T00:00:00.000000Z"
known_keys: Final = {key.public_key for key in signing_keys}


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
            _nothing_else_verifies(kind, spelled(edited(copy.deepcopy(samples[kind]), choices), choices))
        case 2:
            _signed_again(kind, choices)
        case _:
            _registry(choices)


def _nothing_else_verifies(kind: DocumentKind, raw: bytes) -> None:
    """What verifies has a sample's canonical bytes and its very signature."""
    outcome = _judged(kind, raw)
    if isinstance(outcome, Verified):
        assert outcome.canonical == sample_bytes[kind], "other canonical bytes were verified"
        assert outcome.document["signature"]["value"] == samples[kind]["signature"]["value"], "a second signature"
        assert outcome.key_id == signers[kind].key_id


def _signed_again(kind: DocumentKind, choices: Choices) -> None:
    """What verifies is signed by who the document names, at its protected time, in UTC."""
    key = choices.of((signers[kind], *signing_keys))
    document = edited(copy.deepcopy(samples[kind]), choices)
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
        assert verify_parsed(kind, parsed, keys) == outcome, "the same document was judged differently"
    return outcome


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
    outcome = verify_parsed(DocumentKind.COMMAND, samples[DocumentKind.COMMAND], registry)
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
    """Every sample as bytes, and some changes of each in every way."""
    for number, kind in enumerate(kinds):
        yield bytes([number * ways]) + canonical_bytes(samples[kind])
        for way in (1, 2):
            for edit in range(7):
                yield bytes([number * ways + way, edit, number, edit, 5, 0, 3, edit, 2, 1])
    for edit in range(7):
        for place in range(3):
            yield bytes([3, edit, 1, 1, place, 1, edit, 0, 1, 2])


if __name__ == "__main__":
    fuzz("pipeline")
