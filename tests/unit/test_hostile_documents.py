"""Documents made to deceive or to exhaust: what the six stages and the registry say to them (TRU-1, TRU-2, ACC-5).

Two more files belong to this one: `test_hostile_texts` for bytes and sizes, `test_hostile_patterns` for patterns.
"""

import copy
from collections.abc import Callable
from typing import Any

import pytest

from contracts.bounds import command_bytes_max
from contracts.canonical import canonical_bytes, signing_bytes
from contracts.document_kinds import DocumentKind
from contracts.documents.common import Actor, ActorType
from contracts.key_registry import KeyRegistry, UntrustedRegistry, read_registry
from contracts.signature import SigningKey, base64url_bytes, base64url_text, group_order, verify_ed25519
from contracts.verification import RegisteredKey, Stage, VerificationFailure, Verified, verify_document
from services.authority.admit import admit_one
from services.authority.admitted import Admitted, Refused
from tests.fuzz.signed_samples import (
    carriers,
    keys,
    protected_times,
    registry_evidence,
    sample_bytes,
    samples,
    signed_again,
    signers,
    signing_keys,
)
from tests.unit import edwards

command = DocumentKind.COMMAND
seed = bytes([1]) * 32
signer = signing_keys[0]
good = base64url_bytes(samples[command]["signature"]["value"]) or b""
every_kind = pytest.mark.parametrize("kind", DocumentKind, ids=lambda kind: kind.value)


class OneKey:
    """A registry of one key that was never checked as evidence is."""

    def __init__(self, principal: Actor, public_key: bytes) -> None:
        self.key = RegisteredKey(
            key_id=signer.key_id, principal=principal, public_key=public_key, valid_from="2026-01-01T00:00:00Z"
        )

    def resolve(self, key_id: str) -> RegisteredKey | None:
        return self.key if key_id == self.key.key_id else None


def judged(document: Any, kind: DocumentKind = command, resolver: Any = keys) -> Verified | VerificationFailure:
    return verify_document(kind, canonical_bytes(document), resolver, command_bytes_max)


def stage_of(document: Any, kind: DocumentKind = command, resolver: Any = keys) -> Stage | None:
    outcome = judged(document, kind, resolver)
    return outcome.stage if isinstance(outcome, VerificationFailure) else None


def with_value(value: str | bytes, kind: DocumentKind = command) -> dict[str, Any]:
    document = copy.deepcopy(samples[kind])
    document["signature"]["value"] = value if isinstance(value, str) else base64url_text(value)
    return document


# Other signatures made of a good one, and of the secret key.


def scalar_of(signature: bytes) -> int:
    return int.from_bytes(signature[32:], "little")


def with_scalar(signature: bytes, scalar: int) -> bytes:
    return signature[:32] + scalar.to_bytes(32, "little")


def negated(point: bytes) -> bytes:
    return point[:31] + bytes([point[31] ^ 0x80])


def signed_with(nonce: int, extra: edwards.Point = edwards.identity) -> bytes:
    return edwards.sign_with_r(seed, signer.public_key, sample_bytes[command], nonce, extra)


malleable: dict[str, Callable[[], bytes]] = {
    **{
        f"s-plus-{multiple}-orders": lambda n=multiple: with_scalar(good, scalar_of(good) + n * group_order)
        for multiple in (1, 2, 7, 15)
        if scalar_of(good) + multiple * group_order < 2**256
    },
    **{f"s-with-bit-{bit}": lambda b=bit: with_scalar(good, scalar_of(good) | 1 << b) for bit in (253, 254, 255)},
    "s-negated": lambda: with_scalar(good, group_order - scalar_of(good)),
    "r-negated": lambda: negated(good[:32]) + good[32:],
    "r-and-s-negated": lambda: with_scalar(negated(good[:32]) + good[32:], group_order - scalar_of(good)),
    "s-zero": lambda: with_scalar(good, 0),
    "all-zero": lambda: bytes(64),
    "all-ones": lambda: b"\xff" * 64,
    "halves-exchanged": lambda: good[32:] + good[:32],
    "r-is-the-key": lambda: signer.public_key + good[32:],
}


