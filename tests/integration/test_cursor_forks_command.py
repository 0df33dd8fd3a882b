"""`weavehold cursor forks` as its users run it, on projections that had applied what a real authority does not have."""

import secrets
from datetime import UTC, datetime

import pytest
import pytest_asyncio

from contracts.cursor import Contact
from contracts.timestamps import format_timestamp
from projections.arrival import read_arrival
from projections.group_run import Question
from projections.mission_board.consumer import MissionBoard
from projections.projection import Projection
from projections.repair_group import repair_group
from projections.settle_fork import settle_fork
from projections.store.postgres import PostgresStore
from projections.store.sqlite import SqliteStore
from projections.work_queue.consumer import WorkQueue
from services.feed.signed_history import SignedHistory
from tests.agent_rig import PlantedMission, registered_stack, small_mission
from tests.builders import build_event, message_payload
from tests.command_rig import weavehold
from tests.conftest import create_database, drop_database
from tests.mission_history import agent_id, authority_key

pytestmark = pytest.mark.asyncio(loop_scope="module")


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def stack(postgres_server, tmp_path_factory):
    async with registered_stack(postgres_server, tmp_path_factory.mktemp("stack"), "editor") as running:
        yield running


@pytest_asyncio.fixture(loop_scope="module")
async def mission(stack, tmp_path):
    coordinator = await stack.client("editor")
    await coordinator.open_session()
    planted = PlantedMission(stack, coordinator, small_mission(tmp_path), f"forked-{secrets.token_hex(4)}")
    await planted.create()
    await planted.view.refresh()
    return planted


class Kept:
    """A mission board in a store of one kind, and how commands are told where it lies."""

    def __init__(self, store, projection: str, variables: dict[str, str]) -> None:
        self.store = store
        self.board = Projection(store)
        self.projection = projection
        self.variables = variables


@pytest_asyncio.fixture(loop_scope="module", params=["sqlite", "postgres"])
async def kept(request, stack, postgres_server, tmp_path):
    organization_id = stack.organization.organization_id
    if request.param == "sqlite":
        file = tmp_path / "board.sqlite"
        store = await SqliteStore.open(file, MissionBoard(), organization_id)
        yield Kept(store, str(file), {})
        await store.close()
        return
    name = f"projections_{secrets.token_hex(6)}"
    url = create_database(postgres_server, name)
    store = await PostgresStore.open(url, MissionBoard(), organization_id)
    variables = {"WEAVEHOLD_PROJECTION_STORE": "postgres", "WEAVEHOLD_PROJECTION_DATABASE_URL": url}
    yield Kept(store, "mission_board", variables)
    await store.close()
    drop_database(postgres_server, name)


def never_accepted(stack, group_id: str, count: int):
    """Events of a Group that this authority does not have."""
    built = []
    for number in range(1, count + 1):
        built.append(
            build_event(
                "message.posted",
                message_payload(group_id, number),
                authority_key,
                organization_id=stack.organization.organization_id,
                group_id=group_id,
                previous=built[-1].mark if built else None,
            )
        )
    return built


