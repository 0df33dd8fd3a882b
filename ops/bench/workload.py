"""Signed Commands made beforehand, so that a benchmark measures acceptance and not its own signing."""

import json
import uuid
from datetime import UTC, datetime, timedelta
from typing import Any

from contracts.signature import SigningKey, base64url_text, sign_document
from contracts.timestamps import format_timestamp
from services.authority.decide_mission import main_conversation_id


def group_name(number: int) -> str:
    """The identifier of benchmark Group `number`."""
    return f"urn:weavehold:bench:group:{number}"


def signed_command(
    key: SigningKey, kind: str, group_id: str | None, payload: dict[str, Any], epoch: int | None = None, **members: Any
) -> bytes:
    """A human's or service's Command as bytes, with a new Action ID unless `members` (wire names) hold one."""
    now = format_timestamp(datetime.now(UTC))
    document: dict[str, Any] = {
        "protocolVersion": "0.1",
        "actionId": f"urn:uuid:{uuid.uuid4()}",
        "actor": {"type": key.principal.type.value, "id": key.principal.id},
        "kind": kind,
        "correlationId": f"urn:uuid:{uuid.uuid4()}",
        "issuedAt": now,
        "payload": payload,
    }
    if group_id is not None:
        document["groupId"] = group_id
    if epoch is not None:
        document["membershipEpoch"] = epoch
    document |= members
    return sign_document(document, key, document["issuedAt"])


def register_agent(operator: SigningKey, registry: SigningKey, agent: SigningKey, organization_id: str) -> bytes:
    """The Command that registers an Agent with one key and one capability."""
    now = format_timestamp(datetime.now(UTC))
    card: dict[str, Any] = {
        "agentId": agent.principal.id,
        "organizationId": organization_id,
        "cardVersion": 1,
        "displayName": "Benchmark Coordinator",
        "owner": {"type": operator.principal.type.value, "id": operator.principal.id},
        "status": "active",
        "protocolVersions": ["0.1"],
        "endpoints": [{"transport": "wss", "uri": "wss://agents.invalid/bench"}],
        "publicKeys": [
            {
                "keyId": agent.key_id,
                "algorithm": "Ed25519",
                "publicKey": base64url_text(agent.public_key),
                "validFrom": format_timestamp(datetime.now(UTC) - timedelta(minutes=5)),
            }
        ],
        "capabilities": [
            {
                "id": "bench.coordination",
                "version": "1.0.0",
                "inputSchema": "urn:weavehold:schema:any",
                "inputSchemaHash": f"sha256:{'0' * 64}",
                "outputSchema": "urn:weavehold:schema:any",
                "outputSchemaHash": f"sha256:{'0' * 64}",
                "constraints": {},
                "verifiedEvidence": ["urn:weavehold:bench:evidence"],
            }
        ],
        "maxConcurrency": 1,
        "issuedAt": now,
    }
    signed = json.loads(sign_document(card, registry, now))
    return signed_command(operator, "ext.missionweaveprotocol.registry.agent_card_register", None, {"card": signed})


def create_mission(owner: SigningKey, number: int, coordinator_id: str) -> bytes:
    """`mission.create` of benchmark Group `number`."""
    payload = {
        "missionId": f"urn:weavehold:bench:mission:{number}",
        "groupId": group_name(number),
        "coordinatorId": coordinator_id,
        "title": f"Benchmark {number}",
        "objective": "Carry messages",
        "definitionOfDone": [
            {
                "criterionId": "done",
                "description": "All messages stand in the log",
                "evidenceRequired": ["human_review"],
            }
        ],
        "deadline": format_timestamp(datetime.now(UTC) + timedelta(days=30)),
        "budget": {"modelTokenLimit": 1_000_000},
    }
    return signed_command(owner, "mission.create", group_name(number), payload)


def post_message(owner: SigningKey, number: int) -> bytes:
    """`message.post` of a paragraph to benchmark Group `number`, whose main Conversation is derived from its Group."""
    payload = {
        "messageId": f"urn:uuid:{uuid.uuid4()}",
        "conversationId": main_conversation_id(group_name(number)),
        "content": [{"type": "text", "text": "The supplier confirmed the revised delivery window. " * 6}],
    }
    return signed_command(owner, "message.post", group_name(number), payload, 1)
