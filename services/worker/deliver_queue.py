"""What delivers a Worker's queue: consumers that the authority provisions for its session."""

from collections.abc import Callable

from contracts.identifiers import GroupSequence, ShardId
from contracts.rejection import Code
from projections.delivery import DeliveredGroup, DeliveryUnavailable, Provisioned
from services.agent.connect import Client, SessionLost
from services.agent.read_history import Unavailable
from services.agent.send_command import Refusal, ReplyFault


class AgentDelivery:
    """`projections.delivery.DeliveryProvider`: asking for the Agent's Memberships provisions its delivery (RULE-25)."""

    def __init__(self, client: Client, on_session_lost: Callable[[SessionLost], None]) -> None:
        """`on_session_lost` is told when the authority says that the session was replaced."""
        self._client = client
        self._on_session_lost = on_session_lost

    async def provision(self) -> Provisioned:
        """The consumers and Groups of this session. Raises DeliveryUnavailable."""
        try:
            standing = await self._client.memberships()
        except (Unavailable, ReplyFault) as fault:
            raise DeliveryUnavailable(str(fault)) from fault
        if isinstance(standing, Refusal):
            message = f"{standing.code.value}: {standing.rejection.message}"
            if standing.code is Code.AUTH_STALE_SESSION:
                self._on_session_lost(SessionLost(message))
            raise DeliveryUnavailable(message)
        return Provisioned(
            incarnation=standing.incarnation,
            deliveries=standing.deliveries,
            groups=tuple(
                DeliveredGroup(held.group_id, ShardId(held.shard_id), GroupSequence(held.visibility_start_sequence))
                for held in standing.memberships
            ),
        )
