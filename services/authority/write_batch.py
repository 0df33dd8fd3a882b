"""The writes of one accepting transaction and its commit, in one round trip.

Every statement precedes the commit in one pipeline: if any fails, the commit rolls back. Identifiers and Receipts
come last, sorted; a name taken meanwhile fails its insert, so a lost race cannot commit (RULE-03).
"""

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any, Final

from psycopg import AsyncConnection

from contracts.epochs import epoch_floor
from contracts.group_state import entity_bytes
from services.authority.batch_facts import sql
from services.authority.incarnation import OpenedIncarnation
from services.authority.judge_batch import BatchOutcome, Office
from services.process.arrays import (
    BigintColumn,
    BytesColumn,
    Column,
    IntegerColumn,
    SmallintColumn,
    TextColumn,
    TimestampColumn,
)

# Columns in the order in which rows are gathered; each is one array parameter of its statement.
_admission_columns: Final[Mapping[str, type[Column]]] = {
    "signing_hashes": BytesColumn,
    "record_ids": TextColumn,
    "document_kinds": TextColumn,
    "key_ids": TextColumn,
    "principal_types": TextColumn,
    "principal_ids": TextColumn,
}
_event_columns: Final[Mapping[str, type[Column]]] = {
    "shard_ids": SmallintColumn,
    "positions": BigintColumn,
    "group_ids": TextColumn,
    "sequences": BigintColumn,
    "event_ids": TextColumn,
    "kinds": TextColumn,
    "aggregate_revisions": BigintColumn,
    "accepted_at": TimestampColumn,
    "signing_hashes": BytesColumn,
    "chain_hashes": BytesColumn,
    "events": BytesColumn,
}
_entity_columns: Final[Mapping[str, type[Column]]] = {
    "group_ids": TextColumn,
    "kinds": TextColumn,
    "entity_ids": TextColumn,
    "revisions": BigintColumn,
    "bodies": BytesColumn,
}
_key_columns: Final[Mapping[str, type[Column]]] = {
    "key_ids": TextColumn,
    "principal_types": TextColumn,
    "principal_ids": TextColumn,
    "public_keys": BytesColumn,
    "valid_from": TextColumn,
    "event_ids": TextColumn,
}
_key_end_columns: Final[Mapping[str, type[Column]]] = {
    "key_ids": TextColumn,
    "sequences": IntegerColumn,
    "valid_until": TextColumn,
    "revoked_at": TextColumn,
    "event_ids": TextColumn,
}
_identifier_columns: Final[Mapping[str, type[Column]]] = {
    "identifiers": TextColumn,
    "entity_kinds": TextColumn,
    "group_ids": TextColumn,
}
_receipt_columns: Final[Mapping[str, type[Column]]] = {
    "actor_ids": TextColumn,
    "action_ids": TextColumn,
    "command_hashes": BytesColumn,
    "shard_ids": SmallintColumn,
    "first_positions": BigintColumn,
    "event_counts": IntegerColumn,
    "receipts": BytesColumn,
    "commands": BytesColumn,
}
_card_columns: Final[Mapping[str, type[Column]]] = {
    "agent_ids": TextColumn,
    "card_versions": BigintColumn,
    "cards": BytesColumn,
}
_session_columns: Final[Mapping[str, type[Column]]] = {
    "agent_ids": TextColumn,
    "session_epochs": BigintColumn,
    "event_ids": TextColumn,
}
_group_columns: Final[Mapping[str, type[Column]]] = {"group_ids": TextColumn, "shard_ids": SmallintColumn}


def _columns(rows: Sequence[tuple[Any, ...]], columns: Mapping[str, type[Column]]) -> dict[str, Column]:
    """Rows as one array per column, the shape that `unnest` takes."""
    return {
        name: column(values) for (name, column), values in zip(columns.items(), zip(*rows, strict=True), strict=True)
    }


