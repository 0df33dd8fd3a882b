"""Acceptance against pgbench writing the same rows: [accept-many-groups] and [accept-hot-group].

Commands are signed beforehand and sent by a process of its own, through the broker and all checks. The baseline runs
one function per Command on the same server, interleaved with the authority in the same minute.
"""

import asyncio
import re
import subprocess
from collections.abc import Callable
from typing import Final

from contracts.documents.common import Actor, ActorType
from contracts.signature import SigningKey
from ops.bench.measurement import Measurement, measured
from ops.bench.rig import Rig, running_rig
from ops.bench.workload import create_mission, post_message, register_agent
from ops.embedded.operating_user import operating_user
from ops.embedded.postgres_server import binaries
from services.process.database import connect
from services.process.statements import load

many_groups: Final = 1_000
rounds: Final = 3
"""Interleaved pairs of authority and baseline."""
commands_per_round: Final = 8_000
window: Final = 512
"""Commands in flight."""
baseline_seconds: Final = 5
shard_count: Final = 4

sql = load(__package__)


async def measure_many_groups() -> Measurement:
    """1,000 Groups over all shards, against pgbench at 16 connections."""
    async with running_rig(shard_count) as rig:
        await _create_groups(rig, many_groups)
        return await _measure(
            rig,
            "accept-many-groups",
            group_of=lambda place: place % many_groups,
            group_expression=f"random(0, {many_groups - 1})",
            connections=16,
            target=0.5,
        )


async def measure_hot_group() -> Measurement:
    """One Group that takes everything, against pgbench at 1 connection on that Group."""
    async with running_rig(shard_count) as rig:
        await _create_groups(rig, 1)
        return await _measure(
            rig, "accept-hot-group", group_of=lambda _: 0, group_expression="0", connections=1, target=1.5
        )


async def _create_groups(rig: Rig, groups: int) -> None:
    """A Coordinator and the Missions that the load will talk to."""
    keys = rig.organization.keys
    coordinator = SigningKey.generate(Actor(type=ActorType.AGENT, id="urn:weavehold:bench:coordinator"))
    card = register_agent(keys.operator, keys.registry, coordinator, rig.organization.organization_id)
    await rig.load([card], 1)
    owner = keys.mission_owner
    await rig.load([create_mission(owner, number, coordinator.principal.id) for number in range(groups)], window)


async def _measure(
    rig: Rig, name: str, *, group_of: Callable[[int], int], group_expression: str, connections: int, target: float
) -> Measurement:
    owner = rig.organization.keys.mission_owner
    await rig.load([post_message(owner, group_of(place)) for place in range(window)], window)
    await _prepare_baseline(rig)
    pairs: list[tuple[float, float]] = []
    load_cores = 0.0
    for _ in range(rounds):
        report = await rig.load([post_message(owner, group_of(p)) for p in range(commands_per_round)], window)
        baseline = await asyncio.to_thread(_run_pgbench, rig, group_expression, connections)
        pairs.append((report["accepted"] / report["seconds"], baseline))
        load_cores += report["cpuSeconds"] / report["seconds"] / rounds
    notes = {"loadGeneratorCores": round(load_cores, 2), "window": window, "baselineConnections": connections}
    return measured(name, "Commands/s", pairs, target, notes)


async def _prepare_baseline(rig: Rig) -> None:
    connection = await connect(rig.database_url, name="bench")
    try:
        for statement in (sql.create_baseline, sql.create_baseline_noise, sql.create_baseline_accept):
            await connection.execute(statement)
        await connection.execute(sql.fill_baseline, {"groups": many_groups})
    finally:
        await connection.close()


def _run_pgbench(rig: Rig, group_expression: str, connections: int) -> float:
    """Transactions per second of the baseline function."""
    script = rig.directory / "baseline.sql"
    script.write_text(f"\\set number {group_expression}\nSELECT baseline.accept(:number);\n")
    script.chmod(0o644)
    command = [
        str(binaries() / "pgbench"), "--no-vacuum", "--protocol=prepared", f"--client={connections}",
        f"--jobs={min(2, connections)}", f"--time={baseline_seconds}", f"--file={script}", rig.database_url,
    ]  # fmt: skip
    output = subprocess.run(  # noqa: S603 - our own binary
        command, check=True, capture_output=True, text=True, cwd="/", **operating_user().process_options()
    ).stdout
    found = re.search(r"tps = ([0-9.]+)", output)
    if found is None:
        raise RuntimeError(f"pgbench did not say how fast it was:\n{output}")
    return float(found[1])
