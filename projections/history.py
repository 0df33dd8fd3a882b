"""Where a consumer asks for history: the replay service of the authority's primary, seen through a few questions.

Whoever implements it maps its own failures to the faults below, so that a consumer can tell "later" from "never".
"""

from collections.abc import Sequence
from typing import Protocol

from contracts.chain import ChainHash
from contracts.cursor import Cursor
from contracts.identifiers import GroupSequence, ShardId, ShardPosition
from contracts.payloads.requests import GroupHead, GroupPage, ShardPage


class HistoryUnavailable(Exception):
    """No answer now (transport, overload, no primary). Asking again later is safe."""


class HistoryRefused(Exception):
    """The authority does not show this history to this Principal, or knows no such Group. Asking again is useless."""


class GroupNotShown(HistoryRefused):
    """There is no such Group, or it is not shown to this Principal: the authority's answer to both is the same."""


class HistoryBroken(Exception):
    """The answer contradicts itself, its signature, or what the same source has said about the same history."""


class HistorySource(Protocol):
    """Pages and heads of Groups, answered by the primary only (RULE-21).

    All raise HistoryUnavailable or HistoryRefused; a page of a Group that is not shown raises GroupNotShown.
    """

    @property
    def shows_all(self) -> bool:
        """Whether every Group of the Organization is shown, as to a service: one that is not shown does not exist.

        An Agent is not shown a Group that was lost, nor one that it is no member of any more: it cannot tell which.
        """
        ...

    async def page(self, group_id: str, after: GroupSequence, limit: int) -> GroupPage:
        """Up to `limit` Events with sequences above `after`; fewer when the page's bytes are bounded."""
        ...

    async def heads(self, group_ids: Sequence[str]) -> Sequence[GroupHead]:
        """The heads of those of these Groups that exist and are visible; the others are left out."""
        ...

    async def incarnation(self) -> str:
        """The incarnation that the authority accepts Events in now."""
        ...


class ShardHistory(Protocol):
    """What a service may ask besides: a shard's log in order of position, all Groups mixed."""

    async def shard_page(self, shard_id: ShardId, after: ShardPosition) -> ShardPage:
        """Events with positions above `after`, as many as a page holds. Raises HistoryUnavailable or HistoryRefused."""
        ...


def place_of(head: GroupHead) -> Cursor:
    """A head as the Cursor that stands on it."""
    return Cursor(
        head.incarnation, head.group_id, GroupSequence(head.sequence), ChainHash(bytes.fromhex(head.chain_hash))
    )
