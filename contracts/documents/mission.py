"""Mission (`mission.schema.json`): a bounded objective with an owner, a Coordinator and a definition of done."""

from enum import Enum

from msgspec import UNSET, UnsetType

from contracts.documents.common import (
    AcceptanceCriterion,
    Actor,
    ActorType,
    Budget,
    Document,
    Extensions,
    NonEmpty,
    Semver,
    Text10000,
)
from contracts.documents.conditions import absent, present, unique, when
from contracts.identifiers import CoordinatorEpochField, Identifier, PositiveInteger, SafeInteger
from contracts.timestamps import Timestamp


class MissionState(Enum):
    """States of table STM-M."""

    ACTIVE = "active"
    AWAITING_APPROVAL = "awaiting_approval"
    APPROVED = "approved"
    FAILED = "failed"
    CANCELLED = "cancelled"

    @property
    def terminal(self) -> bool:
        """Whether no Command leaves this state."""
        return self in (MissionState.APPROVED, MissionState.FAILED, MissionState.CANCELLED)


class CoordinatorAssignment(Document, frozen=True, kw_only=True):
    """The Agent that coordinates, fenced by its epoch and bound to its lease."""

    agent_id: Identifier
    agent_card_version: PositiveInteger
    coordinator_epoch: CoordinatorEpochField
    lease_id: Identifier


class ApprovalPolicy(Document, frozen=True, kw_only=True):
    """Which decisions of this Mission a person must take."""

    final_human_approval: bool
    high_risk_execution_approval: bool
    policy_version: Semver | UnsetType = UNSET


class MissionParent(Document, frozen=True, kw_only=True):
    """The WorkItem that a child Mission carries out; `depth` is 1 for a child of the root."""

    mission_id: Identifier
    work_item_id: Identifier
    depth: PositiveInteger


class PinnedProfile(Document, frozen=True, kw_only=True):
    """An extension profile held at one major version for the whole Mission."""

    profile_uri: Identifier
    major_version: SafeInteger


class Mission(Document, frozen=True, kw_only=True):
    """A Mission as of one revision."""

    mission_id: Identifier
    group_id: Identifier
    revision: SafeInteger
    objective: Text10000
    definition_of_done: NonEmpty[AcceptanceCriterion]
    mission_owner: Actor
    coordinator: CoordinatorAssignment
    state: MissionState
    budget: Budget
    deadline: Timestamp
    approval_policy: ApprovalPolicy
    parent: MissionParent | UnsetType = UNSET
    follow_up_to_mission_id: Identifier | UnsetType = UNSET
    pinned_profiles: tuple[PinnedProfile, ...] | UnsetType = UNSET
    created_at: Timestamp
    extensions: Extensions | UnsetType = UNSET

    # A root Mission answers to a person (APR-1), a child Mission to the parent's Coordinator.
    rules = (
        *unique("pinned_profiles"),
        when(
            present("parent"),
            holder="a child Mission",
            takes={"mission_owner.type": (ActorType.AGENT,)},
        ),
        when(
            absent("parent"),
            holder="a root Mission",
            takes={"mission_owner.type": (ActorType.HUMAN,), "approval_policy.final_human_approval": (True,)},
        ),
    )
