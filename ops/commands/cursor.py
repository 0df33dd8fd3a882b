"""`weavehold cursor show`."""

import asyncio
from pathlib import Path
from typing import Annotated, Final

import typer
from rich.console import Console
from rich.table import Table

from ops.cells import cell, line
from ops.command_fault import CommandFault, UsageFault
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
from ops.output import JsonOption, print_result
from ops.projection_file import NotAProjection
from ops.projection_place import place_called
from ops.running_stack import database_access
from services.process.database import connect

groups_shown_default: Final = 100
groups_shown_max: Final = 1_000
"""Groups that one call lists."""

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
