"""Register the Agents of a demo: a key and an Agent Card for each, signed by the registry (TRU-2)."""

import hashlib
from pathlib import Path
from typing import Any, Final

from msgspec import Struct

from contracts.canonical import canonical_bytes, parse_strict
from contracts.command import agent_card_register
from contracts.documents.agent_card import AgentCard
from contracts.documents.common import Actor, ActorType
from contracts.documents.reading import read
from contracts.payloads.organization import AgentCardRegister
from contracts.rejection import Code
from contracts.signature import SigningKey, base64url_text, sign_document
from ops.command_fault import CommandFault
from ops.demo.mission_documents import agent_id, capability_version
from ops.init import write_key_file
from services.agent.connect import Client
from services.agent.keyring import load_key
from services.agent.send_command import Answered, Refused
from services.agent.sign_command import Intent
from services.worker.work_plan import job_schemas

card_bytes_max: Final = 64 * 1024
"""Bytes of one Agent Card."""


key_valid_from: Final = "2020-01-01T00:00:00.000000Z"
"""From when an Agent's key is valid: the same in every version of its card, since a binding never changes."""


class NewAgent(Struct, frozen=True, kw_only=True):
    """An Agent to register; `skills` are job types."""

    name: str
    key: SigningKey
    skills: tuple[str, ...]
    slots: int


class RegistrationFault(CommandFault):
    """An Agent could not be brought in: its card was not accepted, or its session not opened."""


def agent_key(folder: Path, name: str) -> SigningKey:
    """The key of an Agent, made when there is none yet."""
    path = folder / f"{name}.json"
    if not path.exists():
        write_key_file(path, SigningKey.generate(Actor(type=ActorType.AGENT, id=agent_id(name))))
    return load_key(path)


async def register_agent(registry: Client, owner: Actor, agent: NewAgent) -> int:
    """Register the Agent's card and return its version, which rises above a card registered before.

    `registry` is the client of the Organization's registry service. Raises RegistrationFault.
    """
    version = 1
    for _ in range(2):
        now = registry.current_time()
        document = _card(registry.organization_id, owner, agent) | {"cardVersion": version, "issuedAt": now}
        card = read(parse_strict(sign_document(document, registry.key, now), card_bytes_max), AgentCard)
        answer = await registry.send(Intent(kind=agent_card_register, payload=AgentCardRegister(card=card)))
        if isinstance(answer, Answered):
            return version
        current = answer.refusal.rejection.current_revision if isinstance(answer, Refused) else None
        if not isinstance(answer, Refused) or answer.code is not Code.REVISION_CONFLICT or not isinstance(current, int):
            raise RegistrationFault(f"the Agent Card of {agent.name} was not registered: {answer}")
        version = current + 1
    raise RegistrationFault(f"somebody else registers cards of {agent.name} at the same time")


def _card(organization_id: str, owner: Actor, agent: NewAgent) -> dict[str, Any]:
    return {
        "agentId": agent.key.principal.id,
        "organizationId": organization_id,
        "displayName": agent.name,
        "owner": {"type": owner.type.value, "id": owner.id},
        "status": "active",
        "protocolVersions": ["0.1"],
        "endpoints": [{"transport": "wss", "uri": f"wss://localhost/agents/{agent.name}"}],
        "publicKeys": [
            {
                "keyId": agent.key.key_id,
                "algorithm": "Ed25519",
                "publicKey": base64url_text(agent.key.public_key),
                "validFrom": key_valid_from,
            }
        ],
        "capabilities": [_capability(skill) for skill in agent.skills],
        "maxConcurrency": agent.slots,
    }


def _capability(skill: str) -> dict[str, Any]:
    """A job type as a capability; the schemas are those that the Worker checks contracts and results by."""
    given, made = job_schemas()[skill]
    return {
        "id": skill,
        "version": capability_version,
        "inputSchema": f"urn:weavehold:schema:job:{skill}",
        "inputSchemaHash": _hash(given),
        "outputSchema": f"urn:weavehold:schema:result:{skill}",
        "outputSchemaHash": _hash(made),
        "constraints": {},
        "verifiedEvidence": [f"urn:weavehold:evidence:self-test:{skill}"],
    }


def _hash(schema: dict[str, Any]) -> str:
    return f"sha256:{hashlib.sha256(canonical_bytes(schema)).hexdigest()}"
