"""`weavehold keys` as its users run it, beside running authorities (TRU-2, TRU-5, OPS-2)."""

import asyncio
import json
import os
import pty
import stat
import subprocess
import sys

import pytest
import pytest_asyncio

from contracts import subjects
from contracts.documents.common import Actor, ActorType
from contracts.rejection import Code
from contracts.signature import SigningKey, base64url_text
from ops.embedded.http_probe import probe
from ops.init import key_file, write_key_file
from ops.verify.run import verify_all
from services.agent.send_command import Refused
from tests.agent_rig import Stack
from tests.authority_rig import run_sql
from tests.command_rig import weavehold, weavehold_process
from tests.keys_command_rig import (
    acting,
    ada,
    as_ada,
    key_line,
    keys_stack,
    message,
    mission,
    post,
    registered,
    until_ready,
)
from tests.relay_rig import eventually

pytestmark = pytest.mark.asyncio(loop_scope="module")


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def stack(postgres_server, tmp_path_factory):
    """Two authority processes."""
    async with keys_stack(postgres_server, tmp_path_factory.mktemp("stack")) as running:
        yield running


async def test_register_makes_a_key_and_binds_it_once(stack, tmp_path):
    """TRU-2, OPS-2: file 0600, bound from its acceptance; the same call again is success and changes nothing."""
    file = tmp_path / "ada.json"
    call = ("keys", "register", *as_ada, "--out", str(file), "--valid-until", "2040-01-01T00:00:00Z")
    first = await weavehold_process(stack, *call, "--json")
    assert (first.code, first.err) == (0, "")
    content = file.read_bytes()
    again = await weavehold(stack, *call, "--json")
    people = await weavehold(stack, *call)
    assert (again.code, people.code, file.read_bytes()) == (0, 0, content)
    assert (first.json["already"], again.json["already"]) == (False, True)
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    assert set(first.json) == {
        *("keyId", "principal", "publicKey", "validFrom", "validUntil", "already", "eventId", "file"),
    }
    assert first.json["principal"] == {"type": "human", "id": ada.id}
    assert first.json["keyId"] in people.out
    assert {**again.json, "already": False, "eventId": first.json["eventId"]} == first.json
    other_end = await weavehold(stack, *call[:-1], "2041-01-01T00:00:00Z", "--json")
    assert (other_end.code, "until 2040" in other_end.json["fault"]) == (1, True)


async def test_register_binds_a_key_made_elsewhere(stack):
    """TRU-2: a public key alone, whose private key is never seen; nobody else gets it, nor another key its name."""
    key = SigningKey.generate(ada)
    call = ("keys", "register", "--json", "--public-key", base64url_text(key.public_key))
    first = await weavehold(stack, *call, *as_ada, "--key-id", key.key_id)
    assert (first.code, first.json["file"], first.json["already"]) == (0, None, False)
    assert (await weavehold(stack, *call, *as_ada, "--key-id", key.key_id)).json["already"] is True
    bob = ("--principal", "human:urn:weavehold:human:bob")
    for arguments in ((*bob, "--key-id", key.key_id), (*as_ada, "--key-id", "urn:weavehold:key:alias")):
        taken = await weavehold(stack, *call, *arguments)
        assert (taken.code, "INVALID_COMMAND" in taken.json["fault"]) == (1, True)


