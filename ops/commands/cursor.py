"""`weavehold cursor show|forks`."""

import asyncio
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated, Final

import typer
from rich.console import Console
from rich.table import Table

from contracts.timestamps import format_timestamp
from ops.acknowledge_forks import acknowledge_forks
from ops.cells import cell, line
from ops.command_fault import CommandFault, UsageFault
from ops.consumers.find_projection import find_projection
from ops.cursor_report import (
    CursorLine,
    CursorReport,
    GroupLine,
    judge_cursors,
    read_groups,
    read_projection,
)
from ops.embedded.directory import default_directory
from ops.embedded.environment import DirectoryOption
from ops.fork_report import ForkLine, ForkReport, report_forks
from ops.output import JsonOption, print_result
from ops.projection_file import NotAProjection
from ops.projection_place import ProjectionPlace, command_name, place_called, projection_places
from ops.running_stack import database_access
from ops.who_and_why import who_and_why
from projections.store import ForkAcknowledgement
from services.process.database import connect

groups_shown_default: Final = 100
groups_shown_max: Final = 1_000
"""Groups that one call lists."""
lost_shown_max: Final = 12
"""Lost Events of one fork that people are shown; all of them come with --json."""

app = typer.Typer(
    add_completion=False, rich_markup_mode=None, no_args_is_help=True, help="How far everyone is in every Group."
)


@app.callback()
def _root() -> None:
    """Take no options before the subcommand."""


@app.command()
def show(
    group: Annotated[str | None, typer.Option(help="Only this Group.")] = None,
    projection: Annotated[
        str | None,
        typer.Option(
            help="A consumer, such as mission_board, or a SQLite file, to compare its Cursors with the authority."
        ),
    ] = None,
    after: Annotated[str, typer.Option(help="Only Groups whose IDs come after this one.")] = "",
    limit: Annotated[int, typer.Option(min=1, max=groups_shown_max, help="Groups at most.")] = groups_shown_default,
    directory: DirectoryOption = default_directory,
    as_json: JsonOption = False,
) -> None:
    """Show each Group's head and how far Principals acknowledged it; with --projection a local one's Cursors too.

    Exits with 1 when a Cursor of the projection is not on the authority's history (fork, ahead, unknown Group).

    \b
    Examples:
      weavehold cursor show
      weavehold cursor show --group urn:weavehold:group:website --json
      weavehold cursor show --projection worker-a/work_queue.sqlite
      weavehold cursor show --projection mission_board
    """
    report = asyncio.run(_read(directory, group, projection, after, limit))
    print_result(report, as_json=as_json, people=lambda console: _show(console, report))
    if any(cursor.verdict.is_finding for cursor in report.projection or ()):
        raise typer.Exit(1)


@app.command()
def forks(
    projection: Annotated[
        list[str] | None,
        typer.Option(help="Only this one: a consumer, a Worker, or a SQLite file. May be given several times."),
    ] = None,
    group: Annotated[list[str] | None, typer.Option(help="Only this Group. May be given several times.")] = None,
    acknowledge: Annotated[
        str | None,
        typer.Option(help='"WHO: WHY": put on record that the losses shown here have been dealt with.'),
    ] = None,
    directory: DirectoryOption = default_directory,
    as_json: JsonOption = False,
) -> None:
    """Show what consumers had applied and the authority lost: which Events, when it was noticed, whether it is mended.

    A consumer records a fork when the history does not continue what it applied: the authority was restored to an
    earlier point, or a Group was lost as a whole. It then rebuilds that Group by itself. What the lost Events had
    caused elsewhere is yours to judge; --acknowledge records, once and for good, who did and why.

    Exits with 1 while a fork is not acknowledged, a Cursor contradicts the history and its consumer has not noticed,
    or a projection cannot be read.

    \b
    Examples:
      weavehold cursor forks
      weavehold cursor forks --projection mission_board --json
      weavehold cursor forks --group urn:weavehold:group:website
      weavehold cursor forks --acknowledge "ada: restored the dump of 02:00, customers told"
    """
    given = None if acknowledge is None else _acknowledgement(acknowledge)
    report = asyncio.run(_forks(directory, projection or (), group or (), given))
    print_result(report, as_json=as_json, people=lambda console: _show_forks(console, report))
    if not report.is_settled:
        raise typer.Exit(1)


def _acknowledgement(text: str) -> ForkAcknowledgement:
    """Who and why. Raises UsageFault."""
    who, why = who_and_why("--acknowledge", text, "ada: restored the dump of 02:00, customers told")
    return ForkAcknowledgement(who, why, format_timestamp(datetime.now(UTC)))