async def test_what_was_lost_is_told_until_somebody_answers_for_it(stack, mission, kept):
    """PRJ-3, NEW-1, OPS-2: exactly the lost Events, when it was noticed, whether it is rebuilt, who acknowledged it."""
    asked = ("cursor", "forks", "--projection", kept.projection)
    lost = never_accepted(stack, mission.group_id, 3)
    await kept.board.receive([read_arrival(built.raw) for built in lost])
    cursor = await kept.board.cursor(mission.group_id)

    ran = await weavehold(stack, *asked, "--json", **kept.variables)
    assert (ran.code, ran.json["forks"]) == (1, [])
    [unnoticed] = ran.json["unnoticed"]
    assert (unnoticed["cursor"]["groupId"], unnoticed["cursor"]["sequence"]) == (mission.group_id, 3)

    before = format_timestamp(datetime.now(UTC))
    history = SignedHistory(mission.owner.history)
    assert await settle_fork(kept.board, history, mission.group_id) is not None
    after = format_timestamp(datetime.now(UTC))
    ran = await weavehold(stack, *asked, "--json", **kept.variables)
    [fork] = ran.json["forks"]
    head = mission.view.state
    assert (ran.code, ran.json["unnoticed"]) == (1, [])
    assert (fork["consumer"], fork["groupId"], fork["number"]) == ("mission_board", mission.group_id, 1)
    assert fork["seen"] == {
        "incarnation": cursor.incarnation,
        "sequence": 3,
        "chainHash": lost[-1].mark.chain_hash.hex(),
    }
    assert fork["found"] == {
        "incarnation": mission.view.events[-1].history.incarnation,
        "sequence": head.sequence,
        "chainHash": head.chain_hash.hex(),
    }
    assert fork["lost"] == [
        {"sequence": number, "eventId": built.event.event_id, "chainHash": built.mark.chain_hash.hex()}
        for number, built in enumerate(lost, 1)
    ]
    assert (fork["sharedSequence"], fork["lostCount"], fork["acknowledged"]) == (0, 3, None)
    assert before <= fork["noticedAt"] <= after
    assert (fork["mended"], fork["applied"], fork["behind"]) == ("rebuilding", 0, head.sequence)

    await repair_group(kept.board, history, mission.group_id, Question(Contact.UNKNOWN, cursor))
    shown = await weavehold(stack, *asked, **kept.variables)
    assert shown.code == 1
    for told in (mission.group_id, "rebuilt", "3: 1 to 3", *(built.event.event_id for built in lost)):
        assert told in shown.out

    for wrong in ("ada", "ada: ", ": told", "ada: told\nthem"):
        assert (await weavehold(stack, *asked, "--acknowledge", wrong, **kept.variables)).code == 2
    elsewhere = await weavehold(stack, *asked, "--group", "urn:weavehold:group:other", "--json", **kept.variables)
    assert (elsewhere.code, elsewhere.json["forks"]) == (0, [])
    given = await weavehold(
        stack, *asked, "--acknowledge", "urn:weavehold:human:ada: customers told", "--json", **kept.variables
    )
    [fork] = given.json["forks"]
    assert (given.code, fork["mended"]) == (0, "rebuilt")
    assert (fork["acknowledged"]["who"], fork["acknowledged"]["why"]) == ("urn:weavehold:human:ada", "customers told")
    # The first answer stays on record, and the consumer writes on beside it.
    again = await weavehold(stack, *asked, "--acknowledge", "bob: me too", "--json", **kept.variables)
    assert (again.code, again.json["forks"]) == (0, [fork])
    await kept.store.transaction(lambda transaction: transaction.count("written", 1))


async def test_all_projections_of_a_stack_are_asked(stack, mission, tmp_path):
    """PRJ-3, OPS-2: unnamed, every projection tells; one that cannot be read is a finding; a Worker keeps its rows."""
    home = tmp_path / "home"
    for folder in ("workers", "projections"):
        (home / folder).mkdir(parents=True)
    organization_id = stack.organization.organization_id
    board = await SqliteStore.open(home / "projections/mission_board.sqlite", MissionBoard(), organization_id)
    lost = never_accepted(stack, mission.group_id, 2)
    await Projection(board).receive([read_arrival(built.raw) for built in lost])
    await settle_fork(Projection(board), SignedHistory(mission.owner.history), mission.group_id)
    await board.close()
    queue = await SqliteStore.open(home / "workers/ada.sqlite", WorkQueue(agent_id), organization_id)
    nowhere = never_accepted(stack, "urn:weavehold:group:nowhere", 2)
    await Projection(queue).receive([read_arrival(built.raw) for built in nowhere])
    await queue.close()

    asked = ("cursor", "forks", "--directory", str(home), "--json")
    ran = await weavehold(stack, *asked, "--acknowledge", "ada: seen")
    assert (ran.code, [fork["consumer"] for fork in ran.json["forks"]]) == (0, ["mission_board"])
    [held] = ran.json["kept"]
    assert (held["consumer"], held["cursor"]["groupId"]) == ("work_queue", "urn:weavehold:group:nowhere")
    listed = await weavehold(stack, "consumer", "list", "--directory", str(home))
    assert "ada (work_queue)" in listed.out
    unnamed = await weavehold(stack, "consumer", "rows", "work_queue", "--directory", str(home))
    assert (unnamed.code, "name its Worker" in unnamed.err) == (2, True)
    (home / "workers/eve.sqlite").write_bytes(b"no projection")
    ran = await weavehold(stack, *asked)
    assert (ran.code, len(ran.json["unreadable"])) == (1, 1)
