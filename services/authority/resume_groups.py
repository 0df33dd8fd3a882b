"""Groups that nobody speaks in hear of a new incarnation too: page by page, beside the Commands (RULE-17).

A Group goes on with `history.resumed` before its next Command anyway; this only brings it forward, so that nobody goes
on under a lease or an epoch of a lost history. A page is one short transaction under the locks of acceptance. A crash
leaves whole pages; whoever holds the shard next begins at its first Group again and finds those done.
"""

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any, Final

from psycopg import AsyncConnection

from contracts.identifiers import ShardId
from services.authority.accept_transition import Committed, RaceLost, ShardsLost, resume_groups
from services.authority.batch_facts import sql
from services.authority.incarnation import Incarnation, incarnation_of
from services.authority.judge_batch import Office, SigningKeyRefused
from services.process.database import FaultKind, Pool, classify
from services.process.logs import get_log

groups_looked_at_max: Final = 500
"""Groups of a shard that one look reads."""
groups_in_transaction_max: Final = 50
"""Groups that one transaction resumes: their states are loaded while the shard is locked."""
pause_seconds: Final = 1.0
"""Seconds between two rounds over the shards held."""

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
        """`pool` is for looking; `connect` opens what a transaction runs on, without autocommit.

        `held` is the live view of this process's lease epochs; `on_committed` hears of each transaction.
        """
        self._office = office
        self._pool = pool
        self._connect = connect
        self._held = held
        self._on_committed = on_committed
        self._done: dict[ShardId, str] = {}

    async def run(self, beat: Callable[[], None]) -> None:
        """Resume what is held, for ever."""
        while True:
            beat()
            try:
                await self._round(beat)
            except (ShardsLost, RaceLost, SigningKeyRefused) as refused:
                log.info("groups_not_resumed", reason=str(refused))
            except Exception as fault:
                if classify(fault) is not FaultKind.TRANSIENT:
                    raise
                log.warning("groups_not_resumed", fault=str(fault))
            await asyncio.sleep(pause_seconds)

    async def _round(self, beat: Callable[[], None]) -> None:
        if self._office.history_fault is not None:
            return
        async with self._pool.connection() as connection:
            current = await self._current(connection)
        for shard_id in sorted(self._held):
            if current.event_id is not None and self._done.get(shard_id) != current.name:
                await self._resume_shard(shard_id, current, beat)
                self._done[shard_id] = current.name

    async def _current(self, connection: AsyncConnection[Any]) -> Incarnation:
        asked = {"organization_id": self._office.organization_id}
        [row] = await (await connection.execute(sql.read_founded_incarnation, asked)).fetchall()
        return incarnation_of(row)

    async def _resume_shard(self, shard_id: ShardId, current: Incarnation, beat: Callable[[], None]) -> None:
        after, resumed = "", 0
        asked = {"organization_id": self._office.organization_id, "shard_id": shard_id, "limit": groups_looked_at_max}
        while True:
            beat()
            async with self._pool.connection() as connection:
                cursor = await connection.execute(sql.read_unresumed_groups, asked | {"after_group_id": after})
                page = await cursor.fetchall()
            waiting = [group_id for group_id, incarnation in page if incarnation != current.name]
            for start in range(0, len(waiting), groups_in_transaction_max):
                beat()
                resumed += await self._resume(shard_id, waiting[start : start + groups_in_transaction_max])
            if len(page) < groups_looked_at_max:
                if resumed:
                    log.info("groups_resumed", shard_id=shard_id, groups=resumed, incarnation=current.name)
                return
            after = page[-1][0]

    async def _resume(self, shard_id: ShardId, group_ids: Sequence[str]) -> int:
        async with await self._connect() as connection:
            committed = await resume_groups(connection, shard_id, group_ids, self._office, self._held)
        await self._on_committed(committed)
        return len(committed.events)
