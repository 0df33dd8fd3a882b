"""Ed25519 signatures over canonical documents (TRU-1, TRU-3).

Keys and signature values travel as canonical base64url without padding. Verification is libsodium's: cofactorless,
S < L, canonical encodings, no weak key; the identity as R, which the protocol allows and libsodium refuses, is
verified by OpenSSL. Making a key and reading its file are the two acts in `contracts` that are not pure: a key is
made or read only here.
"""

import binascii
from pathlib import Path
from typing import Any, Final, Self

import msgspec
from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey
from nacl._sodium import ffi, lib  # type: ignore[import-not-found] # compiled, without stubs
from nacl.bindings import (
    crypto_core_ed25519_is_valid_point,
    crypto_sign,
    crypto_sign_keypair,
    crypto_sign_seed_keypair,
)

from contracts.canonical import (
    canonical_bytes,
    insert_signature,
    members_behind_signature,
    parse_strict,
    signing_bytes,
)
from contracts.documents.common import Actor, Document
from contracts.identifiers import Base64Url, Identifier, token

algorithm: Final = "Ed25519"
public_key_bytes: Final = 32
signature_bytes: Final = 64
group_order: Final = 2**252 + 27742317777372353535851937790883648493
"""L, the order of the prime-order subgroup."""
key_file_bytes_max: Final = 4096
"""Bytes of one key file."""

_open: Final = lib.crypto_sign_open
_nowhere: Final = ffi.NULL
_identity: Final = b"\x01" + b"\x00" * 31
_refused: Final = b"!"
_to_url: Final = bytes.maketrans(b"+/", b"-_")
_from_url: Final = bytes.maketrans(b"-_+/=", b"+/" + 3 * _refused)
_padding: Final = (b"", b"===", b"==", b"=")
_any_character: Final = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_"
_last_characters: Final = (_any_character, "", _any_character[::16], _any_character[::4])
"""Characters that may end a text of 0, 1, 2, 3 characters modulo 4: those whose unused bits are clear."""


def base64url_text(data: bytes) -> str:
    """Canonical base64url without padding."""
    return binascii.b2a_base64(data, newline=False).translate(_to_url).rstrip(b"=").decode()


def base64url_bytes(text: str) -> bytes | None:
    """The bytes of canonical unpadded base64url; None for any other alphabet, padding, or unused bits that are set."""
    rest = len(text) % 4
    try:
        data = binascii.a2b_base64(text.encode("ascii").translate(_from_url) + _padding[rest], strict_mode=True)
    except ValueError:
        return None
    # Set unused bits decode to the same bytes as clear ones: only one spelling may count.
    return data if text[-1:] in _last_characters[rest] else None


def is_prime_order_point(point: bytes) -> bool:
    """Whether 32 bytes canonically encode a point of the prime-order subgroup other than the identity (~60 µs)."""
    return len(point) == public_key_bytes and crypto_core_ed25519_is_valid_point(point)


def is_allowed_r(point: bytes) -> bool:
    """Whether 32 bytes may stand as R: canonical, in the prime-order subgroup, the identity allowed."""
    return point == _identity or is_prime_order_point(point)


def verify_ed25519(public_key: bytes, message: bytes, signature: bytes) -> bool:
    """Whether `signature` (64 raw bytes) is `public_key`'s (32 raw bytes, prime-order) over `message`.

    True implies a canonical R of the prime-order subgroup, since the equation is checked without cofactor.
    """
    if len(signature) != signature_bytes or len(public_key) != public_key_bytes:
        return False
    if signature.startswith(_identity):
        return _verify_with_identity_r(public_key, message, signature)
    signed = signature + message
    # The function behind nacl.bindings.crypto_sign_open, which would allocate and copy the message out again.
    opened: int = _open(_nowhere, _nowhere, signed, len(signed), public_key)
    return opened == 0


