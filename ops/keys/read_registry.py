"""The key registry as people look at it: every key with its Principal, its ends, and how it stands now."""

from enum import Enum
from typing import Any

from msgspec import Struct
from psycopg import AsyncConnection

from contracts.documents.common import Actor, ActorType
from contracts.signature import base64url_text
from contracts.timestamps import Instant, format_timestamp, instant
from services.process.statements import load

sql = load(__package__)


class Standing(Enum):
    """How a key stands at one moment."""

    VALID = "valid"
    NOT_YET = "not yet valid"
    ENDING = "ending"
    """Valid, with an end ahead."""
    RETIRED = "retired"
    REVOKED = "revoked"
    UNREADABLE = "unreadable"
    """Some boundary is no timestamp: the registry is damaged."""

    @property
    def is_valid(self) -> bool:
        """Whether the key may sign now."""
        return self in (Standing.VALID, Standing.ENDING)


class StatementLine(Struct, frozen=True, kw_only=True, rename="camel"):
    """One statement of a key's ends, both as they stood from then on; `event_id` is the Event that states it."""

    sequence: int
    recorded_at: str
    valid_until: str | None
    revoked_at: str | None
    event_id: str | None


class KeyLine(Struct, frozen=True, kw_only=True, rename="camel"):
    """One key; `public_key` is base64url of 32 bytes. Without `event_id` it was bound by `weavehold init`."""

    key_id: str
    principal: Actor
    standing: Standing
    public_key: str
    valid_from: str
    valid_until: str | None
    revoked_at: str | None
    registered_at: str
    event_id: str | None
    statements: tuple[StatementLine, ...]


class RegistryReport(Struct, frozen=True, kw_only=True, rename="camel"):
    """Keys of an Organization at one moment of the database's clock, by Principal, each one's oldest first."""

    organization_id: str
    read_at: str | None
    keys: tuple[KeyLine, ...]


async def read_registry(
    connection: AsyncConnection[Any], organization_id: str, name: str | None = None
) -> RegistryReport:
    """All keys, or those that bear or belong to `name`; `read_at` is None without any. Raises psycopg errors."""
    cursor = await connection.execute(
        sql.read_registry, {"organization_id": organization_id, "name": name}, binary=True
    )
    bindings: dict[str, tuple[Any, ...]] = {}
    statements: dict[str, list[StatementLine]] = {}
    for row in await cursor.fetchall():
        bindings[row[1]] = row[:8]
        sequence, recorded_at, valid_until, revoked_at, event_id = row[8:]
        if sequence is not None:
            statements.setdefault(row[1], []).append(
                StatementLine(
                    sequence=sequence,
                    recorded_at=format_timestamp(recorded_at),
                    valid_until=valid_until,
                    revoked_at=revoked_at,
                    event_id=event_id,
                )
            )
    keys = tuple(_key(row, tuple(statements.get(key_id, ()))) for key_id, row in bindings.items())
    read_at = next((format_timestamp(row[0]) for row in bindings.values()), None)
    return RegistryReport(organization_id=organization_id, read_at=read_at, keys=keys)


def _key(row: tuple[Any, ...], statements: tuple[StatementLine, ...]) -> KeyLine:
    now, key_id, principal_type, principal_id, public_key, valid_from, registered_at, event_id = row
    valid_until = statements[-1].valid_until if statements else None
    revoked_at = statements[-1].revoked_at if statements else None
    return KeyLine(
        key_id=key_id,
        principal=Actor(type=ActorType(principal_type), id=principal_id),
        standing=standing_at(instant(format_timestamp(now)), valid_from, valid_until, revoked_at),
        public_key=base64url_text(public_key),
        valid_from=valid_from,
        valid_until=valid_until,
        revoked_at=revoked_at,
        registered_at=format_timestamp(registered_at),
        event_id=event_id,
        statements=statements,
    )


def standing_at(now: Instant, valid_from: str, valid_until: str | None, revoked_at: str | None) -> Standing:
    """How a key with these boundaries stands at a moment; its interval is half-open."""
    try:
        begin, *ends = (None if text is None else instant(text) for text in (valid_from, valid_until, revoked_at))
    except ValueError:
        return Standing.UNREADABLE
    until, revoked = ends
    if revoked is not None and revoked <= now:
        return Standing.REVOKED
    if until is not None and until <= now:
        return Standing.RETIRED
    if begin is not None and now < begin:
        return Standing.NOT_YET
    return Standing.VALID if until is None and revoked is None else Standing.ENDING
