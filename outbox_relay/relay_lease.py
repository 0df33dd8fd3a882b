"""The lease to publish a shard: who the one publisher is, on the database clock (OBX-2).

A lease keeps relays from working against each other; it is not what keeps a stream correct. A relay that wrongly
believes in its lease publishes the right Event at the right position or is refused by the broker.
Every verb is one short transaction; the caller decides the cadence.

A holder is named `<instance>-<life>`: the next life of the same instance takes its own leases back at once.
"""

import time
from collections.abc import Iterable, Sequence
from typing import Any, Final

from msgspec import Struct

from contracts.identifiers import ShardId, ShardPosition
from outbox_relay.outbox import connection_wait_seconds
from services.process.database import Pool
from services.process.statements import load

lease_seconds: Final = 6.0
"""How long a lease, and the word that a process lives, lasts without renewal."""
renewal_seconds: Final = 2.0
"""Age at which a lease is renewed when there is no position to record."""
margin_seconds: Final = 1.0
"""A relay stops publishing this long before its lease can be over, counted on its own monotonic clock."""


class RelayPlace(Struct, frozen=True):
    """How far a shard is relayed: the incarnation of the stream and its last position known to be stored."""

    incarnation: str
    position: ShardPosition


class RelayLease:
    """One shard's lease as its holder sees it."""

    def __init__(self, shard_id: ShardId, epoch: int, recorded: RelayPlace, asked_at: float) -> None:
        """`asked_at` is the monotonic time before the database was asked: its answer is at least that old."""
        self.shard_id = shard_id
        self.epoch = epoch
        self.recorded = recorded
        self._renewed_at = asked_at
        self._given_up = False

    def extend(self, recorded: RelayPlace, asked_at: float) -> None:
        """The database has renewed the lease and recorded the place."""
        self.recorded = recorded
        self._renewed_at = asked_at

    def give_up(self) -> None:
        """Stop publishing under this lease."""
        self._given_up = True

    def is_live(self) -> bool:
        """Whether its holder may go on publishing."""
        return not self._given_up and self.age_seconds() < lease_seconds - margin_seconds

    def age_seconds(self) -> float:
        """Seconds since the last renewal."""
        return time.monotonic() - self._renewed_at


class RelayLeases:
    """Takes, renews and gives up leases for one process. Every method raises `psycopg.Error` as it comes."""

    def __init__(self, pool: Pool, organization_id: str, holder: str) -> None:
        """`holder` is unique to one life of one process (see `services.process.unique.holder_name`)."""
        self._pool = pool
        self._asked = {"organization_id": organization_id, "holder": holder, "lease_seconds": lease_seconds}
        self._sql = load(__package__)
        self.holder = holder

    async def announce(self) -> tuple[str, ...]:
        """Say that this process lives, and learn which ones do, sorted."""
        async with self._pool.connection(timeout=connection_wait_seconds) as connection, connection.transaction():
            await connection.execute(self._sql.forget_dead_processes, self._asked)
            cursor = await connection.execute(self._sql.announce_process, self._asked)
            return tuple(holder for (holder,) in await cursor.fetchall())

    async def acquire(self, shards_max: int) -> list[RelayLease]:
        """Take up to `shards_max` leases that are free, over or of an earlier life, each under a higher epoch."""
        asked_at = time.monotonic()
        rows = await self._run("acquire_leases", shards_max=shards_max)
        return [
            RelayLease(ShardId(shard_id), epoch, RelayPlace(incarnation, ShardPosition(position)), asked_at)
            for shard_id, epoch, incarnation, position in rows
        ]

    async def renew(self, places: Sequence[tuple[RelayLease, RelayPlace]]) -> list[RelayLease]:
        """Renew leases and record places in one write; the answer is the leases that were lost."""
        asked_at = time.monotonic()
        rows = await self._run("renew_leases", **_columns(places))
        renewed = {shard_id for (shard_id,) in rows}
        for lease, place in places:
            if lease.shard_id in renewed:
                lease.extend(place, asked_at)
        return [lease for lease, _ in places if lease.shard_id not in renewed]

    async def release(self, places: Sequence[tuple[RelayLease, RelayPlace]]) -> None:
        """Give leases up at once, so that nobody waits for their end, and record the places."""
        for lease, _ in places:
            lease.give_up()
        await self._run("release_leases", **_columns(places))

    async def withdraw(self) -> None:
        """Say that this process ends."""
        await self._run("withdraw_process")

    async def _run(self, statement: str, **asked: Any) -> list[tuple[Any, ...]]:
        async with self._pool.connection(timeout=connection_wait_seconds) as connection:
            cursor = await connection.execute(self._sql[statement], self._asked | asked)
            return await cursor.fetchall() if cursor.description else []


def _columns(places: Iterable[tuple[RelayLease, RelayPlace]]) -> dict[str, list[Any]]:
    """The leases and places as one array per column."""
    rows = [(lease.shard_id, lease.epoch, place.incarnation, place.position) for lease, place in places]
    names = ("shard_ids", "epochs", "incarnations", "positions")
    return dict(zip(names, (list(column) for column in zip(*rows, strict=True)), strict=True))


def fair_share(shards: int, holders: Sequence[str], holder: str) -> int:
    """How many of `shards` one of the live holders should have.

    The shares differ by one at most and add up to `shards`; the first holders in sorted order take what is left over.
    """
    rank = sorted({*holders, holder}).index(holder)
    share, left_over = divmod(shards, len({*holders, holder}))
    return share + (rank < left_over)
