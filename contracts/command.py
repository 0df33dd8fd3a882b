"""The Command envelope (`command.schema.json`): a signed request for one transition."""

from typing import Any, Final, Literal

from msgspec import UNSET, UnsetType

from contracts.documents.common import Actor, ActorType, Document, Extensions, Signature, is_extension_kind
from contracts.identifiers import (
    CoordinatorEpochField,
    Identifier,
    MembershipEpochField,
    SafeInteger,
    SessionEpochField,
)
from contracts.timestamps import Timestamp

core_command_kinds: Final = frozenset(
    {
        "mission.create",
        "mission.assign_coordinator",
        "mission.renew_coordinator",
        "mission.submit_for_approval",
        "mission.approve",
        "mission.request_changes",
        "mission.cancel",
        "mission.terminate",
        "mission.create_child",
        "mission.create_follow_up",
        "membership.change",
        "membership.end",
        "membership.grant_delegation",
        "message.post",
        "message.correct",
        "message.retract",
        "message.redact",
        "work.propose",
        "work.authorize",
        "work.offer",
        "work.accept_offer",
        "work.start",
        "work.checkpoint",
        "work.block",
        "work.unblock",
        "work.submit",
        "work.accept_result",
        "work.fail",
        "work.cancel",
        "artifact.publish",
        "approval.grant_execution",
        "policy.grant_cooperation_override",
    }
)
agent_card_register: Final = "ext.missionweaveprotocol.registry.agent_card_register"
session_open: Final = "ext.missionweaveprotocol.identity.session_open"
lease_renew: Final = "ext.missionweaveprotocol.core.work_execution_lease_renew"
key_register: Final = "ext.weavehold.registry.key_register"
key_retire: Final = "ext.weavehold.registry.key_retire"
key_revoke: Final = "ext.weavehold.registry.key_revoke"
organization_scoped_kinds: Final = frozenset({agent_card_register, session_open})
coordinator_only_kinds: Final = frozenset(
    {
        "mission.renew_coordinator",
        "mission.submit_for_approval",
        "mission.create_child",
        "membership.grant_delegation",
        "work.accept_result",
    }
)
creation_kinds: Final = frozenset({"mission.create", "mission.create_follow_up"})


class Command(Document, frozen=True, kw_only=True):
    """A Command as signed. The payload stays open here: it is judged after the signature (RULE-01)."""

    protocol_version: Literal["0.1"]
    action_id: Identifier
    actor: Actor
    session_epoch: SessionEpochField | UnsetType = UNSET
    membership_epoch: MembershipEpochField | UnsetType = UNSET
    coordinator_epoch: CoordinatorEpochField | UnsetType = UNSET
    group_id: Identifier | UnsetType = UNSET
    conversation_id: Identifier | UnsetType = UNSET
    work_item_id: Identifier | UnsetType = UNSET
    cooperation_override_grant_id: Identifier | UnsetType = UNSET
    kind: str
    expected_revision: SafeInteger | UnsetType = UNSET
    correlation_id: Identifier
    caused_by_event_id: Identifier | UnsetType = UNSET
    issued_at: Timestamp
    payload: dict[str, Any]
    extensions: Extensions | UnsetType = UNSET
    signature: Signature

    def __post_init__(self) -> None:
        """The conditional rules of the schema."""
        fault = kind_fault(self) or epoch_fault(self)
        if fault:
            raise ValueError(fault)


def kind_fault(command: Command) -> str | None:
    """Why this kind may not stand in this envelope, or None."""
    kind, actor = command.kind, command.actor.type
    if kind not in core_command_kinds:
        if not is_extension_kind(kind):
            return f"kind {kind[:80]!r} is neither a core kind nor an ext.* kind of three or more parts"
        if kind in organization_scoped_kinds:
            return _organization_scope_fault(command)
        return None
    if command.group_id is UNSET:
        return f"{kind} requires groupId"
    if kind in creation_kinds:
        if actor is not ActorType.HUMAN:
            return f"{kind} is a human's Command"
        if command.membership_epoch is not UNSET or command.coordinator_epoch is not UNSET:
            return f"{kind} carries neither membershipEpoch nor coordinatorEpoch"
    if kind == "mission.terminate" and actor is ActorType.HUMAN:
        return "mission.terminate is for agents and services; a human cancels"
    if kind in coordinator_only_kinds and actor is not ActorType.AGENT:
        return f"{kind} is the Coordinator Agent's Command"
    needs_coordinator = kind in coordinator_only_kinds or (kind == "mission.terminate" and actor is ActorType.AGENT)
    if needs_coordinator and command.coordinator_epoch is UNSET:
        return f"{kind} requires coordinatorEpoch"
    return None


def _organization_scope_fault(command: Command) -> str | None:
    """Organization-scoped kinds are a service's, without Group or epochs."""
    if command.actor.type is not ActorType.SERVICE:
        return f"{command.kind} is a service's Command"
    scoped = (command.group_id, command.session_epoch, command.membership_epoch, command.coordinator_epoch)
    if any(value is not UNSET for value in scoped):
        return f"{command.kind} carries no groupId and no epoch"
    return None


def epoch_fault(command: Command) -> str | None:
    """Why these epochs may not stand beside this actor (ACC-6), or None."""
    actor = command.actor.type
    if actor is ActorType.AGENT:
        if UNSET in (command.group_id, command.session_epoch, command.membership_epoch):
            return "an agent's Command requires groupId, sessionEpoch and membershipEpoch"
        return None
    if command.session_epoch is not UNSET:
        return f"sessionEpoch is an agent's; a {actor.value} carries none"
    if actor is ActorType.SERVICE:
        if command.membership_epoch is not UNSET or command.coordinator_epoch is not UNSET:
            return "a service's Command carries neither membershipEpoch nor coordinatorEpoch"
        return None
    if command.kind not in creation_kinds and UNSET in (command.group_id, command.membership_epoch):
        return "a human's Command requires groupId and membershipEpoch"
    return None
