"""The tables of a Mission file (`README.md` beside this file describes the format); its keys are camelCase."""

from typing import Annotated, Any, Final, Literal

from msgspec import Meta, Struct

from contracts.documents.common import EvidenceType, LocalName, Text500, Text4000, Text10000
from contracts.documents.work_contract import Urgency

work_items_max: Final = 200
"""WorkItems of one Mission file."""
agents_max: Final = 20
"""Agents of one Mission file."""

Name = Annotated[str, Meta(pattern=r"\A[a-z0-9](?:[a-z0-9-]{0,61}[a-z0-9])?\Z")]
"""Lower-case letters, digits and inner hyphens, at most 63."""
Minutes = Annotated[int, Meta(ge=1, le=7 * 24 * 60)]


class Table(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, rename="camel"):
    """Base of every table of the file."""


class Criterion(Table, frozen=True, kw_only=True):
    """An acceptance criterion, of the Mission or of one WorkItem."""

    id: LocalName
    description: Text4000
    evidence: Annotated[tuple[EvidenceType, ...], Meta(min_length=1)]


class MissionTable(Table, frozen=True, kw_only=True):
    """`[mission]`. With `request_changes` the MissionOwner sends the first submission back with these words."""

    name: Name
    title: Text500
    objective: Text10000
    coordinator: Name
    deadline_minutes: Minutes
    criterion: Annotated[tuple[Criterion, ...], Meta(min_length=1)]
    request_changes: Text4000 | None = None


class AgentTable(Table, frozen=True, kw_only=True):
    """`[[agent]]`. Skills are job types; none named means all."""

    name: Name
    slots: Annotated[int, Meta(ge=1, le=16)] = 1
    skills: tuple[str, ...] = ()


_confirmed: Final = Criterion(
    id="result-confirmed",
    description="The result is confirmed by a second computation and its content matches its hash",
    evidence=(EvidenceType.DETERMINISTIC_TEST, EvidenceType.ARTIFACT_INTEGRITY),
)


class WorkTable(Table, frozen=True, kw_only=True):
    """`[[work]]`: one WorkItem. `after` names those whose results are its inputs; `rework` waits for changes."""

    id: Name
    goal: Text10000
    candidates: Annotated[tuple[Name, ...], Meta(min_length=1)]
    job: dict[str, Any]
    after: tuple[Name, ...] = ()
    urgency: Urgency = Urgency.NORMAL
    impact: Text4000 = "Part of the Mission's result"
    deadline_minutes: Minutes | None = None
    criterion: tuple[Criterion, ...] = (_confirmed,)
    rework: bool = False


class MissionFile(Table, frozen=True, kw_only=True):
    """A whole file, checked. `job` tables are those of the Work Contract, with `inputFile` read in."""

    format: Literal[1]
    mission: MissionTable
    agent: Annotated[tuple[AgentTable, ...], Meta(min_length=2, max_length=agents_max)]
    work: Annotated[tuple[WorkTable, ...], Meta(min_length=1, max_length=work_items_max)]
