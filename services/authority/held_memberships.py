"""The Memberships that one Principal holds, found over all Groups by the index on their entities."""

from typing import Any

from psycopg import AsyncConnection

from contracts.documents.membership import Membership, MembershipState
from contracts.entities import EntityKind, MembershipRecord, decode_entity
from contracts.payloads.requests import HeldMembership
from services.process.statements import load

sql = load(__package__)


async def read_held_memberships(
    connection: AsyncConnection[Any], organization_id: str, principal_id: str, after_group_id: str, limit: int
) -> tuple[list[HeldMembership], str | None]:
    """Memberships that have not ended, among the next `limit` in the order of Group IDs after `after_group_id`.

    The second value is the `after_group_id` of the next page, None at the end. Ended Memberships count against
    `limit`, so a page may hold fewer, even none, with more to come.
    """
    asked = {
        "organization_id": organization_id,
        "principal_id": principal_id,
        "after_group_id": after_group_id,
        "limit": limit,
    }
    rows = await (await connection.execute(sql.read_memberships_page, asked, binary=True)).fetchall()
    held = [_held(shard_id, membership_of(body)) for _, shard_id, body in rows]
    following = rows[-1][0] if len(rows) == limit else None
    return [membership for membership in held if membership.state != MembershipState.ENDED.value], following


def membership_of(body: bytes) -> Membership:
    """The Membership in the body of its entity row."""
    record = decode_entity(EntityKind.MEMBERSHIP, body)
    assert isinstance(record, MembershipRecord)  # noqa: S101 - the kind decides the type
    return record.membership


def _held(shard_id: int, membership: Membership) -> HeldMembership:
    return HeldMembership(
        group_id=membership.group_id,
        mission_id=membership.mission_id,
        shard_id=shard_id,
        role=membership.role.value,
        state=membership.state.value,
        membership_epoch=membership.membership_epoch,
        visibility_start_sequence=membership.visibility_start_sequence,
    )
