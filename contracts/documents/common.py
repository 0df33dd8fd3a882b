"""Shapes that many documents share (`common.schema.json`).

Every document is a frozen, closed Struct whose members have the camelCase names of the schemas; a member that
may be absent has the default UNSET, since JSON null is never allowed for it. Rules that span members stand in
`__post_init__` and raise ValueError naming the member and the remedy; `msgspec.convert` reports them as a
ValidationError with the path.
"""

import re
from collections.abc import Hashable, Mapping
from enum import Enum
from typing import Annotated, Any, Final, Literal, TypeVar

from msgspec import UNSET, Meta, Struct, UnsetType

from contracts.identifiers import Base64Url, Identifier, SafeInteger
from contracts.timestamps import Timestamp

T = TypeVar("T")

extension_kind_pattern: Final = r"\Aext\.[a-z0-9][a-z0-9_-]*(?:\.[a-z0-9][a-z0-9_-]*){2,}\Z"
"""An `ext.*` kind: three or more parts after `ext`."""
_extension_kind: Final = re.compile(extension_kind_pattern)
semver_pattern: Final = (
    r"\A(0|[1-9][0-9]*)\.(0|[1-9][0-9]*)\.(0|[1-9][0-9]*)(?:-[0-9A-Za-z.-]+)?(?:\+[0-9A-Za-z.-]+)?\Z"
)
duration_pattern: Final = r"\AP(?!\Z)(?:[0-9]+D)?(?:T(?=[0-9])(?:[0-9]+H)?(?:[0-9]+M)?(?:[0-9]+(?:\.[0-9]+)?S)?)?\Z"
kind_length_max: Final = 160
"""Characters of a Command or Event kind."""


def is_extension_kind(kind: str) -> bool:
    """Whether `kind` is a well-formed `ext.*` kind."""
    return len(kind) <= kind_length_max and _extension_kind.match(kind) is not None


class Document(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, omit_defaults=True, rename="camel"):
    """Base of every closed object: unknown members are refused, absent optional ones stay absent."""


def refuse_repeats(member: str, items: tuple[Hashable, ...] | UnsetType) -> None:
    """`uniqueItems`: raise ValueError when two items are the same JSON value.

    Closed Structs compare member by member and 1 equals 1.0, which is JSON Schema's own equality.
    """
    if items is not UNSET and len(set(items)) != len(items):
        raise ValueError(f"{member} repeats an item; list each item once")


def require_members(holder: str, members: Mapping[str, object]) -> None:
    """Raise ValueError for the first of `members` (schema name → value) that is absent although `holder` needs it."""
    for name, value in members.items():
        if value is UNSET:
            raise ValueError(f"{name} is missing; {holder} requires it")


def refuse_members(holder: str, members: Mapping[str, object]) -> None:
    """Raise ValueError for the first of `members` (schema name → value) that is present although `holder` has none."""
    for name, value in members.items():
        if value is not UNSET:
            raise ValueError(f"{name} is not allowed; {holder} carries none, leave it out")


NonEmpty = Annotated[tuple[T, ...], Meta(min_length=1)]
"""An array of one or more items."""

Text200 = Annotated[str, Meta(min_length=1, max_length=200)]
Text500 = Annotated[str, Meta(min_length=1, max_length=500)]
Text2000 = Annotated[str, Meta(min_length=1, max_length=2000)]
Text4000 = Annotated[str, Meta(min_length=1, max_length=4000)]
Text10000 = Annotated[str, Meta(min_length=1, max_length=10000)]
Text50000 = Annotated[str, Meta(min_length=1, max_length=50000)]

JsonObject = dict[str, Any]
"""An object whose members are open; kept as it came."""

