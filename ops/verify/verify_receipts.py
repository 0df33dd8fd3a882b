"""Receipts against their Events (MWP-EVT-003); `verify_log` looks the other way."""

import hashlib
from typing import Any, Final

import msgspec
from psycopg import AsyncConnection

from contracts.bounds import command_bytes_max
from contracts.canonical import parse_strict, signing_bytes
from contracts.event import Event
from contracts.receipt import Receipt
from ops.verify.finding import Finding, Report
from ops.verify.verify_log import sql

page_rows_max: Final = 1_000
"""Receipts read in one page."""


async def verify_receipts(connection: AsyncConnection[Any], organization_id: str, report: Report) -> None:
    """Each Receipt names exactly the Events of its Command."""
    asked: dict[str, Any] = {"organization_id": organization_id, "rows_max": page_rows_max}
    after = {"actor_id": "", "action_id": ""}
    while True:
        cursor = await connection.execute(sql.read_receipts_page, asked | after, binary=True)
        page = await cursor.fetchall()
        for row in page:
            report.count("receipts")
            if (problem := _problem(row)) is not None:
                report.add(_finding(row, problem))
        if len(page) < page_rows_max:
            break
        after = {"actor_id": page[-1][0], "action_id": page[-1][1]}


def _problem(row: tuple[Any, ...]) -> str | None:
    actor_id, action_id, command_hash, _, _, _, raw_receipt, raw_command, event_ids, first_event = row
    name = f"the Receipt of {action_id} by {actor_id}"
    try:
        receipt = msgspec.json.decode(raw_receipt, type=Receipt)
        command = parse_strict(raw_command, command_bytes_max)
        event = None if first_event is None else msgspec.json.decode(first_event, type=Event)
    except (ValueError, msgspec.MsgspecError) as error:
        return f"{name} or its Command or Event cannot be read: {error}"
    digest = f"sha256:{command_hash.hex()}"
    if (receipt.actor.id, receipt.action_id, receipt.command_hash) != (actor_id, action_id, digest):
        return f"{name} does not say what its row says"
    if f"sha256:{hashlib.sha256(signing_bytes(command)).hexdigest()}" != digest:
        return f"{name} keeps Command bytes of another signing hash"
    if [recorded.event_id for recorded in receipt.events] != event_ids:
        return f"{name} names {len(receipt.events)} Events; the log has other ones at that place"
    if event is None or event.command_hash != digest:
        return f"{name} points to an Event of another Command"
    return None


def _finding(row: tuple[Any, ...], problem: str) -> Finding:
    try:
        recorded = msgspec.json.decode(row[6], type=Receipt).events[0]
        group_id, sequence = recorded.group_id, recorded.sequence
    except (msgspec.MsgspecError, IndexError):
        return Finding(check="receipts", message=problem, shard_id=row[3], position=row[4])
    group = group_id if isinstance(group_id, str) else None
    return Finding(check="receipts", message=problem, group_id=group, sequence=sequence)
