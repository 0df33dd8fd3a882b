"""Revoke a key: it ends with the acceptance of the revocation, never before, and for good (RULE-06).

What it signed was accepted while it was valid and stays verifiable; how much that is since a suspicion is counted.
"""

from typing import Any

from msgspec import UNSET, Struct
from psycopg import AsyncConnection

from contracts.command import key_revoke
from contracts.payloads.keys import KeyRevoke
from contracts.timestamps import parse_timestamp
from ops.command_fault import CommandFault
from ops.keys.state_to_registry import Registrar, Stated
from services.process.statements import load

sql = load(__package__)


class Revoked(Struct, frozen=True, kw_only=True, rename="camel"):
    """A revoked key. `already`: it was revoked before; then there is no Event of now."""

    key_id: str
    revoked_at: str
    already: bool
    event_id: str | None


async def revoke_key(registrar: Registrar, revocation: KeyRevoke) -> Revoked:
    """Revoke the key. Raises CommandFault when it is refused or the key has ended otherwise."""
    stated = await registrar.state(key_revoke, revocation)
    if isinstance(stated, Stated):
        receipt = stated.receipt
        return Revoked(
            key_id=revocation.key_id,
            revoked_at=receipt.accepted_at,
            already=False,
            event_id=receipt.events[0].event_id,
        )
    key = stated.key
    if key.revoked_at is UNSET:
        raise CommandFault(f"key {key.key_id} ended at {key.valid_until} already; there is nothing to revoke")
    return Revoked(key_id=key.key_id, revoked_at=key.revoked_at, already=True, event_id=None)


async def count_vouched(
    connection: AsyncConnection[Any], organization_id: str, key_id: str, since: str
) -> dict[str, int]:
    """How many documents of each kind were admitted on this key's signature since a moment. Raises psycopg errors."""
    asked = {"organization_id": organization_id, "key_id": key_id, "since": parse_timestamp(since)}
    return dict(await (await connection.execute(sql.count_vouched, asked)).fetchall())
