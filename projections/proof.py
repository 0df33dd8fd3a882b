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


class KeyTrust(Protocol):
    """The keys by which Events are judged: learned as they are met, never taken from whoever delivers the Events.

    All but `learn` may be called from the store's thread.
    """

    def accepts(self, principal: Actor) -> bool:
        """Whether Events accepted by this Principal are the Organization's."""
        ...

    def settled(self, key_id: str) -> bool:
        """Whether it is known now what this key is, or that there is none."""
        ...

    def resolve(self, key_id: str) -> RegisteredKey | None:
        """The key of this ID, None when there is none or it is not settled."""
        ...

    async def learn(self, key_ids: Iterable[str]) -> None:
        """Settle those of these keys that are not; when that is not possible now they stay as they are."""
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
        return None if self._keys.settled(key_id) else key_id

    async def learn(self, key_ids: Iterable[str]) -> None:
        """Learn keys, as far as possible now."""
        await self._keys.learn(key_ids)

    def fault_of(self, newest: Arrival) -> Doubt | None:
        """Why this Event proves nothing, or None when it proves itself and the chain behind it."""
        event_id = newest.event.event_id
        if (unknown := self.unknown_key(newest)) is not None:
            return Doubt(f"key {unknown} of Event {event_id} cannot be learned now", for_now=True)
        verified = verify_document(DocumentKind.EVENT, bytes(newest.raw), self._keys, event_bytes_max)
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

    def settled(self, key_id: str) -> bool:
        """Always."""
        del key_id
        return True

    def resolve(self, key_id: str) -> RegisteredKey | None:
        """The key of this ID, None when there is none."""
        return self._keys.resolve(key_id)

    async def learn(self, key_ids: Iterable[str]) -> None:
        """Nothing to do."""
