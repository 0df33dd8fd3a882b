"""Signed reads: pages of history, heads, Memberships, keys, and the report of a durable Cursor (RULE-30).

A read is a Command envelope that is verified and never recorded (`contracts.payloads.requests`). Events come with the
bytes that were signed; whoever applies them checks the chain. A refusal is a value; an outage that outlasts the
bounds of the call is an exception, since the caller learns nothing from it.
"""

from collections.abc import Callable, Collection, Sequence
from typing import Any, Final, Protocol

from msgspec import Struct

from contracts import subjects
from contracts.bounds import replay_page_events_max
from contracts.canonical import ParseFault, parse_strict
from contracts.cursor import Cursor
from contracts.documents.common import Document
from contracts.payloads.requests import (
    Acknowledge,
    Acknowledged,
    Delivery,
    GroupHead,
    GroupPage,
    GroupReplay,
    HeadList,
    Heads,
    HeldMembership,
    KeyList,
    Keys,
    MembershipList,
    Memberships,
    ShardPage,
    ShardReplay,
    acknowledge_request,
    heads_groups_max,
    heads_request,
    keys_reply_bytes_max,
    keys_request,
    memberships_request,
    replay_request,
)
from services.agent.send_command import Answered, Refusal, ReplyFault, read_reply

membership_pages_max: Final = 1_000
"""Pages of one actor's Memberships."""


class Unavailable(Exception):
    """No answer within the bounds of the call; try again later."""


class Ask(Protocol):
    """Sends one signed read: its subject, kind and payload, and what decodes the reply."""

    async def __call__[T](
        self, subject: str, kind: str, payload: Document, read: Callable[[bytes], T | Refusal]
    ) -> Answered[T] | Refusal:
        """The decoded reply, with the request that got it. Raises Unavailable."""
        ...


class Standing(Struct, frozen=True, kw_only=True):
    """All Memberships of the actor and, for an Agent, the consumers provisioned for its session.

    Mission trees lie in the shards 1 to `shard_count`.
    """

    incarnation: str
    shard_count: int
    memberships: tuple[HeldMembership, ...]
    deliveries: tuple[Delivery, ...]


class AnsweredKeys(Struct, frozen=True, kw_only=True):
    """An answer about keys as it came: of the shape of a `KeyList`, its signature not verified.

    `document` is its JSON as `parse_strict` gives it, `action_id` that of the request.
    """

    document: dict[str, Any]
    action_id: str


class HistoryReader:
    """The reads of one actor. Each raises Unavailable in an outage and ReplyFault outside the protocol."""

    def __init__(self, organization_id: str, ask: Ask) -> None:
        self._organization_id = organization_id
        self._ask = ask

    async def group_page(self, group_id: str, after: int, limit: int = replay_page_events_max) -> GroupPage | Refusal:
        """Up to `limit` Events of a Group after a sequence."""
        return await self._read(
            subjects.replay(self._organization_id),
            replay_request,
            GroupReplay(group_id=group_id, after=after, limit_events=min(limit, replay_page_events_max)),
            GroupPage,
        )

    async def shard_page(self, shard_id: int, after_position: int) -> ShardPage | Refusal:
        """Events of a shard after a position; for service actors."""
        return await self._read(
            subjects.replay(self._organization_id),
            replay_request,
            ShardReplay(shard_id=shard_id, after_position=after_position),
            ShardPage,
        )

    async def heads(self, group_ids: Sequence[str]) -> tuple[GroupHead, ...] | Refusal:
        """Heads of those of the Groups that the actor may see; asks in parts of `heads_groups_max`."""
        found: list[GroupHead] = []
        for start in range(0, len(group_ids), heads_groups_max):
            asked = Heads(group_ids=tuple(group_ids[start : start + heads_groups_max]))
            part = await self._read(subjects.query(self._organization_id), heads_request, asked, HeadList)
            if isinstance(part, Refusal):
                return part
            found.extend(part.heads)
        return tuple(found)

    async def memberships(self) -> Standing | Refusal:
        """All pages of the actor's Memberships; for an Agent this provisions its deliveries."""
        asked, held = Memberships(), list[HeldMembership]()
        deliveries: tuple[Delivery, ...] = ()
        for number in range(membership_pages_max):
            page = await self._read(subjects.query(self._organization_id), memberships_request, asked, MembershipList)
            if isinstance(page, Refusal):
                return page
            held.extend(page.memberships)
            deliveries = page.deliveries if number == 0 else deliveries
            if page.next is None:
                return Standing(
                    incarnation=page.incarnation,
                    shard_count=page.shard_count,
                    memberships=tuple(held),
                    deliveries=deliveries,
                )
            asked = Memberships(after_group_id=page.next)
        raise ReplyFault(f"Memberships did not end within {membership_pages_max} pages")

    async def acknowledge(self, cursor: Cursor) -> GroupHead | Refusal:
        """Report a durable Cursor (MWP-WRK-030); the position that the authority keeps comes back."""
        report = Acknowledge(
            group_id=cursor.group_id,
            incarnation=cursor.incarnation,
            sequence=cursor.sequence,
            chain_hash=cursor.chain_hash.hex(),
        )
        kept = await self._read(
            subjects.acknowledgement(self._organization_id), acknowledge_request, report, Acknowledged
        )
        return kept if isinstance(kept, Refusal) else kept.acknowledged

    async def keys(self, key_ids: Collection[str]) -> AnsweredKeys | Refusal:
        """What the registry holds of these keys, at most `keys_asked_max`. Whoever believes it verifies it first."""
        subject, asked = subjects.query(self._organization_id), Keys(key_ids=tuple(key_ids))
        answered = await self._ask(subject, keys_request, asked, _read_keys)
        if isinstance(answered, Refusal):
            return answered
        return AnsweredKeys(document=answered.value, action_id=answered.command.action_id)

    async def _read[T: Struct](self, subject: str, kind: str, payload: Document, shape: type[T]) -> T | Refusal:
        answered = await self._ask(subject, kind, payload, lambda raw: read_reply(raw, shape))
        return answered if isinstance(answered, Refusal) else answered.value


def _read_keys(raw: bytes) -> dict[str, Any] | Refusal:
    """The JSON of a `KeyList` with nothing lost or repaired, as a signature needs it. Raises ReplyFault."""
    reply = read_reply(raw, KeyList)
    if isinstance(reply, Refusal):
        return reply
    try:
        document: dict[str, Any] = parse_strict(raw, keys_reply_bytes_max)
    except ParseFault as fault:
        raise ReplyFault(f"the reply about keys cannot be read: {fault}") from fault
    return document
