"""One Group's quarantine in every projection: how it stands, and everything that anybody ever decided about it."""

from collections.abc import Sequence
from enum import Enum
from typing import Any

from msgspec import Struct
from psycopg import AsyncConnection

from contracts.cursor import Cursor
from ops.cursor_report import judge_cursors
from ops.fork_report import UnreadableProjection
from ops.projection_file import NotAProjection
from ops.projection_place import ProjectionPlace, open_place
from ops.quarantine.list_quarantine import QuarantineLine, quarantine_line
from projections.store import Decision, Verb


class Effect(Enum):
    """What a skip does to the history that the authority has now."""

    PASSED_OVER = "passed over"
    """The Event is behind the Cursor, and nothing was made of it."""
    PENDING = "pending"
    """The Event will be passed over when the Group gets to it."""
    INERT = "inert"
    """The history has another Event there since a fork: nothing is passed over."""


class DecisionLine(Struct, frozen=True, kw_only=True, rename="camel"):
    """One decision about one Event. `attempts` had failed in the consumer's `version`; only a skip has an `effect`."""

    projection: str
    consumer: str
    verb: Verb
    who: str
    why: str
    at: str
    sequence: int
    event_id: str
    chain_hash: str
    kind: str
    version: int
    attempts: int
    effect: Effect | None


class GroupQuarantine(Struct, frozen=True, kw_only=True, rename="camel"):
    """What stands, and what was decided, oldest first per projection."""

    group_id: str
    quarantined: tuple[QuarantineLine, ...]
    decisions: tuple[DecisionLine, ...]
    unreadable: tuple[UnreadableProjection, ...]


async def show_quarantine(
    connection: AsyncConnection[Any], organization_id: str, places: Sequence[ProjectionPlace], group_id: str
) -> GroupQuarantine:
    """The Group in the projections at these places; whether a skip still counts is asked of the log."""
    lines: list[QuarantineLine] = []
    decisions: list[DecisionLine] = []
    unreadable: list[UnreadableProjection] = []
    for place in places:
        try:
            with open_place(place) as opened:
                name, cursor = opened.consumer.name, opened.snapshot.cursor(group_id)
                found, decided = opened.snapshot.quarantined_of(group_id), opened.snapshot.decisions_of(group_id)
        except NotAProjection as fault:
            unreadable.append(UnreadableProjection(projection=str(place), problem=str(fault)))
            continue
        if found is not None:
            lines.append(quarantine_line(place, name, found))
        for each in decided:
            effect = None
            if each.verb is Verb.SKIP:
                effect = await _effect(connection, organization_id, each, cursor)
            decisions.append(_line(place, name, each, effect))
    return GroupQuarantine(
        group_id=group_id, quarantined=tuple(lines), decisions=tuple(decisions), unreadable=tuple(unreadable)
    )


async def _effect(
    connection: AsyncConnection[Any], organization_id: str, skip: Decision, cursor: Cursor | None
) -> Effect:
    place = Cursor("", skip.group_id, skip.sequence, skip.chain_hash)
    [judged] = await judge_cursors(connection, organization_id, [place])
    if judged.verdict.is_finding:
        return Effect.INERT
    return Effect.PASSED_OVER if cursor is not None and cursor.sequence >= skip.sequence else Effect.PENDING


def _line(place: ProjectionPlace, consumer: str, decision: Decision, effect: Effect | None) -> DecisionLine:
    return DecisionLine(
        projection=str(place),
        consumer=consumer,
        verb=decision.verb,
        who=decision.who,
        why=decision.why,
        at=decision.at,
        sequence=decision.sequence,
        event_id=decision.event_id,
        chain_hash=decision.chain_hash.hex(),
        kind=decision.kind,
        version=decision.version,
        attempts=decision.attempts,
        effect=effect,
    )
