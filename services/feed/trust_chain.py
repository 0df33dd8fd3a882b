"""Which keys are the authority's: those pinned, and every later one that a trusted one vouches for.

A trusted key vouches in two ways: by signing the Event of the registry's history that binds the new key, or by signing
an answer about keys that holds its binding. What was once heard of a key's end is kept, also when the key is forgotten
for newer ones: ends only move earlier.
Pure: no clock and no IO.
"""

from collections.abc import Iterable, Mapping
from typing import Any, Final

import msgspec
from msgspec import Struct, structs

from contracts.canonical import CanonicalizationFault, signing_bytes
from contracts.document_kinds import DocumentKind
from contracts.documents.common import Actor
from contracts.documents.reading import read
from contracts.event import Event, key_registered
from contracts.event_contracts import current_payload
from contracts.identifiers import registry_group
from contracts.key_registry import KeyRegistry, RegistryEvidence
from contracts.payloads.keys import KeyRegistered
from contracts.payloads.requests import KeyList
from contracts.signature import base64url_bytes, verify_ed25519
from contracts.timestamps import instant
from contracts.upcasting import EventUnread
from contracts.verification import RegisteredKey, RegistryFault, Verified, verify_parsed

trusted_keys_max: Final = 64
"""Keys of the authority that are trusted at once; beyond it the one learned first is forgotten, pinned ones never."""
ends_remembered_max: Final = 4_096
"""Forgotten keys of which the ends are kept; beyond it no further key is trusted, for one of them might have ended."""


class NotBelieved(Exception):
    """An answer about keys that nobody trusted vouches for, or that contradicts what is known."""


class Wanting(Struct, frozen=True):
    """An answer cannot be judged before these keys are known: ask for them too."""

    key_ids: frozenset[str]


