"""The authority's signing key is replaced while a projector and a Worker read its Events (TRU-2, MWP-WRK-029)."""

import asyncio
import json

import msgspec
import pytest
import pytest_asyncio

from contracts.command import key_register, key_revoke
from contracts.documents.common import Actor
from contracts.identifiers import registry_group
from contracts.payloads.keys import KeyRegister, KeyRevoke
from contracts.signature import SigningKey, base64url_text
from ops.init import key_file, write_key_file
from services.agent.connect import connect
from services.agent.sign_command import Intent
from tests.agent_rig import accepted, patient, running_stack, shared_organization_of
from tests.projector_rig import Board, PlantedMissions, shards, until

pytestmark = pytest.mark.asyncio(loop_scope="module")


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def planted(postgres_server, tmp_path_factory):
    folder = tmp_path_factory.mktemp("stack")
    async with shared_organization_of(postgres_server, folder) as shared, running_stack(*shared, folder) as stack:
        await stack.register("editor", "ada")
        coordinator = await stack.client("editor")
        await coordinator.open_session()
        identity, keys = stack.organization.organization_id, stack.organization.keys
        async with connect(stack.nats_url, identity, keys.operator, policy=patient) as operator:
            missions = PlantedMissions(stack, coordinator, operator)
            await missions.plant(shards[0])
            yield missions


async def keep(planted, kind, payload):
    """A Command of the operator to the registry."""
    group = registry_group(planted.operator.organization_id)
    await accepted(planted.operator, Intent(kind=kind, payload=payload, group_id=group))


async def rotate(planted) -> SigningKey:
    """Give the running authority another key, as an operator does: bind it, then replace the file."""
    authority = planted.stack.organization.keys.authority.principal
    following = SigningKey.generate(Actor(type=authority.type, id=authority.id))
    binding = KeyRegister(
        key_id=following.key_id,
        principal=following.principal,
        algorithm="Ed25519",
        public_key=base64url_text(following.public_key),
    )
    await keep(planted, key_register, binding)
    file = key_file(planted.stack.organization.keys_directory, "authority")
    await asyncio.to_thread(write_key_file, file, following)

    async def signs() -> bool:
        await planted.post(planted.missions[0])
        return await signer(planted) == following.key_id

    await until(signs)
    return following


async def signer(planted) -> str:
    """The key that signed the first Group's newest Event."""
    [head] = await planted.operator.history.heads([planted.missions[0].group_id])
    page = await planted.operator.history.group_page(head.group_id, head.sequence - 1)
    return json.loads(bytes(page.events[-1].event))["signature"]["keyId"]


async def test_projections_go_on_without_a_restart(planted, tmp_path):
    """TRU-2: twice another key, then the first one revoked: what ran goes on, and what begins anew finds the way."""
    running, fresh = Board(planted, tmp_path / "running"), Board(planted, tmp_path / "fresh")
    first = planted.stack.organization.keys.authority
    mission = planted.missions[0]
    await mission.invite("ada")
    async with running.projecting() as projector, planted.stack.working("ada") as worker:
        await running.settled()
        for _ in range(2):
            await rotate(planted)
            await running.settled()
        await keep(planted, key_revoke, KeyRevoke(key_id=first.key_id, reason="It is not needed any more."))
        await mission.view.refresh()
        work = await mission.offer(mission.file.work[0])
        await mission.until(work, "submitted")
        await running.settled()
    for process in (projector, worker):
        assert_never_doubted(process)
    # It knows the first key alone, by which it is led to the third; old Events still count.
    async with fresh.projecting() as process:
        await fresh.settled()
    assert_never_doubted(process)


def assert_never_doubted(process) -> None:
    """No answer about keys was disbelieved and no Event of the authority; one that came late is asked for again."""
    for line in map(json.loads, process.log.read_text().splitlines()):
        assert (line["event"], line["level"]) != ("events_unproven", "error"), line
        unheard = any(words in line.get("reason", "") for words in ("no answer within", " attempts"))
        assert line["event"] != "keys_not_learned" or unheard, line


async def test_anchors_of_somebody_else_prove_nothing(planted, tmp_path):
    """TRU-2: with another key pinned nothing is applied, and the log says what to do."""
    keys_directory = planted.stack.organization.keys_directory
    anchors = json.loads((keys_directory / "anchors.json").read_text())
    stranger = SigningKey.generate(planted.stack.organization.keys.authority.principal)
    [evidence] = anchors["anchors"]
    evidence["bindings"][0] |= {"keyId": stranger.key_id, "publicKey": base64url_text(stranger.public_key)}
    other = tmp_path / "anchors.json"
    other.write_bytes(msgspec.json.encode(anchors))
    board = Board(planted, tmp_path / "board")
    async with board.projecting(WEAVEHOLD_TRUST_ANCHORS_FILE=str(other)) as process:

        async def told() -> bool:
            return "renew the trust anchors" in process.log.read_text()

        await until(told)
        assert board.applied() == 0
