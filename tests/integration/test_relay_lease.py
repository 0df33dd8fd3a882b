"""Relay leases on the database clock: one holder, rising epochs, even shares (OBX-2)."""

import asyncio
import time
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack

import pytest

from contracts.identifiers import ShardPosition
from ops.init import Organization
from outbox_relay.relay_lease import RelayLeases, RelayPlace, lease_seconds
from services.process.database import Pool, connect, open_pool
from services.process.unique import holder_name
from tests.relay_rig import Shard, eventually, open_shard


@pytest.fixture
async def pool(database_url: str) -> AsyncIterator[Pool]:
    pool = await open_pool(database_url, name="test", maximum=8)
    yield pool
    await pool.close()


@pytest.fixture
async def shard(database_url: str, nats_url: str, organization: Organization) -> AsyncIterator[Shard]:
    async with open_shard(database_url, nats_url, organization) as opened:
        yield opened


async def move_clock(database_url: str, seconds: float) -> None:
    connection = await connect(database_url, name="clock")
    await connection.execute(
        "CREATE OR REPLACE FUNCTION weavehold_clock() RETURNS timestamptz LANGUAGE sql VOLATILE"
        f" AS $$ SELECT clock_timestamp() + interval '{seconds} seconds' $$"
    )
    await connection.close()


async def test_the_epoch_rises_with_each_holder(pool: Pool, database_url: str, organization: Organization) -> None:
    """OBX-2: a lease that is over on the database clock goes to the next relay; the one before cannot renew it."""
    first, second = (RelayLeases(pool, organization.organization_id, name) for name in ("first", "second"))
    held = await first.acquire(10)
    assert [(lease.shard_id, lease.epoch) for lease in held] == [(0, 1), (1, 1), (2, 1)]
    assert await second.acquire(10) == []
    place = RelayPlace(organization.incarnation, ShardPosition(41))
    assert await first.renew([(held[1], place)]) == []
    assert held[1].recorded == place
    await move_clock(database_url, lease_seconds + 1)
    taken = await second.acquire(2)
    assert [(lease.shard_id, lease.epoch) for lease in taken] == [(0, 2), (1, 2)]
    assert taken[1].recorded == place
    lost = await first.renew([(lease, place) for lease in held])
    assert [lease.shard_id for lease in lost] == [0, 1, 2]
    assert await second.renew([(lease, place) for lease in taken]) == []


async def test_a_released_lease_is_free_at_once(pool: Pool, organization: Organization) -> None:
    """OBX-2: nobody waits for a relay that ended in order; its position stays on record."""
    first, second = (RelayLeases(pool, organization.organization_id, name) for name in ("first", "second"))
    [lease] = await first.acquire(1)
    await first.release([(lease, RelayPlace(organization.incarnation, ShardPosition(9)))])
    assert not lease.is_live()
    [taken] = await second.acquire(1)
    assert (taken.epoch, taken.recorded.position) == (2, 9)


async def test_the_next_life_of_an_instance_takes_its_leases_back_at_once(
    pool: Pool, organization: Organization
) -> None:
    """OBX-2: a relay that was killed and started again waits for nobody; its earlier life is fenced and forgotten."""
    first, second, stranger = (
        RelayLeases(pool, organization.organization_id, holder_name(name)) for name in ("relay-1", "relay-1", "relay-2")
    )
    await first.announce()
    held = await first.acquire(3)
    assert await stranger.acquire(3) == []
    assert await second.announce() == (second.holder,)
    taken = await second.acquire(3)
    assert [(lease.shard_id, lease.epoch) for lease in taken] == [(0, 2), (1, 2), (2, 2)]
    assert await first.renew([(lease, lease.recorded) for lease in held]) == held


async def test_of_many_takers_each_shard_goes_to_one(pool: Pool, organization: Organization) -> None:
    """OBX-2: all at once, many times."""
    for _ in range(5):
        relays = [RelayLeases(pool, organization.organization_id, f"relay{number}-life") for number in range(6)]
        taken = await asyncio.gather(*(relay.acquire(3) for relay in relays))
        assert sorted(lease.shard_id for leases in taken for lease in leases) == [0, 1, 2]
        place = RelayPlace(organization.incarnation, ShardPosition(0))
        for relay, leases in zip(relays, taken, strict=True):
            if leases:
                await relay.release([(lease, place) for lease in leases])


async def test_live_processes_are_known_and_dead_ones_forgotten(
    pool: Pool, database_url: str, organization: Organization
) -> None:
    """OBX-2: on the database clock."""
    first, second = (RelayLeases(pool, organization.organization_id, name) for name in ("first", "second"))
    assert await first.announce() == ("first",)
    assert await second.announce() == ("first", "second")
    await move_clock(database_url, lease_seconds + 1)
    assert await second.announce() == ("second",)
    await second.withdraw()
    assert await first.announce() == ("first",)


async def test_an_organization_leaves_the_shards_of_another_alone(pool: Pool, organization: Organization) -> None:
    """RULE-32: leases are an Organization's own."""
    assert await RelayLeases(pool, "urn:test:organization:other", "first").acquire(10) == []


async def test_relays_share_the_shards_evenly(shard: Shard) -> None:
    """OBX-2: three shards; a second and a third relay come, then the others end in order."""
    async with AsyncExitStack() as relays:
        first = await relays.enter_async_context(shard.relaying())

        async def all_held() -> bool:
            return len(first.shards.places()) == 3

        await eventually(all_held, 60, "the first relay to hold all shards")
        async with shard.relaying() as second, shard.relaying() as third:

            async def shared() -> bool:
                return [len(relay.shards.places()) for relay in (first, second, third)] == [1, 1, 1]

            await eventually(shared, 60, "each relay to hold one shard")
            for each in (shard, shard.other(0), shard.other(2)):
                await each.append(10)
                await each.relayed()
        await eventually(all_held, 60, "the first relay to hold all shards again")
        await shard.append(10)
        await shard.relayed()


async def test_the_relay_writes_about_one_row_version_a_second(shard: Shard) -> None:
    """OBX-3: whatever the load, a transaction that is held open keeps no more than those, and the lag stays small."""
    seconds = 4
    holding = await connect(shard.database_url, name="holding", autocommit=False)
    await holding.execute("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ")
    await holding.execute("SELECT count(*) FROM relay_position")
    lags, began = [], time.monotonic()
    async with shard.relaying() as relay:
        for _ in range(seconds * 10):
            await shard.append(40)
            await asyncio.sleep(0.1)
            lags.append(relay.metric("relay_lag_seconds"))
        await shard.relayed()
    lasted = time.monotonic() - began
    assert max(lags) < 30
    await holding.rollback()
    await holding.close()
    await shard.connection.execute("SELECT pg_stat_force_next_flush()")

    async def counted() -> bool:
        cursor = await shard.connection.execute(
            "SELECT relname, n_tup_upd, n_tup_ins + n_tup_del FROM pg_stat_user_tables"
            " WHERE relname IN ('relay_position', 'relay_process', 'event_log')"
        )
        found = {name: (updates, others) for name, updates, others in await cursor.fetchall()}
        # Ten seconds more than it lasted; without the bound it would be 1,600 rows in four seconds.
        assert found["relay_position"][0] <= 3 * (lasted + 10)
        assert found["relay_process"][0] <= lasted + 10
        assert found["event_log"][0] == 0
        return found["relay_position"][0] > 0

    await eventually(counted, 60, "statistics of the relay's rows")
