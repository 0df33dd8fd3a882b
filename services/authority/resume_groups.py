"""Groups that nobody speaks in hear of a new incarnation too: page by page, beside the Commands (RULE-17).

A Group goes on with `history.resumed` before its next Command anyway; this only brings it forward, so that nobody goes
on under a lease or an epoch of a lost history. A page is one short transaction under the locks of acceptance. A crash
leaves whole pages; whoever holds the shard next begins at its first Group again and finds those done. A Group that
cannot go on is isolated by halving its page, named, and left behind: the others do not wait for it (RULE-05).
"""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from typing import Any, Final

from psycopg import AsyncConnection

from contracts.identifiers import ShardId
from services.authority.accept_transition import Committed, RaceLost, ShardsLost, resume_groups
from services.authority.batch_facts import sql
from services.authority.history_standing import HistoryDoubted
from services.authority.incarnation import Incarnation, incarnation_of
from services.authority.judge_batch import Office, SigningKeyRefused
from services.authority.lane import transition_seconds_max
from services.process.database import FaultKind, Pool, classify
from services.process.health import READY, Finding, State
from services.process.logs import get_log

groups_looked_at_max: Final = 500
"""Groups of a shard that one look reads."""
groups_in_transaction_max: Final = 50
"""Groups that one transaction resumes: their states are loaded while the shard is locked."""
pause_seconds: Final = 1.0
"""Seconds between two rounds over the shards held."""
stuck_shown_max: Final = 8
"""Groups left behind that readiness names."""
waiting_faults = (ShardsLost, RaceLost, SigningKeyRefused, HistoryDoubted)
"""What another round may find gone."""

log = get_log(__name__)


class GroupResumer:
    """Looks through each held shard once in each incarnation."""

    def __init__(
        self,
        office: Office,
        pool: Pool,
        connect: Callable[[], Awaitable[AsyncConnection[Any]]],
        held: Mapping[ShardId, int],
        on_committed: Callable[[Committed], Awaitable[None]],
    ) -> None:
        """`pool` is for looking; `connect` opens what transactions run on, without autocommit.

        `held` is the live view of this process's lease epochs; `on_committed` hears of each transaction.
        """
        self._office = office
        self._pool = pool
        self._connect = connect
        self._held = held
        self._on_committed = on_committed
        self._done: dict[ShardId, str] = {}
        self._stuck: dict[ShardId, list[str]] = {}

    async def run(self, beat: Callable[[], None]) -> None:
        """Resume what is held, for ever."""
        while True:
            beat()
            try:
                await self._round(beat)
            except waiting_faults as refused:
                log.info("groups_not_resumed", reason=str(refused))
            except Exception as fault:
                if classify(fault) is not FaultKind.TRANSIENT:
                    raise
                log.warning("groups_not_resumed", fault=str(fault) or type(fault).__name__)
            await asyncio.sleep(pause_seconds)

    async def check(self) -> Finding:
        """Ready whatever is left behind, for the others flow; but it is named."""
        stuck = [group_id for shard_id in self._held for group_id in self._stuck.get(shard_id, ())]
        if not stuck:
            return READY
        more = f" and {len(stuck) - stuck_shown_max} more" if len(stuck) > stuck_shown_max else ""
        named = ", ".join(sorted(stuck)[:stuck_shown_max])
        return Finding(State.READY, f"cannot go on in the current incarnation, see the log: {named}{more}")

    async def _round(self, beat: Callable[[], None]) -> None:
        if self._office.history.fault is not None:
            return
        async with self._pool.connection() as connection:
            current = await self._current(connection)
        for shard_id in sorted(self._held):
            if current.event_id is not None and self._done.get(shard_id) != current.name:
                self._stuck.pop(shard_id, None)
                await self._resume_shard(shard_id, current, beat)
                self._done[shard_id] = current.name

    async def _current(self, connection: AsyncConnection[Any]) -> Incarnation:
        asked = {"organization_id": self._office.organization_id}
        [row] = await (await connection.execute(sql.read_founded_incarnation, asked)).fetchall()
        return incarnation_of(row)

    async def _resume_shard(self, shard_id: ShardId, current: Incarnation, beat: Callable[[], None]) -> None:
        resumed = 0
        async with await self._connect() as connection:
            async for waiting in self._waiting(shard_id, current):
                for start in range(0, len(waiting), groups_in_transaction_max):
                    beat()
                    resumed += await self._resume(
                        connection, shard_id, waiting[start : start + groups_in_transaction_max]
                    )
        if resumed:
            log.info("groups_resumed", shard_id=shard_id, groups=resumed, incarnation=current.name)

    async def _waiting(self, shard_id: ShardId, current: Incarnation) -> AsyncIterator[list[str]]:
        """Page by page, the Groups of a shard that stand in another incarnation."""
        after = ""
        asked = {"organization_id": self._office.organization_id, "shard_id": shard_id, "limit": groups_looked_at_max}
        while True:
            async with self._pool.connection() as connection:
                cursor = await connection.execute(sql.read_unresumed_groups, asked | {"after_group_id": after})
                page = await cursor.fetchall()
            yield [group_id for group_id, incarnation in page if incarnation != current.name]
            if len(page) < groups_looked_at_max:
                return
            after = page[-1][0]

    async def _resume(self, connection: AsyncConnection[Any], shard_id: ShardId, group_ids: Sequence[str]) -> int:
        """Resume these Groups, all that can be; how many went on."""
        try:
            async with asyncio.timeout(transition_seconds_max):
                committed = await resume_groups(connection, shard_id, group_ids, self._office, self._held)
        except waiting_faults:
            raise
        except Exception as fault:
            if classify(fault) is FaultKind.TRANSIENT or connection.broken:
                raise
            if len(group_ids) > 1:
                middle = len(group_ids) // 2
                first = await self._resume(connection, shard_id, group_ids[:middle])
                return first + await self._resume(connection, shard_id, group_ids[middle:])
            [group_id] = group_ids
            log.exception("group_cannot_go_on", group_id=group_id, shard_id=shard_id)
            self._stuck.setdefault(shard_id, []).append(group_id)
            return 0
        await self._on_committed(committed)
        return len(committed.events)
