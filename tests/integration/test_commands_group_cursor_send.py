"""`weavehold group`, `cursor` and `send` as their users run them, beside a real authority (OPS-2)."""

import itertools
import sqlite3
from contextlib import closing
from typing import Any

import msgspec
import pytest
import pytest_asyncio

from contracts.cursor import Cursor
from contracts.documents.message import TextPart
from contracts.identifiers import GroupSequence
from contracts.payloads.message import MessagePost
from ops.demo.mission_documents import agent_id, mission_creation
from ops.init import key_file
from services.agent.sign_command import Intent
from services.process.statements import load
from tests.agent_rig import PlantedMission, accepted, registered_stack, small_mission
from tests.command_rig import Ran, weavehold, weavehold_process

pytestmark = pytest.mark.asyncio(loop_scope="module")
names = itertools.count(1)
hostile = "Launch [red]it[/] \x1b[31mnow\x07"


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def stack(postgres_server, tmp_path_factory):
    async with registered_stack(postgres_server, tmp_path_factory.mktemp("stack"), "editor", "ada") as running:
        yield running


@pytest_asyncio.fixture(loop_scope="module")
async def mission(stack, tmp_path):
    coordinator = await stack.client("editor")
    await coordinator.open_session()
    planted = PlantedMission(stack, coordinator, small_mission(tmp_path), f"commands-{next(names)}")
    await planted.create()
    return planted


def unsigned_creation(folder, name: str, **members: Any) -> dict[str, Any]:
    """A `mission.create` as a person writes it."""
    group_id = f"urn:weavehold:group:{name}"
    payload = mission_creation(small_mission(folder), f"urn:weavehold:mission:{name}", group_id)
    return {"kind": "mission.create", "groupId": group_id, "payload": msgspec.to_builtins(payload)} | members


async def test_group_show_tells_what_a_group_is_now(stack, mission):
    """OPS-2, LSE-1: Mission, members, WorkItems, running leases with the time left by the database clock, head."""
    await mission.invite("ada")
    item = mission.file.work[0]
    work_item_id = await mission.offer(item)
    ran = await weavehold_process(stack, "group", "show", mission.group_id, "--json")
    people = await weavehold(stack, "group", "show", mission.group_id)
    await mission.view.refresh()
    report = ran.json
    assert (ran.code, ran.err) == (0, "")
    assert report["groupId"] == mission.group_id
    assert (report["head"]["sequence"], report["head"]["chainHash"]) == (
        mission.view.state.sequence,
        mission.view.state.chain_hash.hex(),
    )
    assert (report["mission"]["state"], report["mission"]["coordinator"]) == ("active", agent_id("editor"))
    assert {member["principal"]: member["role"] for member in report["members"]} == {
        agent_id("ada"): "worker",
        agent_id("editor"): "coordinator",
        stack.owner.principal_id: "mission_owner",
    }
    assert [(found["workItemId"], found["state"]) for found in report["workItems"]] == [(work_item_id, "offered")]
    [lease] = report["leases"]
    assert (lease["leaseType"], lease["holder"]) == ("coordinator", agent_id("editor"))
    assert 200 < lease["secondsLeft"] <= 300
    assert report["entities"]["membership"] == 3
    assert people.code == 0
    for shown in ("Small", work_item_id, "offered", agent_id("ada"), "left"):
        assert shown in people.out


async def test_group_events_lists_the_log(stack, mission, tmp_path):
    """OPS-2, NEW-5: the Events as signed, in order, in parts by --after and --limit; foreign text cannot act."""
    message = MessagePost(
        message_id=f"{mission.group_id}:hostile",
        conversation_id=mission.view.state.group.main_conversation_id,
        content=(TextPart(text=hostile),),
    )
    await accepted(mission.owner, Intent(kind="message.post", payload=message, group_id=mission.group_id))
    await mission.invite("ada")
    whole = await weavehold(stack, "group", "events", mission.group_id, "--json")
    part = await weavehold(stack, "group", "events", mission.group_id, "--after", "1", "--limit", "1", "--json")
    people = await weavehold(stack, "group", "events", mission.group_id, "--limit", "2")
    await mission.view.refresh()
    events = whole.json["events"]
    assert [item["event"]["kind"] for item in events] == mission.kinds()
    assert [item["event"]["sequence"] for item in events] == list(range(1, len(events) + 1))
    assert (whole.json["next"], events[-1]["chainHash"]) == (None, whole.json["head"]["chainHash"])
    assert (part.json["events"], part.json["next"]) == (events[1:2], 2)
    assert people.code == 0
    assert "message.posted" in people.out
    assert "--after 2" in people.out
    assert "\x1b" not in people.out


