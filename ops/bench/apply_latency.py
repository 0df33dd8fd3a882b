"""Commit → applied in a projection, at half of our own saturation: [apply-latency].

Saturation is the rate at which Commands go through acceptance, relay and projection together when the window of the
load generator is full. At half of that rate each Event's time is taken from its commit in PostgreSQL (the server's own
commit timestamp, before it is flushed) to the commit of the projection's SQLite transaction that holds it.

The baseline, between two runs, is the sum of what cannot be left out: one commit of a row with the same bytes in
PostgreSQL, one awaited publish of them in JetStream, one commit of them in SQLite, each alone and one after another.
"""

import asyncio
import sqlite3
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from statistics import median
from typing import Final

from msgspec import Struct
from msgspec.structs import replace
from nats.js.api import StreamConfig

from contracts.documents.common import Actor, ActorType
from contracts.signature import SigningKey
from ops.bench.follow_applied import AppliedLog, Committed, applied_name, percentile
from ops.bench.measurement import Measurement, measured
from ops.bench.rig import Rig, running_rig
from ops.bench.workload import create_mission, post_message, register_agent
from projections import store
from services.process import broker
from services.process.database import Connection, connect
from services.process.statements import load

groups: Final = 64
shard_count: Final = 4
saturating_commands: Final = 4_000
saturating_window: Final = 256
"""Commands in flight when we are saturated."""
rounds: Final = 5
"""Interleaved pairs of a run at half of saturation and a baseline, after one that is not counted."""
run_seconds: Final = 3.0
baseline_repeats: Final = 100
"""Commits of each kind in one baseline."""
target: Final = 3.0
tail_target: Final = 5.0
"""The most that p99 may be of p50."""
applied_seconds_max: Final = 60.0
poll_seconds: Final = 0.05
"""Seconds between two looks at what is applied."""

_sql: Final = load(__package__)
_store_sql: Final = load(store.__name__, "sqlite")


class _Bench(Struct, frozen=True):
    """What a run needs."""

    rig: Rig
    database: Connection
    applied: AppliedLog

    def messages(self, count: int) -> list[bytes]:
        """Signed Commands, to all Groups in turn."""
        owner = self.rig.organization.keys.mission_owner
        return [post_message(owner, place % groups) for place in range(count)]


async def measure() -> Measurement:
    """On a stack of its own with one authority, one relay and one projection."""
    settings = {"track_commit_timestamp": "on"}
    async with running_rig(shard_count, relays=1, database_settings=settings) as rig, _projecting(rig) as applied:
        database = await connect(rig.database_url, name="bench")
        try:
            bench = _Bench(rig, database, applied)
            await _create_groups(bench)
            return await _measure(bench)
        finally:
            await database.close()


async def _create_groups(bench: _Bench) -> None:
    keys = bench.rig.organization.keys
    coordinator = SigningKey.generate(Actor(type=ActorType.AGENT, id="urn:weavehold:bench:coordinator"))
    card = register_agent(keys.operator, keys.registry, coordinator, bench.rig.organization.organization_id)
    await bench.rig.load([card], 1)
    creations = [create_mission(keys.mission_owner, number, coordinator.principal.id) for number in range(groups)]
    await _run(bench, creations)
    await _run(bench, bench.messages(saturating_window))


async def _measure(bench: _Bench) -> Measurement:
    rate = bench.applied.rate(await _run(bench, bench.messages(saturating_commands))) / 2
    runs: list[list[float]] = []
    pairs: list[tuple[float, float]] = []
    async with _baseline(bench) as baseline:
        for _ in range(rounds + 1):
            latencies = bench.applied.latencies(await _run(bench, bench.messages(round(rate * run_seconds)), rate))
            runs.append(latencies)
            pairs.append((percentile(latencies, 50) * 1e6, await baseline() * 1e6))
    tail = median(percentile(run, 99) / percentile(run, 50) for run in runs[1:])
    notes = {
        "commandsPerSecond": round(rate, 1),
        "p99": round(median(percentile(run, 99) * 1e6 for run in runs[1:]), 1),
        "p99ToP50": round(tail, 2),
        "p99ToP50Target": tail_target,
        "eventsPerRun": round(rate * run_seconds),
    }
    result = measured("apply-latency", "µs", pairs[1:], target, notes, better="lower")
    return replace(result, met=result.met and tail <= tail_target)


async def _run(bench: _Bench, commands: list[bytes], rate: float | None = None) -> list[Committed]:
    """Send Commands and wait until all their Events are applied; those Events."""
    [(before,)] = await (await bench.database.execute(_sql.read_clock)).fetchall()
    await bench.rig.load(commands, saturating_window, rate)
    rows = await (await bench.database.execute(_sql.read_commit_times, {"after": before})).fetchall()
    committed = [Committed(*row) for row in rows]
    ends = time.monotonic() + applied_seconds_max
    bench.applied.read()
    while not bench.applied.has(committed):
        if time.monotonic() > ends:
            raise RuntimeError(f"not all of {len(committed)} Events were applied within {applied_seconds_max:g} s")
        await asyncio.sleep(poll_seconds)
        bench.applied.read()
    return committed


@asynccontextmanager
async def _projecting(rig: Rig) -> AsyncIterator[AppliedLog]:
    """A projection in a process of its own."""
    organization = rig.organization
    with (rig.directory / "projection.log").open("wb") as log:
        child = subprocess.Popen(  # noqa: ASYNC220, S603 - our own program, awaited in a thread
            [
                sys.executable, "-m", "ops.bench.note_applied", rig.broker.url, organization.organization_id,
                str(organization.keys_directory), str(rig.directory),
            ],
            stdout=log,
            stderr=log,
        )  # fmt: skip
    try:
        yield AppliedLog(rig.directory / applied_name)
    finally:
        child.kill()
        await asyncio.to_thread(child.wait)


@asynccontextmanager
async def _baseline(bench: _Bench) -> AsyncIterator[Callable[[], Awaitable[float]]]:
    """The sum of one commit of each kind, in seconds, each the median of `baseline_repeats`."""
    event = bench.messages(1)[0]
    await bench.database.execute(_sql.create_bare_event)
    client = await broker.connect(bench.rig.broker.url, name="bench")
    jetstream = client.jetstream()
    await jetstream.add_stream(StreamConfig(name="bare", subjects=["bare"]))
    local = _open_local(bench.rig.directory / "bare.sqlite")

    async def commit() -> None:
        await bench.database.execute(_sql.insert_bare_event, {"event": event})

    async def publish() -> None:
        await jetstream.publish("bare", event)

    async def keep() -> None:
        local.execute(_sql.insert_bare_row, {"event": event})

    async def all_three() -> float:
        return sum([await _median_seconds(work) for work in (commit, publish, keep)])

    try:
        yield all_three
    finally:
        local.close()
        await client.close()


def _open_local(path: Path) -> sqlite3.Connection:
    """A file as durable as a projection's; each statement is a transaction."""
    connection = sqlite3.connect(path, isolation_level=None)
    for statement in (_store_sql.set_journal, _store_sql.set_synchronous, _sql.create_bare_row):
        connection.execute(statement)
    return connection


async def _median_seconds(work: Callable[[], Awaitable[None]]) -> float:
    seconds = []
    for _ in range(baseline_repeats):
        began = time.perf_counter()
        await work()
        seconds.append(time.perf_counter() - began)
    return median(seconds)
