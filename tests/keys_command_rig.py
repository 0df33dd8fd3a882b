"""What the tests of `weavehold keys` share: two authorities, and who acts beside the command."""

import itertools
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

from contracts.documents.common import Actor, ActorType
from contracts.documents.message import TextPart
from contracts.payloads.message import MessagePost
from contracts.signature import SigningKey
from ops.demo.mission_documents import mission_creation
from ops.embedded.http_probe import probe
from ops.init import key_file
from ops.keys.state_to_registry import Registrar
from services.agent.connect import Client, connect
from services.agent.sign_command import Intent
from services.authority.decide_mission import main_conversation_id
from tests.agent_rig import Stack, accepted, patient, running_stack, shared_organization_of, small_mission
from tests.command_rig import Ran, weavehold
from tests.relay_rig import eventually

names = itertools.count(1)
ada = Actor(type=ActorType.HUMAN, id="urn:weavehold:human:ada")
as_ada = ("--principal", f"human:{ada.id}")


@asynccontextmanager
async def keys_stack(postgres_server, folder: Path) -> AsyncIterator[Stack]:
    """Two authority processes; the second one tells of itself on the port in `second.port`."""
    async with (
        shared_organization_of(postgres_server, folder) as shared,
        running_stack(*shared, folder, relay=False) as running,
    ):
        running.process(
            "services.authority.main", "second", WEAVEHOLD_HEALTH_PORT_FILE=str(folder / "second.port")
        ).start()
        await running.register("editor")
        await post(running.owner, await mission(running))
        await until_ready(running)
        yield running


async def mission(stack: Stack) -> str:
    """A new Mission's Group."""
    name = f"keys-{next(names)}"
    group_id = f"urn:weavehold:group:{name}"
    creation = mission_creation(small_mission(stack.folder), f"urn:weavehold:mission:{name}", group_id)
    await accepted(stack.owner, Intent(kind="mission.create", payload=creation, group_id=group_id))
    return group_id


def message(group_id: str) -> Intent:
    """A Message to a Group."""
    payload = MessagePost(
        message_id=f"{group_id}:message:{next(names)}",
        conversation_id=main_conversation_id(group_id),
        content=(TextPart(text="Hello"),),
    )
    return Intent(kind="message.post", payload=payload, group_id=group_id)


async def post(client: Client, group_id: str) -> None:
    """A Message that must be accepted."""
    await accepted(client, message(group_id))


async def readiness(stack: Stack) -> tuple[int, dict]:
    """What the second authority says of itself."""
    port = stack.folder / "second.port"
    if not port.exists():
        return 0, {}
    status, body = await probe(int(port.read_text()), "/readyz") or (0, {})
    return status, body.get("dependencies", {})


async def until_ready(stack: Stack, ready: bool = True) -> dict:
    """Wait until the second authority is ready, or not; its dependencies."""
    found: dict = {}

    async def reached() -> bool:
        nonlocal found
        status, found = await readiness(stack)
        return status == (200 if ready else 503)

    await eventually(reached, 60, f"readiness to be {ready}")
    return found


@asynccontextmanager
async def acting(stack: Stack, key: SigningKey) -> AsyncIterator[Client]:
    """A client with a key of its own."""
    async with connect(stack.nats_url, stack.organization.organization_id, key, policy=patient) as client:
        yield client


@asynccontextmanager
async def registrar_of(stack: Stack, key: SigningKey | None = None) -> AsyncIterator[Registrar]:
    """A registrar without the command line."""
    async with acting(stack, key or SigningKey.from_file(operator_file(stack))) as client:
        yield Registrar(client)


def operator_file(stack: Stack) -> Path:
    return key_file(stack.organization.keys_directory, "operator")


async def registered(stack: Stack, folder: Path, *arguments: str) -> tuple[Path, Ran]:
    """A new key of Ada, made and registered by the command."""
    file = folder / f"ada-{next(names)}.json"
    return file, await weavehold(stack, "keys", "register", *as_ada, "--out", str(file), "--json", *arguments)


async def key_line(stack: Stack, name: str) -> dict:
    """A key as `keys show` has it."""
    [line] = (await weavehold(stack, "keys", "show", name, "--json")).json["keys"]
    return line
