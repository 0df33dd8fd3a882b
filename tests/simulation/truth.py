"""The authority's side: the log of every shard, how it is read, and what a restore makes of it."""

import asyncio
import random
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from msgspec import Raw

from contracts.cursor import Cursor
from contracts.delivery import PointerStub
from contracts.identifiers import GroupSequence, ShardId, ShardPosition
from contracts.payloads.requests import GroupHead, GroupPage, ReplayedEvent, ShardHead, ShardPage
from outbox_relay.outbox import LogHead, OutboxPage, OutboxRow
from projections.history import GroupNotShown, HistoryRefused, HistoryUnavailable
from services.agent.read_history import Standing
from tests.simulation.events import Fact, forge, forgeries, group_name, incarnation_name, next_event, organization
from tests.simulation.network import Weather

if TYPE_CHECKING:
    from tests.simulation.process import ConsumerProcess

answer_seconds_max = 5.0
"""Seconds after which a question without an answer is given up."""


class Truth:
    """Groups `0 … groups − 1`, Group n in shard n mod shards + 1. `facts` are all Events that ever were accepted."""

    def __init__(self, shards: int, groups: int) -> None:
        self.shards = [ShardId(number) for number in range(1, shards + 1)]
        self.group_ids = [group_name(number) for number in range(groups)]
        self.shard_of = {group_id: self.shards[number % shards] for number, group_id in enumerate(self.group_ids)}
        self.logs: dict[ShardId, list[Fact]] = {shard: [] for shard in self.shards}
        self.groups: dict[str, list[Fact]] = {group_id: [] for group_id in self.group_ids}
        self.facts: dict[str, Fact] = {}
        self.lineage = [incarnation_name(1)]
        self.branch = "of the first history"
        self._pasts: list[tuple[float, dict[str, list[Fact]]]] = []
        """The histories that were given up, and when."""
        self.silently_cut: set[ShardId] = set()
        """Shards whose history was once cut without a new incarnation."""
        self.kept_min: dict[str, int] = dict.fromkeys(self.group_ids, 0)
        """Events of a Group that no restore takes away; a new incarnation may lose all of a Group."""

    def accept(self, group_id: str, count: int) -> None:
        """Append Events to a Group and to its shard's log."""
        history = self.groups[group_id]
        for _ in range(count):
            fact = next_event(history[-1] if history else None, group_id, self.lineage[-1], self.branch)
            history.append(fact)
            self.logs[self.shard_of[group_id]].append(fact)
            self.facts[fact.event_id] = fact

    def cut(self, shard: ShardId, lost: int, *, whole_groups: bool) -> int:
        """The authority was restored: the last Events of a shard are gone, as far as that may go; how many are."""
        log = self.logs[shard]
        gone = 0
        while gone < lost and log:
            group_id = log[-1].group_id
            if len(self.groups[group_id]) <= max(self.kept_min[group_id], 0 if whole_groups else 1):
                break
            log.pop()
            self.groups[group_id].pop()
            gone += 1
        return gone

    def give_up(self, now: float) -> None:
        """Keep the history as it is: it is about to be cut."""
        self._pasts.append((now, {group_id: list(events) for group_id, events in self.groups.items()}))

    def histories(self, group_id: str, since: float) -> list[list[Fact]]:
        """A Group's history, and those that were given up since a moment."""
        return [self.groups[group_id], *(past[group_id] for at, past in self._pasts if at >= since)]

    def has(self, group_id: str, sequence: int, chain: bytes) -> bool:
        """Whether the history contains an Event with this hash at this sequence."""
        history = self.groups.get(group_id, [])
        return 0 < sequence <= len(history) and history[sequence - 1].chain == chain


class SimulatedOutbox:
    """`outbox_relay.outbox.Outbox` over the truth."""

    organization_id = organization

    def __init__(self, truth: Truth, delay: Callable[[], float]) -> None:
        self._truth = truth
        self._delay = delay

    async def lineage(self, shard_id: ShardId) -> tuple[str, ...]:
        del shard_id
        await asyncio.sleep(self._delay())
        return tuple(self._truth.lineage)

    async def page(self, shard_id: ShardId, after: ShardPosition) -> OutboxPage:
        await asyncio.sleep(self._delay())
        rows = [
            OutboxRow(ShardPosition(position), fact.group_id, fact.incarnation, fact.event_id, fact.raw)
            for position, fact in enumerate(self._truth.logs[shard_id][after : after + 20], after + 1)
        ]
        return OutboxPage(rows, more=len(rows) == 20)

    async def head(self, shard_id: ShardId, position: ShardPosition) -> LogHead:
        await asyncio.sleep(self._delay())
        log = self._truth.logs[shard_id]
        event_id = log[position - 1].event_id if 0 < position <= len(log) else None
        return LogHead(ShardPosition(len(log)), event_id)

    async def pointer(self, shard_id: ShardId, position: ShardPosition) -> PointerStub:
        fact = self._truth.logs[shard_id][position - 1]
        return PointerStub(
            event_id=fact.event_id,
            group_id=fact.group_id,
            sequence=fact.sequence,
            position=position,
            chain_hash=fact.chain.hex(),
        )

    async def first_position(self, shard_id: ShardId, retention_seconds: float) -> ShardPosition:
        del shard_id, retention_seconds
        return ShardPosition(1)