async def test_a_title_is_shown_and_never_obeyed(stack, tmp_path):
    """OPS-2: markup and control characters in what members wrote reach a terminal as plain text."""
    document = unsigned_creation(tmp_path, "hostile")
    document["payload"]["title"] = hostile
    path = tmp_path / "create.json"
    path.write_bytes(msgspec.json.encode(document))
    owner = str(key_file(stack.organization.keys_directory, "mission_owner"))
    assert (await weavehold(stack, "send", str(path), "--key", owner)).code == 0
    ran = await weavehold(stack, "group", "show", "urn:weavehold:group:hostile")
    assert ran.code == 0
    assert "[red]it[/]" in ran.out
    assert not {"\x1b", "\x07"} & set(ran.out)


async def test_cursor_show_compares_everyone_with_the_head(stack, mission, tmp_path):
    """PRJ-3, NEW-1, OPS-2: heads, acknowledged places, a projection's Cursors; one on another history is a finding."""
    await mission.invite("ada")
    await mission.view.refresh()
    state, first = mission.view.state, mission.view.events[0]
    start = mission.view.events[1].history.previous
    place = Cursor(first.history.incarnation, mission.group_id, GroupSequence(1), start)
    assert (await mission.owner.history.acknowledge(place)).sequence == 1
    file = tmp_path / "projection.sqlite"
    write_cursors(file, [place, Cursor(place.incarnation, "urn:weavehold:group:nowhere", GroupSequence(3), start)])
    asked = ("cursor", "show", "--group", mission.group_id)
    ran = await weavehold(stack, *asked, "--projection", str(file), "--json")
    assert ran.code == 0
    [group] = ran.json["groups"]
    assert group["head"]["sequence"] == state.sequence
    [told] = group["acknowledged"]
    assert (told["principal"], told["sequence"], told["behind"]) == (stack.owner.principal_id, 1, state.sequence - 1)
    [cursor] = ran.json["projection"]
    assert (cursor["verdict"], cursor["behind"]) == ("behind", state.sequence - 1)

    write_cursors(
        file,
        [
            Cursor(place.incarnation, mission.group_id, state.sequence, start),
            Cursor(place.incarnation, "urn:weavehold:group:nowhere", GroupSequence(3), start),
        ],
    )
    found = await weavehold(stack, "cursor", "show", "--projection", str(file))
    assert found.code == 1
    for shown in ("fork", "unknown group", mission.group_id):
        assert shown in found.out
    level = Cursor(place.incarnation, mission.group_id, state.sequence, state.chain_hash)
    write_cursors(file, [level, Cursor(place.incarnation, mission.group_id + "x", GroupSequence(0), start)])
    verdicts = (await weavehold(stack, *asked, "--projection", str(file), "--json")).json["projection"]
    assert [line["verdict"] for line in verdicts] == ["level"]
    write_cursors(file, [Cursor(place.incarnation, mission.group_id, GroupSequence(state.sequence + 4), start)])
    ahead = await weavehold(stack, *asked, "--projection", str(file), "--json")
    assert (ahead.code, ahead.json["projection"][0]["verdict"]) == (1, "ahead")


async def test_send_signs_what_is_unsigned_and_sends_what_is_signed(stack, tmp_path):
    """OPS-2, MWP-EVT-003: an unsigned Command is signed with --key; a signed one goes out as it is."""
    owner = stack.organization.keys.mission_owner
    keys = str(key_file(stack.organization.keys_directory, "mission_owner"))
    group_id = "urn:weavehold:group:sent"
    document = msgspec.json.encode(unsigned_creation(tmp_path, "sent"))
    sent = await weavehold_process(stack, "send", "-", "--key", keys, "--json", given=document)
    assert (sent.code, sent.err) == (0, "")
    receipt = sent.json["receipt"]
    assert (receipt["outcome"], receipt["groupId"], receipt["events"][0]["sequence"]) == ("accepted", group_id, 1)
    assert receipt["actor"] == {"type": "human", "id": owner.principal.id}
    again = await weavehold(stack, "send", "-", "--key", keys, given=document)
    assert again.code == 1
    assert "refused: " in again.out

    intent = Intent(
        kind="message.post",
        group_id=group_id,
        payload=MessagePost(
            message_id="urn:weavehold:message:sent",
            conversation_id=(await weavehold(stack, "group", "events", group_id, "--json")).json["events"][0]["event"][
                "payload"
            ]["conversation"]["conversationId"],
            content=(TextPart(text="Once."),),
        ),
    )
    path = tmp_path / "signed.json"
    path.write_bytes(stack.owner.sign(intent).raw + b"\n")
    receipts = [(await weavehold(stack, "send", str(path), "--json")).json["receipt"] for _ in range(2)]
    assert receipts[0] == receipts[1]
    people = await weavehold(stack, "send", str(path))
    assert (people.code, receipts[0]["events"][0]["eventId"] in people.out) == (0, True)


