"""Ed25519 at its final strictness, base64url in its one spelling, key files."""

import json
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from contracts.canonical import parse_strict, signing_bytes
from contracts.documents.common import ActorType
from contracts.signature import (
    SigningKey,
    base64url_bytes,
    base64url_text,
    group_order,
    is_allowed_r,
    is_prime_order_point,
    sign_document,
    verify_ed25519,
)
from tests.builders import principal, signing_key
from tests.unit import edwards

message = b"a transition"
seed = bytes(range(32))
key = SigningKey("urn:weavehold:key:test", principal("signer"), seed)
good = base64url_bytes(key.sign(message)) or b""
identity = edwards.encode(edwards.identity)


def test_a_good_signature_verifies_and_any_other_bytes_do_not() -> None:
    """TRU-1."""
    assert verify_ed25519(key.public_key, message, good)
    assert not verify_ed25519(key.public_key, message + b".", good)
    assert not verify_ed25519(signing_key("other").public_key, message, good)
    for position in range(64):
        assert not verify_ed25519(
            key.public_key, message, good[:position] + bytes([good[position] ^ 1]) + good[position + 1 :]
        )


@pytest.mark.parametrize("signature", [b"", good[:63], good + b"\0", good * 2])
def test_a_signature_has_64_bytes(signature: bytes) -> None:
    """TRU-1."""
    assert not verify_ed25519(key.public_key, message, signature)


@pytest.mark.parametrize("public_key", [b"", key.public_key[:31], key.public_key + b"\0"])
def test_a_public_key_has_32_bytes(public_key: bytes) -> None:
    """TRU-1."""
    assert not verify_ed25519(public_key, message, good)
    assert not is_prime_order_point(public_key)


def test_s_at_or_above_the_order_is_refused() -> None:
    """TRU-1: S + L would be a second signature over the same bytes."""
    s = int.from_bytes(good[32:], "little")
    for multiple in (1, 2):
        malleable = good[:32] + (s + multiple * group_order).to_bytes(32, "little")
        assert not verify_ed25519(key.public_key, message, malleable)


def test_the_equation_is_checked_without_cofactor() -> None:
    """TRU-1: success must imply an R in the prime-order subgroup, for the envelope relies on it."""
    plain = edwards.sign_with_r(seed, key.public_key, message, nonce=7)
    mixed = edwards.sign_with_r(seed, key.public_key, message, nonce=7, extra=edwards.torsion_point())
    assert verify_ed25519(key.public_key, message, plain)
    assert is_allowed_r(plain[:32])
    assert not verify_ed25519(key.public_key, message, mixed)
    assert not is_allowed_r(mixed[:32])


def test_the_identity_may_stand_as_r() -> None:
    """TRU-1: libsodium alone would refuse it."""
    signature = edwards.sign_with_r(seed, key.public_key, message, nonce=0)
    assert signature[:32] == identity
    assert is_allowed_r(identity)
    assert verify_ed25519(key.public_key, message, signature)
    assert not verify_ed25519(key.public_key, message + b".", signature)
    s = int.from_bytes(signature[32:], "little")
    assert not verify_ed25519(key.public_key, message, identity + (s + group_order).to_bytes(32, "little"))


def weak_points() -> dict[str, bytes]:
    """Encodings that are no canonical point of the prime-order subgroup."""
    torsion = edwards.torsion_point()
    small = {f"order-8-times-{n}": edwards.encode(edwards.multiply(n, torsion)) for n in range(1, 8)}
    return {
        **small,
        "mixed-order": edwards.encode(edwards.add(edwards.multiply(5, edwards.base), torsion)),
        "not-on-the-curve": (2).to_bytes(32, "little"),
        "identity-with-sign": bytes([1]) + bytes(30) + b"\x80",
        "y-above-p": (edwards.p + 3).to_bytes(32, "little"),
        "y-equal-p": edwards.p.to_bytes(32, "little"),
        "identity-above-p": (edwards.p + 1).to_bytes(32, "little"),
        "all-ones": b"\xff" * 32,
        "zero": bytes(32),
    }


