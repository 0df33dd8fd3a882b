"""Which shard decides a Command, and which process commits to that shard.

A root Mission's shard follows from its Group's name; a child inherits its parent's, so other Groups are looked up.
"""

import hashlib
from collections import OrderedDict
from typing import Any, Final

from msgspec import UNSET
from psycopg_pool import AsyncConnectionPool

from contracts.command import Command
from contracts.identifiers import ShardId, organization_shard, registry_group
from services.authority.batch_facts import sql

remembered_groups_max: Final = 100_000
"""Groups whose shard is remembered; a Group never moves, so nothing here can become wrong."""


def root_shard(group_id: str, shard_count: int) -> ShardId:
    """The shard of a root Mission's tree: its Group's hash over shards 1…S."""
    return ShardId(1 + int.from_bytes(hashlib.sha256(group_id.encode()).digest()[:8]) % shard_count)


class ShardFinder:
    """Finds the shard of a Command's Group."""

    def __init__(self, pool: AsyncConnectionPool[Any], organization_id: str, shard_count: int) -> None:
        """`shard_count` counts the Group shards, fixed when the Organization was made."""
        self._pool = pool
        self._organization_id = organization_id
        self._shard_count = shard_count
        self._known: OrderedDict[str, ShardId] = OrderedDict()

    async def shard_of(self, command: Command) -> ShardId:
        """The shard whose lane must decide this Command. A Group that does not exist goes where it would be made."""
        if command.group_id is UNSET or command.group_id == registry_group(self._organization_id):
            return organization_shard
        group_id = command.group_id
        if group_id in self._known:
            self._known.move_to_end(group_id)
            return self._known[group_id]
        found = await self._look_up(group_id)
        if found is None:
            return root_shard(group_id, self._shard_count)
        self.learn(group_id, found)
        return found

    def learn(self, group_id: str, shard_id: ShardId) -> None:
        """Remember the shard of a Group that exists."""
        self._known[group_id] = shard_id
        if len(self._known) > remembered_groups_max:
            self._known.popitem(last=False)

    async def _look_up(self, group_id: str) -> ShardId | None:
        async with self._pool.connection() as connection:
            asked = {"organization_id": self._organization_id, "group_ids": [group_id]}
            row = await (await connection.execute(sql.find_group_shards, asked)).fetchone()
        return None if row is None else ShardId(row[1])
