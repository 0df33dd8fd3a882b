"""A relay on three brokers whose leaders die in turn: replicated streams equal the log all the same (OBX-1, OPS-1)."""

import asyncio
import json
import time
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from nats.errors import Error as BrokerError

from ops.init import Organization
from ops.verify.finding import Report
from ops.verify.verify_stream import verify_streams
from projections.pull import ConsumerGone, PullBounds, PullConsumer
from services.projector.shard_consumers import ShardConsumers
from tests.broker_cluster import Cluster, Node, broker_cluster, nodes
from tests.relay_rig import RelayProcess, Shard, eventually, growing, open_shard, patience_seconds, relay_process

replicated = {"WEAVEHOLD_STREAM_REPLICAS": str(nodes)}
consumer = "board-1"
victims = ("stream leader", "meta leader", "follower")


@pytest.fixture
async def cluster(servers_directory: Path) -> AsyncIterator[Cluster]:
    async with broker_cluster(servers_directory) as started:
        yield started


@pytest.fixture
async def shard(cluster: Cluster, database_url: str, organization: Organization) -> AsyncIterator[Shard]:
    async with open_shard(database_url, cluster.url, organization) as opened:
        yield opened


async def told(shard: Shard, call: str) -> dict[str, Any]:
    """A call of the broker's API. While there is no leader nobody answers: then it is asked again."""
    ends = time.monotonic() + patience_seconds
    while True:
        try:
            return json.loads((await shard.client.request(f"$JS.API.{call}", b"", timeout=2)).data)
        except (BrokerError, TimeoutError):
            assert time.monotonic() < ends, f"nobody answers {call}"
            await asyncio.sleep(0.1)


async def stream_cluster(shard: Shard) -> dict[str, Any]:
    """Leader and replicas of the shard's stream."""
    return (await told(shard, f"STREAM.INFO.{shard.stream}"))["cluster"]


async def end_of(shard: Shard) -> int | None:
    """The last sequence of the stream, None when there is no stream."""
    state = (await told(shard, f"STREAM.INFO.{shard.stream}")).get("state")
    return None if state is None else state["last_seq"]


async def choose(cluster: Cluster, shard: Shard, victim: str) -> Node:
    """The node that has this part now."""
    await cluster.settled()
    if victim == "meta leader":
        return await cluster.meta_leader()

    leader = ""

    async def led() -> bool:
        nonlocal leader
        leader = (await stream_cluster(shard)).get("leader", "")
        return bool(leader)

    await eventually(led, 60, f"{shard.stream} to have a leader")
    if victim == "stream leader":
        return cluster.node(leader)
    meta = await cluster.meta_leader()
    return next(node for node in cluster.nodes if node.name != leader and node is not meta)


async def grown(shard: Shard, count: int) -> None:
    """Wait until the stream has got `count` messages more than it has now."""
    before = 0

    async def more() -> bool:
        nonlocal before
        end = await end_of(shard)
        if end is None:
            return False
        before = before or end + count
        return end >= before

    await eventually(more, 60, f"{count} more messages")


async def head_of(shard: Shard) -> int:
    """The last position of the log."""
    cursor = await shard.connection.execute(
        "SELECT max(position) FROM outbox WHERE organization_id = %s AND shard_id = %s",
        (shard.organization.organization_id, shard.shard_id),
    )
    [(head,)] = await cursor.fetchall()
    return head


async def assert_level(shard: Shard, relay: RelayProcess) -> None:
    """The stream reaches the log's end by itself, and equals it position by position; the lag is zero."""

    async def level() -> bool:
        return await end_of(shard) == await head_of(shard)

    await eventually(level, 60, "the stream to reach the log's end")

    async def no_lag() -> bool:
        lines = (await relay.get("metrics"))[1].splitlines()
        return [float(line.split()[-1]) for line in lines if line.startswith("weavehold_relay_lag_seconds")] == [0.0]

    await eventually(no_lag, 60, "no lag")

    async def caught_up() -> bool:
        return all(replica["current"] for replica in (await stream_cluster(shard))["replicas"])

    # At rest: whichever node leads next has all of it.
    await eventually(caught_up, 60, "every replica to be current")
    report = Report()
    await verify_streams(shard.connection, shard.client, shard.organization.organization_id, report)
    assert report.ok, report.findings
    assert report.examined["stream"] == await head_of(shard)


