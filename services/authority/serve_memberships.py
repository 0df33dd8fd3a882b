"""Tell a Principal its Memberships, and provision the delivery of an Agent that asks.

Authoritative here: nothing; Memberships are read, consumers are made to follow them (`provision_delivery`).
"""

from msgspec import UNSET
from nats.aio.client import Client

from contracts.documents.common import ActorType
from contracts.payloads.requests import Delivery, MembershipList, Memberships, memberships_page_max
from contracts.rejection import Rejection
from services.authority.held_memberships import read_held_memberships
from services.authority.provision_delivery import provision_delivery
from services.authority.read_request import Reader
from services.process.database import Connections
from services.process.statements import load

sql = load(__package__)


async def serve_memberships(
    nc: Client, pool: Connections, organization_id: str, reader: Reader, request: Memberships
) -> MembershipList | Rejection:
    """One page of the reader's Memberships that have not ended. The first page provisions an Agent's delivery.

    A Rejection comes from provisioning: a replaced session, or a broker or stream that is not ready (retryable).
    """
    deliveries: tuple[Delivery, ...] = ()
    first = request.after_group_id is UNSET
    if first and reader.actor.type is ActorType.AGENT:
        provisioned = await provision_delivery(nc, pool, organization_id, reader.actor.id, reader.session_epoch)
        if isinstance(provisioned, Rejection):
            return provisioned
        deliveries = provisioned
    after = "" if request.after_group_id is UNSET else request.after_group_id
    async with pool.connection() as connection:
        asked = {"organization_id": organization_id}
        current = await (await connection.execute(sql.read_current_incarnation, asked)).fetchone()
        page, following = await read_held_memberships(
            connection, organization_id, reader.actor.id, after, memberships_page_max
        )
    assert current is not None  # noqa: S101 - every Organization has an incarnation from its first transaction on
    incarnation, shard_count = current
    return MembershipList(
        incarnation=incarnation,
        shard_count=shard_count,
        memberships=tuple(page),
        deliveries=deliveries,
        next=following,
    )
