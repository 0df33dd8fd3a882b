"""History for projections over the signed reads of one Principal: pages, heads, and the report of durable Cursors."""

from collections.abc import Coroutine, Sequence
from typing import Any

from contracts.cursor import Cursor
from contracts.identifiers import GroupSequence, ShardId, ShardPosition
from contracts.payloads.requests import GroupHead, GroupPage, ShardPage
from contracts.rejection import Code
from projections.history import GroupNotShown, HistoryBroken, HistoryRefused, HistoryUnavailable
from services.agent.read_history import HistoryReader, Unavailable
from services.agent.send_command import Refusal, ReplyFault


class SignedHistory:
    """`HistorySource` and `ShardHistory` of `projections.history`, and `projections.delivery.Acknowledger`.

    Shows what the Principal's Memberships show; a shard's pages are for services. Every method raises the faults of
    `projections.history`.
    """

    def __init__(self, reader: HistoryReader, *, shows_all: bool = False) -> None:
        """`shows_all` for the reads of a service, which every Group of the Organization is shown to."""
        self.shows_all = shows_all
        self._reader = reader

    async def page(self, group_id: str, after: GroupSequence, limit: int) -> GroupPage:
        """Events of a Group after a sequence."""
        return await _told(self._reader.group_page(group_id, after, limit))

    async def heads(self, group_ids: Sequence[str]) -> Sequence[GroupHead]:
        """Heads of the visible ones of these Groups."""
        return await _told(self._reader.heads(group_ids))

    async def incarnation(self) -> str:
        """The current incarnation."""
        return (await _told(self._reader.memberships())).incarnation

    async def shard_page(self, shard_id: ShardId, after: ShardPosition) -> ShardPage:
        """Events of a shard after a position, all Groups mixed."""
        return await _told(self._reader.shard_page(shard_id, after))

    async def acknowledge(self, cursor: Cursor) -> None:
        """Report one Cursor (MWP-WRK-030)."""
        await _told(self._reader.acknowledge(cursor))


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
    if answer.rejection.retryable:
        raise HistoryUnavailable(message)
    raise GroupNotShown(message) if answer.code is Code.GROUP_NOT_FOUND else HistoryRefused(message)