async def _forks(
    directory: Path, projections: Sequence[str], group_ids: Sequence[str], given: ForkAcknowledgement | None
) -> ForkReport:
    access = database_access(directory)
    places: list[ProjectionPlace] = [find_projection(called, directory) for called in projections]
    try:
        places = places or projection_places(directory)
    except NotAProjection as fault:
        raise CommandFault(str(fault)) from fault
    connection = await connect(access.url, name="weavehold-cursor")
    try:
        report = await report_forks(connection, access.organization_id, places, group_ids)
        if given is not None:
            acknowledge_forks(places, report.forks, given)
            report = await report_forks(connection, access.organization_id, places, group_ids)
    finally:
        await connection.close()
    return report


async def _read(directory: Path, group_id: str | None, projection: str | None, after: str, limit: int) -> CursorReport:
    access = database_access(directory)
    try:
        cursors = None if projection is None else read_projection(place_called(projection, directory))
    except NotAProjection as fault:
        raise UsageFault(str(fault)) from fault
    connection = await connect(access.url, name="weavehold-cursor")
    try:
        groups, following = await read_groups(connection, access.organization_id, group_id, after, limit)
        if group_id is not None and not groups:
            raise CommandFault(f"{access.organization_id} has no Group {group_id}; check the ID")
        lines = None
        if cursors is not None:
            wanted = [cursor for cursor in cursors if group_id in (None, cursor.group_id)]
            lines = await judge_cursors(connection, access.organization_id, wanted)
    finally:
        await connection.close()
    return CursorReport(groups=groups, next=None if group_id else following, projection=lines)


def _show(console: Console, report: CursorReport) -> None:
    console.print(_groups_table(report.groups))
    if report.next is not None:
        console.print(line(f"more follows: --after {report.next}"))
    if report.projection is not None:
        console.print(_projection_table(report.projection))


def _groups_table(groups: tuple[GroupLine, ...]) -> Table:
    table = Table("Group", "shard", "head", "Principal", "acknowledged", "behind", "at")
    for group in groups:
        place = (group.group_id, group.shard_id, group.head.sequence)
        table.add_row(*(cell(value) for value in place))
        for each in group.acknowledged:
            told = (None, None, None, each.principal, each.sequence, each.behind, each.acknowledged_at)
            table.add_row(*(cell(value) for value in told))
    return table


def _projection_table(cursors: tuple[CursorLine, ...]) -> Table:
    table = Table("Group", "Cursor", "behind", "verdict", "incarnation", title="Cursors of the projection")
    for each in cursors:
        values = (each.group_id, each.sequence, each.behind, each.verdict.value, each.incarnation)
        table.add_row(*(cell(value) for value in values))
    return table


def _show_forks(console: Console, report: ForkReport) -> None:
    table = Table(
        "consumer", "No.", "Group", "noticed", "applied", "found", "lost", "now", "acknowledged", title="Forks"
    )
    for fork in report.forks:
        given, called = fork.acknowledged, _called(fork)
        values = (called, fork.number, fork.group_id, fork.noticed_at, fork.seen.sequence, fork.found.sequence)
        told = "no" if given is None else f"{given.who}: {given.why}"
        table.add_row(*(cell(value) for value in (*values, _lost(fork), _now(fork), told)))
    console.print(table if report.forks else line("no fork is on record"))
    for fork in report.forks:
        for event in fork.lost[:lost_shown_max]:
            console.print(line(f"{_called(fork)} No. {fork.number} lost {event.sequence} {event.event_id}"))
        if len(fork.lost) > lost_shown_max:
            rest = len(fork.lost) - lost_shown_max
            console.print(line(f"{_called(fork)} No. {fork.number} lost {rest} more, all of them with --json"))
    for each in report.unnoticed:
        place = f"{each.projection}: {each.cursor.group_id} at {each.cursor.sequence}"
        console.print(line(f"{place} is not on the history ({each.cursor.verdict.value}), unnoticed by its consumer"))
    for each in report.kept:
        place = f"{each.projection}: {each.cursor.group_id} at {each.cursor.sequence}"
        console.print(line(f"{place} is kept, though the authority has no such Group"))
    for unread in report.unreadable:
        console.print(line(f"{unread.projection}: {unread.problem}"))


def _called(fork: ForkLine) -> str:
    """How the commands take its projection."""
    return command_name(fork.consumer, fork.projection)


def _lost(fork: ForkLine) -> str:
    """How many Events were lost, and which sequences."""
    if fork.lost_count is None:
        return f"{len(fork.lost)} or more, from {fork.lost[0].sequence} or before" if fork.lost else "not known"
    return f"{fork.lost_count}: {fork.seen.sequence - fork.lost_count + 1} to {fork.seen.sequence}"


def _now(fork: ForkLine) -> str:
    return f"{fork.mended.value}, {fork.behind} behind" if fork.behind else fork.mended.value
