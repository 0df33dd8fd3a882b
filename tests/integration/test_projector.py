"""The projector as real processes on a real stack of two shards: whatever is lost or killed, it shows the history."""

import asyncio
import json
import os
import secrets
import signal
import subprocess
import sys

import psycopg
import pytest
import pytest_asyncio

from ops.cursor_report import read_projection
from tests.conftest import create_database, drop_database
from tests.projector_rig import Board, planting, shards, until

pytestmark = pytest.mark.asyncio(loop_scope="module")


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def planted(postgres_server, tmp_path_factory):
    async with planting(postgres_server, tmp_path_factory.mktemp("stack")) as missions:
        for shard in shards:
            await missions.plant(shard)
        yield missions


@pytest.fixture
def board(planted, tmp_path):
    return Board(planted, tmp_path / "projections")


@pytest.fixture
def projections_url(postgres_server):
    """A database for projections alone."""
    name = f"projections_{secrets.token_hex(6)}"
    yield create_database(postgres_server, name)
    drop_database(postgres_server, name)


@pytest.fixture(params=["sqlite", "postgres"])
def either_board(request, planted, tmp_path):
    """A board in each kind of store."""
    url = request.getfixturevalue("projections_url") if request.param == "postgres" else None
    return Board(planted, tmp_path / "projections", url)


def shown(board, *arguments):
    """What `weavehold board` prints with these arguments, and its exit code."""
    return asked_of(board, "board", *arguments)


def asked_of(board, *arguments):
    """What a command prints, told where the board lies, and its exit code."""
    found = subprocess.run(
        [sys.executable, "-m", "ops.cli", *arguments],
        env={**os.environ, **board.planted.stack.variables, **board.settings, "COLUMNS": "400"},
        capture_output=True,
        timeout=120,
        check=False,
    )
    return found.returncode, (found.stdout or found.stderr).decode()


async def test_the_board_shows_every_mission_of_every_shard(planted, either_board):
    """PRJ-1, MWP-WRK-008, OPS-1, OPS-2: what is there, what comes, and a new Mission; read by `weavehold board`."""
    board = either_board
    async with board.projecting():
        await board.settled()
        created = await planted.plant(shards[1])
        for mission in planted.missions:
            await planted.post(mission, 2)
        await board.settled()
        await until(board.ready)
        # Position and Cursors are one commit; the consumers are acknowledged up to the same place.
        assert board.positions() == [await planted.last_sequence(shard) for shard in shards]
        for shard in shards:
            described = await planted.consumer(shard)
            assert described["config"]["ack_policy"] == "all"
            assert not {"filter_subject", "filter_subjects", "deliver_subject"} & described["config"].keys()
        applied = sum(cursor.sequence for cursor in board.cursors().values())
        # How many duplicates came is no promise: a Group that delivery was slow with has been asked for meanwhile.
        assert await board.metric("events_applied") == applied
    code, table = await asyncio.to_thread(shown, board)
    assert code == 0
    assert all(mission.group_id in table for mission in planted.missions)
    code, told = await asyncio.to_thread(shown, board, "--json", "--group", created.group_id)
    one = json.loads(told)
    [line] = one["missions"]
    assert (code, line["title"], line["state"], line["messageCount"]) == (0, "Small", "active", 2)
    assert line["coordinatorId"] == created.coordinator.principal_id
    assert (one["organizationId"], one["stopped"]) == (planted.operator.organization_id, [])
    code, told = await asyncio.to_thread(asked_of, board, "cursor", "show", "--projection", "mission_board", "--json")
    verdicts = {line["groupId"]: line["verdict"] for line in json.loads(told)["projection"]}
    assert (code, verdicts) == (0, dict.fromkeys(board.cursors(), "level"))
    asked = ("verify", "--no-stream", "--json", "--directory", str(board.folder.parent))
    for place in ((), ("--projection", "mission_board")):
        code, told = await asyncio.to_thread(asked_of, board, *asked, *place)
        report = json.loads(told)
        assert (code, report["findings"]) == (0, [])
        assert report["examined"]["projections"] >= len(planted.missions)


async def test_killed_at_named_points(planted, either_board):
    """PRJ-1, MWP-WRK-029: kill -9 inside the transaction, then between commit and ACK: no gap, nothing doubled."""
    board = either_board
    await planted.post(planted.missions[0], 3)
    await planted.published()
    await life(board, "inside")
    assert (board.cursors(), board.positions()) == ({}, [0, 0])
    await life(board, "committed")
    applied = sum(cursor.sequence for cursor in board.cursors().values())
    assert applied > 0
    positions = board.positions()
    assert sum(positions) == applied
    async with board.projecting():
        await until(board.ready)
        await board.settled()
        # The consumers begin after the positions that the file has: delivery repeats nothing of them.
        for shard, position in zip(shards, positions, strict=True):
            assert (await planted.consumer(shard))["config"]["opt_start_seq"] == position + 1
        assert await board.metric("events_applied") + applied == board.applied()


