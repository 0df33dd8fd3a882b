"""Signed documents for tests: deterministic keys, Commands, Events, whole Group histories.

Everything here is a function of its arguments: the same call gives the same bytes, so a failing test can be run
again. Histories chain exactly as the authority chains them (RULE-15).
"""

import hashlib
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any, Final

from msgspec import Struct, convert
from psycopg import AsyncConnection

from contracts.canonical import parse_strict, signing_bytes
from contracts.chain import (
    ChainHash,
    SigningHash,
    chain_next,
    chain_start,
    history_extension,
    history_extension_version,
)
from contracts.command import Command, creation_kinds, organization_scoped_kinds
from contracts.cursor import EventMark
from contracts.documents.common import Actor, ActorType
from contracts.event import Event, organization_scoped_event_kinds
from contracts.event_contracts import event_contracts
from contracts.identifiers import GroupSequence
from contracts.signature import SigningKey, sign_document
from contracts.timestamps import format_timestamp, parse_timestamp

test_organization: Final = "urn:weavehold:organization:test"
test_group: Final = "urn:weavehold:group:test"
test_incarnation: Final = "0123456789abcdef0123456789abcdef"
start_time: Final = "2026-07-15T08:00:00.000000Z"
document_bytes_max: Final = 16 * 1024 * 1024

Document = dict[str, Any]


class BuiltCommand(Struct, frozen=True, kw_only=True):
    """One signed Command: canonical bytes, the parsed document, the Struct, and its signing hash (32 raw bytes)."""

    raw: bytes
    document: Document
    command: Command
    signing_hash: SigningHash


class BuiltEvent(Struct, frozen=True, kw_only=True):
    """One signed Event: canonical bytes, the Struct, its place, and its signing hash (32 raw bytes)."""

    organization_id: str
    raw: bytes
    event: Event
    mark: EventMark
    signing_hash: SigningHash


def principal(name: str, kind: ActorType | str = ActorType.AGENT) -> Actor:
    """`urn:weavehold:<type>:<name>`."""
    actor_type = ActorType(kind)
    return Actor(type=actor_type, id=f"urn:weavehold:{actor_type.value}:{name}")


def signing_key(name: str, kind: ActorType | str = ActorType.AGENT) -> SigningKey:
    """The key of `principal(name, kind)`; the same name and kind always give the same key."""
    owner = principal(name, kind)
    seed = hashlib.sha256(f"weavehold test key of {owner.id}".encode()).digest()
    return SigningKey(f"urn:weavehold:key:{owner.type.value}-{name}", owner, seed)


def identifier(*parts: str | int) -> str:
    """A `urn:uuid:` identifier that these parts always give."""
    digest = hashlib.sha256("\x1f".join(map(str, parts)).encode()).hexdigest()
    return f"urn:uuid:{digest[:8]}-{digest[8:12]}-7{digest[13:16]}-8{digest[17:20]}-{digest[20:32]}"


def later(timestamp: str, seconds: float) -> str:
    """A timestamp moved by `seconds`, in our own spelling."""
    return format_timestamp(parse_timestamp(timestamp) + timedelta(seconds=seconds))


def build_command(
    kind: str,
    payload: Mapping[str, Any],
    key: SigningKey,
    *,
    group_id: str = test_group,
    action_id: str | None = None,
    issued_at: str = start_time,
    session_epoch: int = 1,
    membership_epoch: int = 1,
    **members: Any,
) -> BuiltCommand:
    """A signed Command of the key's Principal with the epochs that its kind of actor carries (ACC-6).

    `members` are further envelope members by their camelCase names (`coordinatorEpoch=2`, `workItemId=…`); a value
    of None leaves a member out. Without `action_id` the same kind, actor, payload and time give the same Action ID.
    """
    document: Document = {
        "protocolVersion": "0.1",
        "actionId": action_id or identifier("action", kind, key.principal.id, group_id, repr(payload), issued_at),
        "actor": _actor(key.principal),
        "kind": kind,
        "correlationId": identifier("correlation", kind, key.principal.id),
        "issuedAt": issued_at,
        "payload": dict(payload),
    }
    if kind not in organization_scoped_kinds:
        document["groupId"] = group_id
        if key.principal.type is ActorType.AGENT:
            document["sessionEpoch"] = session_epoch
        if key.principal.type is not ActorType.SERVICE and kind not in creation_kinds:
            document["membershipEpoch"] = membership_epoch
    document |= members
    document = {name: value for name, value in document.items() if value is not None}
    raw = sign_document(document, key, issued_at)
    parsed = parse_strict(raw, document_bytes_max)
    return BuiltCommand(raw=raw, document=parsed, command=convert(parsed, Command), signing_hash=_signing_hash(parsed))


