"""Quarantine as operators meet it: by command beside a live writer, in stores of an earlier form, in readiness."""

import asyncio
import secrets
import sqlite3
import threading
from contextlib import closing
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path
from types import MappingProxyType

import psycopg
import pytest
import pytest_asyncio

from contracts.documents.message import TextPart
from contracts.payloads.message import MessagePost
from contracts.timestamps import format_timestamp
from ops.commands.quarantine import groups_shown_max as shown_max
from ops.consumers.list_consumers import list_consumers
from ops.consumers.live_version import read_skips
from ops.projection_place import ProjectionSchema
from ops.quarantine.decide_quarantine import decide_in
from ops.verify.finding import Report
from ops.verify.verify_projections import verify_projections
from projections.arrival import read_arrival
from projections.consumer import Statement
from projections.decide_quarantine import Asked, decide_group
from projections.mission_board.consumer import MissionBoard
from projections.projection import Projection
from projections.quarantine import wall_clock
from projections.repair_group import repair_group
from projections.store import Verb
from projections.store.postgres import PostgresStore
from projections.store.sqlite import SqliteStore
from services.agent.sign_command import Intent
from services.feed.find_quarantine import find_quarantine
from services.feed.report_progress import ProgressReport
from services.feed.signed_history import SignedHistory
from services.process.database import connect
from services.process.health import READY, State
from services.process.metrics import Metrics
from tests.agent_rig import PlantedMission, accepted, registered_stack, small_mission
from tests.command_rig import weavehold
from tests.conftest import create_database, drop_database
from tests.integration.test_cursor_forks_command import never_accepted

pytestmark = pytest.mark.asyncio(loop_scope="module")
at_first = "2026-01-01T00:00:00.000000Z"
because = ("--reason", "urn:weavehold:human:ada: agreed with bo")


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def stack(postgres_server, tmp_path_factory):
    async with registered_stack(postgres_server, tmp_path_factory.mktemp("stack"), "editor") as running:
        yield running


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def mission(stack, tmp_path_factory):
    coordinator = await stack.client("editor")
    await coordinator.open_session()
    file = small_mission(tmp_path_factory.mktemp("mission"))
    planted = PlantedMission(stack, coordinator, file, f"quarantined-{secrets.token_hex(4)}")
    await planted.create()
    await planted.view.refresh()
    conversation_id = planted.view.events[0].payload["conversation"]["conversationId"]
    for number in range(3):
        message = MessagePost(
            message_id=f"urn:weavehold:message:{secrets.token_hex(8)}",
            conversation_id=conversation_id,
            content=(TextPart(text=f"No. {number}"),),
        )
        await accepted(coordinator, Intent(kind="message.post", payload=message, group_id=planted.group_id))
    await planted.view.refresh()
    return planted


class Fragile(MissionBoard):
    """A board that fails at some sequence of a Group."""

    fails_at: tuple[str, int] | None = None
    refused: Statement | None = None
    """What it yields for the second Event of each Group."""
    statements = MappingProxyType(
        {**MissionBoard.statements, "wrong_column": "UPDATE mission_board_mission SET no_such = 1"}
    )

    def evolve(self, event):
        if self.refused is not None and event.sequence == 2:
            return [self.refused]
        if (event.group_id, event.sequence) == self.fails_at:
            raise ValueError("a title of 3 MB")
        return super().evolve(event)


