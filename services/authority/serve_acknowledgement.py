"""Keep how far a Principal has durably applied a Group (MWP-WRK-030).

Authoritative here: one row per Group and Principal. It only ever moves forward, to places that the log has; it cleans
nothing up by itself and never deletes history. Killed before the commit nothing moved, after it the same report again
changes nothing.
"""

from typing import Any

from psycopg import AsyncConnection

from contracts.documents.common import Actor
from contracts.payloads.requests import Acknowledge, Acknowledged, GroupHead
from contracts.rejection import Code, Rejection, reject
from services.authority.visible_groups import find_visible_groups, group_not_found
from services.process.statements import load

sql = load(__package__)


async def serve_acknowledgement(
    connection: AsyncConnection[Any], organization_id: str, actor: Actor, request: Acknowledge
) -> Acknowledged | Rejection:
    """Move the actor's acknowledged place forward and say where it is now.

    GROUP_NOT_FOUND for an invisible Group; INVALID_COMMAND, and no move, for a place that the log does not have.
    """
    report = {
        "organization_id": organization_id,
        "group_id": request.group_id,
        "principal_id": actor.id,
        "incarnation": request.incarnation,
        "sequence": request.sequence,
        "chain_hash": bytes.fromhex(request.chain_hash),
    }
    async with connection.transaction():
        visible = await find_visible_groups(connection, organization_id, actor, [request.group_id])
        if request.group_id not in visible:
            return group_not_found(request.group_id)
        async with connection.pipeline():
            await connection.execute(sql.record_acknowledgement, report)
            cursor = await connection.execute(sql.read_acknowledgement, report, binary=True)
        row = await cursor.fetchone()
    assert row is not None  # noqa: S101 - the statement always gives one row
    exists, incarnation, sequence, chain_hash = row
    if not exists:
        return _unknown_place(request)
    return Acknowledged(
        acknowledged=GroupHead(
            incarnation=incarnation, group_id=request.group_id, sequence=sequence, chain_hash=chain_hash.hex()
        )
    )


def _unknown_place(request: Acknowledge) -> Rejection:
    message = (
        f"the history of {request.group_id} has no Event {request.sequence} with chain hash {request.chain_hash} "
        f"in incarnation {request.incarnation}: replay and compare before acknowledging"
    )
    return reject(Code.INVALID_COMMAND, message, group_id=request.group_id)
