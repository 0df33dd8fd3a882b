"""The relay against real servers: everything committed stands at its position in the stream (OBX-1)."""

import asyncio
from collections.abc import AsyncIterator

import pytest

from contracts import subjects
from contracts.delivery import PointerStub, read_stub, stub_format
from contracts.identifiers import ShardId
from ops.init import Organization
from outbox_relay import publish_pipeline, relay_shard
from outbox_relay.relay_shard import RelayState
from services.process import broker
from tests.fault_proxy import FaultProxy
from tests.relay_rig import Shard, api, eventually, open_shard

never_seconds = 600.0
"""Longer than any test."""


@pytest.fixture
async def shard(database_url: str, nats_url: str, organization: Organization) -> AsyncIterator[Shard]:
    async with open_shard(database_url, nats_url, organization) as opened:
        yield opened


async def test_every_row_stands_at_its_position_in_order(shard: Shard, monkeypatch: pytest.MonkeyPatch) -> None:
    """OBX-1: single messages and batches, committed before and while the relay runs; RULE-18: their marks."""
    # No answer is late enough to be doubted: then each row is published once.
    monkeypatch.setattr(publish_pipeline, "answer_seconds_max", never_seconds)
    await shard.append(250)
    async with shard.relaying() as relay:
        await shard.relayed()
        for count in (1, 7, 120, 1, 2500):
            await shard.append(count)
        await shard.relayed()
        assert relay.metric("relay_published_total") == 2879
        assert relay.metric("relay_repositions_total") == 0
    mark = (await shard.messages())[-1].mark
    assert (mark.relay_epoch, mark.incarnation) == (1, shard.organization.incarnation)


async def test_all_shards_are_relayed_each_to_its_own_stream(shard: Shard) -> None:
    """OBX-1: the Organization shard too, on its literal subject."""
    others = [shard.other(0), shard.other(2)]
    async with shard.relaying():
        for each in (shard, *others):
            await each.append(5)
        for each in (shard, *others):
            await each.relayed()
    literal = subjects.event(shard.organization.organization_id, ShardId(0), "")
    assert {message.subject for message in await others[0].messages()} == {literal}


async def test_a_lost_wake_up_delays_and_loses_nothing(shard: Shard, monkeypatch: pytest.MonkeyPatch) -> None:
    """OBX-1: the wake-up carries no truth; the log is looked at once a second in any case."""
    monkeypatch.setattr(relay_shard, "inspection_seconds", never_seconds)
    async with shard.relaying() as relay:
        await relay.reaches(1, RelayState.RELAYING)
        await shard.append(3, wake=False)
        await shard.relayed()


async def test_a_wake_up_brings_an_event_to_the_stream_by_itself(shard: Shard, monkeypatch: pytest.MonkeyPatch) -> None:
    """OBX-1: by the message, not by a look at the log or the stream: while there is neither, it comes all the same."""
    monkeypatch.setattr(relay_shard, "inspection_seconds", never_seconds)
    async with shard.relaying() as relay:
        await relay.reaches(1, RelayState.RELAYING)
        monkeypatch.setattr(relay.shards, "_measure", no_look)
        for _ in range(5):
            await shard.append(1)
            await shard.relayed()


async def no_look() -> None:
    """In place of the look at the log that every beat takes."""


async def test_what_was_published_but_not_noted_is_not_published_again(shard: Shard) -> None:
    """OBX-1, DUR-4 (c): the stream's end decides, not the position on record."""
    await shard.append(150)
    async with shard.relaying():
        await shard.relayed()
    await shard.connection.execute("UPDATE relay_position SET position = 7")
    await shard.append(5)
    async with shard.relaying():
        await shard.relayed()


async def test_the_position_is_on_record_soon_after(shard: Shard) -> None:
    """OBX-1: for people and for the lag; written about once a second."""

    async def noted() -> bool:
        cursor = await shard.connection.execute("SELECT position, incarnation FROM relay_position WHERE shard_id = 1")
        return await cursor.fetchone() == (120, shard.organization.incarnation)

    async with shard.relaying():
        await shard.append(120)
        await eventually(noted, 60, "the position to be noted")


async def test_a_broker_that_does_not_answer_is_waited_for(
    shard: Shard, broker_proxy: FaultProxy, monkeypatch: pytest.MonkeyPatch
) -> None:
    """OBX-1: a network that swallows packets, then the lost connection, then everything again; OBX-2: the lag shows."""
    monkeypatch.setattr(publish_pipeline, "answer_seconds_max", 1.5)
    through_proxy = await broker.connect(broker_proxy.nats_url, name="relay")
    async with shard.relaying(client=through_proxy) as relay:
        await shard.append(10)
        await shard.relayed()
        broker_proxy.stall()
        await shard.append(300)

        async def behind() -> bool:
            return relay.metric("relay_lag_seconds") > 1

        await eventually(behind, 60, "the lag to show")
        await relay.reaches(1, RelayState.WAITING)
        broker_proxy.resume()
        await broker_proxy.cut()
        await shard.relayed()

        async def level() -> bool:
            return relay.metric("relay_lag_seconds") == 0

        await eventually(level, 60, "the lag to be gone")
    await through_proxy.close()


