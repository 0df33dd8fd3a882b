"""The mission board as a consumer: all Groups, every kind (each Event is activity)."""

from collections.abc import Callable, Iterable, Iterator, Mapping
from types import MappingProxyType
from typing import Final

import msgspec
from msgspec import UNSET, Struct, UnsetType

from contracts.epochs import epoch_floor
from contracts.event import history_resumed
from projections.arrival import LoggedEvent, Principal
from projections.consumer import Statement, Value, default_owner, text
from projections.state_changes import mission_state_after, work_item_state_after
from services.process.statements import load


class _Membership(Struct, frozen=True):
    member: Principal
    role: str
    state: str


class _Coordinator(Struct, frozen=True, rename="camel"):
    agent_id: str
    coordinator_epoch: int


class _Mission(Struct, frozen=True, rename="camel"):
    mission_id: str
    coordinator: _Coordinator


class _Created(Struct, frozen=True):
    mission: _Mission
    title: str
    memberships: tuple[_Membership, ...]


class _CoordinatorAssigned(Struct, frozen=True, rename="camel"):
    coordinator_id: str
    coordinator_epoch: int
    memberships: tuple[_Membership, ...]


class _WithMembership(Struct, frozen=True):
    membership: _Membership | UnsetType = UNSET


class _WorkItemId(Struct, frozen=True, rename="camel"):
    work_item_id: str


class _Authorized(Struct, frozen=True, rename="camel"):
    work_item: _WorkItemId


class _HistoryResumed(Struct, frozen=True, rename="camel"):
    epoch_base: int


_created: Final = msgspec.json.Decoder(_Created).decode
_coordinator_assigned: Final = msgspec.json.Decoder(_CoordinatorAssigned).decode
_with_membership: Final = msgspec.json.Decoder(_WithMembership).decode
_work_item_id: Final = msgspec.json.Decoder(_WorkItemId).decode
_authorized: Final = msgspec.json.Decoder(_Authorized).decode
_history_resumed: Final = msgspec.json.Decoder(_HistoryResumed).decode


class MissionBoard:
    """A row per Mission, per WorkItem and per member. Decodes payloads only where the board shows something of them."""

    name: Final = "mission_board"
    owner: Final = default_owner
    version: Final = 2
    variant: Final = ""
    kinds: Final = None
    intent_tables: Final[frozenset[str]] = frozenset()
    tables: Final[Mapping[str, str]] = MappingProxyType(
        {
            "mission_board_mission": "create_mission_board_mission",
            "mission_board_work_item": "create_mission_board_work_item",
            "mission_board_member": "create_mission_board_member",
        }
    )
    statements: Final[Mapping[str, str]] = load(__package__)

    def evolve(self, event: LoggedEvent) -> Iterable[Statement]:
        """Activity for each Event, and what the board shows of it."""
        activity: dict[str, Value] = {
            "group_id": event.group_id,
            "messages": int(event.kind == "message.posted"),
            "at": event.occurred_at,
            "sequence": event.sequence,
        }
        noted = Statement("note_activity", activity)
        shown = _shown.get(event.kind)
        return (noted,) if shown is None else (noted, *shown(event))

    def intents(self, event: LoggedEvent) -> Iterable[Statement]:
        """None: the board is only read."""
        del event
        return ()


def _work_item_moved(event: LoggedEvent) -> Iterator[Statement]:
    named = event.work_item_id
    yield _work_item(event, _work_item_id(event.payload).work_item_id if named is UNSET else named)


def _work_item_authorized(event: LoggedEvent) -> Iterator[Statement]:
    yield _work_item(event, _authorized(event.payload).work_item.work_item_id)


def _offer_accepted(event: LoggedEvent) -> Iterator[Statement]:
    yield from _work_item_moved(event)
    yield from _membership_changed(event)


def _membership_changed(event: LoggedEvent) -> Iterator[Statement]:
    """The Membership that the Event carries, always or (an acceptance by a provisional member) sometimes."""
    membership = _with_membership(event.payload).membership
    if membership is not UNSET:
        yield from _members(event.group_id, (membership,))


def _mission_created(event: LoggedEvent) -> Iterator[Statement]:
    created = _created(event.payload)
    coordinator = created.mission.coordinator
    yield Statement(
        "open_mission",
        {
            "group_id": event.group_id,
            "mission_id": created.mission.mission_id,
            "title": text(created.title),
            "state": mission_state_after[event.kind],
            "coordinator_id": coordinator.agent_id,
            "coordinator_epoch": coordinator.coordinator_epoch,
        },
    )
    yield from _members(event.group_id, created.memberships)


def _new_coordinator(event: LoggedEvent) -> Iterator[Statement]:
    assigned = _coordinator_assigned(event.payload)
    yield Statement(
        "set_coordinator",
        {
            "group_id": event.group_id,
            "coordinator_id": assigned.coordinator_id,
            "coordinator_epoch": assigned.coordinator_epoch,
        },
    )
    yield from _members(event.group_id, assigned.memberships)


def _mission_moved(event: LoggedEvent) -> Iterator[Statement]:
    yield Statement("set_mission_state", {"group_id": event.group_id, "state": mission_state_after[event.kind]})


def _resumed(event: LoggedEvent) -> Iterator[Statement]:
    """RULE-17: the Coordinator goes on under a higher epoch, and nothing runs or waits for an approval."""
    epoch = epoch_floor(_history_resumed(event.payload).epoch_base)
    yield Statement("resume_mission", {"group_id": event.group_id, "epoch": epoch})
    yield Statement("resume_work_items", {"group_id": event.group_id})


def _work_item(event: LoggedEvent, work_item_id: str) -> Statement:
    state = work_item_state_after[event.kind]
    return Statement("put_work_item_state", {"group_id": event.group_id, "work_item_id": work_item_id, "state": state})


def _members(group_id: str, memberships: Iterable[_Membership]) -> Iterator[Statement]:
    for membership in memberships:
        yield Statement(
            "put_member",
            {
                "group_id": group_id,
                "member_id": membership.member.id,
                "member_type": membership.member.type.value,
                "role": membership.role,
                "state": membership.state,
            },
        )


_shown: Final[Mapping[str, Callable[[LoggedEvent], Iterator[Statement]]]] = MappingProxyType(
    {
        **dict.fromkeys(mission_state_after, _mission_moved),
        **dict.fromkeys(work_item_state_after, _work_item_moved),
        "mission.created": _mission_created,
        "mission.coordinator.assigned": _new_coordinator,
        "membership.changed": _membership_changed,
        "work.authorized": _work_item_authorized,
        history_resumed: _resumed,
        "work.offer.accepted": _offer_accepted,
    }
)
"""What the board shows of an Event beside its being activity."""
