"""From decided drafts to signed Events: places in Group and shard, chain hash, salt, signature, canonical bytes."""

import hashlib
from collections.abc import Callable
from datetime import datetime
from typing import Any

from msgspec import UNSET, Struct

from contracts.bounds import event_bytes_max
from contracts.canonical import canonical_bytes, insert_signature, members_behind_signature
from contracts.chain import (
    ChainHash,
    SigningHash,
    chain_next,
    decision_extension,
    hash_text,
    history_extension,
    history_extension_version,
)
from contracts.cursor import EventMark
from contracts.documents.common import Actor
from contracts.event_contracts import event_contracts
from contracts.identifiers import GroupSequence, ShardId, ShardPosition
from contracts.signature import SigningKey
from contracts.upcasting import EventContracts
from services.authority.decision import EventDraft
from services.process.unique import random_bytes

_salt_bytes = 16


class EventTooLarge(Exception):
    """A decided Event would exceed the bound for one Event; the Command that asks for it is refused."""


class AppendedEvent(Struct, frozen=True, kw_only=True):
    """One Event as it goes into the log. Hashes are raw 32-byte digests; `raw` the signed canonical bytes."""

    shard_id: ShardId
    position: ShardPosition
    mark: EventMark
    event_id: str
    kind: str
    aggregate_revision: int
    accepted_at: datetime
    signing_hash: SigningHash
    raw: bytes


class Origin(Struct, frozen=True, kw_only=True):
    """What all Events of one decision share.

    `occurred_at` is `accepted_at` as Events spell it; `consulted` is what the decision took from outside its Group.
    """

    correlation_id: str
    accepted_at: datetime
    occurred_at: str
    command_hash: SigningHash | None
    consulted: dict[str, Any]


class EventAppender:
    """Signs Events one after another for one transaction. It holds no position itself: the caller passes them."""

    def __init__(
        self,
        incarnation: str,
        key: SigningKey,
        new_event_id: Callable[[], str],
        contracts: EventContracts = event_contracts,
    ) -> None:
        """`key` is the authority's service key; `new_event_id` gives `urn:uuid:` identifiers of version 7.

        Drafts carry payloads of the current version of `contracts`; a later one than the first is marked (PRJ-5).
        """
        self._incarnation = incarnation
        self._key = key
        self._accepted_by = _principal(key.principal)
        self._new_event_id = new_event_id
        self._contracts = contracts

    def move_to(self, incarnation: str) -> None:
        """Sign what follows in another incarnation."""
        self._incarnation = incarnation

    def append(
        self,
        draft: EventDraft,
        origin: Origin,
        group_id: str,
        place: tuple[ShardId, ShardPosition, GroupSequence],
        previous: ChainHash,
    ) -> AppendedEvent:
        """Sign one draft at its place. `group_id` is "" for an Organization-scoped Event.

        Raises EventTooLarge when the Event would exceed `event_bytes_max`.
        """
        shard_id, position, sequence = place
        document = self._document(draft, origin, previous)
        if group_id:
            document |= {"groupId": group_id, "sequence": sequence, "aggregateRevision": draft.aggregate_revision}
        unsigned = canonical_bytes(document)
        signing_hash = SigningHash(hashlib.sha256(unsigned).digest())
        signature = self._key.signature_over(unsigned, origin.occurred_at)
        raw = insert_signature(unsigned, signature, members_behind_signature(document))
        if len(raw) > event_bytes_max:
            raise EventTooLarge(f"{draft.kind} would take {len(raw)} bytes; an Event has at most {event_bytes_max}")
        return AppendedEvent(
            shard_id=shard_id,
            position=position,
            mark=EventMark(self._incarnation, group_id, sequence, previous, chain_next(previous, signing_hash)),
            event_id=document["eventId"],
            kind=draft.kind,
            aggregate_revision=draft.aggregate_revision,
            accepted_at=origin.accepted_at,
            signing_hash=signing_hash,
            raw=raw,
        )

    def _document(self, draft: EventDraft, origin: Origin, previous: ChainHash) -> dict[str, Any]:
        history = {
            "incarnation": self._incarnation,
            "previousHash": previous.hex(),
            "salt": random_bytes(_salt_bytes).hex(),
        }
        document: dict[str, Any] = {
            "protocolVersion": "0.1",
            "eventId": self._new_event_id(),
            "kind": draft.kind,
            "actor": _principal(draft.actor),
            "cause": {"type": draft.cause.type.value, "id": draft.cause.id},
            "correlationId": origin.correlation_id,
            "occurredAt": origin.occurred_at,
            "payload": draft.payload,
            "acceptedBy": self._accepted_by,
            "extensions": {history_extension: _extension(history), **self._contracts.marks(draft.kind)},
        }
        if origin.consulted:
            document["extensions"][decision_extension] = _extension(origin.consulted)
        if origin.command_hash is not None:
            document["commandHash"] = hash_text(origin.command_hash)
        if draft.conversation_id is not UNSET:
            document["conversationId"] = draft.conversation_id
        if draft.work_item_id is not UNSET:
            document["workItemId"] = draft.work_item_id
        return document


def _principal(actor: Actor) -> dict[str, str]:
    return {"type": actor.type.value, "id": actor.id}


def _extension(data: dict[str, Any]) -> dict[str, Any]:
    return {"version": history_extension_version, "critical": False, "data": data}
