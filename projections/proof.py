"""Authenticity of a run of Events from one signature: that of its newest Event.

Each Event carries the chain hash before it inside what it signs, so the newest valid signature proves every Event
behind it that the recomputed chain joins. Whose signature counts, and what is known of keys, is a `KeyTrust`'s to say.
"""

from collections.abc import Iterable
from typing import Protocol

from msgspec import Struct

from contracts.bounds import event_bytes_max
from contracts.chain import chain_next
from contracts.document_kinds import DocumentKind
from contracts.documents.common import Actor, ActorType
from contracts.verification import KeyResolver, RegisteredKey, VerificationFailure, verify_document
from projections.arrival import Arrival


class ResolvedKey(Struct, frozen=True):
    """What one key ID stands for: a key, or for certain none. A KeyResolver of it alone."""

    key_id: str
    key: RegisteredKey | None

    def resolve(self, key_id: str) -> RegisteredKey | None:
        """The key, when this is its ID."""
        return self.key if key_id == self.key_id else None


class KeyTrust(Protocol):
    """The keys by which Events are judged: learned as they are met, never taken from whoever delivers the Events.

    All but `learn` may be called from the store's thread, while what is known changes under the event loop's hands.
    """

    def accepts(self, principal: Actor) -> bool:
        """Whether Events accepted by this Principal are the Organization's."""
        ...

    def known(self, key_id: str) -> ResolvedKey | None:
        """What is known now of this key; None when it has to be learned first."""
        ...

    async def learn(self, key_ids: Iterable[str]) -> None:
        """Learn those of these keys that are not known; when that is not possible now they stay as they are."""
        ...


class Doubt(Struct, frozen=True):
    """Why an Event proves nothing. `for_now` when only its key could not be learned: asked again it may."""

    reason: str
    for_now: bool = False


class SignatureProof:
    """Verifies Events against the Organization's registered keys."""

    def __init__(self, keys: KeyTrust) -> None:
        """`keys` says whose Events count and resolves their key IDs."""
        self._keys = keys

    def unknown_key(self, newest: Arrival) -> str | None:
        """The key ID of this Event's signature when it has to be learned first."""
        key_id = newest.event.signature.key_id
        return key_id if self._keys.known(key_id) is None else None

    async def learn(self, key_ids: Iterable[str]) -> None:
        """Learn keys, as far as possible now."""
        await self._keys.learn(key_ids)

    def fault_of(self, newest: Arrival) -> Doubt | None:
        """Why this Event proves nothing, or None when it proves itself and the chain behind it."""
        event_id, key_id = newest.event.event_id, newest.event.signature.key_id
        # Looked up once: a change of keys announced meanwhile must not turn a known key into one that nobody has.
        if (known := self._keys.known(key_id)) is None:
            return Doubt(f"key {key_id} of Event {event_id} cannot be learned now", for_now=True)
        verified = verify_document(DocumentKind.EVENT, bytes(newest.raw), known, event_bytes_max)
        if isinstance(verified, VerificationFailure):
            return Doubt(f"Event {event_id} fails at {verified.stage.value}: {verified.reason}")
        if not self._keys.accepts(verified.principal):
            return Doubt(f"Event {event_id} is accepted by {verified.principal.id}, which does not accept Events")
        if chain_next(newest.mark.previous_hash, verified.signing_hash) != newest.mark.chain_hash:
            return Doubt(f"Event {event_id} is signed over other bytes than those that were hashed")
        return None

    async def examine(self, newest: Arrival) -> Doubt | None:
        """`fault_of`, after asking for the key when it is not known yet."""
        if (unknown := self.unknown_key(newest)) is not None:
            await self.learn((unknown,))
        return self.fault_of(newest)


class KnownKeys:
    """A KeyTrust in keys that are known beforehand: every service's Events count, and nothing is left to learn."""

    def __init__(self, keys: KeyResolver) -> None:
        """`keys` has them all."""
        self._keys = keys

    def accepts(self, principal: Actor) -> bool:
        """Whether it is a service."""
        return principal.type is ActorType.SERVICE

    def known(self, key_id: str) -> ResolvedKey:
        """The key of this ID, or that there is none."""
        return ResolvedKey(key_id, self._keys.resolve(key_id))

    async def learn(self, key_ids: Iterable[str]) -> None:
        """Nothing to do."""