async def test_what_cannot_be_registered_is_wrong_usage_or_refused(stack, tmp_path):
    """OPS-2, ERR-1: 2 before anything is sent, 1 for what the registry refuses; the remedy is named."""
    agent = tmp_path / "agent.json"
    write_key_file(agent, SigningKey.generate(Actor(type=ActorType.AGENT, id="urn:weavehold:agent:new")))
    out = ("--out", str(tmp_path / "new.json"))
    weak = base64url_text(bytes(32))
    usage = [
        ("register", *as_ada),
        ("register", *as_ada, *out, "--public-key", weak, "--key-id", "urn:weavehold:key:x"),
        ("register", *as_ada, "--public-key", weak),
        ("register", *as_ada, "--public-key", weak, "--key-id", "urn:weavehold:key:x"),
        ("register", "--principal", "agent:urn:weavehold:agent:new", *out),
        ("register", "--principal", "urn:weavehold:human:ada", *out),
        ("register", *as_ada, *out, "--valid-until", "tomorrow"),
        ("register", *as_ada, "--out", str(agent)),
        ("register", *as_ada, *out, "--key", str(tmp_path / "missing.json")),
        ("rotate", str(agent)),
        ("rotate", str(tmp_path / "missing.json")),
        ("revoke", "urn:weavehold:key:x", "--reason", "lost", "--suspected-since", "yesterday", "--yes"),
        ("revoke", "urn:weavehold:key:x", "--reason", "lost"),
        ("revoke", "no identifier", "--reason", "lost", "--yes"),
        ("show", "--unknown"),
        ("failures", "--since", "yesterday"),
    ]
    ran = [await weavehold(stack, "keys", *arguments, "--json") for arguments in usage]
    assert [each.code for each in ran] == [2] * len(ran), [each.err for each in ran]
    assert "Agent Card" in ran[4].json["fault"]
    assert "Agent Card" in ran[9].json["fault"]
    assert not (tmp_path / "new.json").exists()
    nowhere = {
        "WEAVEHOLD_NATS_URL": "",
        "WEAVEHOLD_DATABASE_URL": "",
        "WEAVEHOLD_DIRECTORY": str(tmp_path / "no-stack"),
    }
    for arguments in (
        ("show",),
        ("audit",),
        ("failures",),
        ("revoke", "urn:weavehold:key:x", "--reason", "x", "--yes"),
    ):
        assert (await weavehold(stack, "keys", *arguments, "--json", **nowhere)).code == 2
    stranger = tmp_path / "stranger.json"
    write_key_file(stranger, SigningKey.generate(stack.organization.keys.operator.principal))
    owner = str(key_file(stack.organization.keys_directory, "mission_owner"))
    for signer, code in ((str(stranger), Code.AUTH_INVALID_SIGNATURE), (owner, Code.AUTH_FORBIDDEN)):
        refused = await weavehold(stack, "keys", "register", *as_ada, *out, "--key", signer, "--json")
        assert (refused.code, code.value in refused.json["fault"]) == (1, True), refused
    unknown = await weavehold(stack, "keys", "revoke", "urn:weavehold:key:x", "--reason", "x", "--yes", "--json")
    assert (unknown.code, "no key urn:weavehold:key:x" in unknown.json["fault"]) == (1, True)


async def test_a_registered_key_acts_until_it_is_revoked(stack, tmp_path):
    """RULE-06, TRU-5: refused from then on by every process; what it vouched for is counted; the record says why."""
    file = tmp_path / "owner-2.json"
    owner = stack.organization.keys.mission_owner.principal
    made = await weavehold(stack, "keys", "register", "--principal", f"human:{owner.id}", "--out", str(file), "--json")
    key_id = made.json["keyId"]
    group_id = await mission(stack)
    async with acting(stack, SigningKey.from_file(file)) as client:
        for _ in range(3):
            await post(client, group_id)
        call = ("keys", "revoke", key_id, "--reason", "laptop stolen", "--suspected-since", made.json["validFrom"])
        revoked = await weavehold(stack, *call, "--yes", "--json")
        assert (revoked.code, revoked.json["already"]) == (0, False)
        assert revoked.json["vouchedSince"] == {"command": 3}
        for _ in range(4):
            answer = await client.send(message(group_id))
            assert isinstance(answer, Refused)
            assert answer.code is Code.AUTH_INVALID_SIGNATURE
    again = await weavehold(stack, *call, "--yes", "--json")
    assert (again.code, again.json["already"], again.json["revokedAt"]) == (0, True, revoked.json["revokedAt"])
    people = await weavehold(stack, *call, "--yes")
    assert "stays accepted and verifiable" in people.out
    assert "command 3" in people.out
    line = await key_line(stack, str(file))
    assert (line["keyId"], line["standing"], line["revokedAt"]) == (key_id, "revoked", revoked.json["revokedAt"])
    assert [said["eventId"] for said in line["statements"]] == [revoked.json["eventId"]]
    taken_up = await weavehold(
        stack, "keys", "register", "--principal", f"human:{owner.id}", "--out", str(file), "--json"
    )
    assert (taken_up.code, "was revoked" in taken_up.json["fault"]) == (1, True)

    async def recorded() -> bool:
        found = (await weavehold(stack, "keys", "failures", "--since", "10m", "--json")).json
        return sum(key_id in each["reason"] for each in found["failures"]) >= 4

    await eventually(recorded, 60, "the failures to be recorded")
    found = (await weavehold(stack, "keys", "failures", "--since", "10m", "--limit", "2", "--json")).json
    assert (len(found["failures"]), len(found["counts"]) <= 2) == (2, True)
    assert {"stage", "reason", "keyId", "actorId", "actionId", "documentSha256", "failedAt", "failureId"} == set(
        found["failures"][0]
    )
    shown = await weavehold(stack, "keys", "failures", "--since", "2020-01-01T00:00:00Z")
    assert (shown.code, "key-resolution" in shown.out) == (0, True)
    report = await verify_all(stack.variables["WEAVEHOLD_DATABASE_URL"], stack.organization.organization_id)
    assert report.ok, report.findings


