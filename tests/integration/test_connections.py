"""Connections to real servers under real faults: bounds, classification, recovery (DUR-3, OPS-1)."""

import asyncio
import socket

import nats.errors
import psycopg
import pytest
from psycopg_pool import PoolTimeout

from ops.embedded.broker_server import BrokerServer
from services.process import broker, database
from services.process.database import FaultKind, Timeouts, classify, connect, open_pool
from services.process.metrics import Metrics
from tests.fault_proxy import FaultProxy


async def test_a_cut_connection_is_transient_and_the_pool_replaces_it(
    database_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """DUR-3: what was under way fails as transient; the next user of the pool gets a sound connection."""
    monkeypatch.setattr(database, "trusted_seconds", 0)
    async with FaultProxy.to_database(database_url) as proxy:
        pool = await open_pool(proxy.database_url(database_url), name="test", maximum=1)
        try:
            with pytest.raises(psycopg.OperationalError) as lost:
                async with pool.connection() as connection:
                    await proxy.cut()
                    await connection.execute("SELECT 1")
            assert classify(lost.value) is FaultKind.TRANSIENT
            async with pool.connection() as connection:
                row = await (await connection.execute("SELECT 1")).fetchone()
            assert row == (1,)
            await proxy.cut()  # while it lies idle in the pool
            async with pool.connection() as connection:
                await connection.execute("SELECT 1")
            monkeypatch.setattr(database, "trusted_seconds", 60)
            await proxy.cut()  # a moment after it stood: its user meets the fault, and the one after him does not
            with pytest.raises(psycopg.OperationalError) as met:
                async with pool.connection() as connection:
                    await connection.execute("SELECT 1")
            assert classify(met.value) is FaultKind.TRANSIENT
            async with pool.connection() as connection:
                await connection.execute("SELECT 1")
        finally:
            await pool.close()


async def test_a_lock_is_not_waited_for_without_end(database_url: str) -> None:
    """RULE-08: the lock timeout of a connection ends the wait, as a transient fault."""
    holder = await connect(database_url, name="holder", autocommit=False)
    waiter = await connect(database_url, name="waiter", timeouts=Timeouts(lock=0.2))
    try:
        await holder.execute("SELECT pg_advisory_xact_lock(1)")
        with pytest.raises(psycopg.errors.LockNotAvailable) as ended:
            await waiter.execute("SELECT pg_advisory_lock(1)")
        assert classify(ended.value) is FaultKind.TRANSIENT
    finally:
        await waiter.close()
        await holder.close()


async def test_an_idle_transaction_does_not_hold_its_locks_for_ever(database_url: str) -> None:
    """RULE-08: a stalled holder is ended by the server, so its locks come free."""
    holder = await connect(database_url, name="holder", autocommit=False, timeouts=Timeouts(idle_in_transaction=0.3))
    waiter = await connect(database_url, name="waiter", timeouts=Timeouts(lock=60))
    try:
        await holder.execute("SELECT pg_advisory_xact_lock(1)")
        # Its transaction would stay open for as long as this test.
        await waiter.execute("SELECT pg_advisory_lock(1)")
        with pytest.raises(psycopg.Error) as ended:
            await holder.execute("SELECT 1")
        assert classify(ended.value) is FaultKind.TRANSIENT
    finally:
        await waiter.close()
        await holder.close()


async def test_a_full_pool_makes_its_callers_wait_only_so_long(database_url: str) -> None:
    """DUR-3: waiting for a connection has a bound; running into it is transient."""
    pool = await open_pool(database_url, name="test", maximum=1)
    try:
        async with pool.connection():
            with pytest.raises(PoolTimeout) as full:
                async with pool.connection(timeout=0.1):
                    pass
        assert classify(full.value) is FaultKind.TRANSIENT
    finally:
        await pool.close()


async def test_an_unreachable_database_is_reported_in_bounded_time() -> None:
    """OPS-1: nothing listens: a transient fault, at once."""
    with socket.socket() as silent:
        # Held and not listened on, so that nobody else answers there meanwhile.
        silent.bind(("127.0.0.1", 0))
        url = f"postgresql://postgres@127.0.0.1:{silent.getsockname()[1]}/none?sslmode=disable"
        with pytest.raises(psycopg.OperationalError) as refused:
            await connect(url, name="test")
    assert classify(refused.value) is FaultKind.TRANSIENT


async def test_a_lost_broker_connection_comes_back_by_itself(nats_url: str) -> None:
    """OPS-1: reconnection is unlimited, subscriptions survive it, and each step is counted."""
    metrics = Metrics("test")
    async with FaultProxy.to_broker(nats_url) as proxy:
        client = await broker.connect(proxy.nats_url, name="test", metrics=metrics)
        try:
            subscription = await client.subscribe("greeting")
            for _ in range(3):
                before = client.stats["reconnects"]
                await proxy.cut()
                async with asyncio.timeout(60):
                    while client.stats["reconnects"] == before or not client.is_connected:
                        await asyncio.sleep(0.02)
            await client.publish("greeting", b"hello")
            message = await subscription.next_msg(timeout=60)
            assert message.data == b"hello"
            assert 'event="disconnected"' in metrics.exposition()[0].decode()
        finally:
            await client.close()
    metrics.close()


async def test_what_the_broker_refuses_is_visible(
    private_nats: BrokerServer, capfd: pytest.CaptureFixture[str]
) -> None:
    """OPS-1: a wrong token does not look like a timeout; the caller gets an error and the log says why."""
    private_nats.stop()
    private_nats.token = "a-token-of-this-test"
    await asyncio.to_thread(private_nats.start)
    with pytest.raises((nats.errors.Error, OSError)):
        await broker.connect(private_nats.url, name="test", token="wrong")
    printed = capfd.readouterr()
    assert "uthorization" in printed.out + printed.err
    client = await broker.connect(private_nats.url, name="test", token=private_nats.token)
    await client.close()
