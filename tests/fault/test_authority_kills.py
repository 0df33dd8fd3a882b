"""The authority killed with -9 at named points; the same Command sent again; durable state inspected afterwards."""

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import nats
import pytest
from nats.errors import Error as BrokerError

from contracts import subjects
from contracts.receipt import Receipt
from contracts.reply import decode_reply
from ops.bench.workload import create_mission, group_name, register_agent
from ops.init import Organization, initialize
from services.process.database import connect
from tests.agent_rig import Process
from tests.authority_rig import coordinator, post, rows, run_sql, verified
from tests.fault_proxy import FaultProxy

answer_seconds = 120.0


class Sender:
    """Sends the same bytes until the authority answers with a Receipt."""

    def __init__(self, broker: nats.NATS, organization: Organization) -> None:
        self._broker = broker
        self._subject = subjects.command_ingress(organization.organization_id)

    async def once(self, raw: bytes, seconds: float) -> Receipt | None:
        """One request; None when nothing came back in time or the answer asks for another try."""
        try:
            reply = decode_reply((await self._broker.request(self._subject, raw, timeout=seconds)).data)
        except (BrokerError, TimeoutError):
            return None
        if isinstance(reply, Receipt):
            return reply
        assert reply.retryable, reply
        return None

    async def until_accepted(self, raw: bytes) -> Receipt:
        """Requests until a Receipt comes."""
        async with asyncio.timeout(answer_seconds):
            while (receipt := await self.once(raw, 2.0)) is None:
                await asyncio.sleep(0.1)
        return receipt


@asynccontextmanager
async def running(
    organization: Organization, database_url: str, nats_url: str, folder: Path, processes: int = 1
) -> AsyncIterator[list[Process]]:
    """Authority processes; killed and ended ones may be started again."""
    variables = {
        "WEAVEHOLD_DATABASE_URL": database_url,
        "WEAVEHOLD_NATS_URL": nats_url,
        "WEAVEHOLD_ORGANIZATION": organization.organization_id,
        "WEAVEHOLD_KEYS_DIR": str(organization.keys_directory),
        "WEAVEHOLD_HEALTH_PORT": "0",
    }
    started = [
        Process("services.authority.main", variables | {"WEAVEHOLD_INSTANCE": f"a{n}"}, folder / f"authority-{n}.log")
        for n in range(processes)
    ]
    try:
        for process in started:
            process.start()
        yield started
    finally:
        for process in started:
            await asyncio.to_thread(process.end)


@pytest.fixture
async def sender(organization: Organization, nats_url: str) -> AsyncIterator[Sender]:
    """A client connected to the broker directly."""
    broker = await nats.connect(nats_url)
    yield Sender(broker, organization)
    await broker.close()


async def prepare(sender: Sender, organization: Organization) -> None:
    """A Coordinator and one Mission."""
    keys = organization.keys
    await sender.until_accepted(register_agent(keys.operator, keys.registry, coordinator, organization.organization_id))
    await sender.until_accepted(create_mission(keys.mission_owner, 0, coordinator.principal.id))


async def posted(database_url: str) -> list[tuple[Any, ...]]:
    """The Messages in the log."""
    return await rows(database_url, "SELECT event_id, sequence FROM event_log WHERE kind = 'message.posted'")


async def until(database_url: str, statement: str) -> None:
    """Wait until a query finds something."""
    async with await connect(database_url, name="watcher") as connection, asyncio.timeout(answer_seconds):
        while not await (await connection.execute(statement)).fetchall():
            await asyncio.sleep(0.02)


async def test_killed_before_the_commit(
    organization: Organization, database_url: str, nats_url: str, sender: Sender, tmp_path: Path
) -> None:
    """ACC-2, MWP-EVT-003: killed while it waits for the shard's lock: nothing is visible; a retry is accepted once."""
    async with running(organization, database_url, nats_url, tmp_path) as [authority]:
        await prepare(sender, organization)
        raw = post(organization)
        async with await connect(database_url, name="holder", autocommit=False) as holder:
            await holder.execute("SELECT FROM shard FOR UPDATE")
            waiting = asyncio.create_task(sender.once(raw, 1.0))
            await until(
                database_url, "SELECT 1 FROM pg_stat_activity WHERE wait_event_type = 'Lock' AND query LIKE '%shard%'"
            )
            authority.kill()
            await holder.rollback()
        assert await waiting is None
        assert await posted(database_url) == []
        authority.start()
        receipt = await sender.until_accepted(raw)
    assert await posted(database_url) == [(receipt.events[0].event_id, 2)]
    await verified(database_url, organization)


async def test_killed_while_the_commit_is_on_its_way(
    organization: Organization, database_url: str, nats_url: str, sender: Sender, tmp_path: Path
) -> None:
    """ACC-2: killed after its writes and COMMIT were sent: the outcome is unknown to all; the retry finds one Event."""
    async with running(organization, database_url, nats_url, tmp_path) as [authority]:
        await prepare(sender, organization)
        raw = post(organization)
        async with held_back(database_url, raw):
            waiting = asyncio.create_task(sender.once(raw, 1.0))
            await until(database_url, waits_at_the_gate)
            authority.kill()
        assert await waiting is None
        authority.start()
        receipt = await sender.until_accepted(raw)
    assert await posted(database_url) == [(receipt.events[0].event_id, 2)]
    await verified(database_url, organization)


