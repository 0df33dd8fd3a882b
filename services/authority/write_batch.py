"""The writes of one accepting transaction and its commit, in one round trip.

Every statement precedes the commit in one pipeline: if any fails, the commit rolls back. Identifiers and Receipts
come last, sorted; a name taken meanwhile fails its insert, so a lost race cannot commit (RULE-03).
"""

from collections.abc import Sequence
from typing import Any, Final

from psycopg import AsyncConnection

from contracts.group_state import entity_bytes
from services.authority.batch_facts import BatchFacts, sql
from services.authority.judge_batch import BatchOutcome, Office
from services.process.unique import uuid7_urn

# Columns in the order in which rows are gathered; each is an array parameter of its statement.
_admission_columns: Final = (
    "signing_hashes",
    "record_ids",
    "document_kinds",
    "key_ids",
    "principal_types",
    "principal_ids",
    "accepted_at",
)
_event_columns: Final = (
    "shard_ids",
    "positions",
    "group_ids",
    "sequences",
    "event_ids",
    "kinds",
    "aggregate_revisions",
    "accepted_at",
    "signing_hashes",
    "chain_hashes",
    "events",
)
_entity_columns: Final = ("group_ids", "kinds", "entity_ids", "revisions", "bodies")
_key_columns: Final = ("key_ids", "principal_ids", "public_keys", "valid_from", "valid_until")
_identifier_columns: Final = ("identifiers", "entity_kinds", "group_ids")
_receipt_columns: Final = (
    "actor_ids",
    "action_ids",
    "command_hashes",
    "shard_ids",
    "first_positions",
    "event_counts",
    "receipts",
    "commands",
)


def _columns(rows: Sequence[tuple[Any, ...]], names: Sequence[str]) -> dict[str, list[Any]]:
    """Rows as one array per column, the shape that `unnest` takes."""
    return {name: [row[place] for row in rows] for place, name in enumerate(names)}


async def write_batch(
    connection: AsyncConnection[Any], office: Office, facts: BatchFacts, outcome: BatchOutcome
) -> None:
    """Write everything the batch decided and commit. Raises psycopg errors as they come."""
    asked: dict[str, Any] = {"organization_id": office.organization_id}
    async with connection.pipeline():
        await _write_admissions(connection, asked, office, facts, outcome)
        await _write_events(connection, asked | {"incarnation": facts.incarnation}, outcome)
        await _write_entities(connection, asked, outcome)
        await _write_organization(connection, asked, outcome)
        if outcome.identifiers:
            await connection.execute(sql.insert_identifiers, asked | _columns(outcome.identifiers, _identifier_columns))
        if outcome.receipts:
            await connection.execute(sql.insert_receipts, asked | _columns(outcome.receipts, _receipt_columns))
        await connection.commit()


async def _write_admissions(
    connection: AsyncConnection[Any], asked: dict[str, Any], office: Office, facts: BatchFacts, outcome: BatchOutcome
) -> None:
    rows = [
        (f.signing_hash, uuid7_urn(), f.kind, f.key_id, f.principal.type.value, f.principal.id, facts.now)
        for f in outcome.admissions.values()
        if f.signing_hash not in facts.admissions
    ]
    if not rows:
        return
    accepted_by = {"accepted_by": office.key.principal.id}
    await connection.execute(sql.insert_admissions, asked | accepted_by | _columns(rows, _admission_columns))


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
        await connection.execute(sql.insert_groups, asked | _columns(outcome.groups, ("group_ids", "shard_ids")))
    rows = [
        (group_id, change.key.kind.value, change.key.entity_id, change.revision, entity_bytes(change.entity))
        for (group_id, _), change in outcome.changes.items()
    ]
    if rows:
        await connection.execute(sql.upsert_entities, asked | _columns(rows, _entity_columns))


async def _write_organization(connection: AsyncConnection[Any], asked: dict[str, Any], outcome: BatchOutcome) -> None:
    """Cards, keys and session epochs: rows of the Organization shard."""
    organization = outcome.organization
    if organization.cards:
        cards = [(agent_id, version, card) for agent_id, (version, card) in organization.cards.items()]
        columns = _columns(cards, ("agent_ids", "card_versions", "cards"))
        await connection.execute(sql.upsert_agent_cards, asked | columns)
    if organization.keys:
        await connection.execute(sql.insert_agent_keys, asked | _columns(organization.keys, _key_columns))
    if organization.sessions:
        sessions = [(agent_id, epoch, event_id) for agent_id, (epoch, event_id) in organization.sessions.items()]
        columns = _columns(sessions, ("agent_ids", "session_epochs", "event_ids"))
        await connection.execute(sql.raise_session_epochs, asked | columns)