async def write_batch(connection: AsyncConnection[Any], office: Office, outcome: BatchOutcome) -> None:
    """Write everything the batch decided and commit. Raises psycopg errors as they come."""
    asked: dict[str, Any] = {"organization_id": office.organization_id}
    async with connection.pipeline():
        if outcome.opened is not None:
            await _write_incarnation(connection, asked, outcome.opened)
        await _write_admissions(connection, asked, outcome)
        await _write_events(connection, asked | {"incarnation": outcome.events[0].mark.incarnation}, outcome)
        await _write_entities(connection, asked, outcome)
        await _write_organization(connection, asked, outcome, outcome.events[0].accepted_at)
        if outcome.identifiers:
            await connection.execute(sql.insert_identifiers, asked | _columns(outcome.identifiers, _identifier_columns))
        if outcome.receipts:
            await connection.execute(sql.insert_receipts, asked | _columns(outcome.receipts, _receipt_columns))
        await connection.commit()


async def _write_incarnation(
    connection: AsyncConnection[Any], asked: dict[str, Any], opened: OpenedIncarnation
) -> None:
    """The incarnation, where each log ends before it, and every session below it fenced."""
    incarnation = opened.incarnation
    founded = {
        "incarnation": incarnation.name,
        "epoch_base": incarnation.epoch_base,
        "abandoned": list(opened.abandoned),
        "reason": incarnation.reason,
        "event_id": incarnation.event_id,
    }
    await connection.execute(sql.insert_incarnation, asked | founded)
    await connection.execute(sql.insert_forks, asked)
    raised = {"epoch_floor": epoch_floor(incarnation.epoch_base), "event_id": incarnation.event_id}
    await connection.execute(sql.raise_all_session_epochs, asked | raised)


async def _write_admissions(connection: AsyncConnection[Any], asked: dict[str, Any], outcome: BatchOutcome) -> None:
    rows = [
        (
            signing_hash,
            record.admission_record_id,
            record.document_kind.value,
            record.key_id,
            record.principal.type.value,
            record.principal.id,
        )
        for signing_hash, record in outcome.admissions.items()
    ]
    if not rows:
        return
    [record, *_] = outcome.admissions.values()
    shared = {"accepted_at": outcome.events[0].accepted_at, "accepted_by": record.accepted_by.id}
    await connection.execute(sql.insert_admissions, asked | shared | _columns(rows, _admission_columns))


async def _write_events(connection: AsyncConnection[Any], asked: dict[str, Any], outcome: BatchOutcome) -> None:
    rows = [
        (
            e.shard_id,
            e.position,
            e.mark.group_id,
            e.mark.sequence,
            e.event_id,
            e.kind,
            e.aggregate_revision,
            e.accepted_at,
            e.signing_hash,
            e.mark.chain_hash,
            e.raw,
        )
        for e in outcome.events
    ]
    await connection.execute(sql.insert_events, asked | _columns(rows, _event_columns))


async def _write_entities(connection: AsyncConnection[Any], asked: dict[str, Any], outcome: BatchOutcome) -> None:
    if outcome.groups:
        await connection.execute(sql.insert_groups, asked | _columns(outcome.groups, _group_columns))
    rows = [
        (group_id, change.key.kind.value, change.key.entity_id, change.revision, entity_bytes(change.entity))
        for (group_id, _), change in outcome.changes.items()
    ]
    if rows:
        await connection.execute(sql.upsert_entities, asked | _columns(rows, _entity_columns))


async def _write_organization(
    connection: AsyncConnection[Any], asked: dict[str, Any], outcome: BatchOutcome, recorded_at: datetime
) -> None:
    """Cards, keys and session epochs: rows of the Organization shard."""
    organization = outcome.organization
    if organization.cards:
        cards = [(agent_id, version, card) for agent_id, (version, card) in organization.cards.items()]
        columns = _columns(cards, _card_columns)
        await connection.execute(sql.upsert_agent_cards, asked | columns)
    if organization.keys:
        await connection.execute(sql.insert_keys, asked | _columns(organization.keys, _key_columns))
    if organization.key_ends:
        columns = _columns(organization.key_ends, _key_end_columns)
        await connection.execute(sql.insert_key_ends, asked | {"recorded_at": recorded_at} | columns)
    if organization.sessions:
        sessions = [(agent_id, epoch, event_id) for agent_id, (epoch, event_id) in organization.sessions.items()]
        columns = _columns(sessions, _session_columns)
        await connection.execute(sql.raise_session_epochs, asked | columns)
