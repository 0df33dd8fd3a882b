"""The cryptography bundle: a document ends at the expected stage, with the expected answer (TRU-1, TRU-2, TRU-3)."""

from collections.abc import Iterator, Mapping
from functools import partial
from typing import Final, Literal

from msgspec import Struct, ValidationError

from contracts.bounds import event_bytes_max
from contracts.canonical import canonical_bytes, parse_strict
from contracts.chain import hash_text
from contracts.document_kinds import DocumentKind
from contracts.documents.common import Actor, Document
from contracts.documents.reading import read
from contracts.identifiers import Identifier, Sha256
from contracts.key_registry import read_registry
from contracts.rejection import Code
from contracts.signature import SigningKey, base64url_bytes, base64url_text
from contracts.verification import Stage, VerificationFailure, Verified, verify_document
from ops.conformance.bundle_schemas import BundleSchemas
from ops.conformance.evaluation import Evaluation, Section, unreadable
from ops.conformance.read_bundle import Artifacts, Bundle, BundleFault, json_of, sha256_text
from ops.conformance.read_manifest import Listed, Manifest, read_manifest
from ops.conformance.signing_profiles import StatedProfile, schema_of

cryptography_manifest: Final = "cryptography/manifest.json"
_profile: Final = "missionweaveprotocol.signed-document-verification.v0.1"
_complete: Final = "complete"


class Fixtures(Struct, frozen=True):
    """What evaluations are made of: listed files, and the schemas that judge them."""

    artifacts: Artifacts
    schemas: BundleSchemas
    registry_schema: str
    signing_key_schema: str = ""
    profiles: Mapping[DocumentKind, StatedProfile] = {}

    def verify(self, kind: DocumentKind, document: str, registry: str) -> Verified | VerificationFailure:
        """Run the six stages on a listed document under a listed registry. Raises BundleFault."""
        evidence = json_of(registry, self.artifacts.read(registry))
        self.schemas.require(self.registry_schema, evidence, registry)
        return verify_document(kind, self.artifacts.read(document), read_registry(evidence), event_bytes_max)


class ExpectedVerified(Document, frozen=True, kw_only=True):
    """What verification must have found; `signing_bytes` is a path, hashes are `sha256:<hex>`."""

    key_id: Identifier
    principal: Actor
    protected_time: str
    signing_bytes: str
    signing_hash: Sha256
    signature: str
    signed_document_hash: Sha256


class ExpectComplete(Document, frozen=True, kw_only=True):
    """All six stages are passed."""

    stage: Literal["complete"]
    wire_code: None
    verified: ExpectedVerified


class ExpectFailure(Document, frozen=True, kw_only=True):
    """Verification ends at this stage, and the wire says this."""

    stage: Stage
    wire_code: Code


class FaultBasis(Document, frozen=True, kw_only=True):
    """The evaluation that a faulty one was made from."""

    case_id: str
    profile_id: DocumentKind


class Fault(Document, frozen=True, kw_only=True):
    """What is wrong with a document or its registry."""

    id: str
    basis: FaultBasis


class CompleteEvaluation(Document, frozen=True, kw_only=True):
    """A document that must verify, and whose signature its key must reproduce."""

    profile_id: DocumentKind
    document: str
    registry: str
    signing_key: str
    fault: None
    expect: ExpectComplete


class FailureEvaluation(Document, frozen=True, kw_only=True):
    """A document that must not verify."""

    profile_id: DocumentKind
    document: str
    registry: str
    fault: Fault
    expect: ExpectFailure


class CanonicalizationEvaluation(Document, frozen=True, kw_only=True):
    """A JSON value and its RFC 8785 bytes."""

    input: str
    expected_jcs: str
    sha256: Sha256


def cryptography_section(bundle: Bundle) -> tuple[Section, Manifest]:
    """Every evaluation of the manifest. Raises UsageFault when it is missing or of another version."""
    manifest = read_manifest(bundle, cryptography_manifest, _profile)
    artifacts = Artifacts(bundle, manifest.artifacts)
    evaluations: list[Evaluation] = []
    if manifest.body:
        stages = [*(stage.value for stage in Stage), _complete]
        manifest.compare("semanticStages", manifest.body.get("semanticStages"), stages)
        fixtures = Fixtures(
            artifacts,
            BundleSchemas(bundle, artifacts.read),
            manifest.text("fixtureSchemas", "registry"),
            manifest.text("fixtureSchemas", "signingKey"),
            _profiles(manifest),
        )
        evaluations = [_evaluation(fixtures, listed) for listed in manifest.evaluations]
    section = Section(
        manifest=manifest.path, evaluations=evaluations, faults=manifest.faults, bad_files=artifacts.faults()
    )
    return section, manifest


def stage_text(stage: Stage) -> str:
    """Where verification ended and what the wire says of it."""
    return f"stage {stage.value}, {stage.wire_code.value}"


def _profiles(manifest: Manifest) -> dict[DocumentKind, StatedProfile]:
    """The stated profiles by kind; one that is none is a fault of the manifest."""
    profiles: dict[DocumentKind, StatedProfile] = {}
    for number, entry in enumerate(manifest.list_of("profiles"), 1):
        try:
            profile = read(entry, StatedProfile)
        except ValidationError as fault:
            manifest.blame(f"profile {number}", "a signing profile", str(fault))
        else:
            profiles[profile.profile_id] = profile
    return profiles


