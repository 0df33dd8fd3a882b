"""Streams that are lost, set back, swapped, ahead or of another history (OBX-1, RULE-16, RULE-18)."""

import asyncio
import json
import secrets
import shutil
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from contracts import subjects
from contracts.delivery import mark_header
from ops.embedded.broker_server import BrokerServer
from ops.init import Organization
from outbox_relay import relay_shard
from outbox_relay.relay_shard import RelayState
from outbox_relay.stream import StreamLimits
from services.process.health import State
from tests.relay_rig import Shard, api, eventually, open_shard


@pytest.fixture
async def shard(database_url: str, nats_url: str, organization: Organization) -> AsyncIterator[Shard]:
    async with open_shard(database_url, nats_url, organization) as opened:
        yield opened


async def forget_last(shard: Shard, count: int) -> None:
    """Take the newest rows from the log, as a database that was set back would have lost them."""
    async with shard.connection.transaction():
        await shard.connection.execute("SET LOCAL session_replication_role = replica")
        await shard.connection.execute(
            "DELETE FROM event_log WHERE shard_id = %(shard_id)s AND position >"
            " (SELECT max(position) - %(count)s FROM event_log WHERE shard_id = %(shard_id)s)",
            {"shard_id": shard.shard_id, "count": count},
        )


async def open_incarnation(shard: Shard) -> Shard:
    """What an operator does after a rollback."""
    incarnation = secrets.token_hex(16)
    await shard.connection.execute(
        "INSERT INTO incarnation (organization_id, ordinal, incarnation, parent, epoch_base, reason,"
        " system_identifier, timeline)"
        " SELECT organization_id, ordinal + 1, %s, incarnation, epoch_base + 1, 'test', system_identifier, timeline"
        " FROM incarnation"
        " ORDER BY ordinal DESC LIMIT 1",
        (incarnation,),
    )
    return shard.later(incarnation)


async def test_a_deleted_stream_is_made_again_and_refilled(shard: Shard) -> None:
    """OBX-1: at the next Event."""
    async with shard.relaying() as relay:
        await shard.append(300)
        await shard.relayed()
        await api(shard.client, f"STREAM.DELETE.{shard.stream}")
        await shard.append(1)
        await shard.relayed()
        assert relay.metric("relay_repositions_total") >= 1


async def test_an_idle_relay_notices_a_deleted_stream(shard: Shard, monkeypatch: pytest.MonkeyPatch) -> None:
    """OBX-1: nothing stays unpublished for good, also when nothing more is committed."""
    monkeypatch.setattr(relay_shard, "inspection_seconds", 0.3)
    async with shard.relaying():
        await shard.append(30)
        await shard.relayed()
        await api(shard.client, f"STREAM.DELETE.{shard.stream}")
        await shard.relayed()


async def test_a_purged_stream_goes_on_and_is_not_refilled(shard: Shard) -> None:
    """OBX-1: a purge keeps the last sequence; readers fetch what they miss by replay."""
    async with shard.relaying():
        await shard.append(20)
        await shard.relayed()
        await api(shard.client, f"STREAM.PURGE.{shard.stream}")
    await shard.append(5)
    async with shard.relaying():

        async def level() -> bool:
            state = await shard.state()
            return state is not None and state["last_seq"] == 25

        await eventually(level, 60, "the stream to end at 25")
    await shard.compare(first=21)


async def test_a_wiped_store_is_refilled(shard: Shard, nats_server: BrokerServer) -> None:
    """OBX-1: the whole store is gone, under a running relay."""
    others = [shard.other(0), shard.other(2)]
    async with shard.relaying():
        for each in (shard, *others):
            await each.append(120)
            await each.relayed()
        await asyncio.to_thread(nats_server.kill)
        shutil.rmtree(store_of(nats_server))
        await asyncio.to_thread(nats_server.start)
        for each in (shard, *others):
            await each.relayed()


