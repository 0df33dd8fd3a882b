"""The whole key registry examined: evidence, rows against history, and what will need somebody soon (TRU-2)."""

from collections.abc import Iterable, Iterator
from datetime import timedelta
from typing import Any, Final

from msgspec import Struct
from psycopg import AsyncConnection

from contracts.documents.common import ActorType
from contracts.timestamps import format_timestamp, instant, parse_timestamp
from ops.init import first_principals
from ops.keys.read_registry import KeyLine, RegistryReport, Standing, read_registry
from ops.verify.finding import Report
from ops.verify.verify_keys import verify_keys

soon_days: Final = 14
"""Days before a key's end from which on it is mentioned."""


class RegistryAudit(Struct, frozen=True, kw_only=True):
    """Findings, and notes on what is right but will not stay so by itself."""

    report: Report
    notes: tuple[str, ...]


async def audit_registry(connection: AsyncConnection[Any], organization_id: str) -> RegistryAudit:
    """Examine the registry as the database has it. The connection is in autocommit mode. Raises psycopg errors."""
    report = Report()
    await verify_keys(connection, organization_id, report)
    registry = await read_registry(connection, organization_id)
    return RegistryAudit(report=report, notes=tuple(notes_on(registry)))


def notes_on(registry: RegistryReport) -> Iterator[str]:
    """What somebody should know of a registry without a fault."""
    if registry.read_at is None:
        return
    soon = format_timestamp(parse_timestamp(registry.read_at) + timedelta(days=soon_days))
    for key in registry.keys:
        if key.standing is Standing.ENDING and (end := first_end(key)) is not None and instant(end) < instant(soon):
            yield f"key {key.key_id} of {key.principal.id} ends at {end}"
    yield from _authority_notes(registry)
    yield from _unaccounted_notes(registry)


def first_end(key: KeyLine) -> str | None:
    """The earlier of a key's ends, None without any. Raises ValueError for an end that is no timestamp."""
    ends = [end for end in (key.valid_until, key.revoked_at) if end is not None]
    return min(ends, key=instant) if ends else None


def _authority_notes(registry: RegistryReport) -> Iterator[str]:
    """The authority must always have a key that goes on, or it accepts nothing one day."""
    authority = first_principals["authority"]
    valid = [key for key in registry.keys if key.principal == authority and key.standing.is_valid]
    if not valid:
        yield f"{authority.id} has no valid key: it accepts nothing. Move its key file away and run `weavehold init`"
    elif all(key.standing is Standing.ENDING for key in valid):
        last = max(filter(None, map(first_end, valid)), key=instant)
        yield f"{authority.id} signs until {last} and has no successor: weavehold keys rotate"


def _unaccounted_notes(registry: RegistryReport) -> Iterator[str]:
    """`weavehold init` binds a key beside the history; more than one of the same Principal is worth a look."""
    beside = [key for key in registry.keys if key.event_id is None and key.principal.type is not ActorType.AGENT]
    for principal in dict.fromkeys(key.principal for key in beside):
        several = [key.key_id for key in _of(principal, beside) if key.standing.is_valid]
        if len(several) > 1:
            count = f"{principal.id} has {len(several)} valid keys that no Event bound"
            yield f"{count}; revoke what is not yours: {', '.join(several)}"


def _of(principal: object, keys: Iterable[KeyLine]) -> Iterator[KeyLine]:
    return (key for key in keys if key.principal == principal)
