"""`weavehold keys rotate` beside running authorities, under load and through crashes (TRU-2)."""

import asyncio
import json
import stat
from collections.abc import Callable
from pathlib import Path

import pytest
import pytest_asyncio

from contracts.signature import SigningKey
from contracts.timestamps import instant
from ops.command_fault import CommandFault
from ops.init import key_file, write_key_file
from ops.keys.rotate_key import Step, next_file, previous_file, rotate_key
from ops.verify.run import verify_all
from services.agent.send_command import Answered
from tests.authority_rig import rows
from tests.command_rig import weavehold, weavehold_process
from tests.keys_command_rig import (
    ada,
    key_line,
    keys_stack,
    message,
    mission,
    operator_file,
    registered,
    registrar_of,
    until_ready,
)
from tests.relay_rig import eventually

pytestmark = pytest.mark.asyncio(loop_scope="module")


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def stack(postgres_server, tmp_path_factory):
    """Two authority processes."""
    async with keys_stack(postgres_server, tmp_path_factory.mktemp("stack")) as running:
        yield running


async def test_the_authoritys_key_is_rotated_under_load(stack):
    """TRU-2, OPS-1: every Command is accepted, no process restarts, old key before and new key after, then it ends."""
    file = key_file(stack.organization.keys_directory, "authority")
    before = SigningKey.from_file(file).key_id
    groups = [await mission(stack) for _ in range(3)]
    stop = asyncio.Event()

    async def stream(group_id: str) -> int:
        sent = 0
        while not stop.is_set():
            answer = await stack.owner.send(message(group_id))
            assert isinstance(answer, Answered), answer
            sent += 1
        return sent

    streams = [asyncio.create_task(stream(group_id)) for group_id in groups]
    await asyncio.sleep(0.5)
    ran = await weavehold_process(stack, "keys", "rotate", str(file), "--overlap", "8", "--json")
    assert (ran.code, ran.err) == (0, "")
    after = SigningKey.from_file(file).key_id
    assert (ran.json["before"], ran.json["after"], ran.json["resumed"]) == (before, after, False)
    assert not {next_file(file), previous_file(file)} & set(file.parent.iterdir())
    line = await key_line(stack, before)
    assert line["validUntil"] == ran.json["beforeValidUntil"]

    async def ended() -> bool:
        return (await key_line(stack, before))["standing"] == "retired"

    await eventually(ended, 60, "the old key to end")
    await asyncio.sleep(0.5)
    stop.set()
    assert min(await asyncio.gather(*streams)) > 1
    database_url = stack.variables["WEAVEHOLD_DATABASE_URL"]
    for group_id in groups:
        events = await rows(database_url, "SELECT event FROM event_log WHERE group_id = %s ORDER BY sequence", group_id)
        signers = [json.loads(bytes(raw))["signature"]["keyId"] for (raw,) in events]
        assert set(signers) == {before, after}
        assert signers == sorted(signers, key=[before, after].index)
    await until_ready(stack)
    report = await verify_all(database_url, stack.organization.organization_id)
    assert report.ok, report.findings
    assert (await weavehold(stack, "keys", "audit")).code == 0


class Crash(Exception):
    """The process ends here."""


def crash_at(step: Step) -> Callable[[Step], None]:
    def crash(done: Step) -> None:
        if done is step:
            raise Crash

    return crash


@pytest.mark.parametrize("whose", ["ada", "operator"])
@pytest.mark.parametrize("step", Step, ids=lambda step: step.value)
async def test_an_interrupted_rotation_is_finished_by_the_next_call(stack, tmp_path, step, whose):
    """TRU-2: whatever the crash left behind, the same call ends with the new key in place and the old one retired."""
    file = operator_file(stack)
    if whose == "ada":
        file, _ = await registered(stack, tmp_path)
    before = SigningKey.from_file(file)
    with pytest.raises(Crash):
        async with registrar_of(stack) as registrar:
            await rotate_key(registrar, file, overlap_seconds=300, progress=crash_at(step))
    assert SigningKey.from_file(file).principal == before.principal
    ran = await weavehold(stack, "keys", "rotate", str(file), "--json")
    assert (ran.code, ran.json["resumed"], ran.json["before"]) == (0, True, before.key_id), ran
    after = SigningKey.from_file(file)
    assert ran.json["after"] == after.key_id != before.key_id
    assert not [each for each in file.parent.iterdir() if each.name.startswith(f"{file.name}.")]
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    old, new = await key_line(stack, before.key_id), await key_line(stack, after.key_id)
    assert (old["standing"], new["standing"]) == ("ending", "valid")
    assert instant(old["validUntil"]) == instant(ran.json["beforeValidUntil"])
    if whose == "ada":
        [only] = [key for key in (await weavehold(stack, "keys", "show", ada.id, "--json")).json["keys"] if key == new]
        assert only["keyId"] == after.key_id


def folder_of(file: Path) -> dict[str, bytes]:
    """Every file beside this one, with its content."""
    return {each.name: each.read_bytes() for each in file.parent.iterdir()}