class Kept:
    """A fragile board in a store of one kind, open as its process has it, and how commands are told where it lies."""

    def __init__(self, store, place, variables: dict[str, str], behind: timedelta = timedelta(0)) -> None:
        self.store = store
        self.place = place
        self.projection = str(place) if isinstance(place, Path) else "mission_board"
        self.variables = variables
        self.behind = behind
        """How far behind the commands' clock its own is; they wait for what failed by a clock that is ahead."""
        self.metrics = Metrics("test")
        self.board = Projection(store, clock=self.clock)
        self.report = ProgressReport(self.metrics, self.board)

    def clock(self) -> str:
        return format_timestamp(datetime.now(UTC) - self.behind)

    async def quarantine(self, mission, sequence):
        """Let the board fail there."""
        self.store.consumer.fails_at = (mission.group_id, sequence)
        await self.go_on(mission)
        [found] = await self.quarantined()
        return found

    async def quarantine_strangers(self, stack, name):
        """Let the board fail at the second Event of a Group of which the authority knows nothing."""
        self.store.consumer.fails_at = (name, 2)
        await self.board.receive([read_arrival(built.raw) for built in never_accepted(stack, name, 3)])

    async def go_on(self, mission):
        await repair_group(self.board, SignedHistory(mission.owner.history), mission.group_id)

    async def quarantined(self):
        return await self.store.read(lambda found: found.quarantined())

    async def ask(self, stack, *arguments):
        named = () if arguments[0] == "--help" else ("--projection", self.projection, "--json")
        return await weavehold(stack, "quarantine", *arguments, *named, **self.variables)


@pytest_asyncio.fixture(loop_scope="module", params=["sqlite", "postgres"])
async def kept(request, stack, postgres_server, tmp_path):
    organization_id = stack.organization.organization_id
    if request.param == "sqlite":
        file = tmp_path / "mission_board.sqlite"
        store = await SqliteStore.open(file, Fragile(), organization_id)
        made = Kept(store, file, {"WEAVEHOLD_PROJECTIONS_DIR": str(tmp_path)})
        yield made
        await made.store.close()
        return
    name = f"projections_{secrets.token_hex(6)}"
    url = create_database(postgres_server, name)
    store = await PostgresStore.open(url, Fragile(), organization_id)
    variables = {"WEAVEHOLD_PROJECTION_STORE": "postgres", "WEAVEHOLD_PROJECTION_DATABASE_URL": url}
    made = Kept(store, ProjectionSchema(url, store.schema), variables)
    yield made
    await made.store.close()
    drop_database(postgres_server, name)


@pytest_asyncio.fixture(loop_scope="module")
async def beside(stack, tmp_path):
    """Another board, in a file, whose Groups failed minutes ago."""
    file = tmp_path / "beside" / "board.sqlite"
    file.parent.mkdir()
    store = await SqliteStore.open(file, Fragile(), stack.organization.organization_id)
    yield Kept(store, file, {}, behind=timedelta(minutes=5))
    await store.close()


