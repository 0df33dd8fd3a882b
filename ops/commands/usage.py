"""`weavehold usage`."""

from pathlib import Path
from typing import Annotated

import typer
from msgspec import Struct
from rich.console import Console
from rich.table import Column, Table
from rich.text import Text

from ops.cells import cell, line
from ops.command_fault import CommandFault
from ops.embedded.directory import default_directory
from ops.embedded.environment import DirectoryOption
from ops.look_at_projection import StoppedGroup, look_at_projection
from ops.output import JsonOption, print_result
from projections.usage_report.consumer import UsageReport
from projections.usage_report.read_usage import Budget, MissionUsage, Outcomes, read_usage


class Totals(Struct, frozen=True, kw_only=True):
    """Over all Missions that are shown."""

    missions: int
    budget: Budget
    outcomes: Outcomes


class UsageShown(Struct, frozen=True, kw_only=True, rename="camel"):
    """The Organization's Missions and their totals."""

    organization_id: str
    missions: tuple[MissionUsage, ...]
    totals: Totals
    stopped: tuple[StoppedGroup, ...]


def command(
    group: Annotated[str | None, typer.Option(metavar="ID", help="Only this Group.")] = None,
    directory: DirectoryOption = default_directory,
    as_json: JsonOption = False,
) -> None:
    """Show what each Mission may spend, what its Work Contracts reserve of it, what is left, and what came of it.

    Six dimensions: money (exact, as decimal text, by currency), model tokens, tool calls, compute seconds, wall-clock
    seconds, external side effects. A WorkItem that failed or was cancelled gives its reservation back. What was really
    spent no Event says yet. Reads the projection usage_report where the projector keeps it, so it shows what was
    projected last; neither authority nor broker is asked.

    \b
    Examples:
      weavehold usage
      weavehold usage --group urn:weavehold:group:website --json
    """
    shown = _read(directory, group)
    print_result(shown, as_json=as_json, people=lambda console: _show(console, shown))


def _read(directory: Path, group_id: str | None) -> UsageShown:
    looked = look_at_projection(UsageReport(), directory, group_id, lambda snapshot: read_usage(snapshot, group_id))
    usage = looked.seen
    if group_id is not None and not usage.missions:
        raise CommandFault(f"the report has no Group {group_id}; check the ID, or wait until it is projected")
    return UsageShown(
        organization_id=looked.organization_id,
        missions=usage.missions,
        totals=Totals(missions=len(usage.missions), budget=usage.budget, outcomes=usage.outcomes),
        stopped=looked.stopped,
    )


def _show(console: Console, shown: UsageShown) -> None:
    # Identifiers are folded, not cut: one wants to copy them.
    headers = ("Mission and Group", "dimension", "limit", "reserved", "left", "WorkItems", "happened")
    table = Table(*(Column(header, overflow="fold") for header in headers), show_lines=True)
    for mission in shown.missions:
        _add_row(table, _lines(mission.title or mission.mission_id, mission.group_id, mission.state), mission)
    if len(shown.missions) > 1:
        _add_row(table, _lines(f"all {len(shown.missions)} Missions"), shown.totals)
    console.print(table)
    for stop in shown.stopped:
        console.print(line(f"{stop.group_id} stands before Event {stop.sequence}: {stop.reason}"))


def _add_row(table: Table, named: Text, usage: MissionUsage | Totals) -> None:
    amounts: list[tuple[str | None, ...]] = [
        (money.currency, money.limit, money.reserved, money.remaining) for money in usage.budget.money
    ]
    amounts += [
        (counted.dimension, *(_shown(value) for value in (counted.limit, counted.reserved, counted.remaining)))
        for counted in usage.budget.counted
        if counted.limit is not None or counted.reserved
    ]
    outcomes = usage.outcomes
    table.add_row(
        named,
        *(_lines(*column) for column in zip(*amounts, strict=True)) if amounts else [""] * 4,
        _lines(*(f"{count} {state}" for state, count in outcomes.work_items.items())),
        _lines(
            f"{outcomes.messages} Messages",
            f"{outcomes.checkpoints} checkpoints",
            f"{outcomes.late_results} late results",
        ),
    )


def _shown(amount: int | None) -> str | None:
    return None if amount is None else f"{amount:,}"


def _lines(*values: object) -> Text:
    """Several values one below the other in one cell; what is not stated is a dash."""
    return Text("\n").join(cell("–" if value is None else value) for value in values)