def _verify_with_identity_r(public_key: bytes, message: bytes, signature: bytes) -> bool:
    # Unlike libsodium, OpenSSL takes small-order keys, under which S = 0 fits many messages.
    if not is_prime_order_point(public_key):
        return False
    try:
        Ed25519PublicKey.from_public_bytes(public_key).verify(signature, message)
    except (InvalidSignature, ValueError):
        return False
    return True


class _KeyFile(Document, frozen=True, kw_only=True):
    """The JSON of a key file; both keys are 32 raw bytes in base64url, `private_key` the Ed25519 seed."""

    key_id: Identifier
    principal: Actor
    algorithm: str
    public_key: Base64Url
    private_key: Base64Url


class SigningKey:
    """A Principal's private key. Its `repr` shows no secret; `public_key` is 32 raw bytes."""

    __slots__ = ("_secret", "key_id", "principal", "public_key")

    def __init__(self, key_id: str, principal: Actor, seed: bytes) -> None:
        """Derive the key from its 32-byte seed. Raises ValueError for another length."""
        if len(seed) != public_key_bytes:
            raise ValueError(f"an Ed25519 seed has {public_key_bytes} bytes, not {len(seed)}")
        self.key_id = key_id
        self.principal = principal
        self.public_key, self._secret = crypto_sign_seed_keypair(seed)

    def __repr__(self) -> str:
        """Key and Principal, never the secret."""
        return f"SigningKey({self.key_id!r}, {self.principal!r})"

    def sign(self, message: bytes) -> str:
        """The signature over `message` as base64url."""
        return base64url_text(crypto_sign(message, self._secret)[:signature_bytes])

    def signature_over(self, unsigned: bytes, created_at: str) -> dict[str, str]:
        """The `signature` member of a document with these signing bytes; `created_at` is its protected time."""
        return {
            "algorithm": algorithm,
            "keyId": self.key_id,
            "createdAt": created_at,
            "value": self.sign(unsigned),
        }

    def key_file(self) -> bytes:
        """The key file's JSON, secret included: write it with mode 0600 (RULE-29)."""
        return canonical_bytes(
            _KeyFile(
                key_id=self.key_id,
                principal=self.principal,
                algorithm=algorithm,
                public_key=base64url_text(self.public_key),
                private_key=base64url_text(self._secret[:public_key_bytes]),
            )
        )

    @classmethod
    def from_key_file(cls, raw: bytes) -> Self:
        """Read a key file's JSON. Raises ValueError when it is malformed or its two keys do not belong together."""
        file = msgspec.convert(parse_strict(raw, key_file_bytes_max), _KeyFile)
        if file.algorithm != algorithm:
            raise ValueError(f"{file.key_id} is a key for {file.algorithm!r}, not for {algorithm}")
        key = cls(file.key_id, file.principal, base64url_bytes(file.private_key) or b"")
        if base64url_bytes(file.public_key) != key.public_key:
            raise ValueError(f"publicKey and privateKey of {file.key_id} do not belong together")
        return key

    @classmethod
    def from_file(cls, path: Path) -> Self:
        """Read a key file. Raises OSError when it cannot be read, ValueError when it is no key."""
        return cls.from_key_file(path.read_bytes())

    @classmethod
    def generate(cls, principal: Actor) -> Self:
        """A new key from libsodium's generator; its key ID is the token of its public key."""
        public_key, secret = crypto_sign_keypair()
        return cls(f"urn:weavehold:key:{token(public_key.hex())}", principal, secret[:public_key_bytes])


def sign_document(document: dict[str, Any], key: SigningKey, created_at: str) -> bytes:
    """Sign as `key` and return the canonical bytes with the signature; `document` gains the `signature` member.

    `created_at` must be byte-equal to the document's protected time, in UTC with an uppercase `Z`. Raises
    CanonicalizationFault.
    """
    unsigned = signing_bytes(document)
    document["signature"] = key.signature_over(unsigned, created_at)
    return insert_signature(unsigned, document["signature"], members_behind_signature(document))
