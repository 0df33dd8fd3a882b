"""The work queue of one Agent as a consumer. One small function per kind; every one is pure."""

from collections.abc import Callable, Iterable, Iterator, Mapping
from types import MappingProxyType
from typing import Final

from msgspec import UNSET, Raw, UnsetType

from contracts.documents.mission import MissionState
from contracts.epochs import epoch_floor
from contracts.event import history_resumed, late_result_recorded, lease_expired, lease_revoked
from projections.arrival import LoggedEvent
from projections.consumer import Statement, Value, default_owner, text
from projections.state_changes import mission_state_after, work_item_state_after
from projections.work_queue import payload_views as views
from services.process.statements import load

type Statements = Iterator[Statement]


class WorkQueue:
    """Inbox, offers, WorkItems, leases and Membership of `agent_id`, per Group."""

    name: Final = "work_queue"
    owner: Final = default_owner
    version: Final = 2
    tables: Final[Mapping[str, str]] = MappingProxyType(
        {
            "work_queue_group": "create_work_queue_group",
            "work_queue_work_item": "create_work_queue_work_item",
            "work_queue_offer": "create_work_queue_offer",
            "work_queue_inbox": "create_work_queue_inbox",
        }
    )
    intent_tables: Final[frozenset[str]] = frozenset()
    statements: Final[Mapping[str, str]] = load(__package__)

    def __init__(self, agent_id: str) -> None:
        """A queue for this Agent; another Agent's rows in the same store are discarded."""
        self.agent_id: Final = agent_id
        self.variant: Final = agent_id
        self._by_kind: Final = self._handlers()
        self.kinds: Final = frozenset(self._by_kind)

    def _handlers(self) -> dict[str, Callable[[LoggedEvent], Statements]]:
        mission_states = dict.fromkeys(mission_state_after, self._mission_state)
        return {
            **mission_states,
            "mission.created": self._mission_created,
            "mission.coordinator.assigned": self._coordinator_assigned,
            "membership.changed": self._membership_changed,
            "message.posted": self._message_posted,
            "work.authorized": self._authorized,
            "work.offer.created": self._offer_created,
            "work.offer.accepted": self._offer_accepted,
            "work.started": self._execution,
            "work.progressed": self._execution,
            "work.checkpointed": self._execution_ended,
            "work.submitted": self._execution_ended,
            lease_expired: self._execution_ended,
            lease_revoked: self._execution_ended,
            "work.result.accepted": self._result_accepted,
            "artifact.published": self._artifact_published,
            late_result_recorded: self._late_result,
            history_resumed: self._resumed,
        }

    def evolve(self, event: LoggedEvent) -> Iterable[Statement]:
        """The rows that this Event changes."""
        return self._by_kind[event.kind](event)

    def intents(self, event: LoggedEvent) -> Iterable[Statement]:
        """None: what the Worker must do follows from the queue's rows, however it got them."""
        del event
        return ()

    def _mission_created(self, event: LoggedEvent) -> Statements:
        created = views.mission_created(event.payload)
        coordinator = created.mission.coordinator
        yield Statement(
            "put_mission",
            {
                "group_id": event.group_id,
                "mission_id": created.mission.mission_id,
                "title": text(created.title),
                "state": mission_state_after[event.kind],
                "coordinator_id": coordinator.agent_id,
                "coordinator_epoch": coordinator.coordinator_epoch,
            },
        )
        yield from self._memberships(event, created.memberships)

    def _coordinator_assigned(self, event: LoggedEvent) -> Statements:
        assigned = views.coordinator_assigned(event.payload)
        yield Statement(
            "put_coordinator",
            {
                "group_id": event.group_id,
                "coordinator_id": assigned.coordinator_id,
                "coordinator_epoch": assigned.coordinator_epoch,
            },
        )
        yield from self._memberships(event, assigned.memberships)

    def _mission_state(self, event: LoggedEvent) -> Statements:
        yield Statement("put_mission_state", {"group_id": event.group_id, "state": mission_state_after[event.kind]})

    def _membership_changed(self, event: LoggedEvent) -> Statements:
        yield from self._memberships(event, (views.membership_changed(event.payload).membership,))

    def _memberships(self, event: LoggedEvent, memberships: Iterable[views.MembershipView]) -> Statements:
        """My own Membership among these."""
        for membership in memberships:
            if membership.member.id == self.agent_id:
                yield _membership(event, membership)
                yield _inbox(event, None)

    def _message_posted(self, event: LoggedEvent) -> Statements:
        mentions = views.message_posted(event.payload).message.mentions
        if any(mention.id == self.agent_id for mention in mentions):
            yield _inbox(event, None)

    def _authorized(self, event: LoggedEvent) -> Statements:
        item = views.authorized(event.payload).work_item
        place = _place(event, item.work_item_id)
        yield Statement(
            "put_contract", {**place, "conversation_id": item.conversation_id, "contract": _json(item.contract)}
        )

    def _offer_created(self, event: LoggedEvent) -> Statements:
        created = views.offer_created(event.payload)
        conversation = None if event.conversation_id is UNSET else event.conversation_id
        place = _place(event, created.work_item_id)
        yield Statement("put_contract", {**place, "conversation_id": conversation, "contract": _json(created.contract)})
        # Work is offered in active Missions only: a late member learns here what its Mission's state is.
        yield Statement("put_mission_state", {"group_id": event.group_id, "state": MissionState.ACTIVE.value})
        # The new offers replace the earlier ones, also where they name other Agents.
        yield _settle(event, created.work_item_id, "withdrawn")
        for offer in created.offers:
            if offer.agent_id == self.agent_id:
                yield Statement(
                    "put_offer",
                    {
                        "group_id": event.group_id,
                        "work_item_id": created.work_item_id,
                        "offer_id": offer.offer_id,
                        "expires_at": offer.expires_at,
                        "status": offer.status,
                    },
                )
                yield _inbox(event, created.work_item_id)

    def _offer_accepted(self, event: LoggedEvent) -> Statements:
        accepted = views.offer_accepted(event.payload)
        mine = accepted.assignee_id == self.agent_id
        yield Statement(
            "put_owner",
            {
                **_place(event, accepted.work_item_id),
                "owner_id": accepted.assignee_id,
                "owner": _json(accepted.owner),
                "ownership_epoch": accepted.ownership_epoch,
                "ownership_lease_id": accepted.lease.lease_id,
                "ownership_expires_at": accepted.lease.expires_at,
                "start_by": accepted.lease.start_by,
            },
        )
        yield _settle(event, accepted.work_item_id, "accepted" if mine else "lost_race")
        if mine:
            yield _inbox(event, accepted.work_item_id)
            if accepted.membership is not UNSET:
                yield _membership(event, accepted.membership)

    def _execution(self, event: LoggedEvent) -> Statements:
        running = views.execution(event.payload)
        lease = running.execution_lease
        yield Statement(
            "put_execution",
            {
                **_place(event, running.work_item_id, "active"),
                **_ownership(running.ownership_lease),
                "owner_id": lease.holder_agent_id,
                "ownership_epoch": running.ownership_epoch,
                "execution_lease_id": lease.lease_id,
                "execution_session_epoch": lease.session_epoch,
                "execution_expires_at": lease.expires_at,
            },
        )

    def _execution_ended(self, event: LoggedEvent) -> Statements:
        ended = views.execution_ended(event.payload)
        yield Statement(
            "end_execution",
            {
                **_place(event, ended.work_item_id),
                **_ownership(ended.ownership_lease),
                "checkpoint": None if ended.checkpoint is UNSET else _json(ended.checkpoint),
            },
        )
        by_authority = event.kind in (lease_expired, lease_revoked)
        if by_authority and ended.execution_lease.holder_agent_id == self.agent_id:
            yield _inbox(event, ended.work_item_id)

    def _result_accepted(self, event: LoggedEvent) -> Statements:
        accepted = views.result_accepted(event.payload)
        yield Statement("end_ownership", _place(event, accepted.work_item_id))
        if accepted.ownership_lease.holder_agent_id == self.agent_id:
            yield _inbox(event, accepted.work_item_id)

    def _artifact_published(self, event: LoggedEvent) -> Statements:
        work_item_id = views.artifact_published(event.payload).artifact.work_item_id
        yield Statement(
            "set_revision",
            {"group_id": event.group_id, "work_item_id": work_item_id, "revision": event.aggregate_revision},
        )

    def _resumed(self, event: LoggedEvent) -> Statements:
        """RULE-17: no epoch and no running lease of before is current any more."""
        raised: dict[str, Value] = {
            "group_id": event.group_id,
            "epoch": epoch_floor(views.history_resumed(event.payload).epoch_base),
        }
        yield Statement("resume_group", raised)
        yield Statement("resume_work_items", raised)
        yield _inbox(event, None)

    def _late_result(self, event: LoggedEvent) -> Statements:
        if event.actor.id == self.agent_id:
            yield _inbox(event, views.work_item_only(event.payload).work_item_id)


