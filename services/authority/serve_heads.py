"""Tell a reader where the histories of its Groups end. Reading leaves nothing behind."""

from typing import Any

from psycopg import AsyncConnection

from contracts.documents.common import Actor
from contracts.payloads.requests import HeadList, Heads
from services.authority.visible_groups import find_visible_groups


async def serve_heads(connection: AsyncConnection[Any], organization_id: str, actor: Actor, request: Heads) -> HeadList:
    """The heads of the asked Groups that the actor may see, in the order asked, from one snapshot."""
    visible = await find_visible_groups(connection, organization_id, actor, request.group_ids)
    return HeadList(heads=tuple(visible[group].head for group in request.group_ids if group in visible))