class TrustChain:
    """The trusted keys of one Organization's authority. A KeyResolver of them alone."""

    def __init__(self, anchors: RegistryEvidence) -> None:
        """Begin with pinned keys; their Principals are the ones that accept Events. Raises RegistryFault."""
        registry = KeyRegistry(anchors)
        pinned = [registry.resolve(binding.key_id) for binding in anchors.bindings]
        self.organization_id = anchors.organization_id
        self._pinned: dict[str, RegisteredKey] = {key.key_id: key for key in pinned if key is not None}
        self._learned: dict[str, RegisteredKey] = {}
        self._ends: dict[str, _Ends] = {}
        """Of keys that were forgotten and had any."""
        self._acceptors = frozenset(key.principal for key in self._pinned.values())

    @property
    def key_ids(self) -> tuple[str, ...]:
        """The IDs of all trusted keys."""
        return (*self._pinned, *self._learned)

    def accepts(self, principal: Actor) -> bool:
        """Whether this Principal accepts Events."""
        return principal in self._acceptors

    def resolve(self, key_id: str) -> RegisteredKey | None:
        """A trusted key with the earliest ends that were heard of; None for any other."""
        return self._pinned.get(key_id) or self._learned.get(key_id)

    def judge(self, document: Mapping[str, Any], action_id: str) -> dict[str, RegisteredKey] | Wanting:
        """The keys that a believable answer to the request `action_id` holds, by ID. Raises NotBelieved."""
        try:
            answer = read(document, KeyList)
        except msgspec.ValidationError as fault:
            raise NotBelieved(f"it is no answer about keys: {fault}") from fault
        if (answer.action_id, answer.registry.organization_id) != (action_id, self.organization_id):
            raise NotBelieved("it answers another request")
        signer_id = answer.signature.key_id
        if self.resolve(signer_id) is None:
            unknown = self._follow(answer.bound_by)
            if self.resolve(signer_id) is None:
                return Wanting(frozenset({signer_id, *unknown}))
        self._verify(document, answer)
        return self._take_over(answer)

    def _follow(self, events: Iterable[dict[str, Any]]) -> set[str]:
        """Trust the keys that these Events of the registry bind, in whatever order; the signers that are unknown."""
        waiting = list(events)
        while True:
            left = [event for event in waiting if not self._trust_bound(event)]
            if len(left) == len(waiting):
                return {signer for event in left if (signer := _signer_of(event)) and self.resolve(signer) is None}
            waiting = left

    def _trust_bound(self, document: dict[str, Any]) -> bool:
        """Trust the key of the authority that an Event binds; whether the Event is proven."""
        verified = verify_parsed(DocumentKind.EVENT, document, self)
        if not isinstance(verified, Verified) or not isinstance(event := verified.typed, Event):
            return False
        if event.kind != key_registered or event.group_id != registry_group(self.organization_id):
            return False
        try:
            bound = read(current_payload(event), KeyRegistered).key
        except (EventUnread, msgspec.ValidationError):
            return False
        public_key = base64url_bytes(bound.public_key)
        if public_key is not None and self.accepts(bound.principal):
            # Its ends follow from the answer itself, which states them as of now.
            self._trust(RegisteredKey(
                key_id=bound.key_id, principal=bound.principal, public_key=public_key, valid_from=bound.valid_from
            ))  # fmt: skip
        return True

    def _verify(self, document: Mapping[str, Any], answer: KeyList) -> None:
        """That the signature is one of a trusted key that may sign now. Raises NotBelieved."""
        signature, signer = answer.signature, self.resolve(answer.signature.key_id)
        if signer is None or signer.revoked_at is not None:
            raise NotBelieved(f"it is signed by {signature.key_id}, which is not trusted any more")
        if signature.created_at != answer.answered_at or not signer.covers(instant(answer.answered_at)):
            raise NotBelieved(f"{signer.key_id} is not valid at {answer.answered_at}")
        try:
            signed = signing_bytes(document)
        except CanonicalizationFault as fault:
            raise NotBelieved(f"it has no canonical form: {fault}") from fault
        if not verify_ed25519(signer.public_key, signed, base64url_bytes(signature.value) or b""):
            raise NotBelieved(f"the signature is not one of {signer.key_id} over it")

    def _take_over(self, answer: KeyList) -> dict[str, RegisteredKey]:
        """The keys of a verified answer; those of the authority are trusted from here on."""
        if not answer.registry.bindings:
            return {}
        evidence = RegistryEvidence(organization_id=self.organization_id, bindings=answer.registry.bindings)
        try:
            registry = KeyRegistry(evidence)
        except RegistryFault as fault:
            raise NotBelieved(f"its evidence is not valid: {fault}") from fault
        found: dict[str, RegisteredKey] = {}
        for binding in evidence.bindings:
            key = registry.resolve(binding.key_id)
            if key is None:
                continue
            found[key.key_id] = self._trust(key) if self.accepts(key.principal) else self._compare(key)
        return found

    def _compare(self, key: RegisteredKey) -> RegisteredKey:
        """The key, unless a trusted one is known otherwise under its ID or its bytes. Raises NotBelieved."""
        for known in (*self._pinned.values(), *self._learned.values()):
            same = (known.key_id == key.key_id, known.public_key == key.public_key)
            if any(same) and not (all(same) and known.principal == key.principal):
                raise NotBelieved(f"{key.key_id} of {key.principal.id} contradicts {known.key_id}, which is trusted")
        return key

    def _trust(self, key: RegisteredKey) -> RegisteredKey:
        """Trust a key of the authority, with the earliest ends heard of so far. Raises NotBelieved."""
        known = self.resolve(self._compare(key).key_id)
        valid_until, revoked_at = self._ends.get(key.key_id, _no_ends) if known is None else _ends_of(known)
        key = structs.replace(
            key, valid_until=_earlier(valid_until, key.valid_until), revoked_at=_earlier(revoked_at, key.revoked_at)
        )
        if key.key_id in self._pinned:
            self._pinned[key.key_id] = key
            return key
        if known is None and len(self._learned) >= trusted_keys_max:
            self._forget_oldest()
        self._learned[key.key_id] = key
        self._ends.pop(key.key_id, None)
        return key

    def _forget_oldest(self) -> None:
        """Make room for one more key. Raises NotBelieved when what is known of ends would be lost."""
        oldest = next(iter(self._learned.values()))
        if (ends := _ends_of(oldest)) != _no_ends:
            if len(self._ends) >= ends_remembered_max:
                raise NotBelieved(f"more than {ends_remembered_max} keys have ended; renew the trust anchors")
            self._ends[oldest.key_id] = ends
        del self._learned[oldest.key_id]


type _Ends = tuple[str | None, str | None]
_no_ends: Final[_Ends] = (None, None)


def _ends_of(key: RegisteredKey) -> _Ends:
    return key.valid_until, key.revoked_at


def _earlier(one: str | None, other: str | None) -> str | None:
    """The earlier of two ends, where None is none."""
    if one is None or other is None:
        return one or other
    return min(one, other, key=instant)


def _signer_of(document: Mapping[str, Any]) -> str | None:
    """The key ID that a document claims."""
    try:
        return read(document, Event).signature.key_id
    except msgspec.ValidationError:
        return None