@pytest.mark.parametrize("name", malleable)
def test_no_second_signature_is_made_of_a_good_one(name: str) -> None:
    """TRU-1: S + L, set high bits, negated points and scalars: one document has one signature of its signer."""
    assert malleable[name]() != good
    assert stage_of(with_value(malleable[name]())) in (Stage.SIGNATURE_ENVELOPE, Stage.SIGNATURE)


def small_order_encodings() -> dict[str, bytes]:
    """The eight points of small order in every 32 bytes that a lax decoder reads as one of them."""
    torsion = edwards.torsion_point()
    found = {f"{n}-times-order-8": edwards.encode(edwards.multiply(n, torsion)) for n in range(8)}
    for y, name in ((1, "identity"), (edwards.p - 1, "order-2")):
        found[f"{name}-with-sign"] = (y | 1 << 255).to_bytes(32, "little")
    for y, name in ((0, "order-4"), (1, "identity")):
        for sign in (0, 1):
            found[f"{name}-above-p-sign-{sign}"] = (y + edwards.p | sign << 255).to_bytes(32, "little")
    return found


small_orders = small_order_encodings()
identity = edwards.encode(edwards.identity)


@pytest.mark.parametrize("name", small_orders)
def test_a_point_of_small_order_is_r_only_as_the_identity(name: str) -> None:
    """TRU-1: every spelling of the eight small points as R, over the nonce 0, where a cofactored verifier says yes."""
    r = small_orders[name]
    challenge = edwards.challenge(r, signer.public_key, sample_bytes[command])
    s = challenge * edwards.secret_scalar(seed) % group_order
    expected = None if r == identity else Stage.SIGNATURE_ENVELOPE
    assert stage_of(with_value(r + s.to_bytes(32, "little"))) is expected


def test_what_only_a_cofactored_verifier_takes_is_refused() -> None:
    """TRU-1: R = nB + T for every T of small order: 8SB = 8R + 8kA holds for all eight, SB = R + kA for one."""
    torsion = edwards.torsion_point()
    stages = [stage_of(with_value(signed_with(7, edwards.multiply(n, torsion)))) for n in range(8)]
    assert stages == [None, *[Stage.SIGNATURE_ENVELOPE] * 7]


def test_a_mixed_key_is_refused_even_where_the_equation_holds() -> None:
    """TRU-2: with k = 0 (mod 8) a key A + T fits the cofactorless equation; it is no key all the same."""
    torsion, scalar = edwards.torsion_point(), edwards.secret_scalar(seed)
    mixed = edwards.encode(edwards.add(edwards.multiply(scalar, edwards.base), torsion))
    for nonce in range(1, 200):
        r = edwards.encode(edwards.multiply(nonce, edwards.base))
        challenge = edwards.challenge(r, mixed, sample_bytes[command])
        if challenge % 8 == 0:
            break
    signature = r + ((nonce + challenge * scalar) % group_order).to_bytes(32, "little")
    # That nothing but the look at the key stands between it and success is what makes the next line worth saying.
    assert verify_ed25519(mixed, sample_bytes[command], signature)
    assert stage_of(with_value(signature), resolver=OneKey(signer.principal, mixed)) is Stage.KEY_RESOLUTION