async def test_a_key_that_was_never_registered_is_not_replaced(stack, tmp_path):
    """TRU-2, OPS-2: nothing is bound and nothing written before the key is registered; then it is rotated."""
    file = tmp_path / "unknown.json"
    write_key_file(file, SigningKey.generate(ada))
    before, kept = SigningKey.from_file(file), folder_of(file)
    bound = (await weavehold(stack, "keys", "show", ada.id, "--json")).json.get("keys", [])
    call = ("keys", "rotate", str(file), "--json")
    refused = await weavehold(stack, *call)
    assert (refused.code, f"{before.key_id}, which is not registered" in refused.json["fault"]) == (1, True), refused
    assert folder_of(file) == kept
    assert (await weavehold(stack, "keys", "show", ada.id, "--json")).json.get("keys", []) == bound
    remedy = refused.json["fault"].split("weavehold ")[-1]
    assert (await weavehold(stack, *remedy.split(), "--json")).code == 0
    alias = {**json.loads(kept[file.name]), "principal": {"type": "human", "id": "urn:weavehold:human:bob"}}
    aliased = tmp_path / "alias.json"
    aliased.touch(0o600)
    aliased.write_text(json.dumps(alias))
    foreign = await weavehold(stack, "keys", "rotate", str(aliased), "--json")
    assert (foreign.code, f"registered for {ada.id}" in foreign.json["fault"]) == (1, True), foreign
    done = await weavehold(stack, *call)
    assert (done.code, done.json["before"], done.json["resumed"]) == (0, before.key_id, False)


async def test_a_previous_key_that_was_never_registered_is_named(stack, tmp_path):
    """TRU-2, OPS-2: what cannot be retired is said, with the way out."""
    file, _ = await registered(stack, tmp_path)
    write_key_file(previous_file(file), SigningKey.generate(ada))
    left = SigningKey.from_file(previous_file(file)).key_id
    refused = await weavehold(stack, "keys", "rotate", str(file), "--json")
    assert (refused.code, f"{left} was not retired" in refused.json["fault"]) == (1, True)
    assert f"remove {previous_file(file)}" in refused.json["fault"]


@pytest.mark.parametrize("beside", [next_file, previous_file])
async def test_a_key_of_somebody_else_beside_the_file_is_left_alone(stack, tmp_path, beside):
    """TRU-2: what belongs to another Principal is neither ended nor bound nor overwritten; both are named."""
    file, _ = await registered(stack, tmp_path)
    other = beside(file)
    bob = f"urn:weavehold:human:bob-{beside.__name__}"
    made = await weavehold(stack, "keys", "register", "--principal", f"human:{bob}", "--out", str(other), "--json")
    kept = folder_of(file)
    refused = await weavehold(stack, "keys", "rotate", str(file), "--json")
    assert refused.code == 2
    for word in (bob, ada.id, str(file), f"Move {other} away"):
        assert word in refused.json["fault"]
    assert folder_of(file) == kept
    for key_id in (made.json["keyId"], SigningKey.from_file(file).key_id):
        assert (await key_line(stack, key_id))["standing"] == "valid"


async def test_a_link_to_a_key_file_stays(stack, tmp_path):
    """TRU-2: the file that it leads to gets the new key, so that nobody goes on with the old one."""
    file, _ = await registered(stack, tmp_path)
    link = tmp_path / "elsewhere" / "link.json"
    link.parent.mkdir()
    link.symlink_to(file)
    before = SigningKey.from_file(file).key_id
    draft = tmp_path / f".{file.name}.0123456789abcdef.new"
    draft.hardlink_to(file)
    done = await weavehold(stack, "keys", "rotate", str(link), "--json")
    assert (done.code, done.json["before"], done.json["file"]) == (0, before, str(file))
    assert link.is_symlink()
    assert SigningKey.from_file(file).key_id == SigningKey.from_file(link).key_id == done.json["after"] != before
    assert [*link.parent.iterdir()] == [link]
    assert {*tmp_path.iterdir()} == {file, link.parent}
    link.unlink()
    link.symlink_to(link)
    looped = await weavehold(stack, "keys", "rotate", str(link), "--json")
    assert (looped.code, str(link) in looped.json["fault"]) == (2, True)


async def test_one_rotation_at_a_time(stack, tmp_path):
    """TRU-2: a second call beside a running one is turned away and leaves nothing behind."""
    file, _ = await registered(stack, tmp_path)
    going, seen = asyncio.Event(), []

    async with registrar_of(stack) as first, registrar_of(stack) as second:

        def meanwhile(step: Step) -> None:
            seen.append(step)
            going.set()

        running = asyncio.create_task(rotate_key(first, file, overlap_seconds=300, progress=meanwhile))
        await going.wait()
        with pytest.raises(CommandFault, match="another rotation"):
            await rotate_key(second, file, overlap_seconds=300)
        done = await running
    assert seen == list(Step)
    assert SigningKey.from_file(file).key_id == done.after
