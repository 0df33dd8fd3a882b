"""Payloads of the Artifact family."""

from contracts.documents.artifact import Artifact
from contracts.documents.common import Document
from contracts.identifiers import Identifier, OwnershipEpochField


class ArtifactPublish(Document, frozen=True, kw_only=True):
    """`artifact.publish`: the signed manifest, under the owner's current fences; the WorkItem is the manifest's."""

    artifact: Artifact
    ownership_epoch: OwnershipEpochField
    execution_lease_id: Identifier


class ArtifactPublished(Document, frozen=True, kw_only=True):
    """`artifact.published`."""

    artifact: Artifact