Kind = Annotated[str, Meta(pattern=r"\A[a-z][a-z0-9_]*(?:\.[a-z][a-z0-9_]*)+\Z", max_length=kind_length_max)]
ExtensionKind = Annotated[str, Meta(pattern=extension_kind_pattern, max_length=kind_length_max)]
Semver = Annotated[str, Meta(pattern=semver_pattern, max_length=128)]
Duration = Annotated[str, Meta(pattern=duration_pattern, max_length=64)]
"""An ISO 8601 duration of days, hours, minutes and seconds."""
CapabilityId = Annotated[str, Meta(pattern=r"\A[a-z0-9]+(?:[.-][a-z0-9]+)+\Z", max_length=200)]
LocalName = Annotated[str, Meta(pattern=r"\A[a-zA-Z0-9][a-zA-Z0-9._-]{0,127}\Z")]
"""Name of a criterion or a deliverable inside its document."""
Operation = Annotated[str, Meta(pattern=r"\A[a-z][a-z0-9._:-]*\Z", max_length=128)]
MediaType = Annotated[str, Meta(pattern=r"\A[A-Za-z0-9!#$&^_.+-]+/[A-Za-z0-9!#$&^_.+-]+\Z")]
Currency = Annotated[str, Meta(pattern=r"\A[A-Z]{3}\Z")]
"""An ISO 4217 code."""
NonNegativeNumber = Annotated[int, Meta(ge=0)] | Annotated[float, Meta(ge=0)]
"""A JSON number of 0 or more; an integral one is an int."""


class ActorType(Enum):
    """Who acts: an Agent, a person, or an Organization service."""

    AGENT = "agent"
    HUMAN = "human"
    SERVICE = "service"


class Actor(Document, frozen=True, kw_only=True):
    """A Principal: type and identifier."""

    type: ActorType
    id: Identifier


def require_actor(member: str, actor: Actor, expected: ActorType) -> None:
    """Raise ValueError when `actor`, the value of `member`, is not of the expected type."""
    if actor.type is not expected:
        raise ValueError(f"{member}.type is {actor.type.value}; it must be {expected.value} here")


class Signature(Document, frozen=True, kw_only=True):
    """An Ed25519 signature over the RFC 8785 bytes of the document without this member."""

    algorithm: Literal["Ed25519"]
    key_id: Identifier
    created_at: Timestamp
    value: Base64Url


class PublicKey(Document, frozen=True, kw_only=True):
    """A verification key with its validity: from `valid_from` up to, not including, the earlier of the other two."""

    key_id: Identifier
    algorithm: Literal["Ed25519"]
    public_key: Base64Url
    valid_from: Timestamp
    valid_until: Timestamp | UnsetType = UNSET
    revoked_at: Timestamp | UnsetType = UNSET


class Classification(Enum):
    """Who may see data, from the widest to the narrowest circle."""

    PUBLIC = "public"
    INTERNAL = "internal"
    CONFIDENTIAL = "confidential"
    RESTRICTED = "restricted"


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


class EvidenceType(Enum):
    """How a result was established. A failure report proves no criterion."""

    ARTIFACT_INTEGRITY = "artifact_integrity"
    SCHEMA_VALIDATION = "schema_validation"
    DETERMINISTIC_TEST = "deterministic_test"
    BUSINESS_RULE = "business_rule"
    REVIEWER_ASSESSMENT = "reviewer_assessment"
    HUMAN_REVIEW = "human_review"
    POLICY_CHECK = "policy_check"
    FAILURE_REPORT = "failure_report"


class AcceptanceCriterion(Document, frozen=True, kw_only=True):
    """One condition of acceptance and the types of Evidence that it takes."""

    criterion_id: LocalName
    description: Text4000
    evidence_required: NonEmpty[EvidenceType]

    def __post_init__(self) -> None:
        """Each type once, and only types that can prove something."""
        refuse_repeats("evidenceRequired", self.evidence_required)
        if EvidenceType.FAILURE_REPORT in self.evidence_required:
            raise ValueError("evidenceRequired names failure_report, which proves no criterion; name a proving type")


class ResourceGrant(Document, frozen=True, kw_only=True):
    """A resource and the operations allowed on it."""

    resource: Identifier
    operations: NonEmpty[Operation]
    constraints: JsonObject | UnsetType = UNSET

    def __post_init__(self) -> None:
        """Each operation once."""
        refuse_repeats("operations", self.operations)


class Budget(Document, frozen=True, kw_only=True):
    """Six dimensions, at least one present; money needs its currency."""

    currency: Currency | UnsetType = UNSET
    financial_limit: NonNegativeNumber | UnsetType = UNSET
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
