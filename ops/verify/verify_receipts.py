"""Receipts against their Events and admissions (MWP-EVT-003, TRU-4); `verify_log` looks the other way."""

import hashlib
from typing import Any, Final

import msgspec
from msgspec import UNSET
from psycopg import AsyncConnection

from contracts.bounds import command_bytes_max
from contracts.canonical import parse_strict, signing_bytes
from contracts.chain import hash_text
from contracts.command import Command
from contracts.event import Event
from contracts.identifiers import organization_shard
from contracts.receipt import Outcome, Receipt
from contracts.timestamps import instant
from contracts.verification import RegistryFault
from ops.verify.finding import Finding, Report
from ops.verify.replay_admissions import AcceptedCommand, AdmissionReplay
from ops.verify.verify_log import sql
from services.authority.decide import identifiers_claimed
from services.process.arrays import TextColumn

page_rows_max: Final = 1_000
"""Receipts read in one page."""


async def verify_receipts(connection: AsyncConnection[Any], organization_id: str, report: Report) -> None:
    """Each Receipt says what its Event says; its Command can still be verified, and the names it claimed are taken."""
    try:
        replay = await AdmissionReplay.open(connection, organization_id)
    except RegistryFault as fault:
        message = f"no accepted document can be verified: the key registry is not valid: {fault}"
        report.add(Finding(check="keys", message=message, shard_id=organization_shard))
        return
    asked: dict[str, Any] = {"organization_id": organization_id, "rows_max": page_rows_max}
    after = {"actor_id": "", "action_id": ""}
    while True:
        cursor = await connection.execute(sql.read_receipts_page, asked | after, binary=True)
        page = await cursor.fetchall()
        claimed = await _taken(connection, asked, page)
        for row in page:
            report.count("receipts")
            if (problem := _problem(row) or _missing(row, claimed)) is not None:
                report.add(_finding(row, problem, "receipts"))
        await _replay(replay, page, report)
        if len(page) < page_rows_max:
            break
        after = {"actor_id": page[-1][0], "action_id": page[-1][1]}


async def _replay(replay: AdmissionReplay, page: list[tuple[Any, ...]], report: Report) -> None:
    """Judge the admissions of a page's Commands. Of whose acceptance nothing can be read, that is the finding."""
    accepted = [(row, command) for row in page if (command := _accepted(row)) is not None]
    replayed = await replay.problems([command for _, command in accepted])
    for (row, _), problem in zip(accepted, replayed, strict=True):
        report.count("admissions")
        if problem is not None:
            report.add(_finding(row, f"the Command {row[1]} by {row[0]} {problem}", "admissions"))


def _accepted(row: tuple[Any, ...]) -> AcceptedCommand | None:
    """A Command as its Receipt and first Event tell of it; None without them, which is a finding of its own."""
    try:
        receipt = msgspec.json.decode(row[6], type=Receipt)
        event = msgspec.json.decode(row[9] or b"", type=Event)
        instant(receipt.accepted_at)
    except (ValueError, msgspec.MsgspecError):
        return None
    return AcceptedCommand(raw=row[7], accepted_at=receipt.accepted_at, accepted_by=event.accepted_by)


def _problem(row: tuple[Any, ...]) -> str | None:
    actor_id, action_id, command_hash, _, _, _, raw_receipt, raw_command, event_ids, first_event = row
    name = f"the Receipt of {action_id} by {actor_id}"
    try:
        receipt = msgspec.json.decode(raw_receipt, type=Receipt)
        command = parse_strict(raw_command, command_bytes_max)
        event = None if first_event is None else msgspec.json.decode(first_event, type=Event)
    except (ValueError, msgspec.MsgspecError) as error:
        return f"{name} or its Command or Event cannot be read: {error}"
    digest = hash_text(command_hash)
    if (receipt.actor.id, receipt.action_id, receipt.command_hash) != (actor_id, action_id, digest):
        return f"{name} does not say what its row says"
    if hash_text(hashlib.sha256(signing_bytes(command)).digest()) != digest:
        return f"{name} keeps Command bytes of another signing hash"
    if [recorded.event_id for recorded in receipt.events] != event_ids:
        return f"{name} names {len(receipt.events)} Events; the log has other ones at that place"
    return _event_problem(name, receipt, event)


def _event_problem(name: str, receipt: Receipt, event: Event | None) -> str | None:
    if event is None or event.command_hash != receipt.command_hash:
        return f"{name} points to an Event of another Command"
    told = (receipt.accepted_at, receipt.group_id, receipt.aggregate_revision)
    if told != (event.occurred_at, event.group_id, _revision(event, receipt)):
        return f"{name} tells another time, Group or revision than its Event"
    return None


def _revision(event: Event, receipt: Receipt) -> int:
    """The revision that a Receipt must tell; an Organization-scoped Event has none in its document."""
    return receipt.aggregate_revision if event.aggregate_revision is UNSET else event.aggregate_revision


async def _taken(connection: AsyncConnection[Any], asked: dict[str, Any], page: list[tuple[Any, ...]]) -> set[str]:
    """Which of the names that a page of Receipts claims are taken."""
    names = TextColumn({name for row in page for name in _claims(row)})
    cursor = await connection.execute(sql.read_taken, asked | {"identifiers": names}, binary=True)
    return {name for (name,) in await cursor.fetchall()}


def _missing(row: tuple[Any, ...], claimed: set[str]) -> str | None:
    name = f"the Command {row[1]} by {row[0]}"
    if free := [claim for claim in _claims(row) if claim not in claimed]:
        return f"{name} named {free[0]}, which counts as free"
    return None


def _claims(row: tuple[Any, ...]) -> list[str]:
    """The identifiers that an accepted Command claimed; none when its bytes or Receipt cannot be read."""
    try:
        receipt = msgspec.json.decode(row[6], type=Receipt)
        command = msgspec.convert(parse_strict(row[7], command_bytes_max), Command)
    except (ValueError, msgspec.MsgspecError):
        return []
    if receipt.outcome is not Outcome.ACCEPTED:
        return []
    return [name for name, _ in identifiers_claimed(command)]


def _finding(row: tuple[Any, ...], problem: str, check: str) -> Finding:
    try:
        recorded = msgspec.json.decode(row[6], type=Receipt).events[0]
        group_id, sequence = recorded.group_id, recorded.sequence
    except (msgspec.MsgspecError, IndexError):
        return Finding(check=check, message=problem, shard_id=row[3], position=row[4])
    group = group_id if isinstance(group_id, str) else None
    return Finding(check=check, message=problem, group_id=group, sequence=sequence)
