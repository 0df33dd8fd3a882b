"""Validly signed documents of all nine kinds, their keys and the registry evidence of these keys."""

import copy
from typing import Any, Final

from contracts.canonical import parse_strict, signing_bytes
from contracts.document_kinds import DocumentKind
from contracts.documents.common import Actor, ActorType
from contracts.key_registry import read_registry
from contracts.signature import SigningKey, base64url_text, sign_document
from contracts.verification import KeyResolver
from tests.document_samples import agent, documents, human, service

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


keys: Final[KeyResolver] = read_registry(registry_evidence())
samples: Final = {kind: signed_sample(kind) for kind in DocumentKind}
sample_bytes: Final = {kind: signing_bytes(document) for kind, document in samples.items()}
"""The bytes that each sample's signature covers: nothing else may ever verify."""