async def test_a_database_that_is_away_is_waited_for(shard: Shard, database_proxy: FaultProxy) -> None:
    """OBX-1: without the database nothing is published; with it, everything."""
    async with shard.relaying(database_url=database_proxy.database_url(shard.database_url)) as relay:
        await shard.append(10)
        await shard.relayed()
        database_proxy.refuse()
        await database_proxy.cut()
        await shard.append(200)
        await relay.reaches(1, RelayState.WAITING)
        database_proxy.accept()
        await shard.relayed()


async def test_an_event_too_large_for_the_broker_becomes_a_pointer(shard: Shard) -> None:
    """OBX-2: the pointer says where to ask for the Event, and nothing behind it waits."""
    await shard.append(2)
    await shard.append(1, size=600 * 1024)
    await shard.append(130)
    async with shard.relaying() as relay:
        await assert_pointer(shard, 3, 133)
        assert relay.metric("relay_stubs_total") == 1
        assert (await relay.shards.finding()).detail == ""


@pytest.mark.parametrize("slow_message_seconds", [0.0, 1.0])
async def test_an_event_that_the_broker_refuses_becomes_a_pointer(
    shard: Shard, monkeypatch: pytest.MonkeyPatch, slow_message_seconds: float
) -> None:
    """OBX-2: found in the middle of a batch or burst, by the broker's own limit, which no relay knows beforehand."""
    monkeypatch.setattr(publish_pipeline, "slow_message_seconds", slow_message_seconds)
    monkeypatch.setattr(publish_pipeline, "slow_spans_min", 1)
    monkeypatch.setattr(publish_pipeline, "span_messages", 100)
    async with shard.relaying() as relay:
        await relay.reaches(1, RelayState.RELAYING)
        info = await api(shard.client, f"STREAM.INFO.{shard.stream}")
        changed = await api(shard.client, f"STREAM.UPDATE.{shard.stream}", info["config"] | {"max_msg_size": 2000})
        assert "error" not in changed
        await shard.append(150)
        await shard.relayed()
        await shard.append(150, wake=False)
        await shard.append(1, size=5000, wake=False)
        await shard.append(149)
        await assert_pointer(shard, 301, 450)
        assert relay.metric("relay_stubs_total") == 1


async def assert_pointer(shard: Shard, position: int, head: int) -> None:
    async def level() -> bool:
        state = await shard.state()
        return state is not None and state["last_seq"] == head

    await eventually(level, 60, f"the stream to end at {head}")
    messages = await shard.messages()
    for row, message in zip(await shard.log(), messages, strict=True):
        if row[0] != position:
            assert (message.sequence, message.subject, message.mark.event_id, message.data) == row
            assert read_stub(message.headers, message.data) is None
    stub = messages[position - 1]
    cursor = await shard.connection.execute(
        "SELECT event_id, group_id, sequence, position, encode(chain_hash, 'hex') FROM event_log"
        " WHERE shard_id = %s AND position = %s",
        (shard.shard_id, position),
    )
    [(event_id, group_id, sequence, position, chain_hash)] = await cursor.fetchall()
    assert read_stub(stub.headers, stub.data) == PointerStub(
        event_id=event_id, group_id=group_id, sequence=sequence, position=position, chain_hash=chain_hash
    )
    assert stub.headers["Weavehold-Stub"] == stub_format
    assert stub.mark.event_id == event_id
    assert len(stub.data) < 1000


async def test_an_idle_relay_asks_nothing_faster_than_twice_a_second(shard: Shard) -> None:
    """Idle: no polling faster than twice a second; the broker is asked every few seconds only."""
    async with shard.relaying() as relay:
        await shard.append(5)
        await relay.reaches(1, RelayState.RELAYING)
        await shard.relayed()
        pages = 0
        original = relay_shard.Outbox.page

        async def counted(*arguments: object, **named: object) -> object:
            nonlocal pages
            pages += 1
            return await original(*arguments, **named)  # type: ignore[arg-type]

        with pytest.MonkeyPatch.context() as patched:
            patched.setattr(relay_shard.Outbox, "page", counted)
            sent = shard.client.stats["out_msgs"]
            await asyncio.sleep(3)
        assert pages <= 1
        assert shard.client.stats["out_msgs"] - sent <= 6


async def test_a_relay_of_an_unknown_organization_is_not_ready(shard: Shard) -> None:
    """OPS-1: readiness fails closed, and says what to do."""
    async with shard.relaying() as relay:
        relay.shards._shards = ()
        assert "weavehold init" in (await relay.shards.finding()).detail
