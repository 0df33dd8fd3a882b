"""Incarnations as their rows say against the signed Events that opened them, and forks against the log (RULE-17)."""

from collections.abc import Iterator, Mapping
from typing import Any

import msgspec
from msgspec import Struct
from psycopg import AsyncConnection

from contracts.event import Event, history_resumed
from contracts.event_contracts import current_payload
from contracts.identifiers import registry_group
from contracts.payloads.history import HistoryResumed
from ops.verify.finding import Finding, Report
from services.process.statements import load

sql = load(__package__)


class _Named(Struct, frozen=True):
    id: str


async def verify_incarnations(
    connection: AsyncConnection[Any], organization_id: str, ends: Mapping[tuple[int, str], int], report: Report
) -> None:
    """Compare every incarnation; `ends` gives the last position of a shard's log in each. Check `incarnations`."""
    asked = {"organization_id": organization_id}
    rows = await (await connection.execute(sql.read_opened_incarnations, asked)).fetchall()
    shards = {shard for (shard,) in await (await connection.execute(sql.read_shards, asked)).fetchall()}
    before: list[str] = []
    base_before = -1
    for incarnation, *said, raw, forks in rows:
        report.count("incarnations")
        faults = [*_opening(incarnation, said, raw, before, organization_id), *_forks(forks, ends, before)]
        if before and {shard for shard, _ in forks} != shards:
            faults.append("it does not say of every shard where its log ended")
        if said[1] <= base_before:
            faults.append(f"its epochs stand above {said[1]}, which is not above {base_before} before it")
        if raw is not None and (await _abandoned(connection, asked, raw)) not in (None, set(said[3])):
            faults.append("it gave up other incarnations than the Command that opened it named")
        for fault in faults:
            report.add(Finding(check="incarnations", message=f"incarnation {incarnation}: {fault}"))
        before.append(incarnation)
        base_before = said[1]


def _opening(
    incarnation: str, said: list[Any], raw: bytes | None, before: list[str], organization_id: str
) -> Iterator[str]:
    """What is wrong with parent, base and reason of a row."""
    parent, epoch_base, reason, _ = said
    followed = before[-1] if before else None
    if parent != followed:
        yield f"its parent is {parent}, but the one before it is {followed}"
    if followed is None:
        if epoch_base != 0 or raw is not None:
            yield "it is the first one, which no Event opens and whose epochs stand above 0"
        return
    if raw is None:
        yield "the Event that opened it is not in the log"
        return
    try:
        event = msgspec.json.decode(bytes(raw), type=Event)
        payload = msgspec.convert(current_payload(event), HistoryResumed)
    except ValueError as fault:
        yield f"the Event that opened it cannot be read: {fault}"
        return
    if (event.kind, event.group_id) != (history_resumed, registry_group(organization_id)):
        yield f"{event.event_id} is no decision of the registry's Group about the history"
    signed = (payload.incarnation, payload.parent, payload.epoch_base, payload.reason)
    if signed != (incarnation, parent, epoch_base, reason):
        yield "its row does not say what the signed Event says"


class _Opening(Struct, frozen=True):
    """As much of an opening Event as names its Command."""

    actor: _Named
    cause: _Named


async def _abandoned(connection: AsyncConnection[Any], asked: dict[str, Any], raw: bytes) -> set[str] | None:
    """The incarnations that the Command behind an Event gave up; None when there is no such Command to be read."""
    try:
        opening = msgspec.json.decode(bytes(raw), type=_Opening)
        named = {"actor_id": opening.actor.id, "action_id": opening.cause.id}
        row = await (await connection.execute(sql.read_command, asked | named, binary=True)).fetchone()
        return None if row is None else set(msgspec.json.decode(bytes(row[0]))["payload"].get("abandoned", ()))
    except (ValueError, LookupError):
        return None


def _forks(forks: list[Any], ends: Mapping[tuple[int, str], int], before: list[str]) -> Iterator[str]:
    """Where the recorded ends of the logs differ from the logs."""
    for shard_id, position in forks:
        found = max((ends.get((shard_id, earlier), 0) for earlier in before), default=0)
        if position != found:
            yield f"shard {shard_id} is said to have ended at {position} before it, its log says {found}"
