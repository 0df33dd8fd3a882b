"""The admission bundle: with a scripted log, a verified document is admitted or refused as expected (TRU-4)."""

from functools import partial
from typing import Any, Final, Literal

from msgspec import UNSET, Struct, UnsetType, ValidationError

from contracts.admission import (
    Admissible,
    Admitted,
    Append,
    AppendMiss,
    Committed,
    Existing,
    Found,
    Lookup,
    LookupMiss,
    Reason,
    Refused,
    ToAppend,
    TrustedContext,
    admissible,
    admission_stage,
    judge_append,
    judge_first_admission,
    judge_historical_replay,
)
from contracts.canonical import canonical_bytes
from contracts.document_kinds import DocumentKind
from contracts.documents.common import Actor, Document
from contracts.documents.first_admission_record import FirstAdmissionRecord
from contracts.documents.reading import read
from contracts.key_registry import KeyRegistry, read_registry
from contracts.verification import VerificationFailure, Verified
from ops.conformance.bundle_schemas import BundleSchemas
from ops.conformance.evaluation import Evaluation, Section, unreadable
from ops.conformance.judge_cryptography import Fixtures, cryptography_manifest, stage_text
from ops.conformance.read_bundle import Artifacts, Bundle, BundleFault, json_of
from ops.conformance.read_manifest import Listed, Manifest, read_manifest

admission_manifest: Final = "admission/manifest.json"
_profile: Final = "missionweaveprotocol.first-admission-historical-trust.v0.1"


class StatedContext(Document, frozen=True, kw_only=True):
    """The trusted context of a first admission, as a manifest states it; any text may stand as the time."""

    admission_record_id: str
    trusted_accepted_at: str
    accepted_by: Actor


class StatedOutcome(Document, frozen=True, kw_only=True):
    """What the scripted log answers; `record` is a path."""

    status: str
    record: str | UnsetType = UNSET
    authenticated_service: Actor | UnsetType = UNSET


class ExpectAdmitted(Document, frozen=True, kw_only=True):
    """The document is admitted with the record at this path."""

    stage: Literal["complete"]
    wire_code: None
    record: str


class ExpectRefused(Document, frozen=True, kw_only=True):
    """Admission refuses."""

    stage: Literal["admission"]
    wire_code: Literal["AUTH_INVALID_SIGNATURE"]
    reason: Reason


class AdmissionEvaluation(Document, frozen=True, kw_only=True):
    """One document, one registry, one scripted log. `expect` is one of the two expectations above."""

    id: str
    profile_id: DocumentKind
    mode: Literal["first-admission", "historical-replay"]
    document: str
    registry: str
    trusted_context: StatedContext | None
    lookup: StatedOutcome
    append: StatedOutcome | None
    expect: dict[str, Any]


class _Scripts(Struct, frozen=True):
    """What evaluations are made of; the log's answers among it."""

    fixtures: Fixtures
    record_schema: str

    def record(self, path: str) -> Any:
        """A record as JSON, valid or not, on which the schema and we agree. Raises BundleFault."""
        value = json_of(path, self.fixtures.artifacts.read(path))
        judged = self.fixtures.schemas.accepts(self.record_schema, value)
        try:
            read(value, FirstAdmissionRecord)
        except ValidationError as fault:
            if judged:
                raise BundleFault(path, f"is accepted by {self.record_schema}, refused by us: {fault}") from fault
        else:
            if not judged:
                raise BundleFault(path, f"is refused by {self.record_schema}, accepted by us")
        return value

    def looked_up(self, stated: StatedOutcome) -> Lookup:
        """What the look-up gives. Raises BundleFault."""
        if stated.status == "found":
            return Found(*self._entry(stated))
        return LookupMiss(stated.status)

    def appended(self, stated: StatedOutcome | None) -> Append:
        """What the append gives; nothing scripted is a log that takes nothing. Raises BundleFault."""
        if stated is None:
            return AppendMiss.UNAVAILABLE
        if stated.status == "committed":
            return Committed(*self._entry(stated))
        if stated.status == "existing":
            return Existing(*self._entry(stated))
        return AppendMiss(stated.status)

    def _entry(self, stated: StatedOutcome) -> tuple[Any, Actor]:
        if stated.record is UNSET or stated.authenticated_service is UNSET:
            raise BundleFault(admission_manifest, f"says {stated.status} without a record or its service")
        return self.record(stated.record), stated.authenticated_service


