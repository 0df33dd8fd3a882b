"""The nine kinds of signed documents: who must have signed each, and which member is its protected time (TRU-1)."""

from collections.abc import Callable, Mapping
from enum import Enum
from operator import attrgetter
from typing import Any, Final, NamedTuple

from contracts.documents.agent_card import AgentCard
from contracts.documents.artifact import Artifact
from contracts.documents.common import Actor, ActorType


class SigningRule(NamedTuple):
    """How the Struct of a kind names its signer and its protected time.

    `signer` gives the Principal that must have signed, None where any service of the Organization may have;
    `protected_time` the text that `signature.createdAt` equals.
    """

    signer: Callable[[Any], Actor | None]
    protected_time: Callable[[Any], str]


def _producer(artifact: Artifact) -> Actor:
    """The Agent that an Artifact names by its identifier alone."""
    return Actor(type=ActorType.AGENT, id=artifact.producer.agent_id)


def _nobody_named(card: AgentCard) -> None:
    """An Agent Card names no signer."""


_rules: Final[Mapping[str, SigningRule]] = {
    "agent-card": SigningRule(_nobody_named, attrgetter("issued_at")),
    "approval": SigningRule(attrgetter("approver"), attrgetter("occurred_at")),
    "artifact": SigningRule(_producer, attrgetter("created_at")),
    "command": SigningRule(attrgetter("actor"), attrgetter("issued_at")),
    "context-package": SigningRule(attrgetter("generated_by"), attrgetter("generated_at")),
    "event": SigningRule(attrgetter("accepted_by"), attrgetter("occurred_at")),
    "evidence": SigningRule(attrgetter("generated_by"), attrgetter("created_at")),
    "extension-profile": SigningRule(attrgetter("approved_by"), attrgetter("approved_at")),
    "group-snapshot": SigningRule(attrgetter("created_by"), attrgetter("created_at")),
}


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

    rule: SigningRule
    """Signer and protected time of this kind."""

    def __init__(self, name: str) -> None:
        """Every kind has its rule."""
        self.rule = _rules[name]