def test_a_mixed_key_and_a_mixed_r_that_cancel_out_are_refused() -> None:
    """TRU-1, TRU-2: R = nB - kT under the key A + T fits the equation; the envelope already refuses it."""
    torsion, scalar = edwards.torsion_point(), edwards.secret_scalar(seed)
    mixed = edwards.encode(edwards.add(edwards.multiply(scalar, edwards.base), torsion))
    for nonce in range(1, 400):
        point, turns = edwards.multiply(nonce, edwards.base), nonce % 7 + 1
        r = edwards.encode(edwards.add(point, edwards.multiply(8 - turns, torsion)))
        challenge = edwards.challenge(r, mixed, sample_bytes[command])
        if challenge % 8 == turns:
            break
    signature = r + ((nonce + challenge * scalar) % group_order).to_bytes(32, "little")
    outcome = stage_of(with_value(signature), resolver=OneKey(signer.principal, mixed))
    assert outcome is Stage.SIGNATURE_ENVELOPE


@pytest.mark.parametrize("name", small_orders)
def test_a_weak_key_signs_nothing(name: str) -> None:
    """TRU-2: S = 0 with every small R: for each weak key one of them fits the equation."""
    resolver = OneKey(signer.principal, small_orders[name])
    stages = {stage_of(with_value(r + bytes(32)), resolver=resolver) for r in small_orders.values()}
    assert stages == {Stage.SIGNATURE_ENVELOPE, Stage.KEY_RESOLUTION}


@pytest.mark.parametrize("name", small_orders)
def test_a_weak_key_is_no_evidence(name: str) -> None:
    """TRU-2: nor does a registry that binds one resolve any other key."""
    evidence = registry_evidence()
    evidence["bindings"][2]["publicKey"] = base64url_text(small_orders[name])
    assert isinstance(read_registry(evidence), UntrustedRegistry)


# Right keys in the wrong hands.


@every_kind
def test_a_key_signs_for_its_principal_alone(kind: DocumentKind) -> None:
    """TRU-2: a valid signature of a key that is bound to another Principal of the type, or to one of the same ID."""
    document, key = samples[kind], signers[kind]
    types = [each for each in ActorType if each is not key.principal.type]
    other_name = Actor(type=key.principal.type, id=f"{key.principal.id}-2")
    strangers = [Actor(type=each, id=key.principal.id) for each in types] + [other_name]
    for stranger in strangers:
        resolver = OneKey(stranger, key.public_key)
        resolver.key = RegisteredKey(
            key_id=key.key_id, principal=stranger, public_key=key.public_key, valid_from="2026-01-01T00:00:00Z"
        )
        # Any service of the Organization may sign an Agent Card.
        free = kind is DocumentKind.AGENT_CARD and stranger is other_name
        assert stage_of(document, kind, resolver) is (None if free else Stage.KEY_RESOLUTION), stranger


@every_kind
def test_a_sample_is_no_document_of_another_kind(kind: DocumentKind) -> None:
    """TRU-1, TRU-4: the bytes that are good as one kind are none of the other eight."""
    stages = {other: stage_of(samples[kind], other) for other in DocumentKind if other is not kind}
    assert set(stages.values()) == {Stage.SCHEMA}


def test_another_organizations_key_of_the_same_id_proves_nothing() -> None:
    """TRU-2, RULE-32: key IDs are the Organization's own; the signature of its namesake elsewhere is no signature."""
    elsewhere = SigningKey(signer.key_id, signer.principal, bytes([9]) * 32)
    unsigned = {name: member for name, member in samples[command].items() if name != "signature"}
    forged = with_value(elsewhere.sign(canonical_bytes(unsigned)))
    assert stage_of(forged) is Stage.SIGNATURE
    assert stage_of(forged, resolver=OneKey(signer.principal, elsewhere.public_key)) is None


# Spellings of signatures and keys.

text = samples[command]["signature"]["value"]
alphabet = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_"
last = alphabet.index(text[-1])
misspelled = {
    "padded": text + "==",
    "padded-once": text + "=",
    **{f"unused-bits-{bits}": text[:-1] + alphabet[last + bits] for bits in range(1, 16)},
    "plus": "+" + text[1:],
    "slash": text[:40] + "/" + text[41:],
    "space-before": " " + text,
    "space-inside": text[:40] + " " + text[40:],
    "line-feed-behind": text + "\n",
    "carriage-return-inside": text[:40] + "\r\n" + text[40:],
    "nul-behind": text + "\0",
    "empty": "",
    "one-sign": "A",
    "63-bytes": base64url_text(good[:63]),
    "65-bytes": base64url_text(good + b"\0"),
    "four-signs-more": text + "AAAA",
    "one-sign-more": text + "A",
    "full-width": "\uff21" + text[1:],
    "twice": text + text,
    "4,097-signs": "A" * 4_097,
    "hexadecimal": good.hex(),
}


