"""What the tests of the key registry share: Commands that bind and end keys, and how a key stands afterwards."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta
from typing import Any

from contracts.command import key_register, key_retire, key_revoke
from contracts.signature import SigningKey, base64url_text
from contracts.timestamps import format_timestamp
from ops.bench.workload import signed_command
from ops.init import Organization
from tests.authority_rig import InProcessAuthority, authority_on, post, rows, with_groups


@asynccontextmanager
async def authority_with_groups(database_url: str, organization: Organization) -> AsyncIterator[InProcessAuthority]:
    """An authority with two Groups."""
    async with authority_on(database_url, organization) as one:
        await with_groups(one, 0, 1)
        yield one


def binding(key: SigningKey, **members: Any) -> dict[str, Any]:
    """The payload that binds a key."""
    return {
        "keyId": key.key_id,
        "principal": {"type": key.principal.type.value, "id": key.principal.id},
        "algorithm": "Ed25519",
        "publicKey": base64url_text(key.public_key),
        **members,
    }


def to_registry(
    organization: Organization, kind: str, payload: dict[str, Any], signer: SigningKey | None = None, **members: Any
) -> bytes:
    """A Command of the registry, signed by the operator unless told otherwise."""
    key = signer or organization.keys.operator
    return signed_command(key, kind, organization.organization_id, payload, **members)


def registration(organization: Organization, key: SigningKey, **members: Any) -> bytes:
    """Bind a key."""
    return to_registry(organization, key_register, binding(key, **members))


def revocation(organization: Organization, key: SigningKey, signer: SigningKey | None = None) -> bytes:
    """Revoke a key."""
    return to_registry(organization, key_revoke, {"keyId": key.key_id, "reason": "stolen"}, signer)


def retirement(organization: Organization, key: SigningKey, seconds: float) -> bytes:
    """Plan a key's end."""
    until = format_timestamp(datetime.now(UTC) + timedelta(seconds=seconds))
    return to_registry(organization, key_retire, {"keyId": key.key_id, "validUntil": until})


def second_key(organization: Organization) -> SigningKey:
    """Another key of the owner."""
    return SigningKey.generate(organization.keys.mission_owner.principal)


def post_with(key: SigningKey, number: int = 0) -> bytes:
    """`message.post` by the owner, signed with this key."""
    return post(_Signer(key), number)  # type: ignore[arg-type]


class _Signer:
    """As much of an Organization as `post` reads."""

    def __init__(self, key: SigningKey) -> None:
        self.keys = self
        self.mission_owner = key


async def standing(url: str, key: SigningKey) -> tuple[str | None, str | None]:
    """`valid_until` and `revoked_at` of a key."""
    [(until, revoked)] = await rows(
        url, "SELECT valid_until, revoked_at FROM registered_key WHERE key_id = %s", key.key_id
    )
    return until, revoked
