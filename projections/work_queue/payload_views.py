"""What the work queue reads of payloads: a few members of each kind; the rest is passed over undecoded."""

from typing import Final

import msgspec
from msgspec import UNSET, Raw, Struct, UnsetType

from projections.arrival import Principal


class MembershipView(Struct, frozen=True, rename="camel"):
    """Whose Membership, at which epoch."""

    membership_id: str
    mission_id: str
    member: Principal
    role: str
    state: str
    membership_epoch: int


class LeaseView(Struct, frozen=True, rename="camel"):
    """A lease with what its type carries."""

    lease_id: str
    holder_agent_id: str
    session_epoch: int
    expires_at: str
    start_by: str | None = None


class CoordinatorView(Struct, frozen=True, rename="camel"):
    """The Coordinator in a Mission document."""

    agent_id: str
    coordinator_epoch: int


class MissionView(Struct, frozen=True, rename="camel"):
    """The Mission document."""

    mission_id: str
    coordinator: CoordinatorView


class MissionCreatedView(Struct, frozen=True, rename="camel"):
    """`mission.created`."""

    mission: MissionView
    title: str
    memberships: tuple[MembershipView, ...]


class CoordinatorAssignedView(Struct, frozen=True, rename="camel"):
    """`mission.coordinator.assigned`."""

    coordinator_id: str
    coordinator_epoch: int
    memberships: tuple[MembershipView, ...]


class MembershipChangedView(Struct, frozen=True):
    """`membership.changed`."""

    membership: MembershipView


class WorkItemView(Struct, frozen=True, rename="camel"):
    """The WorkItem document; `contract` stays JSON."""

    work_item_id: str
    conversation_id: str
    contract: Raw


class AuthorizedView(Struct, frozen=True, rename="camel"):
    """`work.authorized`."""

    work_item: WorkItemView


class OfferView(Struct, frozen=True, rename="camel"):
    """An offer to one Agent."""

    offer_id: str
    agent_id: str
    expires_at: str
    status: str


class OfferCreatedView(Struct, frozen=True, rename="camel"):
    """`work.offer.created`."""

    work_item_id: str
    offers: tuple[OfferView, ...]
    contract: Raw


class OfferAcceptedView(Struct, frozen=True, rename="camel"):
    """`work.offer.accepted`."""

    work_item_id: str
    assignee_id: str
    ownership_epoch: int
    owner: Raw
    lease: LeaseView
    membership: MembershipView | UnsetType = UNSET


class ExecutionView(Struct, frozen=True, rename="camel"):
    """`work.started` and `work.progressed`."""

    work_item_id: str
    ownership_epoch: int
    execution_lease: LeaseView
    ownership_lease: LeaseView | UnsetType = UNSET


class ExecutionEndedView(Struct, frozen=True, rename="camel"):
    """`work.checkpointed`, `work.submitted`, and an execution lease that expired or was revoked."""

    work_item_id: str
    execution_lease: LeaseView
    ownership_lease: LeaseView | UnsetType = UNSET
    checkpoint: Raw | UnsetType = UNSET


class ResultAcceptedView(Struct, frozen=True, rename="camel"):
    """`work.result.accepted`."""

    work_item_id: str
    ownership_lease: LeaseView


class ArtifactView(Struct, frozen=True, rename="camel"):
    """The Artifact document."""

    work_item_id: str


class ArtifactPublishedView(Struct, frozen=True):
    """`artifact.published`."""

    artifact: ArtifactView


class MessageView(Struct, frozen=True):
    """The Message document."""

    mentions: tuple[Principal, ...] = ()


class MessagePostedView(Struct, frozen=True):
    """`message.posted`."""

    message: MessageView


class WorkItemOnlyView(Struct, frozen=True, rename="camel"):
    """A kind of which only the WorkItem matters."""

    work_item_id: str


class HistoryResumedView(Struct, frozen=True, rename="camel"):
    """`ext.weavehold.history.resumed`."""

    epoch_base: int


mission_created: Final = msgspec.json.Decoder(MissionCreatedView).decode
coordinator_assigned: Final = msgspec.json.Decoder(CoordinatorAssignedView).decode
membership_changed: Final = msgspec.json.Decoder(MembershipChangedView).decode
authorized: Final = msgspec.json.Decoder(AuthorizedView).decode
offer_created: Final = msgspec.json.Decoder(OfferCreatedView).decode
offer_accepted: Final = msgspec.json.Decoder(OfferAcceptedView).decode
execution: Final = msgspec.json.Decoder(ExecutionView).decode
execution_ended: Final = msgspec.json.Decoder(ExecutionEndedView).decode
result_accepted: Final = msgspec.json.Decoder(ResultAcceptedView).decode
artifact_published: Final = msgspec.json.Decoder(ArtifactPublishedView).decode
message_posted: Final = msgspec.json.Decoder(MessagePostedView).decode
history_resumed: Final = msgspec.json.Decoder(HistoryResumedView).decode
work_item_only: Final = msgspec.json.Decoder(WorkItemOnlyView).decode
