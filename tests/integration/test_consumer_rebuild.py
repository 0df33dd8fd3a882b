"""Projections rebuilt beside their live version on a real stack: exchanged whole or not at all, whatever is killed."""

import asyncio
import json
import os
import secrets
import signal
import sqlite3
import subprocess
import sys
from contextlib import asynccontextmanager, closing
from functools import partial
from pathlib import Path

import psycopg
import pytest
import pytest_asyncio

from ops.command_fault import CommandFault, UsageFault
from ops.consumers.find_projection import find_projection
from ops.consumers.green import green_beside
from ops.consumers.list_consumers import list_consumers
from ops.consumers.rebuild_consumer import Means, rebuild_consumer
from ops.consumers.steady_history import Patience, SteadyHistory
from ops.consumers.verify_consumer import verify_consumer
from projections.exchange_groups import Standing
from projections.history import HistoryUnavailable
from projections.projection import Projection
from projections.proof import SignatureProof
from projections.rebuild import rebuild
from projections.store.sqlite import SqliteStore
from projections.work_queue.consumer import WorkQueue
from services.agent.sign_command import SignedCommand
from services.feed.signed_history import SignedHistory
from services.feed.trust_anchors import load_anchors
from services.feed.trusted_keys import TrustedKeys
from services.process.database import connect as open_database
from services.worker.command_journal import CommandJournal
from tests.conftest import create_database, drop_database
from tests.projector_rig import Board, planting, shards, until

pytestmark = pytest.mark.asyncio(loop_scope="module")


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def planted(postgres_server, tmp_path_factory):
    async with planting(postgres_server, tmp_path_factory.mktemp("stack")) as missions:
        for shard in shards:
            await missions.plant(shard)
        await missions.post(missions.missions[0], 3)
        yield missions


@pytest_asyncio.fixture(scope="module", loop_scope="module", params=["sqlite", "postgres"])
async def board(request, planted, postgres_server, tmp_path_factory):
    """A board in each kind of store, at every head; no process keeps it. Each test leaves it whole."""
    name = f"projections_{secrets.token_hex(6)}"
    url = create_database(postgres_server, name) if request.param == "postgres" else None
    made = Board(planted, tmp_path_factory.mktemp(request.param) / "projections", url)
    async with made.projecting():
        await made.settled()
    yield made
    if url is not None:
        drop_database(postgres_server, name)


def command(board, *arguments, module="ops.cli", **variables):
    """Run a subcommand that is told where the board lies; its exit code, its object, and what it said on stderr."""
    done = subprocess.run(
        [sys.executable, "-m", module, "consumer", *arguments, "--json", "--directory", str(board.folder.parent)],
        env={**os.environ, **board.planted.stack.variables, **board.settings, **variables},
        capture_output=True,
        timeout=120,
        check=False,
        text=True,
    )
    return done.returncode, json.loads(done.stdout) if done.stdout else None, done.stderr


def write(board, statement):
    """Change the board behind everybody's back."""
    if isinstance(board.place, Path):
        with closing(sqlite3.connect(board.place)) as database, database:
            database.execute(statement)
    else:
        with psycopg.connect(board.place.url, options=f"-c search_path={board.place.schema}") as database:
            database.execute(statement)


@asynccontextmanager
async def means_of(planted, source=None, patience=None):
    """What a rebuild in this process works with."""
    stack, operator = planted.stack, planted.operator
    organization = stack.organization.organization_id
    anchors = load_anchors(stack.organization.keys_directory / "anchors.json").of(organization)
    history = SteadyHistory(source or SignedHistory(operator.history), None, patience or Patience())
    async with await open_database(stack.variables["WEAVEHOLD_DATABASE_URL"], name="test") as database:
        proof = SignatureProof(TrustedKeys(operator.history, anchors))
        yield Means(history, proof, database, organization, lambda _: None)