def build_event(
    kind: str,
    payload: Mapping[str, Any],
    key: SigningKey,
    *,
    organization_id: str = test_organization,
    group_id: str = test_group,
    incarnation: str = test_incarnation,
    previous: EventMark | None = None,
    occurred_at: str | None = None,
    actor: Actor | None = None,
    aggregate_revision: int | None = None,
    extensions: Mapping[str, Any] | None = None,
    **members: Any,
) -> BuiltEvent:
    """The Event after `previous` (the first of its Group without one), accepted and signed by `key`.

    `extensions` stand beside that of the history; without them the Event is of the current contract version of its
    kind. `members` are further envelope members by their camelCase names. Organization-scoped kinds leave Group,
    sequence and revision out of the document; pass `group_id=""` for them.
    """
    sequence = (previous.sequence if previous else 0) + 1
    previous_hash = previous.chain_hash if previous else chain_start(organization_id, group_id)
    occurred = occurred_at or later(start_time, sequence)
    event_id = identifier("event", organization_id, group_id, incarnation, sequence, previous_hash.hex(), kind)
    document: Document = {
        "protocolVersion": "0.1",
        "eventId": event_id,
        "kind": kind,
        "actor": _actor(actor or key.principal),
        "cause": {"type": "command", "id": identifier("action", event_id)},
        "correlationId": identifier("correlation", event_id),
        "occurredAt": occurred,
        "payload": dict(payload),
        "acceptedBy": _actor(key.principal),
        "extensions": {
            history_extension: _history(incarnation, previous_hash, event_id),
            **(event_contracts.marks(kind) if extensions is None else extensions),
        },
    }
    if kind not in organization_scoped_event_kinds:
        document |= {
            "groupId": group_id,
            "sequence": sequence,
            "aggregateRevision": sequence if aggregate_revision is None else aggregate_revision,
        }
    document |= members
    document = {name: value for name, value in document.items() if value is not None}
    raw = sign_document(document, key, occurred)
    signing_hash = _signing_hash(document)
    return BuiltEvent(
        organization_id=organization_id,
        raw=raw,
        event=convert(parse_strict(raw, document_bytes_max), Event),
        mark=EventMark(
            incarnation, group_id, GroupSequence(sequence), previous_hash, chain_next(previous_hash, signing_hash)
        ),
        signing_hash=signing_hash,
    )


def message_payload(group_id: str, sequence: int, *, text: str | None = None) -> Document:
    """The payload of a `message.posted` Event: one normative Message."""
    return {
        "message": {
            "messageId": identifier("message", group_id, sequence),
            "missionId": identifier("mission", group_id),
            "groupId": group_id,
            "conversationId": identifier("conversation", group_id),
            "author": _actor(principal("worker")),
            "kind": "message",
            "authority": False,
            "content": [{"type": "text", "text": text or f"Message {sequence} of the Group."}],
            "committedAt": later(start_time, sequence),
        }
    }