class SimulatedHistory:
    """What one Principal is told: `HistorySource`, `ShardHistory`, `Acknowledger` and its Memberships.

    An answer is computed when the question arrives; it may be lost, or come so late that the history has moved on.
    """

    def __init__(self, process: "ConsumerProcess", rng: random.Random, page_events: int) -> None:
        self._process = process
        self._truth = process.world.truth
        self._rng = rng
        self._page_events = page_events
        self.pages = 0
        """How many pages of a Group were asked for."""

    @property
    def shows_all(self) -> bool:
        return self._process.groups is None

    async def incarnation(self) -> str:
        return await self._ask(lambda: self._truth.lineage[-1])

    async def page(self, group_id: str, after: GroupSequence, limit: int) -> GroupPage:
        self.pages += 1
        return await self._ask(lambda: self._group_page(group_id, after, min(limit, self._page_events)))

    def _group_page(self, group_id: str, after: int, limit: int) -> GroupPage:
        events = self._truth.groups.get(group_id)
        if not events or self._process.is_hidden(group_id):
            raise GroupNotShown(group_id)
        if after < self._process.visible_after.get(group_id, 0):
            raise HistoryRefused(f"{group_id} after {after} is not visible")
        chosen = tuple(self._replayed(fact) for fact in events[after : after + limit])
        reached = after + len(chosen)
        following = reached if reached < len(events) else None
        return GroupPage(events=chosen, next=following, head=_head(events[-1]))

    async def heads(self, group_ids: Sequence[str]) -> Sequence[GroupHead]:
        return await self._ask(lambda: [_head(self._truth.groups[each][-1]) for each in group_ids if self._shows(each)])

    def _shows(self, group_id: str) -> bool:
        return bool(self._truth.groups.get(group_id)) and not self._process.is_hidden(group_id)

    async def shard_page(self, shard_id: ShardId, after: ShardPosition) -> ShardPage:
        return await self._ask(lambda: self._shard_page(shard_id, after))

    def _shard_page(self, shard_id: ShardId, after: int) -> ShardPage:
        log = self._truth.logs[shard_id]
        chosen = tuple(
            self._replayed(fact, position)
            for position, fact in enumerate(log[after : after + self._page_events], after + 1)
        )
        reached = after + len(chosen)
        head = ShardHead(incarnation=self._truth.lineage[-1], shard_id=shard_id, position=len(log))
        return ShardPage(events=chosen, next=reached if reached < len(log) else None, head=head)

    async def acknowledge(self, cursor: Cursor) -> None:
        self._process.check_report(cursor)
        await self._ask(lambda: self._acknowledge(cursor))

    def _acknowledge(self, cursor: Cursor) -> None:
        if not self._truth.has(cursor.group_id, cursor.sequence, cursor.chain_hash):
            raise HistoryRefused("no such place")

    async def memberships(self) -> Standing:
        return await self._ask(
            lambda: Standing(
                incarnation=self._truth.lineage[-1],
                shard_count=len(self._truth.shards),
                memberships=(),
                deliveries=(),
            )
        )

    def _replayed(self, fact: Fact, position: int | None = None) -> ReplayedEvent:
        raw = fact.raw
        if self._rng.random() < self._weather.forge / 4:
            raw = forge(fact, self._rng.choice(forgeries))
            if raw[:1] != b"{" or raw[-1:] != b"}":
                raw = fact.raw
        chain = fact.chain.hex()
        if position is None:
            return ReplayedEvent(event=Raw(raw), chain_hash=chain)
        return ReplayedEvent(event=Raw(raw), chain_hash=chain, position=position)

    @property
    def _weather(self) -> Weather:
        return self._process.world.weather

    async def _ask[T](self, compute: Callable[[], T]) -> T:
        world, weather = self._process.world, self._weather
        self._process.reach("history")
        await self._process.still_there()
        await asyncio.sleep(self._rng.uniform(0.001, 0.02) * weather.slow)
        if world.is_history_away() or self._rng.random() < weather.lose_answer:
            await asyncio.sleep(answer_seconds_max)
            raise HistoryUnavailable("no answer")
        answer = compute()
        late = self._rng.uniform(0.5, 4.0) if self._rng.random() < weather.late else 0.0
        await asyncio.sleep(self._rng.uniform(0.001, 0.02) * weather.slow + late)
        await self._process.still_there()
        return answer


def _head(fact: Fact) -> GroupHead:
    return GroupHead(
        incarnation=fact.incarnation,
        group_id=fact.group_id,
        sequence=fact.sequence,
        chain_hash=fact.chain.hex(),
    )