async def test_show_tells_how_keys_stand(stack, tmp_path):
    """OPS-2: by key ID, Principal or file; standing, boundaries and statements; an unknown name is a finding."""
    file, made = await registered(stack, tmp_path, "--valid-until", "2040-01-01T00:00:00Z")
    line = await key_line(stack, made.json["keyId"])
    assert line == await key_line(stack, str(file))
    assert (line["standing"], line["validUntil"], line["revokedAt"]) == ("ending", "2040-01-01T00:00:00Z", None)
    assert [said["sequence"] for said in line["statements"]] == [1]
    everybody = (await weavehold(stack, "keys", "show", "--json")).json
    operator = stack.organization.keys.operator
    [first] = [key for key in everybody["keys"] if key["keyId"] == operator.key_id]
    assert (first["standing"], first["eventId"], first["statements"]) == ("valid", None, [])
    mine = (await weavehold(stack, "keys", "show", ada.id, "--json")).json["keys"]
    assert made.json["keyId"] in {key["keyId"] for key in mine}
    assert {key["principal"]["id"] for key in mine} == {ada.id}
    people = await weavehold(stack, "keys", "show", ada.id)
    assert (people.code, "valid, ends at 2040-01-01T00:00:00Z" in people.out) == (0, True)
    missing = await weavehold(stack, "keys", "show", "urn:weavehold:key:nobody", "--json")
    assert (missing.code, "urn:weavehold:key:nobody" in missing.json["fault"]) == (1, True)


async def test_the_registrys_group_is_shown_as_one(stack, tmp_path):
    """OPS-2: `group show` and `group events` of the Organization's own name tell of the registry, without a Mission."""
    await registered(stack, tmp_path)
    organization_id = stack.organization.organization_id
    shown = await weavehold(stack, "group", "show", organization_id, "--json")
    people = await weavehold(stack, "group", "show", organization_id)
    events = await weavehold(stack, "group", "events", organization_id, "--json")
    assert (shown.code, people.code, events.code) == (0, 0, 0)
    assert (shown.json["mission"], list(shown.json["entities"])) == (None, ["key"])
    assert "weavehold keys show" in people.out
    assert {item["event"]["kind"].rsplit(".", 1)[0] for item in events.json["events"]} == {"ext.weavehold.registry"}


@pytest.mark.parametrize(("said", "code"), [("n", 1), ("y", 0)])
async def test_a_person_is_asked_before_a_revocation(stack, tmp_path, said, code):
    """OPS-2: on a terminal the command says what it means and waits for an answer."""
    _, made = await registered(stack, tmp_path)
    ours, theirs = pty.openpty()
    try:
        os.write(ours, f"{said}\n".encode())
        done = await asyncio.to_thread(
            subprocess.run,
            [sys.executable, "-m", "ops.cli", "keys", "revoke", made.json["keyId"], "--reason", "lost", "--json"],
            env={**os.environ, **stack.variables},
            stdin=theirs,
            capture_output=True,
            timeout=120,
            check=False,
        )
    finally:
        os.close(ours)
        os.close(theirs)
    assert done.returncode == code, done.stderr
    assert b"for good?" in done.stderr
    [answer] = done.stdout.decode().splitlines()
    assert ("revokedAt" in json.loads(answer)) == (said == "y")
    line = await key_line(stack, made.json["keyId"])
    assert line["standing"] == ("revoked" if said == "y" else "valid")


# --- a registry that cannot be trusted --------------------------------------------------------------------------------