@pytest.mark.parametrize("name", misspelled)
def test_a_signature_has_one_spelling(name: str) -> None:
    """TRU-1: base64url without padding, unused bits clear, no white space, 64 bytes."""
    assert stage_of(with_value(misspelled[name])) in (Stage.SCHEMA, Stage.SIGNATURE_ENVELOPE)


public = base64url_text(signer.public_key)
misspelled_keys = {
    "padded": public + "=",
    **{f"unused-bits-{bits}": public[:-1] + alphabet[alphabet.index(public[-1]) + bits] for bits in range(1, 4)},
    "plus": "+" + public[1:],
    "slash": "/" + public[1:],
    "space-behind": public + " ",
    "line-feed-behind": public + "\n",
    "empty": "",
    "31-bytes": base64url_text(signer.public_key[:31]),
    "33-bytes": base64url_text(signer.public_key + b"\0"),
    "nul-inside": public[:20] + "\0" + public[21:],
    "a-number": 1,
    "nothing": None,
}


@pytest.mark.parametrize("name", misspelled_keys)
def test_a_registered_key_has_one_spelling(name: str) -> None:
    """TRU-2: the same for public keys; one misspelled key and no key of the registry counts."""
    evidence = registry_evidence()
    assert isinstance(read_registry(evidence), KeyRegistry)
    evidence["bindings"][0]["publicKey"] = misspelled_keys[name]
    registry = read_registry(evidence)
    assert isinstance(registry, UntrustedRegistry)
    assert stage_of(samples[DocumentKind.EVENT], DocumentKind.EVENT, registry) is Stage.KEY_RESOLUTION


# Members called `signature`, and documents inside documents.


def test_only_the_top_level_signature_is_left_out() -> None:
    """TRU-1, TRU-3: a member `signature` anywhere else is covered, in payload and in extensions."""
    extension = {"urn:x:y": {"version": "1.0.0", "critical": False, "data": {"signature": "one"}}}
    document = signed_again(
        {
            **samples[command],
            "payload": {"signature": {"value": "one"}, "x": [{"signature": 1}]},
            "extensions": extension,
        }
    )
    assert stage_of(document) is None
    changes: list[Callable[[dict[str, Any]], object]] = [
        lambda d: d["payload"].pop("signature"),
        lambda d: d["payload"]["signature"].update(value="two"),
        lambda d: d["payload"]["x"][0].update(signature=2),
        lambda d: d["payload"].update(signature=d["signature"]),
        lambda d: d["extensions"]["urn:x:y"]["data"].update(signature="two"),
    ]
    for change in changes:
        tampered = copy.deepcopy(document)
        change(tampered)
        assert stage_of(tampered) is Stage.SIGNATURE


def test_the_signature_itself_holds_nothing_else() -> None:
    """TRU-1: what the signature does not cover has no room for more than its four members."""
    for more in ({"x": 1}, {"signature": {}}, {"Value": text}, {"value ": text}):
        document = copy.deepcopy(samples[command])
        document["signature"].update(more)
        assert stage_of(document) is Stage.SCHEMA
    for name in ("Signature", "signature ", "signatures", "\uff53ignature"):
        assert stage_of({**samples[command], name: samples[command]["signature"]}) is Stage.SCHEMA


def inner_of(document: dict[str, Any], member: str) -> dict[str, Any]:
    inner = document["payload"][member]
    found: dict[str, Any] = inner[0] if isinstance(inner, list) else inner
    return found


