"""Announcements of heads: soon and again after a touch, slowly for all others (RULE-21)."""

import asyncio
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from itertools import pairwise
from pathlib import Path

import msgspec
import pytest
from nats.aio.msg import Msg

from contracts import subjects
from contracts.identifiers import ShardId, token
from contracts.payloads.requests import GroupHead
from services.authority import announce_heads
from services.authority.announce_heads import HeadAnnouncer
from services.process import broker
from services.process.database import open_pool
from tests.builders import BuiltEvent
from tests.reads_rig import PlantedOrganization, planted
from tests.relay_rig import eventually


class Listener:
    """Hears all announcements of an Organization; `sent` tells when each was published, for they may come in bursts."""

    def __init__(self) -> None:
        self.heard: list[tuple[str, GroupHead]] = []
        self.sent: list[float] = []

    async def on_head(self, message: Msg) -> None:
        """One announcement."""
        self.heard.append((message.subject, msgspec.json.decode(message.data, type=GroupHead)))

    def sequences(self, group_id: str) -> list[int]:
        """What was announced of one Group."""
        return [head.sequence for _, head in self.heard if head.group_id == group_id]

    async def until(self, count: int) -> None:
        """Wait for so many announcements."""

        async def enough() -> bool:
            return len(self.heard) >= count

        await eventually(enough, 60, f"{count} announcements")

    async def until_announced(self, group_id: str, sequence: int) -> None:
        """Wait until a Group's head is announced as this."""

        async def announced() -> bool:
            return self.sequences(group_id)[-1:] == [sequence]

        await eventually(announced, 60, f"{group_id} to be announced at {sequence}")


@asynccontextmanager
async def announcing(
    database_url: str, nats_url: str, org: PlantedOrganization, held: set[int]
) -> AsyncIterator[tuple[HeadAnnouncer, Listener]]:
    """An announcer for these shards, and someone who listens."""
    nc = await broker.connect(nats_url, name="announcer-test")
    pool = await open_pool(database_url, name="announcer-test", maximum=2)
    listener, publish = Listener(), nc.publish

    async def noting(subject: str, payload: bytes) -> None:
        listener.sent.append(time.monotonic())
        await publish(subject, payload)

    nc.publish = noting  # type: ignore[method-assign,assignment]
    await nc.subscribe(f"wh.{token(org.id)}.head.>", cb=listener.on_head)
    announcer = HeadAnnouncer(nc, pool, org.id, lambda: {ShardId(shard) for shard in held})
    running = asyncio.create_task(announcer.run(lambda: None))
    try:
        yield announcer, listener
        assert not running.done()
    finally:
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)
        await nc.close()
        await pool.close()


def touch(announcer: HeadAnnouncer, event: BuiltEvent, shard: int = 1) -> None:
    """What a lane says after a commit."""
    announcer.touched(ShardId(shard), event.mark)


async def test_a_touched_group_is_announced_soon_and_again(
    database_url: str, nats_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """RULE-21: the newest head goes out soon, then a few times more, never twice within half a second."""
    monkeypatch.setattr(announce_heads, "repeat_seconds", (0.1, 0.5, 0.5))
    async with planted(database_url, tmp_path) as org, announcing(database_url, nats_url, org, set()) as (it, listener):
        built = await org.plant_group("urn:weavehold:group:alpha", 5)
        for event in built:
            touch(it, event)
        await listener.until(3)
        await asyncio.sleep(1.2)
    assert listener.sequences("urn:weavehold:group:alpha") == [5, 5, 5]
    assert all(after - before >= 0.25 for before, after in pairwise(listener.sent))
    [(subject, head)] = listener.heard[:1]
    assert subject == subjects.head(org.id, ShardId(1), "urn:weavehold:group:alpha")
    assert head == GroupHead(
        incarnation=org.incarnation,
        group_id="urn:weavehold:group:alpha",
        sequence=5,
        chain_hash=built[-1].mark.chain_hash.hex(),
    )


async def test_a_busy_group_is_not_announced_faster_than_twice_a_second(
    database_url: str, nats_url: str, tmp_path: Path
) -> None:
    """RULE-21: however often a Group is touched, its announcements keep to the pace and tell the newest head."""
    async with planted(database_url, tmp_path) as org, announcing(database_url, nats_url, org, set()) as (it, listener):
        built = await org.plant_group("urn:weavehold:group:alpha", 60)
        begun = time.monotonic()
        for event in built:
            touch(it, event)
            await asyncio.sleep(0.03)
        await listener.until_announced("urn:weavehold:group:alpha", 60)
        seconds = time.monotonic() - begun
    heard = listener.sequences("urn:weavehold:group:alpha")
    assert 2 <= len(heard) <= 1 + 2 * seconds
    assert heard == sorted(heard)
    assert heard[-1] == 60


async def test_all_other_groups_come_by_slowly(
    database_url: str, nats_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """RULE-21: a slow paged cycle announces every Group of the shards held here, and of no others, again and again."""
    monkeypatch.setattr(announce_heads, "page_groups_max", 4)
    for pace, seconds in {
        "page_seconds": 0.1,
        "cycle_seconds_min": 0.5,
        "idle_seconds": 0.1,
        "tick_seconds": 0.1,
    }.items():
        monkeypatch.setattr(announce_heads, pace, seconds)
    async with planted(database_url, tmp_path) as org:
        groups = [f"urn:weavehold:group:{number}" for number in range(9)]
        for number, group in enumerate(groups):
            await org.plant_group(group, number + 1, shard_id=1 if number < 7 else 2)
        held = {1}
        async with announcing(database_url, nats_url, org, held) as (_, listener):
            # The same cycle again, and then another with the other shard.
            await listener.until(8)
            held.add(2)
            await listener.until_announced(groups[8], 9)
            again = len(listener.heard)
            await listener.until(again + 9)
    heard = [(head.group_id, head.sequence) for _, head in listener.heard]
    first = [(group, number + 1) for number, group in enumerate(groups[:7])]
    assert heard[:8] == [*first, first[0]]
    assert {group for group, _ in heard[again:]} == set(groups)


async def test_what_is_remembered_of_touched_groups_is_bounded(
    database_url: str, nats_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """RULE-21: beyond the bound the Groups touched longest ago are left to the slow cycle."""
    monkeypatch.setattr(announce_heads, "touched_groups_max", 3)
    async with planted(database_url, tmp_path) as org, announcing(database_url, nats_url, org, set()) as (it, listener):
        planted_groups = [await org.plant_group(f"urn:weavehold:group:{number}", 1) for number in range(5)]
        # At once: nothing is announced before all were touched.
        for [event] in planted_groups:
            touch(it, event)
        await listener.until(3)
        await asyncio.sleep(0.6)
    assert {head.group_id for _, head in listener.heard} == {f"urn:weavehold:group:{number}" for number in (2, 3, 4)}
