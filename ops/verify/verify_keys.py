"""The key registry: valid as a whole, and row for row what Agent Cards and the registry's Events say (TRU-2).

Rows and Events are read as of one moment, so that keys may be changed meanwhile. A binding without an Event is one of
`weavehold init`, or an Agent's from before bindings named their Event: then its card must still be in the log. A
statement without an Event is what such a card said when it bound the key, and nothing else; what an Event states has
its row.
"""

from collections.abc import AsyncIterator
from typing import Any, Final

import msgspec
from msgspec import UNSET, Struct, UnsetType, convert, field
from psycopg import AsyncConnection, DataError

from contracts.documents.agent_card import AgentCard
from contracts.documents.common import Actor, ActorType
from contracts.event import Event, agent_card_registered, key_registered, key_retired, key_revoked
from contracts.event_contracts import current_payload
from contracts.identifiers import organization_shard
from contracts.payloads.keys import KeyStanding
from contracts.signature import base64url_bytes
from contracts.timestamps import format_timestamp
from contracts.verification import RegistryFault
from ops.init import first_principals
from ops.verify.finding import Finding, Report
from ops.verify.verify_log import page_rows_max, sql
from services.authority.audit_registry import evidence_fault
from services.authority.read_evidence import read_evidence

binding_kinds: Final = (agent_card_registered, key_registered, key_retired, key_revoked)
remedy: Final = "restore the registry's rows from a backup; a key that nobody can account for must not be used"


class _Binding(Struct, frozen=True):
    """A key bound to a Principal, the Event that bound it, and when the row was written (the log does not tell)."""

    principal: Actor
    public_key: bytes
    valid_from: str
    event_id: str | None
    registered_at: str | None = None


class _Statement(Struct, frozen=True):
    """Both ends of a key as stated once, and the Event that states them."""

    recorded_at: str
    valid_until: str | None
    revoked_at: str | None
    event_id: str | None


class _Registry(Struct):
    """A registry, as the rows have it or as the log tells it: by key ID, and by key ID and place in its history."""

    bindings: dict[str, _Binding] = field(default_factory=dict)
    statements: dict[tuple[str, int], _Statement] = field(default_factory=dict)


async def verify_keys(connection: AsyncConnection[Any], organization_id: str, report: Report) -> None:
    """Judge the registry's evidence and compare it with the log; findings go under the check `keys`.

    The connection is outside a transaction. Raises psycopg errors.
    """
    try:
        async with connection.transaction():
            await connection.execute(sql.begin_key_snapshot)
            evidence = await read_evidence(connection, organization_id)
            stored = await _read_rows(connection, organization_id)
            told = await _read_log(connection, organization_id, report)
    except (RegistryFault, DataError) as unreadable:
        words = f"the key registry cannot be read: {unreadable}; nothing is accepted until that is repaired"
        _find(report, f"{words}: {remedy}")
        return
    report.count("keys", len(stored.bindings))
    if (fault := evidence_fault(evidence)) is not None:
        _find(report, f"{fault}; nothing is accepted until that is repaired: {remedy}")
    for key_id in sorted(stored.bindings.keys() | told.bindings.keys()):
        if (problem := _binding_problem(key_id, stored.bindings.get(key_id), told.bindings.get(key_id))) is not None:
            _find(report, f"{problem}: {remedy}")
    for place in sorted(stored.statements.keys() | told.statements.keys()):
        if (
            problem := _statement_problem(place, stored.statements.get(place), _told_of(place, stored, told))
        ) is not None:
            _find(report, f"{problem}: {remedy}")


def _binding_problem(key_id: str, row: _Binding | None, told: _Binding | None) -> str | None:
    if row is None:
        assert told is not None  # noqa: S101 - one of the two named the key
        return f"key {key_id} of {told.principal.id} was bound by Event {told.event_id} and is not in the registry"
    if told is None:
        if row.event_id is not None:
            return f"key {key_id} of {row.principal.id} names Event {row.event_id}, which does not bind it"
        if row.principal not in first_principals.values():
            return f"key {key_id} of {row.principal.id} is in the registry, but neither Event nor Agent Card binds it"
        return None
    if row.event_id is None and row.principal.type is ActorType.AGENT:
        told = msgspec.structs.replace(told, event_id=None)
    for name in ("principal", "public_key", "valid_from", "event_id"):
        here, there = getattr(row, name), getattr(told, name)
        if here != there:
            return f"key {key_id}: its {_word(name)} is {_shown(here)} in the registry, {_shown(there)} in its history"
    return None


def _told_of(place: tuple[str, int], stored: _Registry, told: _Registry) -> _Statement | None:
    """What the row of a statement must say.

    Ends that stood in an Agent's binding before statements named their Event are what the card that bound the key said
    of them; their row bears the time of the binding's row.
    """
    statement, row = told.statements.get(place), stored.statements.get(place)
    binding, bound = stored.bindings.get(place[0]), told.bindings.get(place[0])
    if statement is None or binding is None or bound is None or (row is not None and row.event_id is not None):
        return statement
    early = binding.event_id is None and bound.principal.type is ActorType.AGENT
    if not early or statement.event_id != bound.event_id or binding.registered_at is None:
        return statement
    return msgspec.structs.replace(statement, event_id=None, recorded_at=binding.registered_at)