@pytest.mark.parametrize("name", weak_points())
def test_weak_points_are_neither_keys_nor_r(name: str) -> None:
    """TRU-1, TRU-2."""
    point = weak_points()[name]
    assert not is_prime_order_point(point)
    assert not is_allowed_r(point)
    assert not verify_ed25519(key.public_key, message, point + good[32:])


@pytest.mark.parametrize("name", [*weak_points(), "identity"])
def test_a_weak_key_proves_nothing(name: str) -> None:
    """TRU-2: the universal forgeries of small-order keys, R = A or R = identity with S = 0, fit no message."""
    weak = weak_points().get(name, identity)
    for forged in (weak + bytes(32), identity + bytes(32)):
        assert not any(verify_ed25519(weak, bytes([number]), forged) for number in range(16))


def test_the_identity_is_no_key() -> None:
    """TRU-2."""
    assert not is_prime_order_point(identity)


@given(st.binary(max_size=70))
@settings(max_examples=100, deadline=None)
def test_base64url_has_one_spelling(data: bytes) -> None:
    """TRU-1: unpadded, unused bits clear."""
    text = base64url_text(data)
    assert base64url_bytes(text) == data
    assert base64url_bytes(text + "=") is None
    for other in "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_":
        respelled = text[:-1] + other
        decoded = base64url_bytes(respelled)
        assert decoded is None or base64url_text(decoded) == respelled


@pytest.mark.parametrize(
    "text", ["A", "AAAAA", "AB", "AAB", "AA==", "AAA=", "A+AA", "A/AA", "AA AA", "AA\n", "AAé", "=", "A=AA", "\0AAA"]
)
def test_other_base64_is_refused(text: str) -> None:
    """TRU-1: padding, the other alphabet, white space, bits that are set where nothing stands."""
    assert base64url_bytes(text) is None


def test_a_key_file_carries_the_key(tmp_path: Path) -> None:
    """RULE-29: what is written is read again; the two halves must belong together."""
    made = SigningKey.generate(principal("anna", ActorType.HUMAN))
    path = tmp_path / "anna.json"
    path.write_bytes(made.key_file())
    read = SigningKey.from_file(path)
    assert (read.key_id, read.principal, read.public_key) == (made.key_id, made.principal, made.public_key)
    assert read.sign(message) == made.sign(message)
    assert made.key_id.startswith("urn:weavehold:key:")
    assert made.key_id != SigningKey.generate(made.principal).key_id


@pytest.mark.parametrize(
    "change",
    [
        {"publicKey": base64url_text(signing_key("other").public_key)},
        {"algorithm": "RSA"},
        {"privateKey": "AAAA"},
        {"privateKey": base64url_text(seed) + "="},
        {"keyId": "no-uri"},
        {"extra": 1},
    ],
)
def test_a_damaged_key_file_is_refused(change: dict[str, object]) -> None:
    """RULE-29."""
    file = {**json.loads(key.key_file()), **change}
    with pytest.raises(ValueError, match=r".+"):
        SigningKey.from_key_file(json.dumps(file).encode())


def test_a_key_shows_no_secret() -> None:
    """RULE-29: not in logs, not in messages."""
    secret = json.loads(key.key_file())["privateKey"]
    assert secret not in repr(key)
    assert secret not in str(key)


def test_a_signed_document_is_canonical_and_verifies() -> None:
    """TRU-3: the signature covers everything but itself."""
    document = {"b": 1.0, "a": {"signature": "kept"}, "issuedAt": "2026-07-15T08:00:00.000000Z"}
    raw = sign_document(document, key, document["issuedAt"])  # type: ignore[arg-type]
    parsed = parse_strict(raw, len(raw))
    assert parsed["signature"]["createdAt"] == document["issuedAt"]
    value = base64url_bytes(parsed["signature"]["value"]) or b""
    assert verify_ed25519(key.public_key, signing_bytes(parsed), value)
    assert sign_document(dict(parsed), key, parsed["issuedAt"]) == raw