async def test_killed_after_the_commit_before_the_reply(
    organization: Organization, database_url: str, nats_url: str, sender: Sender, tmp_path: Path
) -> None:
    """ACC-2, MWP-EVT-003, DUR-1: committed, the reply held back, killed: the retry gets the Receipt that was stored."""
    async with (
        FaultProxy.to_broker(nats_url) as proxy,
        running(organization, database_url, proxy.nats_url, tmp_path) as [authority],
    ):
        await prepare(sender, organization)
        raw = post(organization)
        async with held_back(database_url, raw):
            waiting = asyncio.create_task(sender.once(raw, 1.0))
            await until(database_url, waits_at_the_gate)
            proxy.stall()
        await until(database_url, "SELECT 1 FROM event_log WHERE kind = 'message.posted'")
        authority.kill()
        assert await waiting is None
        [(stored,)] = await rows(database_url, "SELECT receipt FROM receipt ORDER BY first_position DESC LIMIT 1")
        proxy.resume()
        authority.start()
        receipt = await sender.until_accepted(raw)
    assert json.loads(bytes(stored))["events"][0]["eventId"] == receipt.events[0].event_id
    assert await posted(database_url) == [(receipt.events[0].event_id, 2)]
    await verified(database_url, organization)


async def test_two_processes_one_of_them_killed_under_load(
    organization: Organization, database_url: str, nats_url: str, sender: Sender, tmp_path: Path
) -> None:
    """ACC-2, OPS-1: shards spread over two processes; one is killed while Commands flow: each ends with one Receipt."""
    async with running(organization, database_url, nats_url, tmp_path, processes=2) as authorities:
        await prepare(sender, organization)
        keys = organization.keys
        for number in range(1, 8):
            await sender.until_accepted(create_mission(keys.mission_owner, number, coordinator.principal.id))
        raws = [post(organization, place % 8) for place in range(200)]
        sending = asyncio.gather(*(sender.until_accepted(raw) for raw in raws))
        await asyncio.sleep(0.2)
        authorities[0].kill()
        receipts = await sending
    assert len({receipt.events[0].event_id for receipt in receipts}) == 200
    sequences = await rows(
        database_url, "SELECT sequence FROM event_log WHERE group_id = %s ORDER BY sequence", group_name(3)
    )
    assert [sequence for (sequence,) in sequences] == list(range(1, 27))
    report = await verified(database_url, organization)
    assert report.examined["receipts"] == 1 + 8 + 200


async def test_the_database_restarts_under_load(private_postgres: Any, nats_url: str, tmp_path: Path) -> None:
    """ACC-2, RULE-05: PostgreSQL is killed with -9 and comes back: bounded waits, retryable answers, one Event each."""

    connection = await connect(private_postgres.database_url, name="fixture")
    organization = await initialize(connection, name="test", keys_directory=tmp_path / "keys", shard_count=2)
    await connection.close()
    broker = await nats.connect(nats_url)
    sender = Sender(broker, organization)
    async with running(organization, private_postgres.database_url, nats_url, tmp_path):
        await prepare(sender, organization)
        raws = [post(organization) for _ in range(60)]
        sending = asyncio.gather(*(sender.until_accepted(raw) for raw in raws))
        await asyncio.sleep(0.1)
        await asyncio.to_thread(private_postgres.server.kill)
        await asyncio.sleep(0.5)
        await asyncio.to_thread(private_postgres.server.start)
        await sending
        await verified(private_postgres.database_url, organization)
    await broker.close()
    assert len(await posted(private_postgres.database_url)) == 60


waits_at_the_gate = (
    "SELECT 1 FROM pg_stat_activity "
    "WHERE wait_event_type = 'Lock' AND wait_event = 'advisory' AND datname = current_database()"
)


@asynccontextmanager
async def held_back(database_url: str, raw: bytes) -> AsyncIterator[None]:
    """The insert of one Command's Receipt waits until the block has ended."""
    action_id = json.loads(raw)["actionId"]
    await run_sql(
        database_url,
        "CREATE FUNCTION pass_gate() RETURNS trigger LANGUAGE plpgsql AS "
        "$$ BEGIN PERFORM pg_advisory_xact_lock(42); RETURN NULL; END $$",
        f"CREATE TRIGGER gate AFTER INSERT ON receipt FOR EACH ROW WHEN (new.action_id = '{action_id}') "
        "EXECUTE FUNCTION pass_gate()",
    )
    async with await connect(database_url, name="gate") as gate:
        await gate.execute("SELECT pg_advisory_lock(42)")
        yield
        await gate.execute("SELECT pg_advisory_unlock(42)")