async def rebuilt(board, *group_ids, source=None, patience=None):
    """Rebuild the board in this process."""
    async with means_of(board.planted, source, patience) as means:
        return await rebuild_consumer(board.place, group_ids, means)


async def verified(board, *group_ids):
    async with means_of(board.planted) as means:
        return await verify_consumer(means.database, means.organization_id, board.place, group_ids)


async def test_a_rebuild_beside_a_projector_at_work(planted, board):
    """PRJ-4, RULE-22, NEW-4, OPS-2: while Events flow; the projector goes on by itself and loses nothing."""
    mission, enough = planted.missions[1], asyncio.Event()
    async with board.projecting() as process:
        await board.settled()
        before = board.missions()[mission.group_id].message_count
        began = board.applied()
        posting = asyncio.create_task(planted.post_until(enough, mission))
        # It is at work on the rows that are going to be exchanged.
        await until(lambda: board.moved(began), 60)
        report = await rebuilt(board)
        assert {group.group_id for group in report.groups} == {each.group_id for each in planted.missions}
        assert (await verified(board)).ok
        enough.set()
        posted = await posting + 1
        await planted.post(mission)
        await board.settled()
        assert board.missions()[mission.group_id].message_count == before + posted
        assert "projection_exchanged" in process.log.read_text()


async def test_killed_at_named_points(planted, board):
    """PRJ-4, RULE-22: kill -9 while green fills, inside the exchange, after it: old or new, and it goes on."""
    write(board, "UPDATE mission_board_mission SET title = 'tampered'")
    points = ("replayed", "inside", "exchanged") if isinstance(board.place, Path) else ("inside",)
    for point in points:
        asked = ("rebuild", "mission_board")
        code, _, told = await asyncio.to_thread(
            partial(command, board, *asked, module="tests.killed_rebuild", WEAVEHOLD_TEST_KILL_AT=point)
        )
        assert code == -signal.SIGKILL, told
        titles = {mission.title for mission in board.missions().values()}
        assert titles == ({"Small"} if point == "exchanged" else {"tampered"})
        assert green_beside(board.place).is_there()
    await planted.post(planted.missions[0])
    report = await rebuilt(board)
    assert report.resumed
    assert not green_beside(board.place).is_there()
    assert board.cursors() == await planted.heads()
    await board.settled()


async def test_a_changed_row_is_named_and_repaired(planted, board):
    """NEW-4, PRJ-4: verify names table, key and both values; a rebuild of that Group alone repairs it."""
    changed, other = (mission.group_id for mission in planted.missions)
    write(board, f"UPDATE mission_board_mission SET title = 'x' WHERE group_id = '{changed}'")
    write(board, f"DELETE FROM mission_board_member WHERE group_id = '{changed}' AND member_type = 'agent'")
    report = await verified(board)
    assert not report.ok
    verdicts = {verdict.group_id: verdict.problem for verdict in report.groups}
    assert (verdicts[changed], verdicts[other]) == ("2 rows differ from the replay", None)
    deleted, titled = report.differences
    assert (deleted.table, deleted.live, deleted.replayed["role"]) == ("mission_board_member", None, "coordinator")
    assert (titled.table, titled.key) == ("mission_board_mission", {"group_id": changed})
    assert (titled.live, titled.replayed) == ({"title": "x"}, {"title": "Small"})
    exchanged = await rebuilt(board, changed)
    [group] = exchanged.groups
    assert (group.group_id, group.live, group.equal) == (changed, Standing.LEVEL, False)
    assert (await verified(board)).ok