async def test_an_older_store_that_comes_back_is_brought_up_to_date(
    shard: Shard, nats_server: BrokerServer, tmp_path: Path
) -> None:
    """OBX-1: rolled back while the relay runs; it goes on from where the older store ends."""
    async with shard.relaying():
        await shard.append(120)
        await shard.relayed()
        await asyncio.to_thread(nats_server.stop)
        shutil.copytree(store_of(nats_server), tmp_path / "older")
        await asyncio.to_thread(nats_server.start)
        await shard.append(150)
        await shard.relayed()
        await asyncio.to_thread(nats_server.kill)
        shutil.rmtree(store_of(nats_server))
        shutil.copytree(tmp_path / "older", store_of(nats_server))
        await asyncio.to_thread(nats_server.start)
        await shard.append(3)
        await shard.relayed()


def store_of(server: BrokerServer) -> Path:
    return server.directory / "jetstream"


async def test_a_stream_ahead_of_the_log_stops_its_shard_alone(shard: Shard) -> None:
    """RULE-16: it proves that the database lost commits. Nothing is published, and readiness says why."""
    other = shard.other(2)
    async with shard.relaying():
        await shard.append(20)
        await shard.relayed()
    before = await shard.messages()
    await forget_last(shard, 5)
    async with shard.relaying() as relay:
        detail = await relay.reaches(1, RelayState.BLOCKED)
        assert "ahead" in detail
        assert "new incarnation" in detail
        assert "shard 1" in (await relay.shards.finding()).detail
        await other.append(5)
        await other.relayed()
        await shard.append(2)
        await asyncio.sleep(0.5)
        assert await shard.messages() == before


async def test_a_log_that_moved_on_after_a_rollback_is_recognised(shard: Shard) -> None:
    """RULE-16: the log has overtaken the stream's end again, with other Events; the last message tells."""
    async with shard.relaying():
        await shard.append(20)
        await shard.relayed()
    before = await shard.messages()
    await forget_last(shard, 5)
    await shard.append(9)
    async with shard.relaying() as relay:
        assert "forked" in await relay.reaches(1, RelayState.BLOCKED)
        assert await shard.messages() == before


async def test_a_new_incarnation_gets_a_stream_of_its_own(shard: Shard) -> None:
    """RULE-16, RULE-18: the blocked relay goes on by itself; the old stream keeps its messages and takes no more."""
    async with shard.relaying() as relay:
        await shard.append(20)
        await shard.relayed()
        before = await shard.messages()
        await forget_last(shard, 5)
        await shard.append(1)
        await relay.reaches(1, RelayState.BLOCKED)
        later = await open_incarnation(shard)
        await later.append(4)
        await later.relayed()
        assert {message.mark.incarnation for message in await later.messages()} == {later.incarnation}
        assert await shard.messages() == before
        retired = (await api(shard.client, f"STREAM.INFO.{shard.stream}"))["config"]
        assert retired["subjects"] == [
            subjects.retired_events(shard.organization.organization_id, shard.shard_id, shard.incarnation)
        ]
        assert retired["allow_atomic"] is True


async def test_a_running_relay_follows_into_a_new_incarnation(shard: Shard) -> None:
    """RULE-18: a row of a new incarnation never enters the stream of the old one."""
    async with shard.relaying():
        await shard.append(120)
        await shard.relayed()
        later = await open_incarnation(shard)
        await later.append(130)
        await later.relayed()
    assert (await shard.state() or {})["last_seq"] == 120


async def test_a_stream_of_an_unknown_incarnation_stops_the_relay(shard: Shard) -> None:
    """RULE-16: the database was set back to before that incarnation was opened."""
    unknown = shard.later(secrets.token_hex(16))
    made = {
        "name": unknown.stream,
        "subjects": [subjects.shard_events(shard.organization.organization_id, shard.shard_id)],
    }
    assert "error" not in await api(shard.client, f"STREAM.CREATE.{unknown.stream}", made)
    await shard.append(3)
    async with shard.relaying() as relay:
        detail = await relay.reaches(1, RelayState.BLOCKED)
        assert "foreign" in detail
        assert unknown.stream in detail
        assert (await unknown.state() or {})["last_seq"] == 0


