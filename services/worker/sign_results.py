"""The signed documents of a result: the Artifact's manifest and the Evidence for the contract's criteria.

Their identifiers are derived from WorkItem, Ownership Epoch and purpose, so a result that is produced again after a
crash has the same names and cannot be published twice (MWP-WRK-019, MWP-WRK-025).
"""

from typing import Any, Final

from contracts.canonical import parse_strict
from contracts.documents.artifact import Artifact
from contracts.documents.common import EvidenceType
from contracts.documents.evidence import Evidence
from contracts.documents.reading import read
from contracts.signature import SigningKey, sign_document
from services.agent.sign_command import derived_token
from services.worker.artifact_store import content_uri
from services.worker.assigned_work import Acceptance, AssignedWork
from services.worker.jobs.job import Result

worker_version: Final = "1.0.0"
"""Version of the deterministic jobs, named in manifests and Evidence."""
document_bytes_max: Final = 64 * 1024
"""Bytes of one signed document of a result."""

_methods: Final = {
    EvidenceType.ARTIFACT_INTEGRITY: "The stored bytes were read back; size and SHA-256 equal the manifest's.",
    EvidenceType.DETERMINISTIC_TEST: "The result was computed a second time in one pass and compared.",
}
"""What this Worker can attest by itself, and how it found out. Assessments are for reviewers and people."""


def artifact_id(work: AssignedWork) -> str:
    """The name of the Artifact that this ownership of the WorkItem produces."""
    return f"urn:weavehold:artifact:{derived_token(work.work_item_id, work.ownership_epoch, 'artifact')}"


def sign_artifact(
    work: AssignedWork, acceptance: Acceptance, result: Result, named: str, *, key: SigningKey, created_at: str
) -> Artifact:
    """The manifest of content stored under `named`."""
    deliverable = work.contract.required_deliverables[0]
    document = {
        "artifactId": artifact_id(work),
        "contentHash": named,
        "uri": content_uri(named),
        "sizeBytes": len(result.content),
        "mediaType": result.media_type,
        "schemaUri": deliverable.schema,
        "producer": {
            "agentId": key.principal.id,
            "agentCardVersion": acceptance.agent_card_version,
            "capabilities": [{"id": pin.id, "version": pin.version} for pin in acceptance.capability_pins],
        },
        "missionId": work.mission_id,
        "groupId": work.group_id,
        "workItemId": work.work_item_id,
        "sourceArtifactHashes": [source for source in work.contract.input_artifacts if source != named],
        "toolVersions": [{"name": "weavehold-worker", "version": worker_version}],
        "modelVersions": [],
        "classification": "internal",
        "createdAt": created_at,
    }
    return read(_signed(document, key, created_at), Artifact)


def sign_evidence(
    work: AssignedWork, result: Result, named: str, *, key: SigningKey, created_at: str
) -> tuple[Evidence, ...]:
    """One Evidence for each type that this Worker can attest, naming the criteria that it speaks for.

    A criterion that only a reviewer can assess still needs a whole Artifact: integrity speaks for it.
    """
    criteria = work.contract.acceptance_criteria
    named_by = {
        attested: [criterion.criterion_id for criterion in criteria if attested in criterion.evidence_required]
        for attested in _methods
    }
    covered = {name for names in named_by.values() for name in names}
    named_by[EvidenceType.ARTIFACT_INTEGRITY] += [
        criterion.criterion_id for criterion in criteria if criterion.criterion_id not in covered
    ]
    about = {
        "missionId": work.mission_id,
        "groupId": work.group_id,
        "workItemId": work.work_item_id,
        "subject": {"type": "artifact", "id": named},
        "result": "passed",
        "details": {"summary": result.summary, "sizeBytes": len(result.content)},
        "artifactHashes": [named],
        "generatedBy": {"type": key.principal.type.value, "id": key.principal.id},
        "toolVersion": worker_version,
        "createdAt": created_at,
    }
    return tuple(
        read(
            _signed(
                {
                    **about,
                    "evidenceId": _evidence_id(work, attested),
                    "type": attested.value,
                    "criterionIds": names,
                    "method": _methods[attested],
                },
                key,
                created_at,
            ),
            Evidence,
        )
        for attested, names in named_by.items()
        if names
    )


def _evidence_id(work: AssignedWork, attested: EvidenceType) -> str:
    return f"urn:weavehold:evidence:{derived_token(work.work_item_id, work.ownership_epoch, attested.value)}"


def _signed(document: dict[str, Any], key: SigningKey, created_at: str) -> Any:
    return parse_strict(sign_document(document, key, created_at), document_bytes_max)