@pytest.mark.parametrize("board", ["sqlite"], indirect=True)
async def test_what_the_commands_print(planted, board):
    """NEW-4, OPS-2: one object each; exit 0 when all is equal and at the head, 1 when a row differs."""
    async with means_of(planted) as means:
        [line] = await list_consumers(means.database, means.organization_id, [board.place])
    assert (line.name, line.state, line.groups) == ("mission_board", "live", len(planted.missions))
    assert (line.behind, line.stopped, line.findings) == (0, 0, 0)
    group_id = planted.missions[0].group_id
    write(board, f"UPDATE mission_board_mission SET title = 'x' WHERE group_id = '{group_id}'")
    code, report, _ = await asyncio.to_thread(command, board, "verify", "mission_board", "--group", group_id)
    assert (code, report["ok"], report["found"], len(report["groups"])) == (1, False, 1, 1)
    code, report, told = await asyncio.to_thread(command, board, "rebuild", "mission_board", "--group", group_id)
    [group] = report["groups"]
    assert (code, group["groupId"], group["live"], group["equal"]) == (0, group_id, "level", False)
    assert "rebuilding mission_board: 1 of 1 Groups" in told


class Away:
    """A source that is away after some pages, unless asked to be patient."""

    def __init__(self, inner, pages):
        self._inner = inner
        self.pages = pages

    async def page(self, group_id, after, limit):
        self.pages -= 1
        if self.pages < 0:
            raise HistoryUnavailable("the authority is away")
        return await self._inner.page(group_id, after, limit)

    async def heads(self, group_ids):
        return await self._inner.heads(group_ids)


async def test_the_authority_goes_away(planted, board):
    """PRJ-4: after bounded attempts it ends with words, live unchanged; run again, it goes on from its own Cursors."""
    before = board.cursors()
    source = Away(SignedHistory(planted.operator.history), pages=1)
    with pytest.raises(CommandFault, match=r"the authority is away.*run it again to go on"):
        await rebuilt(board, source=source, patience=Patience(attempts_max=2, backoff_seconds_max=0.01))
    assert board.cursors() == before
    report = await rebuilt(board)
    assert report.resumed
    assert report.events < sum(cursor.sequence for cursor in before.values())
    await board.settled()


async def test_two_rebuilds_at_once_and_names_that_are_none(planted, board):
    """PRJ-4, OPS-2: the second is refused; an unknown Group or projection is named."""
    with green_beside(board.place).held(), pytest.raises(CommandFault, match="another rebuild of"):
        await rebuilt(board)
    with pytest.raises(CommandFault, match="has no Group urn:weavehold:group:none; check the ID"):
        await rebuilt(board, "urn:weavehold:group:none")
    with pytest.raises(UsageFault, match="there is no projection nobody"):
        find_projection("nobody", board.folder.parent)


async def test_a_worker_s_queue_is_repaired_beside_its_journal(planted, tmp_path):
    """PRJ-4, NEW-4: found by the Worker's name; what else lies in its file, such as unsettled Commands, stays."""
    place = tmp_path / "workers" / "editor.sqlite"
    place.parent.mkdir()
    organization, agent = planted.operator.organization_id, planted.stack.key("editor").principal.id
    store = await SqliteStore.open(place, WorkQueue(agent), organization)
    groups = [mission.group_id for mission in planted.missions]
    await rebuild(Projection(store), SignedHistory(planted.operator.history), groups)
    await store.close()
    journal = CommandJournal(place)
    await journal.open()
    command = SignedCommand(action_id="urn:test:action", kind="work.start", issued_at="2026-01-01T00:00:00Z", raw=b"{}")
    await journal.remember("step", command)
    with closing(sqlite3.connect(place)) as database, database:
        database.execute("UPDATE work_queue_group SET membership_role = 'guest'")
    assert find_projection("editor", tmp_path) == place
    async with means_of(planted) as means:
        found = await verify_consumer(means.database, organization, place, ())
        assert {(each.table, each.live["membership_role"]) for each in found.differences} == {
            ("work_queue_group", "guest")
        }
        report = await rebuild_consumer(place, (), means)
        assert {group.group_id for group in report.groups} == set(groups)
        assert (await verify_consumer(means.database, organization, place, ())).ok
    assert await journal.unsettled() == [("step", command)]
    await journal.close()
