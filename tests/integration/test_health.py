"""Readiness: one state per dependency, fail closed, on real servers that are really taken away (OPS-1)."""

import asyncio
from collections.abc import AsyncIterator

import psycopg
import pytest
from nats.aio.client import Client

from ops.embedded import http_probe
from ops.embedded.broker_server import BrokerServer
from ops.embedded.http_probe import probe
from services.process import broker
from services.process.database import Pool, PrimaryState, connect, open_pool, primary_state
from services.process.health import Finding, Health, HealthServer, State
from services.process.metrics import Metrics
from tests.conftest import PrivatePostgres
from tests.fault_proxy import FaultProxy
from tests.relay_rig import eventually


@pytest.fixture
async def health() -> Health:
    return Health()


@pytest.fixture
async def port(health: Health) -> AsyncIterator[int]:
    metrics = Metrics("test")
    server = HealthServer(health, metrics)
    server.start()
    yield server.port
    await server.close()
    await health.close()
    metrics.close()


async def readiness(port: int) -> tuple[int, dict[str, str]]:
    answer = await probe(port, "/readyz")
    assert answer is not None, "no answer in time"
    status, body = answer
    assert body["ready"] is (status == 200)
    return status, {name: found["state"] for name, found in body["dependencies"].items()}


async def becomes(port: int, status: int, seconds: float = 60) -> dict[str, str]:
    async with asyncio.timeout(seconds):
        while True:
            found, states = await readiness(port)
            if found == status:
                return states
            await asyncio.sleep(0.05)


@pytest.fixture
async def private_pool(private_postgres: PrivatePostgres) -> AsyncIterator[Pool]:
    pool = await open_pool(private_postgres.database_url, name="test", maximum=2)
    yield pool
    await pool.close()


async def test_readiness_follows_the_database(
    health: Health, port: int, private_postgres: PrivatePostgres, private_pool: Pool
) -> None:
    """OPS-1: a database killed with -9 makes the process not ready; when it is back the same pool serves again."""
    health.add_database(private_pool)
    assert await becomes(port, 200) == {"database": "ready"}
    private_postgres.server.kill()
    assert await becomes(port, 503) == {"database": "failed"}
    await asyncio.to_thread(private_postgres.server.start)
    assert await becomes(port, 200) == {"database": "ready"}


async def test_a_read_only_primary_is_not_ready(health: Health, port: int, database_url: str) -> None:
    """OPS-1: readiness needs a writable primary, not just a server that answers."""
    pool = await open_pool(database_url, name="test", maximum=1)
    try:
        health.add_database(pool)
        assert await becomes(port, 200) == {"database": "ready"}
        async with pool.connection() as connection:
            await connection.execute("SET SESSION CHARACTERISTICS AS TRANSACTION READ ONLY")
        assert await becomes(port, 503) == {"database": "failed"}

        async def told() -> bool:
            return (await health.findings())["database"].detail == "the database is read-only"

        await eventually(told, 60, "the reason")
    finally:
        await pool.close()


async def test_a_stalled_database_is_not_ready_within_the_bound(
    health: Health, port: int, database_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """OPS-1: a check that hangs counts as failed; the probe itself is answered while it hangs."""
    monkeypatch.setattr(http_probe, "probe_seconds_max", 60.0)
    async with FaultProxy.to_database(database_url) as proxy:
        pool = await open_pool(proxy.database_url(database_url), name="test", maximum=1)
        try:
            health.add_database(pool)
            await becomes(port, 200)
            proxy.stall()
            # Nothing ends the stall but this test: only its own bound ends the check.
            assert await readiness(port) == (503, {"database": "failed"})
            proxy.resume()
            await becomes(port, 200)
        finally:
            await pool.close()


async def test_readiness_follows_the_broker(health: Health, port: int, private_nats: BrokerServer) -> None:
    """OPS-1: a broker killed with -9 makes the process not ready; its restart is noticed by the same connection."""
    metrics = Metrics("test")
    client: Client = await broker.connect(private_nats.url, name="test", metrics=metrics)
    try:
        health.add_broker(client)
        assert await becomes(port, 200) == {"broker": "ready"}
        private_nats.kill()
        assert await becomes(port, 503) == {"broker": "failed"}
        await asyncio.to_thread(private_nats.start)
        assert await becomes(port, 200) == {"broker": "ready"}
        exposed = metrics.exposition()[0].decode()
        for event in ("disconnected", "reconnected"):
            assert f'weavehold_broker_connection_events_total{{event="{event}"}}' in exposed
    finally:
        await client.close()
        metrics.close()


async def test_a_silent_loop_is_not_ready(health: Health, port: int) -> None:
    """OPS-1: a loop that hangs is seen by its silence, and forgiven when it beats again."""
    heartbeat = health.heartbeat("lane", max_silence_seconds=3_600)
    assert (await readiness(port))[0] == 200
    # An hour and a little later.
    heartbeat._last -= 3_601
    assert await readiness(port) == (503, {"loop:lane": "failed"})
    heartbeat.beat()
    assert (await readiness(port))[0] == 200
    heartbeat.die("it met a fault")
    heartbeat.beat()
    assert (await readiness(port))[0] == 503


async def test_a_check_that_raises_or_hangs_fails_closed_and_hides_no_other(
    health: Health, port: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """OPS-1: every dependency has its own state, whatever happens to another's check."""

    async def raises() -> Finding:
        raise psycopg.OperationalError("gone")

    async def hangs() -> Finding:
        await asyncio.Event().wait()
        return Finding(State.READY)

    async def ready() -> Finding:
        return Finding(State.READY)

    health.add("registry", raises)
    health.add("admission", hangs)
    health.add("state", ready)
    monkeypatch.setattr(http_probe, "probe_seconds_max", 60.0)
    assert await readiness(port) == (503, {"registry": "failed", "admission": "failed", "state": "ready"})
    with pytest.raises(ValueError, match="registered already"):
        health.add("state", ready)


async def test_liveness_does_not_depend_on_dependencies(health: Health, port: int) -> None:
    """OPS-1: restarting a process does not bring its database back, so liveness stays true."""
    health.heartbeat("lane", max_silence_seconds=0).die("gone")
    assert (await readiness(port))[0] == 503
    assert await probe(port, "/livez") == (200, {"live": True})


async def test_a_stopping_process_is_not_ready(health: Health, port: int) -> None:
    """OPS-1: a graceful stop takes the process out of service first."""
    health.stop()
    assert await readiness(port) == (503, {"process": "failed"})


async def test_primary_state_tells_a_writable_server(database_url: str) -> None:
    """OPS-1: the state comes from the server, through any connection."""
    connection = await connect(database_url, name="test")
    try:
        assert await primary_state(connection) is PrimaryState.WRITABLE
    finally:
        await connection.close()