def _place(event: LoggedEvent, work_item_id: str, state: str | None = None) -> dict[str, Value]:
    """The WorkItem after this Event: `aggregateRevision` is its revision (RULE-14)."""
    return {
        "group_id": event.group_id,
        "work_item_id": work_item_id,
        "state": state or work_item_state_after[event.kind],
        "revision": event.aggregate_revision,
    }


def _ownership(lease: views.LeaseView | UnsetType) -> dict[str, Value]:
    """The ownership lease where an Event carries it."""
    if lease is UNSET:
        return {"ownership_expires_at": None, "start_by": None}
    return {"ownership_expires_at": lease.expires_at, "start_by": lease.start_by}


def _membership(event: LoggedEvent, membership: views.MembershipView) -> Statement:
    return Statement(
        "put_membership",
        {
            "group_id": event.group_id,
            "mission_id": membership.mission_id,
            "membership_id": membership.membership_id,
            "membership_epoch": membership.membership_epoch,
            "role": membership.role,
            "state": membership.state,
        },
    )


def _settle(event: LoggedEvent, work_item_id: str, status: str) -> Statement:
    return Statement("settle_offer", {"group_id": event.group_id, "work_item_id": work_item_id, "status": status})


def _inbox(event: LoggedEvent, work_item_id: str | None) -> Statement:
    return Statement(
        "put_inbox",
        {
            "group_id": event.group_id,
            "sequence": event.sequence,
            "event_id": event.event_id,
            "kind": event.kind,
            "work_item_id": work_item_id,
            "occurred_at": event.occurred_at,
        },
    )


def _json(raw: Raw) -> str:
    return bytes(raw).decode()