def _evaluation(fixtures: Fixtures, listed: Listed) -> Evaluation:
    entry = listed.entry
    members = set(entry) if isinstance(entry, dict) else set()
    try:
        if "input" in members:
            canonical = read(entry, CanonicalizationEvaluation)
            observe = partial(_observe_canonical, fixtures, canonical)
            return Evaluation(listed.case, "canonicalization", canonical.sha256, observe)
        if "signingKey" in members:
            complete = read(entry, CompleteEvaluation)
            observe = partial(_observe_complete, fixtures, complete)
            return Evaluation(listed.case, complete.profile_id.value, _complete, observe)
        failing = read(entry, FailureEvaluation)
    except ValidationError as fault:
        return unreadable(listed.case, f"evaluation {listed.number}", fault)
    expected = f"stage {failing.expect.stage.value}, {failing.expect.wire_code.value}"
    name = f"{failing.profile_id.value}/{failing.fault.id}"
    return Evaluation(listed.case, name, expected, partial(_observe_failure, fixtures, failing))


def _observe_canonical(fixtures: Fixtures, evaluation: CanonicalizationEvaluation) -> str:
    value = json_of(evaluation.input, fixtures.artifacts.read(evaluation.input))
    canonical = canonical_bytes(value)
    if canonical != fixtures.artifacts.read(evaluation.expected_jcs):
        return f"other bytes than {evaluation.expected_jcs}: {sha256_text(canonical)}"
    return sha256_text(canonical)


def _observe_failure(fixtures: Fixtures, evaluation: FailureEvaluation) -> str:
    kind = evaluation.profile_id
    outcome = fixtures.verify(kind, evaluation.document, evaluation.registry)
    if isinstance(outcome, Verified):
        return _complete
    ended = stage_text(outcome.stage)
    if ended != f"stage {evaluation.expect.stage.value}, {evaluation.expect.wire_code.value}":
        return f"{ended}: {outcome.reason}"
    if outcome.stage is Stage.PARSE:
        return ended
    value = parse_strict(fixtures.artifacts.read(evaluation.document), event_bytes_max)
    if fixtures.schemas.accepts(schema_of(kind), value) is (outcome.stage is Stage.SCHEMA):
        return f"{ended}, which {schema_of(kind)} contradicts: {outcome.reason}"
    return ended


def _observe_complete(fixtures: Fixtures, evaluation: CompleteEvaluation) -> str:
    kind = evaluation.profile_id
    outcome = fixtures.verify(kind, evaluation.document, evaluation.registry)
    if isinstance(outcome, VerificationFailure):
        return f"{stage_text(outcome.stage)}: {outcome.reason}"
    if not fixtures.schemas.accepts(schema_of(kind), outcome.document):
        return f"complete, but refused by {schema_of(kind)}"
    profile = fixtures.profiles.get(kind)
    differing = [
        *(profile.differences(outcome) if profile else [f"the manifest has no profile {kind.value}"]),
        *_differences(fixtures, outcome, evaluation.expect.verified),
        *_signing_differences(fixtures, outcome, evaluation.signing_key),
    ]
    return f"complete, but {'; '.join(differing)}" if differing else _complete


def _differences(fixtures: Fixtures, verified: Verified, expected: ExpectedVerified) -> Iterator[str]:
    found = {
        "keyId": (verified.key_id, expected.key_id),
        "principal": (verified.principal, expected.principal),
        "protectedTime": (verified.protected_time, expected.protected_time),
        "signingHash": (hash_text(verified.signing_hash), expected.signing_hash),
        "signature": (verified.document["signature"]["value"], expected.signature),
        "signedDocumentHash": (sha256_text(canonical_bytes(verified.document)), expected.signed_document_hash),
    }
    for name, (ours, stated) in found.items():
        if ours != stated:
            yield f"{name} is {ours}"
    if verified.canonical != fixtures.artifacts.read(expected.signing_bytes):
        yield f"the signing bytes are not {expected.signing_bytes}"


class SigningKeyFixture(Struct, frozen=True, kw_only=True, rename="camel"):
    """A key for tests; both texts are base64url of 32 raw bytes."""

    key_id: str
    seed: str
    public_key: str


def _signing_differences(fixtures: Fixtures, verified: Verified, path: str) -> Iterator[str]:
    """Ed25519 is deterministic: our own signature over the same bytes is the vector's."""
    value = json_of(path, fixtures.artifacts.read(path))
    fixtures.schemas.require(fixtures.signing_key_schema, value, path)
    fixture = read(value, SigningKeyFixture)
    seed = base64url_bytes(fixture.seed)
    if seed is None:
        raise BundleFault(path, "has a seed that is no canonical base64url")
    key = SigningKey(fixture.key_id, verified.principal, seed)
    if key.key_id != verified.key_id:
        yield f"{path} is another key"
    if base64url_text(key.public_key) != fixture.public_key:
        yield f"the public key of {path} is {base64url_text(key.public_key)}"
    if key.sign(verified.canonical) != verified.document["signature"]["value"]:
        yield f"{path} signs otherwise"
