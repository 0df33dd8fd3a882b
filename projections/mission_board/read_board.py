"""Read the mission board: what people look at."""

from collections import defaultdict
from typing import Any

from msgspec import Struct

from projections.store import Transaction


class BoardMember(Struct, frozen=True, rename="camel"):
    """A member with role and state as the Membership says."""

    member_id: str
    member_type: str
    role: str
    state: str


class BoardMission(Struct, frozen=True, rename="camel"):
    """One Mission. Members that stand before a late start of the history are None; `last_activity_at` is as signed."""

    group_id: str
    mission_id: str | None
    title: str | None
    state: str | None
    coordinator_id: str | None
    coordinator_epoch: int | None
    message_count: int
    last_activity_at: str
    last_sequence: int
    work_items: dict[str, int]
    members: tuple[BoardMember, ...]


def read_board(transaction: Transaction) -> tuple[BoardMission, ...]:
    """All Missions, the one with the latest activity first. Totals are summed here (RULE-24)."""
    counts: defaultdict[str, dict[str, int]] = defaultdict(dict)
    for group_id, state, count in transaction.query("read_work_item_counts", {}):
        counts[str(group_id)][str(state)] = int(count or 0)
    members: defaultdict[str, list[BoardMember]] = defaultdict(list)
    for group_id, *member in transaction.query("read_members", {}):
        members[str(group_id)].append(BoardMember(*map(str, member)))
    missions: list[BoardMission] = []
    for row in transaction.query("read_missions", {}):
        group_id = str(row[0])
        shown: tuple[Any, ...] = (*row, counts[group_id], tuple(members[group_id]))
        missions.append(BoardMission(*shown))
    return tuple(missions)
