"""Which Struct is the payload of which kind, and the reading of a Command's payload (RULE-01)."""

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, Final

from msgspec import UNSET, ValidationError
from msgspec.structs import fields

from contracts import command as commands
from contracts import event as events
from contracts.command import Command
from contracts.documents.common import Document
from contracts.documents.reading import read
from contracts.documents.work_contract import WorkContract
from contracts.payloads import artifact, history, keys, membership, message, mission, organization, work
from contracts.rejection import Code, Rejection, reject

command_payloads: Final[Mapping[str, type[Document]]] = MappingProxyType(
    {
        commands.agent_card_register: organization.AgentCardRegister,
        commands.session_open: organization.SessionOpen,
        commands.history_resume: history.HistoryResume,
        commands.key_register: keys.KeyRegister,
        commands.key_retire: keys.KeyRetire,
        commands.key_revoke: keys.KeyRevoke,
        "mission.create": mission.MissionCreate,
        "mission.assign_coordinator": mission.MissionAssignCoordinator,
        "mission.renew_coordinator": mission.MissionRenewCoordinator,
        "mission.submit_for_approval": mission.MissionSubmitForApproval,
        "mission.request_changes": mission.MissionRequestChanges,
        "mission.approve": mission.MissionApprove,
        "membership.change": membership.MembershipChange,
        "message.post": message.MessagePost,
        "work.authorize": work.WorkAuthorize,
        "work.offer": work.WorkOffer,
        "work.accept_offer": work.WorkAcceptOffer,
        "work.start": work.WorkStart,
        "work.checkpoint": work.WorkCheckpoint,
        commands.lease_renew: work.WorkExecutionLeaseRenew,
        "artifact.publish": artifact.ArtifactPublish,
        "work.submit": work.WorkSubmit,
        "work.accept_result": work.WorkAcceptResult,
    }
)
"""Command kind → payload; a kind that is missing here is not served."""

_members: Final = {
    kind: frozenset(field.encode_name for field in fields(shape)) for kind, shape in command_payloads.items()
}

event_payloads: Final[Mapping[str, type[Document]]] = MappingProxyType(
    {
        events.agent_card_registered: organization.AgentCardRegistered,
        events.session_opened: organization.SessionOpened,
        events.history_resumed: history.HistoryResumed,
        events.key_registered: keys.KeyRegistered,
        events.key_retired: keys.KeyRetired,
        events.key_revoked: keys.KeyRevoked,
        "mission.created": mission.MissionCreated,
        "mission.coordinator.assigned": mission.MissionCoordinatorAssigned,
        "mission.coordinator.renewed": mission.MissionCoordinatorRenewed,
        "mission.submitted_for_approval": mission.MissionSubmittedForApproval,
        "mission.changes_requested": mission.MissionChangesRequested,
        "mission.approved": mission.MissionApproved,
        "membership.changed": membership.MembershipChanged,
        "message.posted": message.MessagePosted,
        "work.authorized": work.WorkAuthorized,
        "work.offer.created": work.WorkOfferCreated,
        "work.offer.accepted": work.WorkOfferAccepted,
        "work.started": work.WorkStarted,
        "work.progressed": work.WorkProgressed,
        "work.checkpointed": work.WorkCheckpointed,
        "artifact.published": artifact.ArtifactPublished,
        "work.submitted": work.WorkSubmitted,
        "work.result.accepted": work.WorkResultAccepted,
        events.lease_expired: work.WorkExecutionLeaseExpired,
        events.lease_revoked: work.WorkExecutionLeaseRevoked,
        events.late_result_recorded: work.LateResultRecorded,
    }
)
"""Event kind → payload; a kind that is missing here is stored and skipped (PRJ-5)."""


def read_command_payload(command: Command) -> Document | Rejection:
    """The typed payload of a Command, or why it has none.

    `conversationId` and `workItemId` may stand in the envelope instead; standing in both with different values is
    INVALID_COMMAND, like an unknown kind. A Work Contract that its schema refuses is WORK_CONTRACT_INCOMPLETE, any
    other misshape SCHEMA_VALIDATION_FAILED.
    """
    kind = command_payloads.get(command.kind)
    if kind is None:
        return _refuse(command, Code.INVALID_COMMAND, f"{command.kind} is not a kind that this authority serves")
    filled = dict(command.payload)
    for name, value in (("conversationId", command.conversation_id), ("workItemId", command.work_item_id)):
        if value is UNSET or name not in _members[command.kind]:
            continue
        if filled.setdefault(name, value) != value:
            return _refuse(command, Code.INVALID_COMMAND, f"{name} differs between envelope and payload; state it once")
    incomplete = _contract_fault(filled) if kind is work.WorkAuthorize else None
    if incomplete:
        return _refuse(command, Code.WORK_CONTRACT_INCOMPLETE, incomplete)
    try:
        return read(filled, kind)
    except ValidationError as fault:
        return _refuse(command, Code.SCHEMA_VALIDATION_FAILED, f"payload of {command.kind}: {fault}")


def _contract_fault(payload: Mapping[str, Any]) -> str | None:
    """Why the Work Contract in this payload is not complete, or None."""
    if "contract" not in payload:
        return "contract is missing; a WorkItem is authorised under a complete Work Contract"
    try:
        read(payload["contract"], WorkContract)
    except ValidationError as fault:
        return f"contract: {fault}"
    return None


def _refuse(command: Command, code: Code, message: str) -> Rejection:
    """A Rejection that names the Command."""
    return reject(code, message, related_action_id=command.action_id)