async def test_a_stream_retired_by_a_later_incarnation_stops_the_relay(shard: Shard) -> None:
    """RULE-18: an old primary's relay wakes up after the new one has taken the subjects over."""
    async with shard.relaying():
        await shard.append(3)
        await shard.relayed()
        later = await open_incarnation(shard)
        await later.append(3)
        await later.relayed()
    # Only a database that is set back forgets an incarnation.
    await shard.connection.execute("ALTER TABLE incarnation DISABLE TRIGGER ALL")
    await shard.connection.execute("DELETE FROM incarnation WHERE ordinal = 2")
    await forget_last(shard, 3)
    await shard.append(7)
    async with shard.relaying() as relay:
        assert "foreign" in await relay.reaches(1, RelayState.BLOCKED)
    assert (await later.state() or {})["last_seq"] == 6


async def test_a_message_of_a_higher_epoch_sends_the_relay_back_for_its_lease(shard: Shard) -> None:
    """RULE-18: the leases were set back with the database, the log was not; it comes back under a higher epoch."""
    async with shard.relaying():
        await shard.append(3)
        await shard.relayed()
    await shard.connection.execute("UPDATE relay_position SET epoch = 7")
    async with shard.relaying():
        await shard.append(1)
        await shard.relayed()
    await shard.connection.execute("UPDATE relay_position SET epoch = 5")
    async with shard.relaying():
        await shard.append(1)
        await shard.relayed()
    assert [message.mark.relay_epoch for message in await shard.messages()] == [1, 1, 1, 8, 8]


async def test_a_message_that_no_relay_published_stops_the_relay(shard: Shard) -> None:
    """RULE-16: what stands at the stream's end is not the Event of that position."""
    await shard.append(5)
    async with shard.relaying():
        await shard.relayed()
    await shard.append(1)
    stranger = subjects.event(shard.organization.organization_id, shard.shard_id, "urn:test:group:stranger")
    answer = await shard.client.request(stranger, b"{}", headers={mark_header: "nonsense"})
    assert json.loads(answer.data)["seq"] == 6
    async with shard.relaying() as relay:
        assert "forked" in await relay.reaches(1, RelayState.BLOCKED)


async def test_a_new_stream_starts_at_the_retention_horizon(shard: Shard) -> None:
    """OBX-1: what would age at once is not published again; the positions stay the log's."""
    await shard.append(200)
    async with shard.connection.transaction():
        await shard.connection.execute("SET LOCAL session_replication_role = replica")
        await shard.connection.execute(
            "UPDATE event_log SET accepted_at = accepted_at - interval '2 hours' WHERE position <= 137"
        )
    async with shard.relaying(limits=StreamLimits(max_age_seconds=3600)):

        async def level() -> bool:
            state = await shard.state()
            return state is not None and state["last_seq"] == 200

        await eventually(level, 60, "the stream to end at 200")
    assert (await shard.state() or {})["first_seq"] == 138
    await shard.compare(first=138)
    config = (await api(shard.client, f"STREAM.INFO.{shard.stream}"))["config"]
    assert config["max_age"] == 3600 * 10**9
    assert config["max_consumers"] == 100_000
    assert (config["storage"], config["retention"]) == ("file", "limits")
    assert config["allow_direct"]
    assert config["allow_atomic"]


async def test_a_hole_in_the_log_stops_its_shard_alone(shard: Shard) -> None:
    """OBX-2: nothing is skipped, even when the log itself has lost a row."""
    await shard.append(9)
    async with shard.connection.transaction():
        await shard.connection.execute("SET LOCAL session_replication_role = replica")
        await shard.connection.execute("DELETE FROM event_log WHERE shard_id = 1 AND position = 5")
    other = shard.other(2)
    async with shard.relaying() as relay:
        assert "hole between 0 and 9" in await relay.reaches(1, RelayState.BLOCKED)
        await other.append(3)
        await other.relayed()
        assert (await relay.shards.finding()).state is State.FAILED
    assert await shard.messages() == []
