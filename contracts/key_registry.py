"""The key registry of a whole Organization as evidence: valid as a whole, or no key of it counts (TRU-2).

Bindings are immutable. What changes is their validity history: numbered statements, each of which may only move the
end of a key's validity earlier.
"""

from collections.abc import Iterable
from itertools import pairwise
from typing import Any, Literal

import msgspec
from msgspec import UNSET, UnsetType

from contracts.documents.common import Actor, Document, NonEmpty
from contracts.documents.reading import read
from contracts.identifiers import Base64Url, Identifier, PositiveInteger
from contracts.signature import base64url_bytes, is_prime_order_point
from contracts.timestamps import Timestamp, instant
from contracts.verification import RegisteredKey, RegistryFault


class ValidityStatement(Document, frozen=True, kw_only=True):
    """One entry of a validity history: a planned end, a revocation, or both."""

    sequence: PositiveInteger
    recorded_at: Timestamp
    valid_until: Timestamp | UnsetType = UNSET
    revoked_at: Timestamp | UnsetType = UNSET


class KeyBinding(Document, frozen=True, kw_only=True):
    """One key bound to one Principal; `public_key` is base64url of 32 bytes."""

    key_id: Identifier
    principal: Actor
    algorithm: Literal["Ed25519"]
    public_key: Base64Url
    valid_from: Timestamp
    validity_history: tuple[ValidityStatement, ...]


class RegistryEvidence(Document, frozen=True, kw_only=True):
    """All keys that an Organization ever bound."""

    organization_id: Identifier
    bindings: NonEmpty[KeyBinding]


class KeyRegistry:
    """The keys of one Organization, from evidence that was checked as a whole. A KeyResolver."""

    def __init__(self, evidence: RegistryEvidence) -> None:
        """Raises RegistryFault for a reused key ID, an aliased or weak key, or a history that widens a validity."""
        self.organization_id = evidence.organization_id
        self._keys: dict[str, RegisteredKey] = {}
        holders: dict[bytes, str] = {}
        for binding in evidence.bindings:
            key = _registered(binding)
            if key.key_id in self._keys:
                raise RegistryFault(f"key ID {key.key_id} is bound twice")
            other = holders.setdefault(key.public_key, key.key_id)
            if other != key.key_id:
                raise RegistryFault(f"{key.key_id} is the same public key as {other}")
            self._keys[key.key_id] = key

    def resolve(self, key_id: str) -> RegisteredKey | None:
        """The key of this ID, None when there is none."""
        return self._keys.get(key_id)


class UntrustedRegistry:
    """Evidence that is not valid: a KeyResolver that refuses every key, saying why."""

    def __init__(self, fault: RegistryFault) -> None:
        """`fault` is what every look-up raises."""
        self._fault = fault

    def resolve(self, key_id: str) -> RegisteredKey | None:
        """Raises RegistryFault."""
        raise RegistryFault(f"{self._fault}; {key_id} is not trusted") from self._fault


def read_registry(value: Any) -> KeyRegistry | UntrustedRegistry:
    """Registry evidence, JSON as `parse_strict` gives it, as a KeyResolver; invalid evidence resolves no key."""
    try:
        return KeyRegistry(read(value, RegistryEvidence))
    except msgspec.ValidationError as fault:
        return UntrustedRegistry(RegistryFault(str(fault)))
    except RegistryFault as fault:
        return UntrustedRegistry(fault)


def _registered(binding: KeyBinding) -> RegisteredKey:
    public_key = base64url_bytes(binding.public_key)
    if public_key is None or not is_prime_order_point(public_key):
        raise RegistryFault(f"{binding.key_id} is not canonical base64url of a canonical, prime-order public key")
    history = _in_order(binding)
    return RegisteredKey(
        key_id=binding.key_id,
        principal=binding.principal,
        public_key=public_key,
        valid_from=binding.valid_from,
        valid_until=_last_boundary(binding, "validUntil", (statement.valid_until for statement in history)),
        revoked_at=_last_boundary(binding, "revokedAt", (statement.revoked_at for statement in history)),
    )


def _in_order(binding: KeyBinding) -> tuple[ValidityStatement, ...]:
    """The history, numbered from 1 without gaps and never going back in time, each statement naming an end."""
    history = binding.validity_history
    for expected, statement in enumerate(history, 1):
        if statement.sequence != expected:
            raise RegistryFault(f"statement {expected} of {binding.key_id} is numbered {statement.sequence}")
        if statement.valid_until is UNSET and statement.revoked_at is UNSET:
            raise RegistryFault(f"statement {expected} of {binding.key_id} names neither validUntil nor revokedAt")
    for before, after in pairwise(history):
        if instant(after.recorded_at) < instant(before.recorded_at):
            raise RegistryFault(f"statement {after.sequence} of {binding.key_id} goes back to {after.recorded_at}")
    return history


def _last_boundary(binding: KeyBinding, name: str, stated: Iterable[str | UnsetType]) -> str | None:
    """The newest value of one boundary, which may only ever have moved earlier."""
    newest: str | None = None
    for boundary in stated:
        if boundary is UNSET:
            continue
        if newest is not None and instant(boundary) > instant(newest):
            raise RegistryFault(f"{name} of {binding.key_id} moved later, from {newest} to {boundary}")
        newest = boundary
    return newest
