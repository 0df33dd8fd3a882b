"""Documents of one small Mission for tests: its people and Agents, contracts, Artifacts, Evidence, payloads.

Signatures are placeholders of the right shape; where they must verify, see `tests.builders`.
"""

from collections.abc import Iterable
from typing import Any, Final

from msgspec import convert

from contracts.documents.agent_card import AgentCard
from contracts.documents.common import Actor, ActorType
from contracts.signature import base64url_text
from services.authority.decide_mission import main_conversation_id
from tests.builders import identifier, principal, signing_key, start_time, test_group, test_organization

Document = dict[str, Any]

mission_id: Final = "urn:weavehold:mission:test"
item: Final = "urn:weavehold:work-item:first"
capability: Final = {"id": "acme.software.python", "version": "2.1.0"}
budget: Final = {"currency": "USD", "financialLimit": 100, "modelTokenLimit": 100_000}
mission_deadline: Final = "2026-08-01T00:00:00Z"
content: Final = f"sha256:{'a' * 64}"
other_content: Final = f"sha256:{'b' * 64}"

owner: Final = principal("owner", ActorType.HUMAN)
coordinator: Final = principal("coordinator")
worker: Final = principal("worker")
rival: Final = principal("rival")
stranger: Final = principal("stranger")
operator: Final = principal("operator", ActorType.SERVICE)


signature_key_id: Final = "urn:weavehold:key:test"


def signature(at: str) -> Document:
    """A placeholder of the right shape."""
    return {"algorithm": "Ed25519", "keyId": signature_key_id, "createdAt": at, "value": "AAAA"}


def card_document(agent: Actor, version: int = 1, **members: Any) -> Document:
    """An Agent Card that offers `capability`."""
    schema = {"inputSchema": "urn:test:in", "inputSchemaHash": content, "outputSchema": "urn:test:out"}
    key = signing_key(agent.id.rpartition(":")[2])
    document = {
        "agentId": agent.id,
        "organizationId": test_organization,
        "cardVersion": version,
        "displayName": agent.id,
        "owner": {"type": "human", "id": owner.id},
        "status": "active",
        "protocolVersions": ["0.1"],
        "endpoints": [{"transport": "wss", "uri": "wss://agents.example/x"}],
        "publicKeys": [
            {
                "keyId": key.key_id,
                "algorithm": "Ed25519",
                "publicKey": base64url_text(key.public_key),
                "validFrom": "2026-01-01T00:00:00Z",
            }
        ],
        "capabilities": [
            {
                **capability,
                **schema,
                "outputSchemaHash": content,
                "constraints": {},
                "verifiedEvidence": ["urn:test:proof"],
            }
        ],
        "maxConcurrency": 2,
        "issuedAt": "2026-01-01T00:00:00Z",
        "signature": signature("2026-01-01T00:00:00Z"),
    }
    return document | members


def card(agent: Actor, version: int = 1, **members: Any) -> AgentCard:
    """The same as a Struct."""
    return convert(card_document(agent, version, **members), AgentCard)


def criteria(*names: str) -> list[Document]:
    """Acceptance criteria, each proven by a deterministic test."""
    return [
        {"criterionId": name, "description": f"{name} holds", "evidenceRequired": ["deterministic_test"]}
        for name in names
    ]


def contract(**members: Any) -> Document:
    """A complete Work Contract."""
    document = {
        "contractVersion": 1,
        "goal": "Count the words.",
        "requiredDeliverables": [
            {"deliverableId": "report", "description": "A report", "mediaType": "text/plain", "schema": "urn:test:any"}
        ],
        "acceptanceCriteria": criteria("tests-pass"),
        "inputArtifacts": [],
        "dependencyWorkItemIds": [],
        "allowedResources": [],
        "requiredCapabilities": [capability],
        "deadline": "2026-07-20T00:00:00Z",
        "requestedUrgency": "normal",
        "businessImpact": "Shows that it works.",
        "retryPolicy": {"maxAttempts": 1, "backoff": "none", "maxDelay": "PT1S", "retryableFailures": []},
        "budget": {"modelTokenLimit": 1_000},
        "sideEffectRisk": "none",
        "executionApproval": "not_required",
    }
    return document | members


def selection_basis(**members: Any) -> Document:
    """Why candidates were chosen."""
    document = {
        "requiredCapabilities": [capability],
        "verifiedMatches": [capability],
        "authorizationEligible": True,
        "availabilityEstimate": start_time,
        "expectedCost": 1.5,
        "reliabilityEvidence": [],
        "policyRulesApplied": ["test"],
    }
    return document | members


def evidence(work_item_id: str = item, by: Actor = worker, **members: Any) -> Document:
    """Passed Evidence for the criterion of `contract`."""
    document = {
        "evidenceId": identifier("evidence", work_item_id, by.id),
        "missionId": mission_id,
        "groupId": test_group,
        "workItemId": work_item_id,
        "type": "deterministic_test",
        "subject": {"type": "artifact", "id": content},
        "criterionIds": ["tests-pass"],
        "method": "Ran the tests.",
        "result": "passed",
        "artifactHashes": [content],
        "generatedBy": {"type": by.type.value, "id": by.id},
        "createdAt": start_time,
        "signature": signature(start_time),
    }
    return document | members


def artifact_id(work_item_id: str = item) -> str:
    """The Artifact that `artifact` describes."""
    return identifier("artifact", work_item_id)


def artifact(work_item_id: str = item, by: Actor = worker, **members: Any) -> Document:
    """A manifest of `content` by the owner."""
    document = {
        "artifactId": artifact_id(work_item_id),
        "contentHash": content,
        "uri": "urn:test:content",
        "sizeBytes": 10,
        "mediaType": "text/plain",
        "schemaUri": "urn:test:any",
        "producer": {"agentId": by.id, "agentCardVersion": 1, "capabilities": [capability]},
        "missionId": mission_id,
        "groupId": test_group,
        "workItemId": work_item_id,
        "sourceArtifactHashes": [],
        "toolVersions": [],
        "modelVersions": [],
        "classification": "internal",
        "createdAt": start_time,
        "signature": signature(start_time),
    }
    return document | members


def approval(revision: int, hashes: Iterable[str] = (content,), **members: Any) -> Document:
    """The MissionOwner's final approval."""
    document = {
        "approvalId": identifier("approval", revision),
        "kind": "mission_final",
        "decision": "approved",
        "missionId": mission_id,
        "groupId": test_group,
        "missionRevision": revision,
        "artifactHashes": list(hashes),
        "acceptancePolicyVersion": "1.0.0",
        "approver": {"type": "human", "id": owner.id},
        "comments": "",
        "conditions": [],
        "occurredAt": start_time,
        "signature": signature(start_time),
    }
    return document | members


def creation(**members: Any) -> Document:
    """Payload of the Mission's creation."""
    document = {
        "missionId": mission_id,
        "groupId": test_group,
        "coordinatorId": coordinator.id,
        "title": "Test",
        "objective": "Prove it.",
        "definitionOfDone": criteria("done"),
        "deadline": mission_deadline,
        "budget": budget,
        "coordinatorLeaseSeconds": 86_400,
    }
    return document | members


def message(number: int = 1, **members: Any) -> Document:
    """A Message to the main Conversation."""
    document = {
        "messageId": identifier("message", number),
        "conversationId": main_conversation_id(test_group),
        "content": [{"type": "text", "text": "Hello."}],
    }
    return document | members
