"""Decisions about Artifacts: manifests only, the content lies elsewhere (RULE-33)."""

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, Final

from msgspec import UNSET

from contracts.document_kinds import DocumentKind
from contracts.documents.common import Classification
from contracts.payloads.artifact import ArtifactPublish, ArtifactPublished
from contracts.rejection import Code, Rejection
from contracts.timestamps import instant
from services.authority.aggregates import work_item_revision, work_places
from services.authority.decision import EventDraft
from services.authority.fences import by_work_owner, execution_expiry, execution_fence
from services.authority.gates import by_full_member, member_entry
from services.authority.rule import Case, Rule

_circles: Final = tuple(Classification)
"""From the widest to the narrowest."""


def _artifact_in_place(case: Case[ArtifactPublish]) -> Rejection | None:
    """The manifest and the envelope name the same Group and WorkItem."""
    artifact, command = case.payload.artifact, case.command
    if artifact.group_id != command.group_id:
        return case.refuse(Code.INVALID_COMMAND, "artifact.groupId is another Group than the envelope's")
    if command.work_item_id is not UNSET and artifact.work_item_id != command.work_item_id:
        return case.refuse(Code.INVALID_COMMAND, "artifact.workItemId is another WorkItem than the envelope's")
    return None


def _produced_by_actor(case: Case[ArtifactPublish]) -> Rejection | None:
    producer = case.payload.artifact.producer.agent_id
    if producer == case.actor_id:
        return None
    return case.refuse(Code.AUTH_FORBIDDEN, f"the Artifact's producer is {producer}; each Agent publishes its own")


def _classification_kept(case: Case[ArtifactPublish]) -> Rejection | None:
    """What comes from confidential sources stays at least as confidential."""
    artifact = case.payload.artifact
    for content_hash in artifact.source_artifact_hashes:
        for source in case.state.artifacts_with(content_hash):
            if _circles.index(source.classification) > _circles.index(artifact.classification):
                message = f"source {source.artifact_id} is {source.classification.value}; classify the Artifact as high"
                return case.refuse(Code.AUTH_FORBIDDEN, message)
    return None


def _card_version_pinned(case: Case[ArtifactPublish]) -> Rejection | None:
    owner, used = case.record.item.owner, case.payload.artifact.producer.agent_card_version
    if owner is UNSET or used == owner.agent_card_version:
        return None
    message = f"the Artifact names Agent Card version {used}; the work was accepted under {owner.agent_card_version}"
    return case.refuse(Code.REVISION_CONFLICT, message, current_revision=owner.agent_card_version)


def _manifest_sound(case: Case[ArtifactPublish]) -> Rejection | None:
    """Of this Mission, made before now, from sources that are known here."""
    artifact, mission_id = case.payload.artifact, case.state.mission.mission_id
    if artifact.mission_id != mission_id:
        return case.refuse(Code.INVALID_COMMAND, f"artifact.missionId is not {mission_id}")
    if instant(artifact.created_at) > case.context.now_instant:
        return case.refuse(Code.INVALID_COMMAND, f"artifact.createdAt {artifact.created_at} lies in the future")
    inputs = case.record.item.contract.input_artifacts
    for source in artifact.source_artifact_hashes:
        if source == artifact.content_hash:
            return case.refuse(Code.INVALID_COMMAND, "the Artifact names itself as its source")
        if source not in inputs and not case.state.artifacts_with(source):
            message = f"source Artifact {source} is unknown in Group {case.state.group_id}"
            return case.refuse(Code.INVALID_COMMAND, message)
    return None


def _published(case: Case[ArtifactPublish]) -> tuple[EventDraft, ...]:
    item = case.record.item
    return (case.draft(ArtifactPublished(artifact=case.payload.artifact), item.revision + 1, **work_places(item)),)


artifact_rules: Final[Mapping[str, Rule[Any]]] = MappingProxyType(
    {
        "artifact.publish": Rule[ArtifactPublish](
            event="artifact.published",
            aggregate=work_item_revision,
            events=_published,
            work_item=lambda payload: payload.artifact.work_item_id,
            claims=lambda payload: ((payload.artifact.artifact_id, "artifact"),),
            nested=((DocumentKind.ARTIFACT, "artifact"),),
            shape=(_artifact_in_place,),
            entry=member_entry,
            fence=execution_fence,
            policy=(by_full_member, by_work_owner, _produced_by_actor, _classification_kept),
            state=(_card_version_pinned, _manifest_sound),
            expiry=execution_expiry,
        ),
    }
)