async def test_an_operator_looks_and_passes_an_event_over(stack, mission, kept):
    """DUR-5, OPS-2, NEW-4: what stands and why, told by command; the skip reaches the live store, and is verified."""
    group_id, head = mission.group_id, mission.view.state.sequence
    kept.behind = -timedelta(minutes=10)
    assert (await kept.ask(stack, "list")).code == 0
    found = await kept.quarantine(mission, 2)
    event = mission.view.events[1]

    ran = await kept.ask(stack, "list")
    [told] = ran.json["quarantined"]
    assert ran.code == 1
    assert (told["consumer"], told["owner"], told["version"]) == ("mission_board", "operator", MissionBoard.version)
    assert (told["groupId"], told["sequence"], told["eventId"]) == (group_id, 2, event.event_id)
    assert (told["kind"], told["attempts"], told["standing"]) == (event.kind, 1, "stands")
    assert (told["firstFailedAt"], told["chainHash"]) == (found.first_failed_at, found.stop.chain_hash.hex())
    assert "a title of 3 MB" in told["reason"]
    people = await weavehold(stack, "quarantine", "list", "--projection", kept.projection, **kept.variables)
    for shown in (group_id, event.event_id, "a title of 3 MB", "operator", "quarantine show"):
        assert shown in people.out
    people = await weavehold(stack, "quarantine", "show", group_id, "--projection", kept.projection, **kept.variables)
    commands = (f"retry {group_id}", f"release {group_id}", f"skip {group_id} --event 2")
    for shown in ("failed once", "ValueError: a title", *commands):
        assert shown in people.out
    verified = await weavehold(stack, "consumer", "verify", kept.projection, "--json", **kept.variables)
    assert (verified.code, verified.json["standing"]) == (0, {group_id: 2})
    # Where there is nothing to look at nobody is told that all is well.
    nowhere = await weavehold(stack, "quarantine", "list", "--directory", str(stack.folder / "nowhere"))
    assert (nowhere.code, "holds no projections" in nowhere.err) == (2, True)

    for wrong in ("ada", "ada: ", ": told"):
        assert (await kept.ask(stack, "retry", group_id, "--reason", wrong)).code == 2
    refused = await kept.ask(stack, "retry", group_id, *because)
    assert (refused.code, "run it again in" in refused.json["fault"]) == (1, True)
    refused = await kept.ask(stack, "skip", group_id, "--event", "3", *because)
    assert (refused.code, event.event_id in refused.json["fault"]) == (1, True)
    assert (await kept.ask(stack, "skip", group_id, *because)).code == 2
    refused = await kept.ask(stack, "skip", "urn:weavehold:group:other", "--event", "2", *because)
    assert (refused.code, "quarantine list" in refused.json["fault"]) == (1, True)
    assert await kept.quarantined() == [found]

    done = await kept.ask(stack, "skip", group_id, "--event", event.event_id, *because)
    assert (done.code, done.json["decided"][0]["eventId"]) == (0, event.event_id)
    again = await kept.ask(stack, "skip", group_id, "--event", event.event_id, *because)
    assert (again.code, "is being tried since" in again.json["fault"]) == (1, True)
    shown = await kept.ask(stack, "show", group_id)
    assert (shown.code, shown.json["decisions"][0]["effect"]) == (1, "pending")
    await kept.go_on(mission)
    cursor = await kept.board.cursor(group_id)
    assert (await kept.quarantined(), cursor.sequence) == ([], head)

    shown = await kept.ask(stack, "show", group_id)
    [decision] = shown.json["decisions"]
    assert (shown.code, shown.json["quarantined"]) == (0, [])
    assert (decision["verb"], decision["who"], decision["why"]) == ("skip", "urn:weavehold:human:ada", "agreed with bo")
    assert (decision["sequence"], decision["effect"], decision["attempts"]) == (2, "passed over", 1)
    verified = await weavehold(stack, "consumer", "verify", kept.projection, "--json", **kept.variables)
    assert (verified.code, verified.json["ok"], len(verified.json["groups"])) == (0, True, 1)
    report = Report()
    async with await connect(stack.variables["WEAVEHOLD_DATABASE_URL"], name="test") as database:
        await verify_projections(database, stack.organization.organization_id, [kept.place], report)
    assert report.findings == []


async def test_an_operator_tries_again_and_releases(stack, mission, kept):
    """DUR-5, OPS-2: attempts are counted and bounded; a release counts them anew, for one Group or for all."""
    kept.behind = timedelta(minutes=5)
    await kept.quarantine(mission, 2)
    group_id = mission.group_id
    assert (await kept.ask(stack, "retry", group_id, *because)).code == 0
    kept.behind = -timedelta(minutes=10)
    await kept.go_on(mission)
    [found] = await kept.quarantined()
    assert (found.attempts, found.tried_at) == (2, None)
    refused = await kept.ask(stack, "release", "--all", *because)
    assert (refused.code, refused.json["decided"], len(refused.json["refused"])) == (1, [], 1)
    assert "run it again in" in refused.json["refused"][0]
    for wrong in ((), (group_id, "--all")):
        assert (await kept.ask(stack, "release", *wrong, *because)).code == 2
    # Who decided a moment ago may not decide again yet: another Group is what is released here.
    await kept.store.transaction(lambda transaction: transaction.reset_group(group_id))
    kept.behind = timedelta(minutes=5)
    await kept.quarantine_strangers(stack, "urn:weavehold:group:stranger")
    done = await kept.ask(stack, "release", "--all", *because)
    assert (done.code, [each["groupId"] for each in done.json["decided"]]) == (0, ["urn:weavehold:group:stranger"])
    [found] = await kept.quarantined()
    assert found.attempts == 0
    assert found.tried_at is not None
    decisions = await kept.store.read(lambda transaction: transaction.decisions())
    assert [each.verb for each in decisions] == [Verb.RETRY, Verb.RELEASE]


