"""Shapes that many documents share (`common.schema.json`).

Every document is a frozen, closed Struct whose members have the camelCase names of the schemas; a member that
may be absent has the default UNSET, since JSON null is never allowed for it. Rules that span members are
declared in its class (`contracts.documents.conditions`).
"""

from enum import Enum
from typing import Annotated, Any, ClassVar, Final, Literal, TypeVar

from msgspec import UNSET, Meta, Struct, UnsetType

from contracts.documents.condition_checks import keeper
from contracts.documents.conditions import Condition, Excludes, Named, SomeOf, unique
from contracts.identifiers import Base64Url, Identifier, SafeInteger
from contracts.timestamps import Timestamp

T = TypeVar("T")

extension_kind_pattern: Final = r"\Aext\.[a-z0-9][a-z0-9_-]*(?:\.[a-z0-9][a-z0-9_-]*){2,}\Z"
"""An `ext.*` kind: three or more parts after `ext`."""
semver_pattern: Final = (
    r"\A(0|[1-9][0-9]*)\.(0|[1-9][0-9]*)\.(0|[1-9][0-9]*)(?:-[0-9A-Za-z.-]+)?(?:\+[0-9A-Za-z.-]+)?\Z"
)
duration_pattern: Final = r"\AP(?!\Z)(?:[0-9]+D)?(?:T(?=[0-9])(?:[0-9]+H)?(?:[0-9]+M)?(?:[0-9]+(?:\.[0-9]+)?S)?)?\Z"
kind_length_max: Final = 160
"""Characters of a Command or Event kind."""


class Document(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, omit_defaults=True, rename="camel"):
    """Base of every closed object: unknown members are refused, absent optional ones stay absent.

    `rules` are what its members owe each other; a document that breaks one is not made.
    """

    rules: ClassVar[tuple[Condition, ...]] = ()

    def __init_subclass__(cls) -> None:
        """Have the rules of the class checked on every new document."""
        super().__init_subclass__()
        if cls.rules:
            setattr(cls, _called_when_made, keeper(cls.rules))


_called_when_made: Final = "__post_init__"


def core_or_extension_kind(core_kinds: frozenset[str]) -> Named:
    """The member `kind` is one of the core's, or a well-formed `ext.*` kind."""
    return Named(
        member="kind",
        names=core_kinds,
        pattern=extension_kind_pattern,
        length_max=kind_length_max,
        words="neither a core kind nor an ext.* kind of three or more parts",
    )


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

    rules = (
        *unique("evidence_required"),
        Excludes(
            member="evidence_required",
            value=EvidenceType.FAILURE_REPORT,
            because="which proves no criterion; name a proving type",
        ),
    )


class ResourceGrant(Document, frozen=True, kw_only=True):
    """A resource and the operations allowed on it."""

    resource: Identifier
    operations: NonEmpty[Operation]
    constraints: JsonObject | UnsetType = UNSET

    rules = unique("operations")


class Budget(Document, frozen=True, kw_only=True):
    """Six dimensions, at least one present; money needs its currency."""

    currency: Currency | UnsetType = UNSET
    financial_limit: NonNegativeNumber | UnsetType = UNSET
    model_token_limit: SafeInteger | UnsetType = UNSET
    tool_call_limit: SafeInteger | UnsetType = UNSET
    compute_seconds_limit: SafeInteger | UnsetType = UNSET
    wall_clock_seconds_limit: SafeInteger | UnsetType = UNSET
    external_side_effect_limit: SafeInteger | UnsetType = UNSET

    rules = (
        SomeOf(
            sets=(
                ("financial_limit", "currency"),
                ("model_token_limit",),
                ("tool_call_limit",),
                ("compute_seconds_limit",),
                ("wall_clock_seconds_limit",),
                ("external_side_effect_limit",),
            ),
            because="a budget allocates at least one dimension; financialLimit needs currency",
        ),
    )
