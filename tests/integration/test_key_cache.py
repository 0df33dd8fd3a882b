"""Remembered keys: what they save, and how soon a change is seen (TRU-2, RULE-06)."""

import asyncio
from pathlib import Path

import pytest

from contracts import subjects
from services.authority import key_cache
from services.authority.key_cache import KeyRegistryCache, KeysUnavailable, SynchronousKeyResolver
from services.process.database import open_pool
from tests.builders import end_key, signing_key
from tests.fault_proxy import FaultProxy
from tests.reads_rig import planted, serving
from tests.relay_rig import eventually


class Clock:
    """Seconds that a test moves."""

    def __init__(self) -> None:
        self.seconds = 1_000.0

    def __call__(self) -> float:
        """The time."""
        return self.seconds


async def test_a_key_is_learned_once_and_an_absence_briefly(database_url: str, tmp_path: Path) -> None:
    """TRU-2: unknown until looked up; then remembered; "not registered" is remembered for a second at most."""
    async with planted(database_url, tmp_path) as org:
        pool, clock = await open_pool(database_url, name="keys-test", maximum=1), Clock()
        try:
            cache = KeyRegistryCache(pool, org.id, clock)
            key = signing_key("worker")
            assert await cache.learn(key.key_id) is False
            await org.add_agent("worker", valid_until="2030-01-01T00:00:00.123456789Z")
            assert await cache.learn(key.key_id) is False
            clock.seconds += 1.0
            assert cache.resolve(key.key_id) is None
            assert await cache.learn(key.key_id) is True
            found = cache.resolve(key.key_id)
            clock.seconds += 61.0
            assert cache.resolve(key.key_id) is None
        finally:
            await pool.close()
    assert found is not None
    assert (found.key_id, found.principal, found.public_key) == (key.key_id, key.principal, key.public_key)
    assert (found.valid_from, found.valid_until) == ("2020-01-01T00:00:00Z", "2030-01-01T00:00:00.123456789Z")


async def test_an_announced_change_forgets_what_was_remembered(
    database_url: str, nats_url: str, tmp_path: Path
) -> None:
    """TRU-2: the announcement of a change empties the cache and raises the version that other processes compare."""
    async with planted(database_url, tmp_path) as org, serving(database_url, nats_url, org) as authority:
        key = await org.add_agent("worker")
        await authority.keys.learn(key.key_id)
        before = authority.keys.version
        await authority.nc.publish(subjects.keys_changed(org.id))

        async def risen() -> bool:
            return authority.keys.version > before

        await eventually(risen, 60, "the version to rise")
        assert authority.keys.resolve(key.key_id) is None


async def test_an_admission_process_resolves_by_itself(database_url: str, tmp_path: Path) -> None:
    """TRU-2: over its own plain connection: looked up once, forgotten at a newer version, reconnected when cut."""
    async with planted(database_url, tmp_path) as org:
        key = await org.add_agent("worker")
        async with FaultProxy.to_database(database_url) as proxy:
            resolver = SynchronousKeyResolver(proxy.database_url(database_url), org.id)
            found = await asyncio.to_thread(resolver.resolve, key.key_id)
            assert found is not None
            assert found.valid_until is None
            assert await asyncio.to_thread(resolver.resolve, "urn:weavehold:key:unknown") is None
            await end_key(org.connection, key.key_id, valid_until="2026-01-01T00:00:00Z")
            resolver.at_least(0)
            assert resolver.resolve(key.key_id) is found
            resolver.at_least(1)
            ended = await asyncio.to_thread(resolver.resolve, key.key_id)
            assert ended is not None
            assert ended.valid_until == "2026-01-01T00:00:00Z"
            await org.connection.execute(
                "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name = 'weavehold-keys'"
            )
            resolver.at_least(2)
            assert await asyncio.to_thread(resolver.resolve, key.key_id) is not None
            resolver.close()
        with pytest.raises(KeysUnavailable):
            await asyncio.to_thread(resolver.resolve, "urn:weavehold:key:other")


async def test_what_is_remembered_is_bounded(
    database_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """TRU-2: neither many keys nor many made-up key IDs grow a process without end."""
    monkeypatch.setattr(key_cache, "keys_remembered_max", 2)
    monkeypatch.setattr(key_cache, "absent_keys_max", 2)
    async with planted(database_url, tmp_path) as org:
        keys = [await org.add_agent(f"worker-{number}") for number in range(3)]
        pool = await open_pool(database_url, name="keys-test", maximum=1)
        try:
            cache = KeyRegistryCache(pool, org.id)
            for key in keys:
                await cache.learn(key.key_id)
                await cache.learn(f"{key.key_id}-unknown")
            known = [cache.resolve(key.key_id) is not None for key in keys]
        finally:
            await pool.close()
    assert known == [False, True, True]