def admission_section(bundle: Bundle, cryptography: Manifest) -> Section:
    """Every evaluation of the manifest. Raises UsageFault when it is missing or of another version."""
    manifest = read_manifest(bundle, admission_manifest, _profile)
    artifacts = Artifacts(bundle, manifest.artifacts, beside=Artifacts(bundle, cryptography.artifacts))
    evaluations: list[Evaluation] = []
    if manifest.body:
        reference = {"manifest": cryptography_manifest, "artifactDigest": cryptography.digest}
        manifest.compare("cryptography", manifest.body.get("cryptography"), reference)
        manifest.compare("semanticStage", manifest.body.get("semanticStage"), admission_stage)
        manifest.compare("wireCode", manifest.body.get("wireCode"), Refused.wire_code.value)
        schemas = BundleSchemas(bundle, artifacts.read)
        fixtures = Fixtures(artifacts, schemas, manifest.text("fixtureSchemas", "registry"))
        scripts = _Scripts(fixtures, manifest.text("fixtureSchemas", "record"))
        evaluations = [_evaluation(scripts, listed) for listed in manifest.evaluations]
    return Section(
        manifest=manifest.path, evaluations=evaluations, faults=manifest.faults, bad_files=artifacts.faults()
    )


def _evaluation(scripts: _Scripts, listed: Listed) -> Evaluation:
    try:
        evaluation = read(listed.entry, AdmissionEvaluation)
        if "record" in evaluation.expect:
            expected = f"complete with {read(evaluation.expect, ExpectAdmitted).record}"
        else:
            expected = _refusal_text(read(evaluation.expect, ExpectRefused).reason)
    except ValidationError as fault:
        return unreadable(listed.case, f"evaluation {listed.number}", fault)
    return Evaluation(listed.case, evaluation.id, expected, partial(_observe, scripts, evaluation, expected))


def _observe(scripts: _Scripts, evaluation: AdmissionEvaluation, expected: str) -> str:
    """What came of it; more words where it is not what was expected."""
    verified = scripts.fixtures.verify(evaluation.profile_id, evaluation.document, evaluation.registry)
    if isinstance(verified, VerificationFailure):
        return f"{stage_text(verified.stage)}: {verified.reason}"
    outcome = _admit(scripts, evaluation, _admissible(scripts, evaluation, verified))
    if isinstance(outcome, Refused):
        refusal = _refusal_text(outcome.reason)
        return refusal if refusal == expected else f"{refusal}: {outcome.detail}"
    admitted = canonical_bytes(outcome.record)
    if isinstance(path := evaluation.expect.get("record"), str) and admitted == canonical_bytes(scripts.record(path)):
        return f"complete with {path}"
    return f"complete with the record {admitted.decode()}"


def _admissible(scripts: _Scripts, evaluation: AdmissionEvaluation, verified: Verified) -> Admissible:
    registry = read_registry(json_of(evaluation.registry, scripts.fixtures.artifacts.read(evaluation.registry)))
    key = registry.resolve(verified.key_id)
    if key is None or not isinstance(registry, KeyRegistry):
        raise BundleFault(evaluation.registry, f"has no key {verified.key_id}")
    return admissible(verified, key, registry.organization_id)


def _admit(scripts: _Scripts, evaluation: AdmissionEvaluation, document: Admissible) -> Admitted | Refused:
    found = scripts.looked_up(evaluation.lookup)
    if evaluation.mode == "historical-replay":
        return judge_historical_replay(document, found)
    stated = evaluation.trusted_context
    context = (
        None
        if stated is None
        else TrustedContext(
            admission_record_id=stated.admission_record_id,
            trusted_accepted_at=stated.trusted_accepted_at,
            accepted_by=stated.accepted_by,
        )
    )
    judged = judge_first_admission(document, found, context)
    if isinstance(judged, ToAppend):
        return judge_append(document, judged, scripts.appended(evaluation.append))
    return judged


def _refusal_text(reason: Reason) -> str:
    return f"stage {admission_stage}, {Refused.wire_code.value}, {reason.value}"
