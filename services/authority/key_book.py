"""The keys that one batch meets, as they stand under the locks; it moves on with what the batch binds and ends."""

from collections.abc import Iterable, Sequence
from typing import Any

from msgspec import Struct, structs

from contracts.documents.common import Actor, ActorType
from contracts.signature import is_prime_order_point
from contracts.verification import RegisteredKey


def registered_key(row: Sequence[Any]) -> RegisteredKey:
    """A key from its row of `registered_key`: ID, Principal's type and ID, public key, the three boundaries."""
    key_id, principal_type, principal_id, public_key, valid_from, valid_until, revoked_at = row
    return RegisteredKey(
        key_id=key_id,
        principal=Actor(type=ActorType(principal_type), id=principal_id),
        public_key=bytes(public_key),
        valid_from=valid_from,
        valid_until=valid_until,
        revoked_at=revoked_at,
    )


class KnownKey(Struct, frozen=True):
    """A registered key with the number of statements made of its ends."""

    key: RegisteredKey
    statements: int


class KeyBook:
    """Registered keys by key ID and by public key: neither stands for two things in one Organization (TRU-2)."""

    def __init__(self, known: Iterable[KnownKey] = ()) -> None:
        """`known` as the database has them."""
        self._by_id: dict[str, KnownKey] = {}
        self._by_public_key: dict[bytes, str] = {}
        for each in known:
            self.put(each)

    def find(self, key_id: str) -> KnownKey | None:
        """The key of this ID, as far as the batch asked for it."""
        return self._by_id.get(key_id)

    def put(self, known: KnownKey) -> None:
        """Take over a key, new or with a newer statement."""
        self._by_id[known.key.key_id] = known
        self._by_public_key[known.key.public_key] = known.key.key_id

    def end(self, key_id: str, *, valid_until: str | None, revoked_at: str | None) -> KnownKey:
        """Take over a newer statement of a key's ends. Raises KeyError for a key that the batch did not ask for."""
        known = self._by_id[key_id]
        ended = structs.replace(known.key, valid_until=valid_until, revoked_at=revoked_at)
        self.put(after := KnownKey(ended, known.statements + 1))
        return after

    def binding_fault(self, key_id: str, principal: Actor, public_key: bytes | None) -> str | None:
        """Why this key cannot be bound to this Principal: weak, or known under another name; None when it can be.

        None also for the very binding that exists.
        """
        if public_key is None or not is_prime_order_point(public_key):
            return f"key {key_id} is no canonical prime-order Ed25519 key; bind another one"
        known = self._by_id.get(key_id) or self._by_id.get(self._by_public_key.get(public_key, ""))
        wanted = (key_id, principal, public_key)
        if known is not None and (known.key.key_id, known.key.principal, known.key.public_key) != wanted:
            return f"key {key_id} is already bound otherwise; bind a new key under a new key ID"
        return None
