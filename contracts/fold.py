"""What folding an Event needs: the facts of the Event, the faults, and how a kind declares its fold."""

from collections.abc import Callable, Mapping
from typing import Any

from msgspec import Struct

from contracts.documents.common import Document
from contracts.documents.lease import Lease, LeaseState
from contracts.documents.mission import MissionState
from contracts.documents.work_item import WorkItemState
from contracts.entities import Change, WorkItemRecord
from contracts.event import Event
from contracts.event_contracts import current_payload, event_contracts
from contracts.group_entities import GroupState
from contracts.identifiers import GroupSequence
from contracts.transitions import mission_transitions, work_item_transitions
from contracts.upcasting import EventContracts


class EventFacts(Struct, frozen=True, kw_only=True):
    """The members of an Event that the fold reads. `occurred_at` is the acceptance time as signed.

    `payload` is of the current contract version of its kind (PRJ-5).
    """

    group_id: str
    sequence: GroupSequence
    kind: str
    aggregate_revision: int
    occurred_at: str
    payload: Mapping[str, Any]


def facts_of(event: Event, contracts: EventContracts = event_contracts) -> EventFacts:
    """The facts of an Event from the log.

    Raises ValueError for an Organization-scoped one, EventUnread (a ValueError) for one that must not be read here.
    """
    return EventFacts(
        group_id=event.group_id or "",
        sequence=event.group_sequence,
        kind=event.kind,
        aggregate_revision=event.aggregate_revision or 0,
        occurred_at=event.occurred_at,
        payload=current_payload(event, contracts),
    )


class FoldFault(Exception):
    """An Event of a known kind cannot have happened to this state: log or state is damaged."""

    def __init__(self, event: EventFacts, reason: str) -> None:
        """Names the Group, the sequence and what does not fit."""
        super().__init__(f"Event {event.sequence} ({event.kind}) of Group {event.group_id} does not fold: {reason}")
        self.group_id = event.group_id
        self.sequence = event.sequence


class Impossible(Exception):
    """Raised inside a fold: why this Event does not fit this state."""


class Fold[P: Document](Struct, frozen=True):
    """How one kind folds: its payload and what it changes. `apply` raises Impossible or LookupError."""

    payload: type[P]
    apply: Callable[[GroupState, EventFacts, P], tuple[Change, ...]]


def mission_after(state: GroupState, kind: str) -> MissionState:
    """The Mission's state after an Event of this kind. Raises Impossible for a pair outside STM-M."""
    before = state.mission.state if state.exists else None
    after = mission_transitions[kind].get(before)
    if after is None:
        raise Impossible(f"its Mission is {before.value if before else 'not created'}")
    return after


def work_item_after(record: WorkItemRecord, kind: str) -> WorkItemState:
    """The WorkItem's state after an Event of this kind. Raises Impossible for a pair outside STM-W."""
    after = work_item_transitions[kind].get(record.item.state)
    if after is None:
        raise Impossible(f"WorkItem {record.item.work_item_id} is {record.item.state.value}")
    return after


def require(condition: object, reason: str) -> None:
    """Raise Impossible for this reason unless the condition holds."""
    if not condition:
        raise Impossible(reason)


def require_revision(event: EventFacts, revision: int) -> None:
    """An Event's `aggregateRevision` is the revision that its aggregate has after it (RULE-14)."""
    if event.aggregate_revision != revision:
        raise Impossible(f"aggregateRevision is {event.aggregate_revision}; the aggregate is at {revision}")


def require_closed(lease: Lease, current: object, states: tuple[LeaseState, ...]) -> None:
    """A closed lease in an Event is the one that was running."""
    if not isinstance(current, Lease) or current.lease_id != lease.lease_id or lease.state not in states:
        raise Impossible(f"lease {lease.lease_id} ({lease.state.value}) is not the one that was running")
