"""What delivers a Worker's queue: consumers provisioned by the authority, replay of what is missing, ACKs."""

from collections.abc import Callable, Coroutine, Sequence
from typing import Any

from contracts.cursor import Cursor
from contracts.identifiers import GroupSequence, ShardId
from contracts.payloads.requests import GroupHead, GroupPage
from contracts.rejection import Code
from projections.delivery import DeliveredGroup, DeliveryUnavailable, Provisioned
from projections.history import HistoryBroken, HistoryRefused, HistoryUnavailable
from services.agent.connect import Client, SessionLost
from services.agent.read_history import HistoryReader, Unavailable
from services.agent.send_command import Refusal, ReplyFault


class AgentHistory:
    """`projections.history.HistorySource` and `projections.delivery.Acknowledger` over the reads of one Agent."""

    def __init__(self, reader: HistoryReader) -> None:
        self._reader = reader

    async def page(self, group_id: str, after: GroupSequence, limit: int) -> GroupPage:
        """Events of a Group after a sequence. Raises the faults of `projections.history`."""
        return await _told(self._reader.group_page(group_id, after, limit))

    async def heads(self, group_ids: Sequence[str]) -> Sequence[GroupHead]:
        """Heads of the visible ones of these Groups. Raises the faults of `projections.history`."""
        return await _told(self._reader.heads(group_ids))

    async def acknowledge(self, cursor: Cursor) -> None:
        """Report one Cursor (MWP-WRK-030). Raises HistoryUnavailable or HistoryRefused."""
        await _told(self._reader.acknowledge(cursor))


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


async def _told[T](asked: Coroutine[Any, Any, T | Refusal]) -> T:
    """The answer, with refusals and outages as projections tell them apart."""
    try:
        answer = await asked
    except Unavailable as fault:
        raise HistoryUnavailable(str(fault)) from fault
    except ReplyFault as fault:
        raise HistoryBroken(str(fault)) from fault
    if not isinstance(answer, Refusal):
        return answer
    message = f"{answer.code.value}: {answer.rejection.message}"
    raise HistoryUnavailable(message) if answer.rejection.retryable else HistoryRefused(message)
