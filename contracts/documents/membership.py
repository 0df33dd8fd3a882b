"""Membership (`membership.schema.json`): one Principal's role, scopes and visibility in one Group."""

from enum import Enum
from typing import Annotated

from msgspec import UNSET, Meta, UnsetType

from contracts.documents.common import (
    Actor,
    ActorType,
    Budget,
    CapabilityRef,
    Document,
    Extensions,
    NonEmpty,
)
from contracts.documents.conditions import always, has, unique, when
from contracts.identifiers import CoordinatorEpochField, Identifier, MembershipEpochField, SafeInteger
from contracts.timestamps import Timestamp

Scope = Annotated[str, Meta(pattern=r"\A[a-z][a-z0-9._:-]*\Z", max_length=160)]


class Role(Enum):
    """What a member may do; one role per Membership."""

    MISSION_OWNER = "mission_owner"
    COORDINATOR = "coordinator"
    WORKER = "worker"
    REVIEWER = "reviewer"
    OBSERVER = "observer"
    WORK_DELEGATE = "work_delegate"


class MembershipState(Enum):
    """A provisional member may only read its Context Package and accept an offer; an ended one does nothing."""

    PROVISIONAL = "provisional"
    ACTIVE = "active"
    ENDED = "ended"


class DelegationGrant(Document, frozen=True, kw_only=True):
    """Leave for one Agent to divide one WorkItem, inside capabilities, a full budget, a depth and a time."""

    grant_id: Identifier
    grantee_agent_id: Identifier
    mission_id: Identifier
    group_id: Identifier
    target_work_item_id: Identifier
    allowed_capabilities: NonEmpty[CapabilityRef]
    budget: Budget
    max_descendant_depth: SafeInteger
    grantee_membership_epoch: MembershipEpochField
    coordinator_epoch: CoordinatorEpochField
    granted_by: Actor
    granted_at: Timestamp
    expires_at: Timestamp

    rules = (
        *unique("allowed_capabilities"),
        always(holder="a delegation grant", takes={"granted_by.type": (ActorType.AGENT,)}),
        always(
            holder="a delegated budget",
            requires=(
                "budget.currency",
                "budget.financial_limit",
                "budget.model_token_limit",
                "budget.tool_call_limit",
                "budget.compute_seconds_limit",
                "budget.wall_clock_seconds_limit",
                "budget.external_side_effect_limit",
            ),
        ),
    )


class Membership(Document, frozen=True, kw_only=True):
    """A Membership at one epoch. Events up to `visibility_start_sequence` are not shown to the member (RULE-23)."""

    membership_id: Identifier
    mission_id: Identifier
    group_id: Identifier
    member: Actor
    role: Role
    state: MembershipState
    membership_epoch: MembershipEpochField
    scopes: NonEmpty[Scope]
    delegation_grants: tuple[DelegationGrant, ...] | UnsetType = UNSET
    visibility_start_sequence: SafeInteger
    context_package_id: Identifier | UnsetType = UNSET
    provisional_expires_at: Timestamp | UnsetType = UNSET
    granted_at: Timestamp
    activated_at: Timestamp | UnsetType = UNSET
    ended_at: Timestamp | UnsetType = UNSET
    extensions: Extensions | UnsetType = UNSET

    rules = (
        *unique("scopes", "delegation_grants"),
        when(
            has("state", MembershipState.PROVISIONAL),
            holder="a provisional Membership",
            requires=("provisional_expires_at", "context_package_id"),
        ),
        when(
            has("state", MembershipState.ACTIVE),
            holder="an active Membership",
            requires=("activated_at",),
        ),
        when(
            has("state", MembershipState.ENDED),
            holder="an ended Membership",
            requires=("ended_at",),
        ),
    )
