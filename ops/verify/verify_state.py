"""Stored state against the fold of the log, per Group, digest for digest (MWP-EVT-005, NEW-4)."""

import hashlib
from collections.abc import AsyncIterator
from typing import Any, Final

import msgspec
from psycopg import AsyncConnection

from contracts.canonical import canonical_bytes
from contracts.entities import combined_digest, entity_bytes, entity_digest
from contracts.epochs import epoch_floor
from contracts.event import Event, agent_card_registered, history_resumed, session_opened
from contracts.event_contracts import current_payload
from contracts.group_state import FoldFault, GroupState, evolve, facts_of
from contracts.identifiers import organization_shard, registry_group
from ops.verify.finding import Finding, Report
from ops.verify.verify_log import page_rows_max, sql

groups_in_page_max: Final = 500
"""Groups listed in one page."""
named_entities_max: Final = 5
"""Differing entities named per Group."""

type Rows = dict[tuple[str, str], bytes]
"""(kind, entity ID) to the digest of the row."""


async def verify_state(connection: AsyncConnection[Any], organization_id: str, report: Report) -> None:
    """Fold every Group from its first Event and compare with what is stored; then the Organization's own rows."""
    async for group_id in groups_of(connection, organization_id):
        report.count("state")
        folded: Rows = {}
        state = GroupState.empty(organization_id, group_id)
        try:
            async for event in group_events(connection, organization_id, group_id):
                changes = evolve(state, facts_of(event))
                state.apply(changes)
                for change in changes:
                    kind, entity_id = change.key
                    row = (kind.value, entity_id, change.revision, entity_bytes(change.entity))
                    folded[(kind.value, entity_id)] = entity_digest(*row)
        except (FoldFault, ValueError) as fault:
            sequence = fault.sequence if isinstance(fault, FoldFault) else None
            report.add(Finding(check="state", message=str(fault), group_id=group_id, sequence=sequence))
            continue
        asked = {"organization_id": organization_id, "group_id": group_id}
        cursor = await connection.execute(sql.read_entities, asked, binary=True)
        stored = {(row[0], row[1]): _digest(row) async for row in cursor}
        if combined_digest(stored.values()) != combined_digest(folded.values()):
            _name_differences(group_id, stored, folded, report)
    await _verify_organization(connection, organization_id, report)


async def groups_of(connection: AsyncConnection[Any], organization_id: str) -> AsyncIterator[str]:
    """All Groups of an Organization, in the order of their identifiers."""
    after = ""
    while True:
        asked = {"organization_id": organization_id, "after": after, "rows_max": groups_in_page_max}
        page = await (await connection.execute(sql.read_groups_page, asked)).fetchall()
        for (group_id,) in page:
            yield group_id
        if len(page) < groups_in_page_max:
            return
        after = page[-1][0]


async def group_events(connection: AsyncConnection[Any], organization_id: str, group_id: str) -> AsyncIterator[Event]:
    """A Group's Events in order ("" for the Organization's own). Raises ValueError for one that cannot be read."""
    after = 0
    while True:
        asked = {"organization_id": organization_id, "group_id": group_id, "after": after, "rows_max": page_rows_max}
        page = await (await connection.execute(sql.read_group_page, asked, binary=True)).fetchall()
        for sequence, raw in page:
            try:
                yield msgspec.json.decode(raw, type=Event)
            except msgspec.MsgspecError as error:
                raise ValueError(f"Event {sequence} cannot be read: {error}") from error
        if len(page) < page_rows_max:
            return
        after = page[-1][0]


def _digest(row: tuple[str, str, int, bytes]) -> bytes:
    """The digest of a stored row, also of one whose kind is not ours."""
    try:
        return entity_digest(*row)
    except ValueError:
        return hashlib.sha256(repr(row).encode()).digest()


def _name_differences(group_id: str, stored: Rows, folded: Rows, report: Report) -> None:
    differing = sorted(name for name in stored.keys() | folded.keys() if stored.get(name) != folded.get(name))
    for kind, entity_id in differing[:named_entities_max]:
        here, there = (kind, entity_id) in stored, (kind, entity_id) in folded
        what = "differs from the fold of the log" if here and there else "has no Event" if here else "is not stored"
        report.add(Finding(check="state", message=f"{kind} {entity_id} {what}", group_id=group_id))
    if len(differing) > named_entities_max:
        message = f"{len(differing) - named_entities_max} more entities differ from the fold of the log"
        report.add(Finding(check="state", message=message, group_id=group_id))


async def _session_floor(connection: AsyncConnection[Any], organization_id: str) -> int:
    """What the newest incarnation lifted every session to (RULE-17): an Event of the registry's Group says it."""
    floor = 0
    async for event in group_events(connection, organization_id, registry_group(organization_id)):
        if event.kind == history_resumed:
            floor = epoch_floor(current_payload(event)["epochBase"])
    return floor


async def _verify_organization(connection: AsyncConnection[Any], organization_id: str, report: Report) -> None:
    """Agent rows (session epoch, card) against the Organization shard's Events."""
    folded: dict[str, tuple[int, int, bytes]] = {}
    try:
        async for event in group_events(connection, organization_id, ""):
            payload = current_payload(event)
            agent_id = str(payload.get("agentId"))
            epoch, version, card = folded.get(agent_id, (0, 0, b""))
            if event.kind == agent_card_registered:
                card = canonical_bytes(payload["card"])
                folded[agent_id] = (epoch, payload["version"], card)
            elif event.kind == session_opened:
                folded[agent_id] = (payload["sessionEpoch"], version, card)
        floor = await _session_floor(connection, organization_id)
    except (ValueError, KeyError) as fault:
        report.add(Finding(check="state", message=f"the Organization's history: {fault}", shard_id=organization_shard))
        return
    folded = {a: (max(epoch, floor) if epoch else 0, version, card) for a, (epoch, version, card) in folded.items()}
    cursor = await connection.execute(sql.read_agents, {"organization_id": organization_id}, binary=True)
    stored = {row[0]: (row[1], row[2], row[3]) async for row in cursor}
    for agent_id in sorted(stored.keys() | folded.keys()):
        report.count("state")
        if stored.get(agent_id) != folded.get(agent_id):
            message = f"Agent {agent_id} differs from the fold of the Organization's Events"
            report.add(Finding(check="state", message=message, shard_id=organization_shard))