async def life(board, kill_at):
    """One life of a projector that ends at a named point."""
    process = board.process(kill_at=kill_at)
    process.start()
    assert await asyncio.to_thread(process.wait, 60) == -signal.SIGKILL, process.log.read_text()[-3000:]


async def test_killed_again_and_again_while_events_flow(planted, either_board):
    """MWP-WRK-029, MWP-FND-018: kill -9 wherever it happens to be, several times; each Event counts once."""
    board = either_board
    missions = [await planted.plant(shard) for shard in shards]
    enough = asyncio.Event()
    posting = [asyncio.create_task(planted.post_until(enough, mission)) for mission in missions]
    for _ in range(2):
        process = board.process()
        began = board.applied()
        process.start()
        await until(lambda began=began: board.moved(began))
        await asyncio.to_thread(process.kill)
    enough.set()
    posted = await asyncio.gather(*posting)
    async with board.projecting():
        await board.settled()
    assert [board.missions()[mission.group_id].message_count for mission in missions] == posted


async def test_its_consumers_are_deleted_and_then_its_file(planted, board):
    """RULE-25, MWP-FND-023: the consumers vanish under their reader; then the file, when all of it is acknowledged."""
    async with board.projecting():
        await board.settled()
        for shard in shards:
            await planted.call(f"CONSUMER.DELETE.{planted.stream(shard)}.mission_board-{shard}")
        for mission in planted.missions:
            await planted.post(mission)
        await board.settled()
        await until(lambda: all_there(planted))
    for file in board.folder.iterdir():
        file.unlink()
    async with board.projecting():
        await board.settled()
        assert await board.metric("events_applied") == board.applied()


async def all_there(planted):
    """Whether both consumers exist."""
    return not any(["error" in await planted.consumer(shard) for shard in shards])


async def test_messages_deleted_from_the_stream_are_fetched_by_position(planted, board):
    """RULE-20: delivery goes 10, 11, 13 without an error; the hole is a gap, and so is a lost last message."""
    begins = await planted.last_sequence(shards[0])
    await planted.post(planted.missions[0], 6)
    await planted.published()
    for position in (begins + 1, begins + 3, begins + 6):
        assert (await planted.call(f"STREAM.MSG.DELETE.{planted.stream(shards[0])}", {"seq": position}))["success"]
    async with board.projecting() as process:
        await board.settled()
        assert await board.metric("gaps_filled") >= 1
        assert "positions_fetched" in process.log.read_text()


async def test_the_streams_are_wiped_and_refilled(planted, board):
    """RULE-20, OBX-1, MWP-FND-023: both streams vanish under their reader and are refilled from the log."""
    async with board.projecting():
        await board.settled()
        before = board.missions()
        for shard in shards:
            await planted.call(f"STREAM.DELETE.{planted.stream(shard)}")
        for mission in planted.missions:
            await planted.post(mission, 2)
        await planted.published()
        await board.settled()
        await until(lambda: all_there(planted))
        await planted.post(planted.missions[0])
        await board.settled()
        await until(board.ready)
    counts = {group_id: mission.message_count for group_id, mission in board.missions().items()}
    first = planted.missions[0].group_id
    assert counts == {
        group_id: each.message_count + (3 if group_id == first else 2) for group_id, each in before.items()
    }


async def test_without_an_authority_it_waits_and_says_so(planted, board, nats_url):
    """OPS-1: not ready, with the reason, until delivery is provisioned; asked to stop meanwhile it stops in order."""
    async with board.projecting(WEAVEHOLD_NATS_URL=nats_url):

        async def told():
            return (await board.dependency("delivery")).get("state") == "failed"

        await until(told)
        answer = await board.readiness()
        assert not answer["ready"]
        assert answer["dependencies"]["broker"]["state"] == "ready"


async def test_a_second_projector_waits_for_the_first(planted, projections_url, tmp_path):
    """PRJ-2, PRJ-4: on one database the second says for whom it waits; once the first is killed it goes on."""
    first, second = (Board(planted, tmp_path / name, projections_url) for name in ("first", "second"))
    running = first.process()
    running.start()
    await first.settled()
    async with second.projecting():

        async def told():
            return "another process" in (await second.dependency("projection")).get("detail", "")

        await until(told)
        for mission in planted.missions:
            await planted.post(mission, 2)
        await first.settled()
        await asyncio.to_thread(running.kill)
        await planted.post(planted.missions[0], 2)
        await until(second.ready)
        await second.settled()


