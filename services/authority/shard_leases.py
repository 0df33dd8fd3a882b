"""Which shards this process serves: leases with epochs on the database clock, spread evenly over live processes.

Leases save work; they are not what keeps histories correct. A process that wrongly believes in its lease is stopped
by the epoch that every transaction reads under the shard's lock.

A holder is named `<instance>-<life>`: the next life of the same instance takes its own leases back at once.
"""

import math
from typing import Any, Final

from msgspec import Struct
from psycopg_pool import AsyncConnectionPool

from contracts.identifiers import ShardId
from services.authority.batch_facts import sql

lease_seconds: Final = 4.0
"""How long a lease lasts without renewal."""
renewal_seconds: Final = 1.0
"""How often leases are renewed and free shards looked for."""


class Holdings(Struct, frozen=True):
    """Shards with their lease epochs, and the shard holders of all processes as last seen."""

    held: dict[ShardId, int]
    holders: dict[ShardId, str]


class ShardLeases:
    """Takes, renews, gives up and looks up shard leases. Each method is one short transaction."""

    def __init__(self, pool: AsyncConnectionPool[Any], organization_id: str, holder: str, shard_count: int) -> None:
        """`shard_count` counts the Group shards; the Organization shard comes on top."""
        self._pool = pool
        self._asked = {"organization_id": organization_id, "holder": holder, "ttl_seconds": lease_seconds}
        self._shards = shard_count + 1

    async def renew(self) -> Holdings:
        """Renew what is held, give up what is beyond the fair share, take what is free up to it."""
        async with self._pool.connection() as connection, connection.transaction():
            await connection.execute(sql.forget_dead_processes, self._asked)
            [(processes,)] = await (await connection.execute(sql.announce_process, self._asked)).fetchall()
            renewed = await (await connection.execute(sql.renew_shard_leases, self._asked)).fetchall()
            held = {ShardId(shard): epoch for shard, epoch in renewed}
            share = math.ceil(self._shards / processes)
            surplus = sorted(held)[share:]
            if surplus:
                await connection.execute(sql.release_shard_leases, self._asked | {"shard_ids": surplus})
                held = {shard: epoch for shard, epoch in held.items() if shard not in surplus}
            elif len(held) < share:
                most = {"most": share - len(held)}
                taken = await (await connection.execute(sql.take_shard_leases, self._asked | most)).fetchall()
                held |= {ShardId(shard): epoch for shard, epoch in taken}
            seen = await (await connection.execute(sql.read_shard_holders, self._asked)).fetchall()
        return Holdings(held, {ShardId(shard): holder for shard, holder, _ in seen})

    async def release(self, held: list[ShardId]) -> None:
        """Give up leases and leave the count of processes on the way out, so that nobody waits for their expiry."""
        async with self._pool.connection() as connection, connection.transaction():
            await connection.execute(sql.withdraw_process, self._asked)
            await connection.execute(sql.release_shard_leases, self._asked | {"shard_ids": held})