@pytest.mark.parametrize("name", carriers)
def test_a_document_inside_a_command_needs_its_own_signature(name: str) -> None:
    """TRU-1, TRU-5: the Command is validly signed over it; its own signature, key and time are judged all the same."""
    document, member = carriers[name]
    assert isinstance(admit_one(canonical_bytes(document), keys), Admitted)
    sender = next(key for key in signing_keys if key.key_id == document["signature"]["keyId"])
    stranger = next(key for key in signing_keys if key.key_id != inner_of(document, member)["signature"]["keyId"])
    spoiled: dict[Stage, dict[str, str]] = {
        Stage.SIGNATURE: {"value": base64url_text(signed_with(11))},
        Stage.SIGNATURE_ENVELOPE: {"createdAt": "2026-07-15T00:00:01Z"},
        Stage.KEY_RESOLUTION: {"keyId": stranger.key_id},
    }
    for stage, change in spoiled.items():
        tampered = copy.deepcopy(document)
        inner_of(tampered, member)["signature"].update(change)
        refused = admit_one(canonical_bytes(signed_again(tampered, sender)), keys)
        assert isinstance(refused, Refused)
        assert (refused.rejection.code.value, refused.rejection.message) == (
            "AUTH_INVALID_SIGNATURE",
            "signed document rejected",
        )
        assert refused.failure is not None
        assert refused.failure.stage == stage.value


def test_one_bad_document_among_many_is_found() -> None:
    """TRU-1: every Evidence of a submission is judged, not the first alone."""
    document, member = carriers["submission"]
    many = copy.deepcopy(document)
    many["payload"][member] = [copy.deepcopy(inner_of(document, member)) for _ in range(20)]
    assert isinstance(admit_one(canonical_bytes(signed_again(many)), keys), Admitted)
    many["payload"][member][19]["method"] = "Did nothing."
    refused = admit_one(canonical_bytes(signed_again(many)), keys)
    assert isinstance(refused, Refused)
    assert refused.failure is not None
    assert refused.failure.stage == "signature"


@every_kind
def test_every_member_of_every_kind_is_covered(kind: DocumentKind) -> None:
    """TRU-1: a change of any top-level member of any kind never verifies."""
    for name in samples[kind]:
        if name == "signature":
            continue
        tampered = copy.deepcopy(samples[kind])
        del tampered[name]
        assert stage_of(tampered, kind) is not None
        tampered = {**samples[kind], name: _other(samples[kind][name])}
        assert signing_bytes(tampered) != sample_bytes[kind]
        assert stage_of(tampered, kind) is not None, name
    assert stage_of(samples[kind], kind) is None
    assert samples[kind]["signature"]["createdAt"] == samples[kind][protected_times[kind]]


def _other(value: Any) -> Any:
    match value:
        case bool():
            return not value
        case int() | float():
            return value + 1
        case str():
            return value + "x"
        case list():
            return [*value, *value[:1]] if value else ["x"]
        case dict():
            return {**value, "x": 1}
    raise AssertionError(value)


@pytest.mark.parametrize("number", ["1e400", '"\\ud800"'])
def test_what_has_no_canonical_bytes_does_not_tell_whether_a_key_exists(number: str) -> None:
    """TRU-5: any signature at all, over a Command that nobody can sign: one answer for a known and an unknown key."""
    raw = canonical_bytes({**samples[command], "payload": {"n": "here"}}).replace(b'"here"', number.encode())
    nobody = OneKey(signer.principal, signer.public_key)
    nobody.key = RegisteredKey(
        key_id="urn:weavehold:key:nobody",
        principal=signer.principal,
        public_key=bytes(32),
        valid_from="2026-01-01T00:00:00Z",
    )
    known, unknown = admit_one(raw, keys), admit_one(raw, nobody)
    assert isinstance(known, Refused)
    assert isinstance(unknown, Refused)
    assert known.rejection == unknown.rejection
