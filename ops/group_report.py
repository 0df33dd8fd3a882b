"""What a Group is now, from its entities: Mission, members, WorkItems, running leases with the time they have left."""

from collections.abc import Iterator
from datetime import datetime
from typing import Any

import msgspec
from msgspec import UNSET, Struct, UnsetType
from psycopg import AsyncConnection

from contracts.documents.lease import Lease, LeaseState
from contracts.entities import Entity, MembershipRecord, MissionRecord, WorkItemRecord, decode_entity
from contracts.payloads.requests import GroupHead
from contracts.timestamps import format_timestamp, parse_timestamp
from services.process.statements import load

sql = load(__package__)


class MissionLine(Struct, frozen=True, kw_only=True, rename="camel"):
    """The Mission of the Group."""

    mission_id: str
    title: str
    objective: str
    state: str
    revision: int
    mission_owner: str
    coordinator: str
    coordinator_epoch: int
    deadline: str


class MemberLine(Struct, frozen=True, kw_only=True, rename="camel"):
    """One Membership, ended ones included."""

    principal: str
    type: str
    role: str
    state: str
    membership_epoch: int
    visibility_start_sequence: int


class WorkItemLine(Struct, frozen=True, kw_only=True, rename="camel"):
    """One WorkItem; `owner` is null before its first acceptance."""

    work_item_id: str
    goal: str
    state: str
    revision: int
    owner: str | None
    ownership_epoch: int
    deadline: str
    artifacts: int


class LeaseLine(Struct, frozen=True, kw_only=True, rename="camel"):
    """A lease that nobody has closed. With no seconds left it has lapsed and waits to be recorded as such."""

    lease_id: str
    lease_type: str
    holder: str
    session_epoch: int
    work_item_id: str | None
    expires_at: str
    seconds_left: float


class GroupReport(Struct, frozen=True, kw_only=True, rename="camel"):
    """A Group at one moment of the database clock. `entities` counts all entities by kind."""

    group_id: str
    shard_id: int
    read_at: str
    head: GroupHead
    entities: dict[str, int]
    mission: MissionLine | None
    members: tuple[MemberLine, ...]
    work_items: tuple[WorkItemLine, ...]
    leases: tuple[LeaseLine, ...]


async def read_group(connection: AsyncConnection[Any], organization_id: str, group_id: str) -> GroupReport | None:
    """Read one Group in one statement, so that all of it is of one moment; None when there is no such Group."""
    asked = {"organization_id": organization_id, "group_id": group_id}
    rows = await (await connection.execute(sql.read_group_state, asked, binary=True)).fetchall()
    if not rows:
        return None
    shard_id, now, incarnation, sequence, chain_hash, amounts, *_ = rows[0]
    entities = [decode_entity(kind, body) for *_, kind, body in rows if kind is not None]
    missions = [_mission(entity) for entity in entities if isinstance(entity, MissionRecord)]
    return GroupReport(
        group_id=group_id,
        shard_id=shard_id,
        read_at=format_timestamp(now),
        head=GroupHead(incarnation=incarnation, group_id=group_id, sequence=sequence, chain_hash=chain_hash.hex()),
        entities=msgspec.json.decode(amounts or "{}", type=dict[str, int]),
        mission=missions[0] if missions else None,
        members=tuple(_member(entity) for entity in entities if isinstance(entity, MembershipRecord)),
        work_items=tuple(_work_item(entity) for entity in entities if isinstance(entity, WorkItemRecord)),
        leases=tuple(_lease(lease, now) for entity in entities for lease in _running_leases(entity)),
    )


def _mission(record: MissionRecord) -> MissionLine:
    mission = record.mission
    return MissionLine(
        mission_id=mission.mission_id,
        title=record.title,
        objective=mission.objective,
        state=mission.state.value,
        revision=mission.revision,
        mission_owner=mission.mission_owner.id,
        coordinator=mission.coordinator.agent_id,
        coordinator_epoch=mission.coordinator.coordinator_epoch,
        deadline=mission.deadline,
    )


def _member(record: MembershipRecord) -> MemberLine:
    membership = record.membership
    return MemberLine(
        principal=membership.member.id,
        type=membership.member.type.value,
        role=membership.role.value,
        state=membership.state.value,
        membership_epoch=membership.membership_epoch,
        visibility_start_sequence=membership.visibility_start_sequence,
    )


def _work_item(record: WorkItemRecord) -> WorkItemLine:
    item = record.item
    return WorkItemLine(
        work_item_id=item.work_item_id,
        goal=item.contract.goal,
        state=item.state.value,
        revision=item.revision,
        owner=None if item.owner is UNSET else item.owner.agent_id,
        ownership_epoch=record.ownership_epoch,
        deadline=item.contract.deadline,
        artifacts=len(record.artifact_ids),
    )


def _running_leases(entity: Entity) -> Iterator[Lease]:
    held: tuple[Lease | UnsetType, ...] = ()
    if isinstance(entity, MissionRecord):
        held = (entity.coordinator_lease,)
    elif isinstance(entity, WorkItemRecord):
        held = (entity.ownership_lease, entity.execution_lease)
    for lease in held:
        if lease is not UNSET and lease.state is LeaseState.ACTIVE:
            yield lease


def _lease(lease: Lease, now: datetime) -> LeaseLine:
    return LeaseLine(
        lease_id=lease.lease_id,
        lease_type=lease.lease_type.value,
        holder=lease.holder_agent_id,
        session_epoch=lease.session_epoch,
        work_item_id=None if lease.work_item_id is UNSET else lease.work_item_id,
        expires_at=lease.expires_at,
        seconds_left=(parse_timestamp(lease.expires_at) - now).total_seconds(),
    )
