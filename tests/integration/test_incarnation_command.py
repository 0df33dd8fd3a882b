"""`weavehold incarnation` on a stack whose database was set back: what an operator sees, decides, and goes on with."""

import asyncio
import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from contracts.identifiers import organization_shard
from contracts.subjects import stream_name
from ops.embedded.services import authority, relay
from ops.embedded.supervisor import HistoryInDoubt, StackOptions, Supervisor, database_unit
from services.authority.broker_consumers import BrokerConsumers, StreamAbsent
from services.process.broker import connect

nothing = {"WEAVEHOLD_DATABASE_URL": "", "WEAVEHOLD_NATS_URL": ""}
seconds_max = 120


def run(directory: Path, *arguments: str) -> tuple[int, str, str]:
    """Exit code, stdout and stderr of a command on the stack in `directory`."""
    ran = subprocess.run(
        [sys.executable, "-m", "ops.cli", *arguments, "--directory", str(directory)],
        env={name: value for name, value in os.environ.items() if not name.startswith("WEAVEHOLD_")},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        timeout=seconds_max,
        check=False,
    )
    return ran.returncode, ran.stdout.decode(), ran.stderr.decode()


async def shown(directory: Path) -> tuple[int, dict]:
    code, out, told = await asyncio.to_thread(run, directory, "incarnation", "show", "--json")
    report = json.loads(out)
    assert "incarnations" in report, (out, told)
    return code, report


def copied(source: Path, target: Path) -> None:
    """A copy with owners, as a volume snapshot has them."""
    subprocess.run(["cp", "-a", str(source), str(target)], check=True)


async def with_database_down(stack: Supervisor, act: Callable[[], None]) -> None:
    """What a volume is: changed while no server runs on it."""
    await stack.kill(database_unit, restart=False)
    await stack.wait_ended(database_unit)
    await asyncio.to_thread(act)
    await stack.start_again(database_unit)


def register(directory: Path) -> tuple[int, str, str]:
    """An Event of shard 0."""
    made = str(directory / "ada.json")
    return run(directory, "keys", "register", "--principal", "human:urn:weavehold:human:ada", "--out", made)


async def test_a_database_that_was_set_back(servers_directory: Path) -> None:
    """RULE-16, DUR-7, OPS-2: the stack holds and says why; a deliberate command lets the history go on."""
    directory = servers_directory / f"stack-{os.urandom(4).hex()}"
    data, copy = directory / "postgres" / "data", directory / "copy"

    def put_back() -> None:
        shutil.rmtree(data)
        copied(copy, data)

    services = [authority(1), relay(1)]
    async with Supervisor(directory, services, StackOptions(shard_count=1), variables=nothing) as stack:
        await with_database_down(stack, lambda: copied(data, copy))
        code, _, told = await asyncio.to_thread(register, directory)
        assert code == 0, told
        async with asyncio.timeout(seconds_max):
            while await last_sequence(stack) != 1:
                await asyncio.sleep(0.1)
        await with_database_down(stack, put_back)
        async with asyncio.timeout(seconds_max):
            while "history" not in (await stack.unready()).get("authority-1", ""):
                await asyncio.sleep(0.1)
        with pytest.raises(HistoryInDoubt, match="stream of shard 0 ends at 1, its log at 0"):
            await stack.wait_healthy()
        code, report = await shown(directory)
        assert (code, report["evidence"]["shards"][0]) == (1, {"shardId": 0, "log": 0, "stream": 1})
        await refused_without_a_decision(directory)
        code, out, told = await asyncio.to_thread(
            run, directory, "incarnation", "open", "--reason", "the volume of 02:00", "--yes", "--json"
        )
        assert code == 0, told
        first = report["incarnations"][0]["incarnation"]
        assert json.loads(out)["followed"] == first
        async with asyncio.timeout(seconds_max):
            while await stack.unready():
                await asyncio.sleep(0.1)
        code, report = await shown(directory)
        second = report["incarnations"][1]
        assert (code, second["reason"], second["parent"]) == (0, "the volume of 02:00", first)
        # The key file is taken up again: what was lost is stated anew, in the new incarnation.
        code, _, told = await asyncio.to_thread(register, directory)
        assert code == 0, told


async def last_sequence(stack: Supervisor) -> int:
    """Where the stream of shard 0 ends."""
    name = stream_name(stack.organization.organization_id, organization_shard, stack.organization.incarnation)
    broker = await connect(stack.nats_url, name="test-look", token=stack.nats_token)
    try:
        return await BrokerConsumers(broker).last_sequence(name)
    except StreamAbsent:
        return 0
    finally:
        await broker.close()


async def refused_without_a_decision(directory: Path) -> None:
    """Bad input is named, and nothing is opened."""
    for arguments, code, words in (
        (("--reason", "restored"), 2, "--yes"),
        (("--reason", " ", "--yes"), 2, "--reason"),
        (("--reason", "x", "--yes", "--key", str(directory / "nowhere.json")), 2, "nowhere.json"),
    ):
        ended, _, told = await asyncio.to_thread(run, directory, "incarnation", "open", *arguments)
        assert (ended, words in told) == (code, True), told
    assert len((await shown(directory))[1]["incarnations"]) == 1
