"""The nine kinds of signed documents: who must have signed each, and which member is its protected time (TRU-1)."""

from collections.abc import Mapping
from enum import Enum
from typing import Any, Final, NamedTuple

from contracts.documents.common import Actor, ActorType


class SigningRule(NamedTuple):
    """Where a kind names its signer and its protected time.

    `signer_path` leads to a Principal or, for an Artifact, to an Agent's identifier; it is empty for an Agent Card,
    which any service of the Organization may sign. `protected_time` is the member that `signature.createdAt` equals.
    """

    signer_path: tuple[str, ...]
    protected_time: str


class DocumentKind(Enum):
    """A kind of signed document; the value is its name in schemas and First-Admission Records."""

    AGENT_CARD = "agent-card"
    APPROVAL = "approval"
    ARTIFACT = "artifact"
    COMMAND = "command"
    CONTEXT_PACKAGE = "context-package"
    EVENT = "event"
    EVIDENCE = "evidence"
    EXTENSION_PROFILE = "extension-profile"
    GROUP_SNAPSHOT = "group-snapshot"

    @property
    def rule(self) -> SigningRule:
        """Signer and protected time of this kind."""
        return _rules[self]


_rules: Final[Mapping[DocumentKind, SigningRule]] = {
    DocumentKind.AGENT_CARD: SigningRule((), "issuedAt"),
    DocumentKind.APPROVAL: SigningRule(("approver",), "occurredAt"),
    DocumentKind.ARTIFACT: SigningRule(("producer", "agentId"), "createdAt"),
    DocumentKind.COMMAND: SigningRule(("actor",), "issuedAt"),
    DocumentKind.CONTEXT_PACKAGE: SigningRule(("generatedBy",), "generatedAt"),
    DocumentKind.EVENT: SigningRule(("acceptedBy",), "occurredAt"),
    DocumentKind.EVIDENCE: SigningRule(("generatedBy",), "createdAt"),
    DocumentKind.EXTENSION_PROFILE: SigningRule(("approvedBy",), "approvedAt"),
    DocumentKind.GROUP_SNAPSHOT: SigningRule(("createdBy",), "createdAt"),
}


def expected_signer(kind: DocumentKind, document: Mapping[str, Any]) -> Actor | None:
    """The Principal that must have signed a schema-valid document; None means any service of the Organization."""
    path = kind.rule.signer_path
    if not path:
        return None
    named: Any = document
    for member in path:
        named = named[member]
    if isinstance(named, str):
        return Actor(type=ActorType.AGENT, id=named)
    return Actor(type=ActorType(named["type"]), id=named["id"])


def protected_time(kind: DocumentKind, document: Mapping[str, Any]) -> str:
    """The protected time of a schema-valid document, as text."""
    time: str = document[kind.rule.protected_time]
    return time
