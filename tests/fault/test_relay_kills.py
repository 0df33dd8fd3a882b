"""Relays and brokers killed, paused and woken under load: nothing doubled, skipped or reordered (OBX-1, OBX-2)."""

import asyncio
import json
import signal
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from ops.embedded.broker_server import BrokerServer
from ops.init import Organization
from tests.relay_rig import RelayProcess, Shard, eventually, growing, open_shard, relay_process


@pytest.fixture
async def shard(database_url: str, nats_url: str, organization: Organization) -> AsyncIterator[Shard]:
    async with open_shard(database_url, nats_url, organization) as opened:
        yield opened


async def grown(shard: Shard, count: int) -> None:
    """Wait until the stream has got `count` messages more."""
    before = (await shard.state() or {"last_seq": 0})["last_seq"]

    async def more() -> bool:
        state = await shard.state()
        return state is not None and state["last_seq"] >= before + count

    await eventually(more, 60, f"{count} more messages")


async def epochs(shard: Shard) -> list[int]:
    return [message.mark.relay_epoch for message in await shard.messages()]


again_and_again = pytest.mark.parametrize("kills", [1, pytest.param(5, marks=pytest.mark.fault)])


@again_and_again
async def test_a_killed_relay_loses_and_doubles_nothing(
    shard: Shard, nats_url: str, organization: Organization, tmp_path: Path, kills: int
) -> None:
    """OBX-1, DUR-4 (b) and (c): kill -9 between commit, publication, answer and mark; the next relay goes on."""
    async with growing(shard):
        for _ in range(kills):
            relay = RelayProcess(shard.database_url, nats_url, organization, tmp_path, "relay-1")
            try:
                await relay.ready()
                await grown(shard, 100)
            finally:
                relay.end(signal.SIGKILL)
    async with relay_process(shard.database_url, nats_url, organization, tmp_path):
        await shard.relayed()
    seen = await epochs(shard)
    assert seen == sorted(seen)
    assert seen[-1] >= kills


@again_and_again
async def test_a_killed_broker_loses_and_doubles_nothing(
    shard: Shard, nats_server: BrokerServer, nats_url: str, organization: Organization, tmp_path: Path, kills: int
) -> None:
    """OBX-1: kill -9 of the broker between publication and answer, and start again on what it had synced."""
    async with relay_process(shard.database_url, nats_url, organization, tmp_path):
        async with growing(shard):
            for _ in range(kills):
                await grown(shard, 200)
                await asyncio.to_thread(nats_server.kill)
                await asyncio.sleep(0.3)
                await asyncio.to_thread(nats_server.start)
            await grown(shard, 200)
        await shard.relayed()


async def test_a_relay_that_wakes_after_losing_its_lease_harms_nothing(
    shard: Shard, nats_url: str, organization: Organization, tmp_path: Path
) -> None:
    """OBX-2: SIGSTOP in full flight, another relay takes the shards, SIGCONT; its messages are refused."""
    async with (
        relay_process(shard.database_url, nats_url, organization, tmp_path) as paused,
        growing(shard),
    ):
        await grown(shard, 100)
        paused.send(signal.SIGSTOP)
        async with relay_process(shard.database_url, nats_url, organization, tmp_path):
            await grown(shard, 300)
            paused.send(signal.SIGCONT)
            await grown(shard, 300)
            await paused.ready()

            async def shared() -> bool:
                cursor = await shard.connection.execute("SELECT count(DISTINCT holder) FROM relay_position")
                return await cursor.fetchone() == (2,)

            await eventually(shared, 60, "both relays to hold shards")
    async with relay_process(shard.database_url, nats_url, organization, tmp_path):
        await shard.relayed()
    seen = await epochs(shard)
    assert seen == sorted(seen)
    assert seen[0] < seen[-1]


@pytest.mark.fault
async def test_two_relays_race_for_the_same_shards(
    shard: Shard, nats_url: str, organization: Organization, tmp_path: Path
) -> None:
    """OBX-2: both are told by the database, again and again, that every lease is free."""
    async with (
        relay_process(shard.database_url, nats_url, organization, tmp_path),
        relay_process(shard.database_url, nats_url, organization, tmp_path),
        growing(shard),
    ):
        for _ in range(12):
            await shard.connection.execute("UPDATE relay_position SET expires_at = weavehold_clock()")
            await asyncio.sleep(0.25)
        await grown(shard, 50)
    async with relay_process(shard.database_url, nats_url, organization, tmp_path):
        await shard.relayed()


async def test_a_relay_process_shows_its_state_and_ends_in_order(
    shard: Shard, nats_url: str, organization: Organization, tmp_path: Path
) -> None:
    """OPS-1, OBX-2: readiness by dependency, the lag as a metric; SIGTERM gives the shards up and exits with 0."""
    relay = RelayProcess(shard.database_url, nats_url, organization, tmp_path)
    try:
        await relay.ready()
        await shard.append(5)
        await shard.relayed()
        _, body = await relay.get("readyz")
        assert {"database", "broker", "shards", "loop:relay"} <= set(json.loads(body)["dependencies"])
        _, metrics = await relay.get("metrics")
        assert "weavehold_relay_lag_seconds" in metrics
        assert "weavehold_relay_published_total" in metrics
    finally:
        assert relay.end() == 0, relay.log.read_text()
    cursor = await shard.connection.execute(
        "SELECT bool_and(expires_at <= weavehold_clock()), (SELECT count(*) FROM relay_process) FROM relay_position"
    )
    assert await cursor.fetchone() == (True, 0)