def build_history(
    organization_id: str,
    group_id: str,
    count: int,
    key: SigningKey,
    *,
    incarnation: str = test_incarnation,
    kind: str = "message.posted",
    payload: Callable[[int], Mapping[str, Any]] | None = None,
    start: EventMark | None = None,
) -> list[BuiltEvent]:
    """`count` chained Events of one Group after `start` (from sequence 1 without it), signed by `key`.

    `payload` gets the sequence; without it each Event carries `message_payload`.
    """
    history: list[BuiltEvent] = []
    mark = start
    for sequence in range((start.sequence if start else 0) + 1, (start.sequence if start else 0) + count + 1):
        content = payload(sequence) if payload else message_payload(group_id, sequence)
        built = build_event(
            kind,
            content,
            key,
            organization_id=organization_id,
            group_id=group_id,
            incarnation=incarnation,
            previous=mark,
        )
        history.append(built)
        mark = built.mark
    return history


async def plant_organization(
    conn: AsyncConnection[Any], organization_id: str = test_organization, *, shard_count: int = 4
) -> None:
    """The rows that a log needs before its first Event: the Organization and its shards 0 to `shard_count`."""
    await conn.execute(
        "INSERT INTO organization (organization_id, name, shard_count) VALUES (%s, %s, %s) ON CONFLICT DO NOTHING",
        (organization_id, organization_id.rpartition(":")[2], shard_count),
    )
    await conn.execute(
        "INSERT INTO shard (organization_id, shard_id) SELECT %s, generate_series(0, %s) ON CONFLICT DO NOTHING",
        (organization_id, shard_count),
    )


async def insert_history(
    conn: AsyncConnection[Any], shard_id: int, built: Sequence[BuiltEvent], first_position: int = 1
) -> None:
    """Write Events into the log at consecutive positions of one shard; the caller commits. The shard must exist."""
    async with conn.cursor() as cursor:
        await cursor.executemany(_insert_event, list(_log_rows(shard_id, built, first_position)))


_insert_event: Final = """
    INSERT INTO event_log (organization_id, shard_id, position, incarnation, group_id, sequence, event_id, kind,
                           aggregate_revision, accepted_at, signing_hash, chain_hash, event)
    VALUES (%s, %s, %s, %s, %s, %s, %s, %s, %s, %s, %s, %s, %s)
"""


async def end_key(
    connection: AsyncConnection[Any], key_id: str, *, valid_until: str | None = None, revoked_at: str | None = None
) -> None:
    """State an end of a registered key, as the registry's Commands would, in whatever Organization has it."""
    await connection.execute(
        "INSERT INTO key_validity (organization_id, key_id, sequence, recorded_at, valid_until, revoked_at) "
        "SELECT organization_id, key_id, statements + 1, weavehold_clock(), coalesce(%s, valid_until), "
        "coalesce(%s, revoked_at) FROM registered_key WHERE key_id = %s",
        (valid_until, revoked_at, key_id),
    )


async def revoke_key(connection: AsyncConnection[Any], key_id: str, at: str) -> None:
    """A key that ends at `at` by revocation."""
    await end_key(connection, key_id, revoked_at=at)


def _log_rows(shard_id: int, built: Iterable[BuiltEvent], first_position: int) -> Iterable[tuple[Any, ...]]:
    for position, item in enumerate(built, first_position):
        mark, event = item.mark, item.event
        accepted_at: datetime = parse_timestamp(event.occurred_at)
        revision = event.aggregate_revision if isinstance(event.aggregate_revision, int) else mark.sequence
        yield (
            *(item.organization_id, shard_id, position, mark.incarnation, mark.group_id, mark.sequence),
            *(event.event_id, event.kind, revision, accepted_at, item.signing_hash, mark.chain_hash, item.raw),
        )


def _actor(actor: Actor) -> Document:
    return {"type": actor.type.value, "id": actor.id}


def _history(incarnation: str, previous_hash: ChainHash, event_id: str) -> Document:
    salt = hashlib.sha256(f"salt of {event_id}".encode()).hexdigest()[:32]
    data = {"incarnation": incarnation, "previousHash": previous_hash.hex(), "salt": salt}
    return {"version": history_extension_version, "critical": False, "data": data}


def _signing_hash(document: Mapping[str, Any]) -> SigningHash:
    return SigningHash(hashlib.sha256(signing_bytes(document)).digest())
