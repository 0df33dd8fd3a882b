"""The Command envelope (`command.schema.json`): a signed request for one transition."""

from typing import Any, Final, Literal

from msgspec import UNSET, UnsetType

from contracts.documents.common import Actor, ActorType, Document, Extensions, Signature, core_or_extension_kind
from contracts.documents.conditions import has, has_not, when
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
history_resume: Final = "ext.weavehold.history.resume"
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
    """A Command as signed. The payload stays open here: it is judged after the signature (RULE-01).

    Which epochs stand beside which actor is ACC-6.
    """

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

    rules = (
        core_or_extension_kind(core_command_kinds),
        when(
            has("kind", *organization_scoped_kinds),
            holder="{kind}",
            takes={"actor.type": (ActorType.SERVICE,)},
            refuses=("group_id", "session_epoch", "membership_epoch", "coordinator_epoch"),
        ),
        when(has("kind", *core_command_kinds), holder="{kind}", requires=("group_id",)),
        when(
            has("kind", *creation_kinds),
            holder="{kind}",
            takes={"actor.type": (ActorType.HUMAN,)},
            refuses=("membership_epoch", "coordinator_epoch"),
        ),
        when(
            has("kind", "mission.terminate"),
            holder="mission.terminate, where a human would cancel,",
            takes={"actor.type": (ActorType.AGENT, ActorType.SERVICE)},
        ),
        when(
            has("kind", *coordinator_only_kinds),
            holder="{kind}",
            takes={"actor.type": (ActorType.AGENT,)},
            requires=("coordinator_epoch",),
        ),
        when(
            has("kind", "mission.terminate"),
            has("actor.type", ActorType.AGENT),
            holder="an agent's {kind}",
            requires=("coordinator_epoch",),
        ),
        when(
            has("actor.type", ActorType.AGENT),
            holder="an agent's Command",
            requires=("group_id", "session_epoch", "membership_epoch"),
        ),
        when(has_not("actor.type", ActorType.AGENT), holder="a {actor.type}'s Command", refuses=("session_epoch",)),
        when(
            has("actor.type", ActorType.SERVICE),
            holder="a service's Command",
            refuses=("membership_epoch", "coordinator_epoch"),
        ),
        when(
            has("actor.type", ActorType.HUMAN),
            has_not("kind", *creation_kinds),
            holder="a human's Command",
            requires=("group_id", "membership_epoch"),
        ),
    )