async def test_the_projection_s_database_dies(planted, private_postgres, tmp_path):
    """PRJ-2, OPS-1: not ready, with the reason, until the database is back; then everything, once."""
    board = Board(planted, tmp_path / "projections", private_postgres.database_url)
    async with board.projecting():
        await board.settled()
        await asyncio.to_thread(private_postgres.server.kill)
        for mission in planted.missions:
            await planted.post(mission, 2)

        async def told():
            return (await board.dependency("projection")).get("state") == "failed"

        await until(told)
        await asyncio.to_thread(private_postgres.server.start)
        await board.settled()
        await until(board.ready)
        # What was committed or asked for meanwhile may be delivered again; it is never applied again.
        assert await board.metric("events_applied") == board.applied()


async def test_a_stranger_wrote_its_projection(planted, projections_url, tmp_path):
    """PRJ-2, PRJ-4: connections lost and the last transaction another one's: it ends with 1, and a new one goes on."""
    board = Board(planted, tmp_path / "projections", projections_url)
    process = board.process()
    process.start()
    await board.settled()
    with psycopg.connect(projections_url, autocommit=True) as database:
        database.execute(f"UPDATE {board.place.schema}.projection_writer SET last_transaction = 'a stranger''s'")
        database.execute(
            "SELECT pg_terminate_backend(pid) FROM pg_stat_activity "
            "WHERE datname = current_database() AND pid <> pg_backend_pid()"
        )
    await planted.post(planted.missions[0])
    assert await asyncio.to_thread(process.wait, 60) == 1
    assert "StoreReplaced" in process.log.read_text()
    assert "start again to go on from what it holds" in process.log.read_text()
    async with board.projecting():
        await board.settled()


async def test_one_store_fails_and_the_others_go_on(planted, board):
    """PRJ-2, OPS-1: a file that is no database; its consumer says so and begins anew until it has one."""
    board.folder.mkdir()
    report = board.folder / "usage_report.sqlite"
    report.write_bytes(b"This is no database. " * 100)
    async with board.projecting(WEAVEHOLD_PROJECTIONS="mission_board, usage_report"):
        await planted.post(planted.missions[0])
        await board.settled()

        async def told():
            return "not a database" in (await board.dependency("projection", "usage_report")).get("detail", "")

        await until(told)
        assert (await board.dependency("projection"))["state"] == "ready"
        assert not await board.ready()
        report.unlink()
        await until(board.ready)
        heads = await planted.heads()

        async def level():
            return {cursor.group_id: cursor for cursor in read_projection(report)} == heads

        await until(level)


async def test_unusable_settings_end_a_projector_with_2(planted, board, projections_url, tmp_path):
    """OPS-2: what cannot be used is named, with the remedy; whole shards are shown to services only."""
    owner = planted.stack.organization.keys_directory / "mission-owner.json"
    unusable = {
        "WEAVEHOLD_SIGNING_KEY_FILE": (str(owner), "which is no service"),
        "WEAVEHOLD_PROJECTIONS_DIR": ("/dev/null/board", "WEAVEHOLD_PROJECTIONS_DIR is /dev/null/board"),
        "WEAVEHOLD_PROJECTION_STORE": ("oracle", "Use one of sqlite, postgres"),
        "WEAVEHOLD_TRUST_ANCHORS_FILE": ("absent.json", "WEAVEHOLD_TRUST_ANCHORS_FILE is absent.json"),
    }
    cases = [({variable: value}, words) for variable, (value, words) in unusable.items()]
    unset = "WEAVEHOLD_PROJECTION_DATABASE_URL is not set. Set postgresql://"
    cases.append(({"WEAVEHOLD_PROJECTION_STORE": "postgres"}, unset))
    running = []
    for place, (variables, words) in enumerate(cases):
        process = Board(planted, tmp_path / f"unusable-{place}").process(**variables)
        process.start()
        running.append((process, words))
    for process, words in running:
        assert await asyncio.to_thread(process.wait, 60) == 2
        assert words in process.log.read_text()
    nowhere = Board(
        planted, tmp_path / "nowhere", f"{projections_url}&connect_timeout=2".replace("projections_", "no_")
    )
    unmade = (board, Board(planted, tmp_path / "unmade", projections_url), nowhere)
    for code, told in await asyncio.gather(*(asyncio.to_thread(shown, each) for each in unmade)):
        assert (code, "run a projector" in told) == (1, True)