long = [pytest.mark.fault, pytest.mark.timeout(900)]


@pytest.mark.parametrize(
    "killed", [("stream leader",), pytest.param(victims * 4, marks=long)], ids=["once", "again and again"]
)
async def test_the_stream_equals_the_log_while_leaders_die(
    cluster: Cluster, shard: Shard, organization: Organization, tmp_path: Path, killed: tuple[str, ...]
) -> None:
    """OBX-1, DUR-4: kill -9 of stream leader, meta leader and follower in turn, each started again."""
    async with relay_process(shard.database_url, cluster.url, organization, tmp_path, **replicated) as relay:
        async with growing(shard):
            for victim in killed:
                await grown(shard, 200)
                node = await choose(cluster, shard, victim)
                await asyncio.to_thread(node.kill)
                # Two of three go on without the third.
                await grown(shard, 200)
                node.start()
        await cluster.settled()
        await assert_level(shard, relay)
        assert len((await stream_cluster(shard))["replicas"]) == nodes - 1


@pytest.mark.fault
async def test_a_cluster_that_was_gone_is_taken_up_again(
    cluster: Cluster, shard: Shard, organization: Organization, tmp_path: Path
) -> None:
    """OBX-1: two nodes of three die, so nobody may lead; nothing is published until they are back, and then all is."""
    async with relay_process(shard.database_url, cluster.url, organization, tmp_path, **replicated) as relay:
        async with growing(shard):
            await grown(shard, 300)
            leader = await choose(cluster, shard, "stream leader")
            follower = await choose(cluster, shard, "follower")
            for node in (leader, follower):
                await asyncio.to_thread(node.kill)
            await asyncio.sleep(3)
            for node in (leader, follower):
                node.start()
            await grown(shard, 300)
        await cluster.settled()
        await assert_level(shard, relay)


@pytest.mark.fault
async def test_a_consumer_survives_its_leader(
    cluster: Cluster, shard: Shard, organization: Organization, tmp_path: Path
) -> None:
    """RULE-20, RULE-25: consumers have as many replicas as their stream, and stand where they stood after a kill."""
    async with relay_process(shard.database_url, cluster.url, organization, tmp_path, **replicated):
        await shard.append(50)
        await grown(shard, 0)
        consumers = ShardConsumers(shard.client)
        await consumers.ensure(shard.stream, consumer, 0, begins=True)
        before = await told(shard, f"CONSUMER.INFO.{shard.stream}.{consumer}")
        assert len(before["cluster"]["replicas"]) == nodes - 1
        seen = await received(shard, set(range(1, 31)))
        await asyncio.to_thread(cluster.node(before["cluster"]["leader"]).kill)
        await shard.append(50)
        while missing := set(range(1, 101)) - seen:
            try:
                # As its reader does when nobody answers: make sure that it is there, and pull again.
                await consumers.ensure(shard.stream, consumer, 0, begins=False)
                seen |= await received(shard, missing)
            except (ConsumerGone, BrokerError):
                await asyncio.sleep(0.2)
        after = await told(shard, f"CONSUMER.INFO.{shard.stream}.{consumer}")
        assert after["created"] == before["created"]
        assert after["cluster"]["leader"] != before["cluster"]["leader"]


async def received(shard: Shard, wanted: set[int]) -> set[int]:
    """Pull until these stream sequences have come, acknowledging what comes; all that came."""
    pull = PullConsumer(shard.client, shard.stream, consumer, PullBounds(batch=20))
    await pull.open()
    seen: set[int] = set()
    try:
        while not wanted <= seen:
            messages = await pull.next_batch()
            if messages:
                seen |= {message.metadata.sequence.stream for message in messages}
                await pull.acknowledge(messages[-1])
    finally:
        await pull.close()
    return seen