async def test_a_skip_on_a_lost_history_is_shown_as_inert(stack, mission, kept):
    """DUR-5, PRJ-3: the authority has another Event there, or none; the decision about the lost one does nothing."""
    lost = never_accepted(stack, mission.group_id, 3)
    kept.store.consumer.fails_at = (mission.group_id, 2)
    await kept.board.receive([read_arrival(built.raw) for built in lost])
    done = await kept.ask(stack, "skip", mission.group_id, "--event", "2", *because)
    assert (done.code, done.json["decided"][0]["eventId"]) == (0, lost[1].event.event_id)
    shown = await kept.ask(stack, "show", mission.group_id)
    assert [each["effect"] for each in shown.json["decisions"]] == ["inert"]


async def test_statements_that_are_refused_quarantine(stack, kept):
    """DUR-5: whatever a store refuses for good stops one Group, and the consumer goes on with all others."""
    long = secrets.token_hex(20_000)
    refused = [
        Statement("no_such_statement", {}),
        Statement("put_work_item_state", {}),
        Statement("put_work_item_state", {"group_id": None, "work_item_id": "x", "state": "open"}),
        Statement("put_work_item_state", {"group_id": "x", "work_item_id": "x", "state": 1 << 70}),
        Statement("put_work_item_state", {"group_id": "x", "work_item_id": "x", "state": "\ud800"}),
        Statement("wrong_column", {}),
    ]
    if isinstance(kept.place, ProjectionSchema):
        # More than an entry of an index holds: a limit of this server, which it says as an operational fault.
        refused.append(Statement("put_work_item_state", {"group_id": "x", "work_item_id": long, "state": "open"}))
    names = [f"urn:weavehold:group:refused-{number}" for number in range(len(refused))]
    for name, statement in zip(names, refused, strict=True):
        kept.store.consumer.refused = statement
        await kept.board.receive([read_arrival(built.raw) for built in never_accepted(stack, name, 3)])
    found = await kept.quarantined()
    assert [(each.stop.group_id, each.stop.sequence) for each in found] == [(name, 2) for name in names]
    kept.store.consumer.refused = None
    applied = await kept.board.receive(
        [read_arrival(built.raw) for built in never_accepted(stack, "urn:weavehold:group:sound", 3)]
    )
    assert applied.applied == 3


async def test_a_decision_is_there_whole_or_not_at_all(mission, kept):
    """DUR-5: what ends a command inside its transaction leaves neither the decision nor its effect."""
    found = await kept.quarantine(mission, 2)

    def die(transaction):
        decide_group(transaction, Asked(Verb.SKIP, "ada", "agreed", kept.clock()), mission.group_id, "2")
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        decide_in(kept.place, die)
    assert await kept.quarantined() == [found]
    assert await kept.store.read(lambda transaction: transaction.decisions()) == []


async def test_readiness_and_metrics_tell_it(mission, kept):
    """DUR-5, OPS-1: how many Groups stand, where to look, whom to ask; the process stays ready for the others."""
    assert await find_quarantine(kept.store) == READY
    await kept.quarantine(mission, 2)
    finding = await find_quarantine(kept.store)
    assert finding.state is State.READY
    assert finding.detail == "1 Group is quarantined, see `weavehold quarantine list`; ask operator"
    kept.report.note_quarantined(1, 3)
    shown = kept.metrics.exposition()[0].decode()
    assert 'weavehold_groups_quarantined{consumer="mission_board"} 1.0' in shown
    assert 'weavehold_quarantine_retries_total{consumer="mission_board"} 3.0' in shown


