"""Replay: pages of history, read by anyone whose Membership shows it, or by a service (RULE-30).

Authoritative here: the log. Events leave as they are stored, byte for byte; nothing is parsed or written again. Access,
page and head come from one snapshot, so a page never holds more than its head says and shows nothing that the actor's
Membership of that moment hides. Reading leaves nothing behind, whatever crashes.
"""

from typing import Any

from msgspec import Raw
from psycopg import AsyncConnection

from contracts.documents.common import Actor, ActorType
from contracts.payloads.requests import GroupPage, GroupReplay, ReplayedEvent, ShardHead, ShardPage, ShardReplay
from contracts.rejection import Code, Rejection, reject
from services.authority.visible_groups import VisibleGroup, find_visible_groups, group_not_found
from services.process.statements import load

sql = load(__package__)


async def serve_group_replay(
    connection: AsyncConnection[Any], organization_id: str, actor: Actor, request: GroupReplay
) -> GroupPage | Rejection:
    """A page of one Group's Events. GROUP_NOT_FOUND when the actor may not see it.

    A member who joined later gets AUTH_FORBIDDEN for an `after` below its visibility start (RULE-23).
    """
    async with connection.transaction():
        await connection.execute(sql.begin_read_snapshot)
        visible = await find_visible_groups(connection, organization_id, actor, [request.group_id])
        group = visible.get(request.group_id)
        if group is None:
            return group_not_found(request.group_id)
        if request.after < group.hidden_until:
            return _hidden(request, group)
        asked = {
            "organization_id": organization_id,
            "group_id": request.group_id,
            "after": request.after,
            "limit_events": request.limit_events,
            "limit_bytes": request.limit_bytes,
        }
        rows = await (await connection.execute(sql.replay_group_page, asked, binary=True)).fetchall()
    events = tuple(ReplayedEvent(event=Raw(event), chain_hash=chain_hash.hex()) for _, chain_hash, event in rows)
    last = rows[-1][0] if rows else request.after
    return GroupPage(events=events, next=last if last < group.head.sequence else None, head=group.head)


async def serve_shard_replay(
    connection: AsyncConnection[Any], organization_id: str, actor: Actor, request: ShardReplay
) -> ShardPage | Rejection:
    """A page of one shard's log, for services of the Organization only."""
    if actor.type is not ActorType.SERVICE:
        return reject(Code.AUTH_FORBIDDEN, "a shard is replayed to services of the Organization only")
    asked = {
        "organization_id": organization_id,
        "shard_id": request.shard_id,
        "after": request.after_position,
        "limit_events": request.limit_events,
        "limit_bytes": request.limit_bytes,
    }
    async with connection.transaction():
        await connection.execute(sql.begin_read_snapshot)
        found = await (await connection.execute(sql.read_shard_head, asked)).fetchone()
        if found is None:
            return reject(Code.INVALID_COMMAND, f"the Organization has no shard {request.shard_id}")
        rows = await (await connection.execute(sql.replay_shard_page, asked, binary=True)).fetchall()
    incarnation, head = found
    events = tuple(
        ReplayedEvent(event=Raw(event), chain_hash=chain_hash.hex(), position=position)
        for position, chain_hash, event in rows
    )
    last = rows[-1][0] if rows else request.after_position
    return ShardPage(
        events=events,
        next=last if last < head else None,
        head=ShardHead(incarnation=incarnation, shard_id=request.shard_id, position=head),
    )


def _hidden(request: GroupReplay, group: VisibleGroup) -> Rejection:
    message = (
        f"Events up to {group.hidden_until} of {request.group_id} are not visible to this member; "
        f"ask after {group.hidden_until} or later"
    )
    details = {"visibilityStartSequence": group.hidden_until}
    return reject(Code.AUTH_FORBIDDEN, message, group_id=request.group_id, details=details)