async def test_send_tells_refusals_from_wrong_usage(stack, tmp_path):
    """OPS-2, ERR-1: 1 with the protocol's error for a refusal, 1 when nobody answers, 2 for what cannot be sent."""
    keys = str(key_file(stack.organization.keys_directory, "mission_owner"))
    operator = stack.organization.keys.operator.principal.id
    path = tmp_path / "command.json"

    async def send(document: Any, *arguments: str, **variables: str) -> Ran:
        raw = document if isinstance(document, bytes) else msgspec.json.encode(document)
        path.write_bytes(raw)
        return await weavehold(stack, "send", str(path), "--json", *arguments, **variables)

    creation = unsigned_creation(tmp_path, "refused")
    stranger = creation | {"kind": "work.start", "groupId": "urn:weavehold:group:nowhere", "membershipEpoch": 1}
    stranger["payload"] = {"workItemId": "urn:weavehold:work:nothing", "ownershipEpoch": 1}
    refused = await send(stranger, "--key", keys)
    assert (refused.code, refused.json["error"]["code"]) == (1, "GROUP_NOT_FOUND")
    assert refused.json["error"]["retryable"] is False
    assert refused.json["error"]["occurredAt"].endswith("Z")
    elsewhere = {"WEAVEHOLD_ORGANIZATION": "urn:weavehold:organization:elsewhere"}
    silent = await send(creation, "--key", keys, "--seconds", "1", **elsewhere)
    assert silent.code == 1
    assert msgspec.json.decode(silent.json["unresolved"]["command"])["signature"]["keyId"]
    unreachable = await send(creation, "--key", keys, WEAVEHOLD_NATS_URL="nats://127.0.0.1:1")
    assert unreachable.code == 1
    usage = [
        await send(creation),
        await send(b"not json", "--key", keys),
        await send(b"[]", "--key", keys),
        await send(creation | {"actor": {"type": "service", "id": operator}}, "--key", keys),
        await send(creation, "--key", str(tmp_path / "missing.json")),
        await send(creation | {"signature": {}}, "--key", keys),
        await send(creation, "--key", keys, WEAVEHOLD_NATS_URL="", WEAVEHOLD_DIRECTORY=str(tmp_path / "empty")),
        await weavehold(stack, "send", str(tmp_path / "missing.json"), "--json"),
    ]
    assert [ran.code for ran in usage] == [2] * len(usage)
    assert all(set(ran.json) == {"fault"} and ran.err.startswith("weavehold: ") for ran in usage)


async def test_an_unknown_group_is_a_finding(stack, tmp_path):
    """OPS-2: exit code 1, one line on stderr, one JSON object on stdout."""
    for arguments in (("group", "show"), ("group", "events"), ("cursor", "show", "--group")):
        run = weavehold_process if arguments == ("group", "show") else weavehold
        ran = await run(stack, *arguments, "urn:weavehold:group:nowhere", "--json")
        assert ran.code == 1
        assert len(ran.err.splitlines()) == 1
        assert "urn:weavehold:group:nowhere" in ran.json["fault"]
    no_file = await weavehold(stack, "cursor", "show", "--projection", str(tmp_path / "none.sqlite"), "--json")
    assert (no_file.code, "none.sqlite" in no_file.json["fault"]) == (2, True)


async def test_cursor_show_pages_through_groups(stack, mission):
    """OPS-2: --limit and --after walk through all Groups."""
    found, after = list[str](), ""
    while True:
        ran = await weavehold(stack, "cursor", "show", "--limit", "1", "--after", after, "--json")
        found += [group["groupId"] for group in ran.json["groups"]]
        if ran.json["next"] is None:
            break
        after = ran.json["next"]
    assert mission.group_id in found
    assert len(found) == len(set(found))


def write_cursors(path, cursors: list[Cursor]) -> None:
    """A projection's file as far as its Cursors go."""
    sql = load("projections.store")
    with closing(sqlite3.connect(path)) as connection, connection:
        connection.execute(sql.create_projection_cursor)
        connection.execute("DELETE FROM projection_cursor")
        connection.executemany(sql.insert_cursor, [msgspec.structs.asdict(cursor) for cursor in cursors])
