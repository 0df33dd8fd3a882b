"""Notice what delivery never showed: head announcements, and a comparison with the authority from time to time.

A lost last message of a Group leaves no gap that a later one would show; a consumer that stalls shows nothing at all.
An announcement is a hint; what follows from it is asked of the history source (RULE-21). A head may also be the first
word of another incarnation, in whose streams delivery goes on (RULE-18).
"""

import asyncio
import random
from collections.abc import Callable, Collection, Sequence
from typing import Final

import msgspec
from nats.aio.client import Client
from nats.aio.msg import Msg
from nats.aio.subscription import Subscription

from contracts import subjects
from contracts.cursor import Contact, Cursor
from contracts.identifiers import ShardId
from contracts.payloads.requests import GroupHead, heads_groups_max
from projections.delivery import DeliveredGroup, Provisioned
from projections.group_run import Question
from projections.history import HistoryRefused, HistorySource, HistoryUnavailable, place_of
from projections.projection import Projection
from projections.repairs import Repairs
from services.process.logs import get_log

announcements_waiting_max: Final = 8_192
"""Groups whose newest announcement waits to be judged; beyond it announcements are left to the next comparison."""

_decode_head: Final = msgspec.json.Decoder(GroupHead).decode
_log = get_log(__name__)


class HeadWatch:
    """Listens to announcements of the delivered Groups and compares heads."""

    def __init__(
        self,
        client: Client,
        organization_id: str,
        projections: Sequence[Projection],
        source: HistorySource,
        repairs: Repairs,
        *,
        meet: Callable[[str], None],
        refused: Callable[[], None],
        announced: bool = True,
    ) -> None:
        """Judges every head for each of `projections`; listens only where heads are `announced` to this client.

        `meet` is told the incarnation of each head; `refused` hears that the source does not answer this client.
        """
        self._client = client
        self._organization_id = organization_id
        self._projections = projections
        self._source = source
        self._repairs = repairs
        self._meet = meet
        self._refused = refused
        self._listens = announced
        self._subscriptions: dict[str, Subscription] = {}
        self._announced: dict[str, Cursor] = {}
        self._woken = asyncio.Event()
        self._groups: frozenset[str] = frozenset()
        self._hidden: set[str] = set()
        """Groups that have a Cursor and were not shown, which was said once."""

    async def follow(self, provisioned: Provisioned) -> None:
        """Listen to what is delivered now: its Groups, or whole shards where delivery is unfiltered."""
        self._groups = frozenset(group.group_id for group in provisioned.groups)
        wanted = set(self._subjects(provisioned) if self._listens else ())
        for subject in self._subscriptions.keys() - wanted:
            await self._subscriptions.pop(subject).unsubscribe()
        for subject in wanted - self._subscriptions.keys():
            self._subscriptions[subject] = await self._client.subscribe(subject, cb=self._on_announcement)

    def _subjects(self, provisioned: Provisioned) -> list[str]:
        if provisioned.filtered:
            return [_head_subject(self._organization_id, group) for group in provisioned.groups]
        return [
            subjects.head(self._organization_id, shard_id, "").rpartition(".")[0] + ".*"
            for shard_id in {ShardId(delivery.shard_id) for delivery in provisioned.deliveries}
        ]

    async def _on_announcement(self, message: Msg) -> None:
        try:
            head = place_of(_decode_head(message.data))
        except msgspec.DecodeError as fault:
            _log.warning("announcement_unreadable", subject=message.subject, reason=str(fault))
            return
        if head.group_id in self._announced or len(self._announced) < announcements_waiting_max:
            self._announced[head.group_id] = head
            self._woken.set()

    async def judge_announcements(self) -> None:
        """Judge announced heads, for ever."""
        while True:
            await self._woken.wait()
            self._woken.clear()
            announced, self._announced = self._announced, {}
            for head in announced.values():
                self._meet(head.incarnation)
                for projection in self._projections:
                    await self._repairs.judge_head(projection, head)

    async def compare_periodically(self, seconds: float) -> None:
        """Compare all heads about every `seconds`, at random between half and one and a half, for ever."""
        while True:
            await asyncio.sleep(seconds * random.uniform(0.5, 1.5))  # noqa: S311 - jitter, not a secret
            if await self.compare() and self._source.shows_all:
                await self._ask_incarnation()

    async def _ask_incarnation(self) -> None:
        """Ask which incarnation is current: in whole shards it may begin with a Group that nobody here knows of."""
        try:
            self._meet(await self._source.incarnation())
        except (HistoryUnavailable, HistoryRefused) as fault:
            _log.warning("incarnation_not_asked", reason=str(fault))
            if isinstance(fault, HistoryRefused):
                self._refused()

    async def compare(self, group_ids: Collection[str] = ()) -> bool:
        """Ask for the heads of these Groups (of all known ones without any); whether the source answered."""
        asked = sorted(group_ids or await self._known_groups())
        # Read before the question: a head below it is no late answer then, the authority has lost Events.
        applied = {projection.name: await _applied(projection) for projection in self._projections}
        for start in range(0, len(asked), heads_groups_max):
            part = asked[start : start + heads_groups_max]
            try:
                heads = {head.group_id: place_of(head) for head in await self._source.heads(part)}
            except (HistoryUnavailable, HistoryRefused) as fault:
                _log.warning("heads_not_compared", reason=str(fault))
                if isinstance(fault, HistoryRefused):
                    self._refused()
                return False
            for projection in self._projections:
                for group_id in part:
                    await self._judge(projection, heads.get(group_id), applied[projection.name].get(group_id))
            for head in heads.values():
                self._meet(head.incarnation)
        return True

    async def _judge(self, projection: Projection, head: Cursor | None, before: Cursor | None) -> None:
        """What the source says of a Group that was applied up to `before` when it was asked; None: not shown."""
        if head is not None:
            await self._repairs.judge_head(projection, head, before.sequence if before else 0)
        elif before is not None and self._source.shows_all:
            self._repairs.ask(projection, Question(Contact.UNKNOWN, before))
        elif before is not None and before.group_id not in self._hidden:
            self._hidden.add(before.group_id)
            _log.warning("group_not_shown", consumer=projection.name, group_id=before.group_id, applied=before.sequence)

    async def _known_groups(self) -> set[str]:
        """The delivered Groups and all that have a Cursor."""
        known = set(self._groups)
        for projection in self._projections:
            known |= {cursor.group_id for cursor in await projection.cursors()}
        return known

    async def close(self) -> None:
        """Stop listening."""
        for subscription in self._subscriptions.values():
            if not self._client.is_closed:
                await subscription.unsubscribe()
        self._subscriptions.clear()


async def _applied(projection: Projection) -> dict[str, Cursor]:
    """How far each Group of a projection is applied."""
    return {cursor.group_id: cursor for cursor in await projection.cursors()}


def _head_subject(organization_id: str, group: DeliveredGroup) -> str:
    return subjects.head(organization_id, group.shard_id, group.group_id)