async def test_a_store_of_an_earlier_form_is_read_on(stack, mission, kept):
    """DUR-5, PRJ-4: it keeps its rows and Cursors; a Group that had stopped in that form is simply tried again."""
    await kept.go_on(mission)
    cursors = await kept.board.cursors()
    await kept.store.close()
    statements = (
        "DROP TABLE projection_quarantine",
        "DROP TABLE projection_decision",
        "CREATE TABLE projection_stop (group_id TEXT PRIMARY KEY, sequence BIGINT, event_id TEXT, reason TEXT)",
        "INSERT INTO projection_stop VALUES ('urn:weavehold:group:other', 1, 'x', 'y')",
    )
    execute(kept.place, *statements)
    await look_at_nothing_quarantined(stack, mission, kept)
    reopened = await open_again(kept, stack)
    assert await reopened.read(lambda found: (found.cursors(), found.stops(), found.decisions())) == (cursors, [], [])
    kept.store = reopened
    with pytest.raises((sqlite3.OperationalError, psycopg.errors.UndefinedTable)):
        execute(kept.place, "INSERT INTO projection_stop VALUES ('urn:weavehold:group:other', 1, 'x', 'y')")


async def look_at_nothing_quarantined(stack, mission, kept):
    """Every command that looks at a projection reads one that lacks the later tables."""
    listed = await kept.ask(stack, "list")
    assert (listed.code, listed.json["quarantined"], listed.json["unreadable"]) == (0, [], [])
    shown = await kept.ask(stack, "show", mission.group_id)
    assert (shown.code, shown.json["decisions"], shown.json["unreadable"]) == (0, [], [])
    released = await kept.ask(stack, "release", "--all", *because)
    assert (released.code, released.json["decided"], released.json["refused"]) == (0, [], [])
    board = await weavehold(stack, "board", "--json", **kept.variables)
    assert (board.code, len(board.json["missions"]), board.json["stopped"]) == (0, 1, [])
    verified = await weavehold(stack, "consumer", "verify", kept.projection, "--json", **kept.variables)
    assert (verified.code, len(verified.json["groups"])) == (0, 1)
    report = Report()
    organization_id = stack.organization.organization_id
    async with await connect(stack.variables["WEAVEHOLD_DATABASE_URL"], name="test") as database:
        await verify_projections(database, organization_id, [kept.place], report)
        [line] = await list_consumers(database, organization_id, [kept.place])
    assert (report.findings, line.problem, line.stopped) == ([], None, 0)
    assert read_skips(kept.place) == []
    rebuilt = await weavehold(stack, "consumer", "rebuild", "mission_board", "--json", **kept.variables)
    assert (rebuilt.code, [each["equal"] for each in rebuilt.json["groups"]]) == (0, [True])


async def test_all_are_released_but_where_it_is_refused(stack, mission, kept, beside):
    """DUR-5, OPS-2: a projection that cannot be written is told with the others, and stops none of them."""
    execute(
        beside.place,
        "CREATE TRIGGER refuse BEFORE INSERT ON projection_decision BEGIN SELECT RAISE(ABORT, 'no room'); END",
    )
    kept.behind = timedelta(minutes=5)
    for each in (kept, beside):
        await each.quarantine(mission, 2)
    [before] = await beside.quarantined()
    done = await kept.ask(stack, "release", "--all", *because, "--projection", beside.projection)
    assert (done.code, [each["groupId"] for each in done.json["decided"]]) == (1, [mission.group_id])
    [refused] = done.json["refused"]
    assert (str(beside.place) in refused, "no room. Nothing is changed" in refused) == (True, True)
    assert await beside.quarantined() == [before]
    assert [each.attempts for each in await kept.quarantined()] == [0]


async def test_however_many_stand_elsewhere_all_are_released(stack, mission, kept, beside):
    """DUR-5: each projection is asked, not only those that a bounded list has room for."""
    execute(
        beside.place,
        f"""INSERT INTO projection_quarantine
        WITH RECURSIVE tried (number) AS (SELECT 1 UNION ALL SELECT number + 1 FROM tried WHERE number <= {shown_max})
        SELECT 'urn:weavehold:group:' || number, 1, 'event', zeroblob(32), 'kind', 'reason', 'owner', 1, '{at_first}',
               '{at_first}', 1, '{at_first}' FROM tried""",
    )
    kept.behind = timedelta(minutes=5)
    await kept.quarantine(mission, 2)
    done = await kept.ask(stack, "release", "--all", *because, "--projection", beside.projection)
    assert (done.code, [each["groupId"] for each in done.json["decided"]]) == (0, [mission.group_id])


