"""Leases of the authority's processes: even shares, and nobody waits for a process that is gone."""

from collections.abc import AsyncIterator

import pytest

from ops.init import Organization
from services.authority.shard_leases import ShardLeases
from services.process.database import Pool, open_pool
from services.process.unique import default_instance, holder_name
from tests.authority_rig import moved_clock, run_sql


@pytest.fixture
async def pool(database_url: str) -> AsyncIterator[Pool]:
    pool = await open_pool(database_url, name="test", maximum=4)
    yield pool
    await pool.close()


def leases(pool: Pool, organization: Organization, instance: str) -> ShardLeases:
    return ShardLeases(pool, organization.organization_id, holder_name(instance), organization.shard_count)


async def test_the_next_life_of_a_process_takes_every_shard_back_at_once(
    pool: Pool, organization: Organization
) -> None:
    """ACC-2, OPS-1: a killed process does not count towards the share of its own next life."""
    assert len((await leases(pool, organization, "authority-1").renew()).held) == 3
    again = await leases(pool, organization, "authority-1").renew()
    assert again.held == {0: 2, 1: 2, 2: 2}


async def test_a_process_that_ended_in_order_leaves_all_its_shards_at_once(
    pool: Pool, organization: Organization
) -> None:
    """OPS-1: whoever remains takes the whole share without waiting for an expiry."""
    first, second = leases(pool, organization, "authority-1"), leases(pool, organization, "authority-2")
    held = (await first.renew()).held
    assert (await second.renew()).held == {}
    await first.release(list(held))
    assert len((await second.renew()).held) == 3


async def test_a_lease_from_before_the_clock_stepped_back_is_free(
    pool: Pool, organization: Organization, database_url: str
) -> None:
    """ACC-2: a holder that died for good does not keep its shards for as long as the clock had been ahead."""
    await run_sql(database_url, moved_clock.format("1 hour"))
    await leases(pool, organization, "authority-1").renew()
    await run_sql(database_url, moved_clock.format("0 seconds"), "DELETE FROM authority_process")
    assert (await leases(pool, organization, "authority-2").renew()).held == {0: 2, 1: 2, 2: 2}


def test_instances_without_a_name_differ_between_hosts(monkeypatch: pytest.MonkeyPatch) -> None:
    """OBX-2, OPS-1: process number 1 of two containers is not one instance: they would take each other's leases."""
    names = set()
    for host in ("pod-a", "pod-b"):
        monkeypatch.setattr("socket.gethostname", lambda host=host: host)
        names.add(holder_name(default_instance("relay")).split("-")[0])
    assert len(names) == 2
