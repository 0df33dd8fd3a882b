"""Who may read a Group: a Principal whose Membership has not ended, or a service of the Organization (RULE-30)."""

from collections.abc import Sequence
from typing import Any

from msgspec import Struct
from psycopg import AsyncConnection

from contracts.documents.common import Actor, ActorType
from contracts.documents.membership import MembershipState
from contracts.identifiers import GroupSequence, ShardId
from contracts.payloads.requests import GroupHead
from contracts.rejection import Code, Rejection, reject
from services.authority.held_memberships import membership_of
from services.process.statements import load

sql = load(__package__)


class VisibleGroup(Struct, frozen=True, kw_only=True):
    """A Group that the actor may read: Events above `hidden_until` only (0: all of them)."""

    shard_id: ShardId
    head: GroupHead
    hidden_until: GroupSequence


async def find_visible_groups(
    connection: AsyncConnection[Any], organization_id: str, actor: Actor, group_ids: Sequence[str]
) -> dict[str, VisibleGroup]:
    """Those of `group_ids` that exist in the Organization and that the actor may see, by Group ID."""
    asked = {"organization_id": organization_id, "principal_id": actor.id, "group_ids": list(group_ids)}
    visible: dict[str, VisibleGroup] = {}
    cursor = await connection.execute(sql.read_group_access, asked, binary=True)
    for group_id, shard_id, membership, incarnation, sequence, chain_hash in await cursor.fetchall():
        hidden_until = _hidden_until(actor, membership)
        if hidden_until is None:
            continue
        visible[group_id] = VisibleGroup(
            shard_id=ShardId(shard_id),
            head=GroupHead(incarnation=incarnation, group_id=group_id, sequence=sequence, chain_hash=chain_hash.hex()),
            hidden_until=hidden_until,
        )
    return visible


def _hidden_until(actor: Actor, membership: bytes | None) -> GroupSequence | None:
    """The sequence up to which Events are hidden from the actor; None when the whole Group is."""
    if actor.type is ActorType.SERVICE:
        return GroupSequence(0)
    if membership is None:
        return None
    held = membership_of(membership)
    if held.state is MembershipState.ENDED or held.member != actor:
        return None
    return GroupSequence(held.visibility_start_sequence)


def group_not_found(group_id: str) -> Rejection:
    """One answer for a Group that does not exist, is another Organization's, or is invisible to the actor."""
    return reject(Code.GROUP_NOT_FOUND, f"no Group {group_id} that this Principal may see", group_id=group_id)