async def test_a_projection_is_one_however_it_is_called(stack, mission, kept):
    """DUR-5, OPS-2: named twice, or by two spellings of one file, it is asked once."""
    kept.behind = timedelta(minutes=5)
    await kept.quarantine(mission, 2)
    again = kept.projection
    if isinstance(kept.place, Path):
        again = f"{kept.place.parent}/../{kept.place.parent.name}/{kept.place.name}"
    listed = await kept.ask(stack, "list", "--projection", again)
    assert len(listed.json["quarantined"]) == 1
    done = await kept.ask(stack, "release", mission.group_id, *because, "--projection", again)
    assert (done.code, len(done.json["decided"])) == (0, 1)


@pytest.mark.parametrize("kept", ["postgres"], indirect=True)
async def test_a_lost_answer_to_the_commit_is_told_as_unknown(stack, mission, kept):
    """DUR-5, OPS-2: what was committed is not said to be unchanged when the connection ends in its commit."""
    execute(
        kept.place,
        "CREATE FUNCTION lose() RETURNS trigger LANGUAGE plpgsql AS "
        "$$ BEGIN PERFORM pg_terminate_backend(pg_backend_pid()); PERFORM pg_sleep(60); RETURN NULL; END $$",
        "CREATE CONSTRAINT TRIGGER lose AFTER INSERT ON projection_decision DEFERRABLE INITIALLY DEFERRED "
        "FOR EACH ROW EXECUTE FUNCTION lose()",
    )
    kept.behind = timedelta(minutes=5)
    await kept.quarantine(mission, 2)
    refused = await kept.ask(stack, "release", mission.group_id, *because)
    assert refused.code == 1
    assert "may have been written" in refused.json["fault"]
    assert "quarantine show" in refused.json["fault"]
    assert "Nothing is changed" not in refused.json["fault"]


async def test_decisions_at_one_moment_have_numbers_of_their_own(stack, mission, kept):
    """DUR-5: of two people who decide at once one waits for the other, and the order of both is on record."""
    kept.behind = timedelta(minutes=5)
    strangers = "urn:weavehold:group:stranger"
    await kept.quarantine(mission, 2)
    await kept.quarantine_strangers(stack, strangers)
    decided, second_done = threading.Event(), threading.Event()

    def first(transaction):
        decide_group(transaction, Asked(Verb.SKIP, "ada", "agreed", wall_clock()), mission.group_id, "2")
        decided.set()
        second_done.wait(0.5)  # as long as it does not wait for this one

    def second(transaction):
        decide_group(transaction, Asked(Verb.RELEASE, "bo", "mended", wall_clock()), strangers)

    deciding = asyncio.create_task(asyncio.to_thread(decide_in, kept.place, first))
    await asyncio.to_thread(decided.wait, 60)
    await asyncio.to_thread(decide_in, kept.place, second)
    second_done.set()
    await deciding
    found = query(kept.place, "SELECT decision_id, who FROM projection_decision ORDER BY decision_id")
    assert [tuple(row) for row in found] == [(1, "ada"), (2, "bo")]


def execute(place, *statements):
    """Change a store behind everybody's back."""
    if isinstance(place, Path):
        with closing(sqlite3.connect(place)) as database, database:
            for statement in statements:
                database.execute(statement)
        return
    with psycopg.connect(place.url, options=f"-c search_path={place.schema}") as database:
        for statement in statements:
            database.execute(statement)


def query(place, statement):
    """The rows of a store as they are."""
    if isinstance(place, Path):
        with closing(sqlite3.connect(place)) as database:
            return database.execute(statement).fetchall()
    with psycopg.connect(place.url, options=f"-c search_path={place.schema}") as database:
        return database.execute(statement).fetchall()


async def open_again(kept, stack):
    organization_id = stack.organization.organization_id
    opening = partial(PostgresStore.open, kept.variables.get("WEAVEHOLD_PROJECTION_DATABASE_URL", ""))
    if isinstance(kept.place, Path):
        opening = partial(SqliteStore.open, kept.place)
    return await opening(Fragile(), organization_id)
