"""Shapes that many documents share (`common.schema.json`).

Every document is a frozen, closed Struct whose members have the camelCase names of the schemas; a member that
may be absent has the default UNSET, since JSON null is never allowed for it.
"""

from enum import Enum
from typing import Annotated, Any, Literal

from msgspec import UNSET, Meta, Struct, UnsetType

from contracts.identifiers import Base64Url, Identifier, SafeInteger
from contracts.timestamps import Timestamp


class Document(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, omit_defaults=True, rename="camel"):
    """Base of every closed object: unknown members are refused, absent optional ones stay absent."""


class ActorType(Enum):
    """Who acts: an Agent, a person, or an Organization service."""

    AGENT = "agent"
    HUMAN = "human"
    SERVICE = "service"


class Actor(Document, frozen=True, kw_only=True, tag=False):
    """A Principal: type and identifier."""

    type: ActorType
    id: Identifier


class Signature(Document, frozen=True, kw_only=True):
    """An Ed25519 signature over the RFC 8785 bytes of the document without this member."""

    algorithm: Literal["Ed25519"]
    key_id: Identifier
    created_at: Timestamp
    value: Base64Url


Semver = Annotated[
    str,
    Meta(
        pattern=r"\A(0|[1-9][0-9]*)\.(0|[1-9][0-9]*)\.(0|[1-9][0-9]*)(?:-[0-9A-Za-z.-]+)?(?:\+[0-9A-Za-z.-]+)?\Z",
        max_length=128,
    ),
]
CapabilityId = Annotated[str, Meta(pattern=r"\A[a-z0-9]+(?:[.-][a-z0-9]+)+\Z", max_length=200)]
Classification = Literal["public", "internal", "confidential", "restricted"]


class CapabilityRef(Document, frozen=True, kw_only=True):
    """A capability at one version."""

    id: CapabilityId
    version: Semver


class Extension(Document, frozen=True, kw_only=True):
    """One extension; `data` may be any JSON value and is kept as it came."""

    version: Semver
    critical: bool
    data: Any


Extensions = dict[Identifier, Extension]


class Budget(Document, frozen=True, kw_only=True):
    """Six dimensions, at least one present; money needs its currency."""

    currency: Annotated[str, Meta(pattern=r"\A[A-Z]{3}\Z")] | UnsetType = UNSET
    financial_limit: Annotated[float, Meta(ge=0)] | UnsetType = UNSET
    model_token_limit: SafeInteger | UnsetType = UNSET
    tool_call_limit: SafeInteger | UnsetType = UNSET
    compute_seconds_limit: SafeInteger | UnsetType = UNSET
    wall_clock_seconds_limit: SafeInteger | UnsetType = UNSET
    external_side_effect_limit: SafeInteger | UnsetType = UNSET

    def __post_init__(self) -> None:
        """`anyOf` of the schema: some dimension must be allocated."""
        money = self.financial_limit is not UNSET and self.currency is not UNSET
        counts = (
            self.model_token_limit,
            self.tool_call_limit,
            self.compute_seconds_limit,
            self.wall_clock_seconds_limit,
            self.external_side_effect_limit,
        )
        if not money and all(count is UNSET for count in counts):
            raise ValueError("a budget allocates at least one dimension; financialLimit needs currency")