def _statement_problem(place: tuple[str, int], row: _Statement | None, told: _Statement | None) -> str | None:
    name = f"statement {place[1]} of key {place[0]}"
    if row is None:
        assert told is not None  # noqa: S101 - one of the two named the statement
        by = "the Agent Card that bound it" if told.event_id is None else f"Event {told.event_id}"
        return f"{name}, made by {by}, is not in the registry"
    if told is None:
        return f"{name} is in the registry, but no Event makes it"
    for member in ("event_id", "valid_until", "revoked_at", "recorded_at"):
        here, there = getattr(row, member), getattr(told, member)
        if here != there:
            return f"{name}: its {_word(member)} is {_shown(here)} in the registry, {_shown(there)} in its history"
    return None


async def _read_rows(connection: AsyncConnection[Any], organization_id: str) -> _Registry:
    asked = {"organization_id": organization_id}
    found = _Registry()
    for key_id, kind, principal_id, public_key, valid_from, event_id, registered_at in await (
        await connection.execute(sql.read_bindings, asked, binary=True)
    ).fetchall():
        principal = Actor(type=ActorType(kind), id=principal_id)
        written = format_timestamp(registered_at)
        found.bindings[key_id] = _Binding(principal, public_key, valid_from, event_id, written)
    for key_id, sequence, recorded_at, valid_until, revoked_at, event_id in await (
        await connection.execute(sql.read_statements, asked, binary=True)
    ).fetchall():
        statement = _Statement(format_timestamp(recorded_at), valid_until, revoked_at, event_id)
        found.statements[(key_id, sequence)] = statement
    return found


async def _read_log(connection: AsyncConnection[Any], organization_id: str, report: Report) -> _Registry:
    """The registry as the log tells it; Events that cannot be read are findings."""
    told = _Registry()
    async for position, raw in _events(connection, organization_id):
        try:
            event = msgspec.json.decode(raw, type=Event)
            payload = current_payload(event)
            if event.kind == agent_card_registered:
                _follow_card(event, convert(payload["card"], AgentCard), told, report)
            else:
                _follow(event, convert(payload["key"], KeyStanding), told)
        except (ValueError, KeyError, msgspec.MsgspecError) as fault:
            _find(report, f"an Event of the registry cannot be read: {fault}", position)
    return told


async def _events(connection: AsyncConnection[Any], organization_id: str) -> AsyncIterator[tuple[int, bytes]]:
    asked = {
        "organization_id": organization_id,
        "shard_id": organization_shard,
        "kinds": list(binding_kinds),
        "rows_max": page_rows_max,
    }
    after = 0
    while True:
        cursor = await connection.execute(sql.read_events_of_kinds, asked | {"after": after}, binary=True)
        page = await cursor.fetchall()
        for row in page:
            yield row
        if len(page) < page_rows_max:
            return
        after = page[-1][0]


def _follow(event: Event, key: KeyStanding, told: _Registry) -> None:
    """Take over what a key Event states. A key's revision is one more than the statements made of its ends."""
    revision = event.aggregate_revision or 0
    if event.kind == key_registered:
        public_key = base64url_bytes(key.public_key) or b""
        told.bindings.setdefault(key.key_id, _Binding(key.principal, public_key, key.valid_from, event.event_id))
    if (ends := _ends(key.valid_until, key.revoked_at)) != (None, None):
        told.statements[(key.key_id, revision - 1)] = _Statement(event.occurred_at, *ends, event.event_id)


def _follow_card(event: Event, card: AgentCard, told: _Registry, report: Report) -> None:
    """The first card that names a key binds it; later ones may only name it again."""
    agent = Actor(type=ActorType.AGENT, id=card.agent_id)
    for key in card.public_keys:
        bound = _Binding(agent, base64url_bytes(key.public_key) or b"", key.valid_from, event.event_id)
        known = told.bindings.setdefault(key.key_id, bound)
        if known is bound:
            if (ends := _ends(key.valid_until, key.revoked_at)) != (None, None):
                told.statements[(key.key_id, 1)] = _Statement(event.occurred_at, *ends, event.event_id)
        elif (known.principal, known.public_key) != (bound.principal, bound.public_key):
            _find(report, f"card {card.card_version} of {card.agent_id} names {key.key_id} otherwise than it is bound")


def _ends(valid_until: str | UnsetType, revoked_at: str | UnsetType) -> tuple[str | None, str | None]:
    return None if valid_until is UNSET else valid_until, None if revoked_at is UNSET else revoked_at


def _word(member: str) -> str:
    return {"event_id": "Event", "public_key": "public key"}.get(member, member.replace("_", " "))


def _shown(value: object) -> str:
    if isinstance(value, Actor):
        return value.id
    return value.hex() if isinstance(value, bytes) else str(value)


def _find(report: Report, message: str, position: int | None = None) -> None:
    report.add(Finding(check="keys", message=message, shard_id=organization_shard, position=position))
