r"""The per-Group hash chain: what makes a history provable and a Cursor fork-proof.

h_0 = SHA-256("weavehold/chain/1\n" ‖ organizationId ‖ "\n" ‖ groupId), h_n = SHA-256(h_{n-1} ‖ s_n) over raw
32-byte digests, where s_n is the signing hash of Event n. Organization-scoped Events form one chain whose
Group is the empty text.
"""

import hashlib
from typing import Final, NewType

ChainHash = NewType("ChainHash", bytes)
"""32 raw bytes."""
SigningHash = NewType("SigningHash", bytes)
"""32 raw bytes: SHA-256 of the RFC 8785 bytes of a document without its top-level `signature`."""

_PREFIX: Final = b"weavehold/chain/1\n"
history_extension: Final = "urn:weavehold:extension:history"
"""Name of the Event extension that carries incarnation, previous chain hash and salt."""
history_extension_version: Final = "1.0.0"
decision_extension: Final = "urn:weavehold:extension:decision"
"""Name of the Event extension that records what a decision took from outside its Group."""


def hash_text(digest: bytes) -> str:
    """A 32-byte SHA-256 as documents spell it: `sha256:` and 64 lower-case hex digits."""
    return f"sha256:{digest.hex()}"


def hash_bytes(text: str) -> SigningHash:
    """A signing hash from the text that documents spell it with."""
    return SigningHash(bytes.fromhex(text.removeprefix("sha256:")))


def chain_start(organization_id: str, group_id: str) -> ChainHash:
    """h_0 of one Group (`group_id` is "" for the Organization's own chain)."""
    return ChainHash(hashlib.sha256(_PREFIX + organization_id.encode() + b"\n" + group_id.encode()).digest())


def chain_next(previous: ChainHash, signing_hash: SigningHash) -> ChainHash:
    """h_n from h_{n-1} and the signing hash of Event n."""
    return ChainHash(hashlib.sha256(previous + signing_hash).digest())
