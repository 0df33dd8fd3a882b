"""Validly signed documents of all nine kinds, their keys and the registry evidence of these keys."""

import copy
from typing import Any, Final

from contracts.canonical import canonical_bytes, parse_strict, signing_bytes
from contracts.document_kinds import DocumentKind
from contracts.documents.common import Actor, ActorType
from contracts.key_registry import read_registry
from contracts.signature import SigningKey, base64url_text, sign_document
from contracts.verification import KeyResolver
from tests.document_samples import agent, documents, human, service, when

Document = dict[str, Any]


def _key(number: int, principal: dict[str, str]) -> SigningKey:
    owner = Actor(type=ActorType(principal["type"]), id=principal["id"])
    return SigningKey(f"urn:weavehold:key:fuzz-{owner.type.value}", owner, bytes([number]) * 32)


signing_keys: Final = (_key(1, agent), _key(2, human), _key(3, service))
"""The keys of the sample Agent, person and service."""
signers: Final = {
    DocumentKind.AGENT_CARD: signing_keys[2],
    DocumentKind.APPROVAL: signing_keys[1],
    DocumentKind.ARTIFACT: signing_keys[0],
    DocumentKind.COMMAND: signing_keys[0],
    DocumentKind.CONTEXT_PACKAGE: signing_keys[0],
    DocumentKind.EVENT: signing_keys[2],
    DocumentKind.EVIDENCE: signing_keys[0],
    DocumentKind.EXTENSION_PROFILE: signing_keys[1],
    DocumentKind.GROUP_SNAPSHOT: signing_keys[2],
}
"""Who signs the sample of each kind."""
protected_times: Final = {
    DocumentKind.AGENT_CARD: "issuedAt",
    DocumentKind.APPROVAL: "occurredAt",
    DocumentKind.ARTIFACT: "createdAt",
    DocumentKind.COMMAND: "issuedAt",
    DocumentKind.CONTEXT_PACKAGE: "generatedAt",
    DocumentKind.EVENT: "occurredAt",
    DocumentKind.EVIDENCE: "createdAt",
    DocumentKind.EXTENSION_PROFILE: "approvedAt",
    DocumentKind.GROUP_SNAPSHOT: "createdAt",
}
"""Requirements, section 12, in its own words: written down once more, so that a slip in the product shows."""


def registry_evidence() -> Document:
    """The registry of the keys; the first one has a history."""
    history = [
        {"sequence": 1, "recordedAt": "2026-02-01T00:00:00Z", "validUntil": "2027-01-01T00:00:00Z"},
        {"sequence": 2, "recordedAt": "2026-02-02T00:00:00Z", "revokedAt": "2026-12-01T00:00:00Z"},
    ]
    return {
        "organizationId": "urn:weavehold:organization:acme",
        "bindings": [
            {
                "keyId": key.key_id,
                "principal": {"type": key.principal.type.value, "id": key.principal.id},
                "algorithm": "Ed25519",
                "publicKey": base64url_text(key.public_key),
                "validFrom": "2026-01-01T00:00:00Z",
                "validityHistory": [] if number else history,
            }
            for number, key in enumerate(signing_keys)
        ],
    }


def signed_sample(kind: DocumentKind) -> Document:
    """The sample of this kind with its signer's signature."""
    document = copy.deepcopy(documents[kind.value])
    if kind is DocumentKind.COMMAND:
        document["extensions"] = {"urn:x:y": {"version": "1.0.0", "critical": False, "data": {"n": 0.5}}}
    raw = sign_document(document, signers[kind], document[protected_times[kind]])
    signed: Document = parse_strict(raw, len(raw))
    return signed


def signed_again(document: Document, key: SigningKey = signing_keys[0]) -> Document:
    """The document with another signature, at the time of the samples."""
    unsigned = {name: member for name, member in document.items() if name != "signature"}
    value = key.sign(canonical_bytes(unsigned))
    signature = {"algorithm": "Ed25519", "keyId": key.key_id, "createdAt": when, "value": value}
    return {**unsigned, "signature": signature}


keys: Final[KeyResolver] = read_registry(registry_evidence())
samples: Final = {kind: signed_sample(kind) for kind in DocumentKind}
sample_bytes: Final = {kind: signing_bytes(document) for kind, document in samples.items()}
"""The bytes that each sample's signature covers: nothing else may ever verify."""


def _carriers() -> dict[str, tuple[Document, str]]:
    """Commands that carry signed documents, each with the member that does; signed by who may."""
    agent, human, service = signing_keys
    fences = {"ownershipEpoch": 1, "executionLeaseId": "urn:uuid:1"}
    work = {"workItemId": "urn:weavehold:work-item:one"}
    evidence = samples[DocumentKind.EVIDENCE]

    def carrier(kind: str, payload: Document, key: SigningKey, **epochs: int) -> Document:
        actor = {"type": key.principal.type.value, "id": key.principal.id}
        plain = {
            name: samples[DocumentKind.COMMAND][name]
            for name in ("protocolVersion", "actionId", "correlationId", "issuedAt")
        }
        group = {"groupId": "urn:weavehold:group:one"} if epochs else {}
        return signed_again({**plain, **group, **epochs, "actor": actor, "kind": kind, "payload": payload}, key)

    epochs = {"sessionEpoch": 1, "membershipEpoch": 1}
    return {
        "card": (
            carrier(
                "ext.missionweaveprotocol.registry.agent_card_register",
                {"card": samples[DocumentKind.AGENT_CARD]},
                service,
            ),
            "card",
        ),
        "approval": (
            carrier("mission.approve", {"approval": samples[DocumentKind.APPROVAL]}, human, membershipEpoch=1),
            "approval",
        ),
        "artifact": (
            carrier("artifact.publish", {"artifact": samples[DocumentKind.ARTIFACT], **fences}, agent, **epochs),
            "artifact",
        ),
        "submission": (
            carrier(
                "work.submit",
                {**work, **fences, "artifactIds": ["urn:weavehold:artifact:one"], "evidence": [evidence]},
                agent,
                **epochs,
            ),
            "evidence",
        ),
        "acceptance": (
            carrier("work.accept_result", {**work, "evidence": [evidence]}, agent, **epochs, coordinatorEpoch=1),
            "evidence",
        ),
    }


carriers: Final = _carriers()
commands: Final = (samples[DocumentKind.COMMAND], *(document for document, _ in carriers.values()))
"""Commands that are signed by who may, five of them with signed documents inside."""
