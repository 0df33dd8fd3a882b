"""The incarnations of an Organization as people look at them, with the evidence for or against the present one."""

from typing import Any

from msgspec import Struct
from nats.aio.client import Client
from psycopg import AsyncConnection

from contracts.timestamps import format_timestamp
from services.authority.broker_consumers import BrokerConsumers
from services.authority.examine_history import HistoryEvidence, examination_faults, examine_history
from services.process.statements import load

sql = load(__package__)


class ForkPoint(Struct, frozen=True, kw_only=True, rename="camel"):
    """Up to `position` of a shard's log an incarnation shares its parent's history."""

    shard_id: int
    position: int


class IncarnationLine(Struct, frozen=True, kw_only=True, rename="camel"):
    """One incarnation; the first has no parent, and no Event opened it."""

    ordinal: int
    incarnation: str
    parent: str | None
    epoch_base: int
    reason: str
    event_id: str | None
    opened_at: str
    abandoned: tuple[str, ...]
    forks: tuple[ForkPoint, ...]


class IncarnationReport(Struct, frozen=True, kw_only=True, rename="camel"):
    """All incarnations, and how the database stands; `unexamined` says why nothing could be compared."""

    organization_id: str
    incarnations: tuple[IncarnationLine, ...]
    evidence: HistoryEvidence | None
    unexamined: str | None

    @property
    def faults(self) -> tuple[str, ...]:
        """What speaks against the database holding the whole history."""
        if self.evidence is None:
            return ()
        found = (self.evidence.identity_fault, self.evidence.stream_fault)
        return tuple(fault for fault in found if fault is not None)


async def read_incarnations(
    connection: AsyncConnection[Any], broker: Client | None, organization_id: str
) -> IncarnationReport:
    """Read and compare; without a `broker` nothing is compared. Raises psycopg errors."""
    asked = {"organization_id": organization_id}
    rows = await (await connection.execute(sql.read_incarnations, asked)).fetchall()
    evidence, unexamined = None, None if broker is not None else "the broker does not answer"
    if broker is not None:
        try:
            evidence = await examine_history(connection, BrokerConsumers(broker), organization_id)
        except examination_faults as fault:
            unexamined = str(fault) or f"the broker does not answer: {type(fault).__name__}"
    return IncarnationReport(
        organization_id=organization_id,
        incarnations=tuple(map(_line, rows)),
        evidence=evidence,
        unexamined=unexamined,
    )


def _line(row: tuple[Any, ...]) -> IncarnationLine:
    ordinal, incarnation, parent, epoch_base, reason, event_id, opened_at, abandoned, forks = row
    return IncarnationLine(
        ordinal=ordinal,
        incarnation=incarnation,
        parent=parent,
        epoch_base=epoch_base,
        reason=reason,
        event_id=event_id,
        opened_at=format_timestamp(opened_at),
        abandoned=tuple(abandoned),
        forks=tuple(ForkPoint(shard_id=shard, position=position) for shard, position in forks),
    )
