"""Announce where Groups' histories end, so that a consumer notices a lost last message (RULE-21).

A Group that was touched lately is announced soon and again at growing intervals; all other Groups of the shards held
here come by in a slow cycle. Announcements carry no truth of their own: a consumer that is behind asks the replay
service. What is forgotten in a crash is announced by the slow cycle of the shard's next holder.
"""

import asyncio
import time
from collections import OrderedDict
from collections.abc import Callable, Collection
from typing import Final

import msgspec
from msgspec import Struct
from nats.aio.client import Client
from nats.errors import Error as BrokerError

from contracts import subjects
from contracts.chain import ChainHash
from contracts.cursor import EventMark
from contracts.identifiers import GroupSequence, ShardId
from contracts.payloads.requests import GroupHead
from services.authority.history_standing import HistoryDoubted
from services.process.database import Connections, FaultKind, classify
from services.process.logs import get_log
from services.process.statements import load

tick_seconds: Final = 0.5
"""Seconds between two rounds of announcements: never more often than twice a second."""
idle_seconds: Final = 1.0
"""Seconds that the loop waits at most without anything due."""
repeat_seconds: Final = (0.5, 2.0, 8.0, 32.0)
"""Seconds after which a touched Group is announced, each counted from the announcement (or the touch) before."""
touched_groups_max: Final = 4_096
"""Touched Groups remembered; beyond it those touched longest ago are left to the slow cycle."""
announcements_per_tick_max: Final = 256
"""Announcements in one round; the rest stays due."""
page_groups_max: Final = 200
"""Groups announced in one step of the slow cycle."""
page_seconds: Final = 5.0
"""Seconds between two steps of the slow cycle."""
cycle_seconds_min: Final = 30.0
"""Seconds from the beginning of one slow cycle to the next, however few Groups there are."""

log = get_log(__name__)
sql = load(__package__)


class _Touched(Struct):
    """A Group touched lately: its head, when to announce it next (monotonic seconds), and how often it was."""

    shard_id: ShardId
    head: GroupHead
    due: float
    announced: int = 0


class HeadAnnouncer:
    """Announces for one authority process. One task calls `run`; `touched` is called from the same event loop."""

    def __init__(
        self, nc: Client, pool: Connections, organization_id: str, held: Callable[[], Collection[ShardId]]
    ) -> None:
        """`held` tells which shards this process holds at the moment."""
        self._nc = nc
        self._pool = pool
        self._organization_id = organization_id
        self._held = held
        self._touched: OrderedDict[str, _Touched] = OrderedDict()
        self._arrived = asyncio.Event()
        self._page_due = 0.0
        self._cycle_due = 0.0
        self._rest: list[ShardId] = []
        self._after_group_id = ""

    def touched(self, shard_id: ShardId, mark: EventMark) -> None:
        """A committed Event is now the head of its Group. Costs no IO; Organization-scoped Events are passed over."""
        if not mark.group_id:
            return
        due = time.monotonic() + repeat_seconds[0]
        known = self._touched.pop(mark.group_id, None)
        if known is not None:
            due = min(due, known.due)
        head = _head(mark.incarnation, mark.group_id, mark.sequence, mark.chain_hash)
        self._touched[mark.group_id] = _Touched(shard_id, head, due)
        if len(self._touched) > touched_groups_max:
            self._touched.popitem(last=False)
        self._arrived.set()

    async def run(self, beat: Callable[[], None]) -> None:
        """Announce until cancelled; `beat` marks life. A broker or database that is away is waited for."""
        while True:
            beat()
            await asyncio.sleep(tick_seconds)
            if not self._nc.is_connected:
                continue
            try:
                await self._announce_touched()
                await self._announce_page()
            except HistoryDoubted:
                # The guard says why. Heads of before come again, of this history or of the next.
                self._touched.clear()
            except BrokerError as fault:
                log.warning("heads_not_announced", error=str(fault) or type(fault).__name__)
            except Exception as fault:
                if classify(fault) is not FaultKind.TRANSIENT:
                    raise
                log.warning("heads_not_read", error=str(fault))
            if not self._touched:
                await self._wait_for_work()

    async def _wait_for_work(self) -> None:
        self._arrived.clear()
        try:
            await asyncio.wait_for(self._arrived.wait(), idle_seconds)
        except TimeoutError:
            return

    async def _announce_touched(self) -> None:
        now = time.monotonic()
        due = sorted((g for g in self._touched.values() if g.due <= now), key=lambda g: g.due)
        for group in due[:announcements_per_tick_max]:
            await self._publish(group.shard_id, group.head)
            group.announced += 1
            if group.announced < len(repeat_seconds):
                group.due = now + repeat_seconds[group.announced]
            else:
                del self._touched[group.head.group_id]

    async def _announce_page(self) -> None:
        """One step of the slow cycle over the shards held when the cycle began."""
        now = time.monotonic()
        if now < self._page_due:
            return
        if not self._rest:
            if now < self._cycle_due:
                return
            self._cycle_due = now + cycle_seconds_min
            self._rest = sorted(self._held())
            self._after_group_id = ""
        self._page_due = now + page_seconds
        room = page_groups_max
        while self._rest and room > 0:
            room -= await self._announce_shard_page(self._rest[0], room)

    async def _announce_shard_page(self, shard_id: ShardId, limit: int) -> int:
        """Announce up to `limit` Groups of a shard and say how many; a shard that is through leaves the cycle."""
        asked = {
            "organization_id": self._organization_id,
            "shard_id": shard_id,
            "after_group_id": self._after_group_id,
            "limit": limit,
        }
        async with self._pool.connection() as connection:
            rows = await (await connection.execute(sql.read_quiet_heads, asked, binary=True)).fetchall()
        for group_id, incarnation, sequence, chain_hash in rows:
            await self._publish(shard_id, _head(incarnation, group_id, sequence, chain_hash))
        if len(rows) < limit:
            self._rest.pop(0)
            self._after_group_id = ""
        else:
            self._after_group_id = rows[-1][0]
        return len(rows)

    async def _publish(self, shard_id: ShardId, head: GroupHead) -> None:
        subject = subjects.head(self._organization_id, shard_id, head.group_id)
        await self._nc.publish(subject, msgspec.json.encode(head))


def _head(incarnation: str, group_id: str, sequence: GroupSequence, chain_hash: ChainHash) -> GroupHead:
    return GroupHead(incarnation=incarnation, group_id=group_id, sequence=sequence, chain_hash=chain_hash.hex())