async def test_a_damaged_registry_stops_everything_until_it_is_repaired(stack, tmp_path):
    """TRU-2, OPS-1: not ready, nothing accepted, senders told to wait, the audit names the key; then all goes on."""
    _, made = await registered(stack, tmp_path, "--valid-until", "2040-01-01T00:00:00Z")
    key_id, group_id = made.json["keyId"], await mission(stack)
    assert (await weavehold(stack, "keys", "audit", "--json")).json["ok"] is True
    database_url = stack.variables["WEAVEHOLD_DATABASE_URL"]
    where = f"key_id = '{key_id}' AND sequence = 2"
    off, on = (f"ALTER TABLE key_validity {verb} TRIGGER ALL" for verb in ("DISABLE", "ENABLE"))
    later = (
        "INSERT INTO key_validity SELECT organization_id, key_id, 2, recorded_at, '2050-01-01T00:00:00Z', NULL, "
        f"event_id FROM key_validity WHERE key_id = '{key_id}'"
    )
    await run_sql(database_url, off, later)
    await announce(stack)
    dependencies = await until_ready(stack, ready=False)
    assert dependencies["key_registry"]["state"] == "failed"
    assert key_id in dependencies["key_registry"]["detail"]
    audit = await weavehold_process(stack, "keys", "audit", "--json")
    assert (audit.code, audit.json["ok"]) == (1, False)
    assert all(key_id in finding["message"] for finding in audit.json["findings"])
    people = await weavehold(stack, "keys", "audit")
    assert (people.code, "restore" in people.out) == (1, True)
    signed = stack.owner.sign(message(group_id))
    file = tmp_path / "message.json"
    file.write_bytes(signed.raw)

    async def refused() -> bool:
        found = await weavehold(stack, "send", str(file), "--seconds", "1", "--json")
        return found.code == 1 and "BACKPRESSURE" in str(found.json.get("unresolved", {}).get("problem"))

    await eventually(refused, 60, "both processes to refuse")
    await run_sql(database_url, f"DELETE FROM key_validity WHERE {where}", on)
    await announce(stack)
    assert (await weavehold(stack, "send", str(file), "--seconds", "60", "--json")).code == 0
    await until_ready(stack)
    assert (await weavehold(stack, "keys", "audit")).code == 0


async def announce(stack: Stack) -> None:
    """Say that keys changed, as whoever changes them by Commands does."""
    await stack.owner.connection.publish(subjects.keys_changed(stack.organization.organization_id), b"")
    await stack.owner.connection.flush()


async def test_an_authority_whose_key_is_revoked_is_not_ready(stack, tmp_path):
    """TRU-2, OPS-1: /readyz names the key; the process comes back by itself when its file holds a valid one."""
    principal = stack.organization.keys.authority.principal
    files = [tmp_path / "left.json", tmp_path / "right.json"]
    for file in files:
        made = await weavehold(
            stack, "keys", "register", "--principal", f"service:{principal.id}", "--out", str(file), "--json"
        )
        assert made.code == 0
    signing = tmp_path / "signing.json"
    write_key_file(signing, SigningKey.from_file(files[0]))
    third = stack.process(
        "services.authority.main",
        "third",
        WEAVEHOLD_SIGNING_KEY_FILE=str(signing),
        WEAVEHOLD_HEALTH_PORT_FILE=str(tmp_path / "port"),
    )
    third.start()
    try:

        async def ready(status: int) -> bool:
            if not (tmp_path / "port").exists():
                return False
            found = await probe(int((tmp_path / "port").read_text()), "/readyz") or (0, {})
            state = found[1].get("dependencies", {}).get("signing_key", {}).get("state")
            return (found[0], state) == (status, "ready" if status == 200 else "failed")

        await eventually(lambda: ready(200), 60, "the third authority")
        # It may hold the registry's shard itself, and never signs its own end: it takes its other key first.
        left = SigningKey.from_file(files[0]).key_id
        call = ("keys", "revoke", left, "--reason", "test", "--yes", "--json")

        async def revoked() -> bool:
            return (await weavehold(stack, *call)).code == 0

        if not await revoked():
            write_key_file(signing, SigningKey.from_file(files[1]))
            await eventually(revoked, 60, "the revocation")
            write_key_file(signing, SigningKey.from_file(files[0]))
            third.kill()
            (tmp_path / "port").unlink()
            third.start()
        await eventually(lambda: ready(503), 60, "the third authority to notice")
        write_key_file(signing, SigningKey.from_file(files[1]))
        await eventually(lambda: ready(200), 60, "the third authority to come back")
    finally:
        await asyncio.to_thread(third.end)
    await post(stack.owner, await mission(stack))
    report = await verify_all(stack.variables["WEAVEHOLD_DATABASE_URL"], stack.organization.organization_id)
    assert report.ok, report.findings
