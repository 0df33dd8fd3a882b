"""Checkpoint: where a paused WorkItem can be taken up again (payloads of `work.checkpoint` and `work.block`)."""

from msgspec import UNSET, UnsetType

from contracts.documents.common import Document, Text500
from contracts.identifiers import Sha256
from contracts.timestamps import Timestamp


class Checkpoint(Document, frozen=True, kw_only=True):
    """A safe point; the bytes of its state lie outside the log under `state_artifact_hash` (RULE-33)."""

    phase: Text500
    completed_milestones: tuple[Text500, ...]
    next_step: Text500 | UnsetType = UNSET
    state_artifact_hash: Sha256 | UnsetType = UNSET
    created_at: Timestamp
