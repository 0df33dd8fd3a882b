"""A projector is killed while a Group is quarantined: nothing is forgotten, and what is decided meanwhile holds."""

import asyncio
import json
import os
import subprocess
import sys

import pytest
import pytest_asyncio

from tests.projector_rig import Board, planting, shards, until

pytestmark = [pytest.mark.asyncio(loop_scope="module"), pytest.mark.fault]


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def planted(postgres_server, tmp_path_factory):
    async with planting(postgres_server, tmp_path_factory.mktemp("stack")) as missions:
        for shard in shards:
            await missions.post(await missions.plant(shard), 3)
        yield missions


def asked_of(board, *arguments):
    """How a command that is told where the board lies ends, and the object that it prints."""
    done = subprocess.run(
        [sys.executable, "-m", "ops.cli", *arguments, "--json"],
        env={**os.environ, **board.planted.stack.variables, **board.settings},
        capture_output=True,
        timeout=120,
        check=False,
    )
    return done.returncode, json.loads(done.stdout)


async def test_a_quarantine_outlives_a_kill(planted, tmp_path):
    """DUR-5, PRJ-1, OPS-1: killed with -9 it stands as before; a skip by command reaches the process that runs."""
    board = Board(planted, tmp_path / "projections")
    broken, other = planted.missions
    await broken.view.refresh()
    failing = broken.view.events[1]
    module, name = "tests.failing_projector", "failing-projector"
    port_file = board.settings | {"WEAVEHOLD_HEALTH_PORT_FILE": str(board._port_file)}
    heads = await planted.heads()

    def quarantined():
        return board.read(lambda snapshot: snapshot.quarantined())

    async def stands():
        cursors = board.cursors() if board.applied() else {}
        return cursors.get(other.group_id) == heads[other.group_id] and [each.tried_at for each in quarantined()] == [
            None
        ]

    async def shown_ready():
        told = await board.dependency("projection")
        return told.get("state") == "ready" and "1 Group is quarantined" in told.get("detail", "")

    seen = []
    for life in (1, 2):
        process = planted.stack.process(module, f"{name}-{life}", WEAVEHOLD_TEST_FAIL_AT=failing.event_id, **port_file)
        process.start()
        try:
            await until(stands)
            [found] = quarantined()
            assert (found.stop.group_id, found.stop.sequence) == (broken.group_id, failing.sequence)
            assert board.cursors()[broken.group_id].sequence == failing.sequence - 1
            seen.append((found.stop, found.first_failed_at))
            await until(shown_ready)
            if life == 2:
                await _skipped(board, broken.group_id, failing)
                await until(lambda: board.reached(heads))
        finally:
            process.kill()
        board._port_file.unlink()
    assert seen[0] == seen[1]
    assert quarantined() == []
    code, verified = await asyncio.to_thread(asked_of, board, "consumer", "verify", "mission_board")
    assert (code, verified["ok"]) == (0, True)
    async with board.projecting():
        await planted.post(broken)
        after = await planted.heads()
        await until(lambda: board.reached(after))


async def _skipped(board, group_id, event):
    """Skip by command; refused while the process tries the Event once more, it is asked again."""

    async def skipped():
        reason = ("--reason", "ada: agreed", "--projection", "mission_board")
        asked = ("quarantine", "skip", group_id, "--event", event.event_id, *reason)
        return (await asyncio.to_thread(asked_of, board, *asked))[0] == 0

    await until(skipped)
