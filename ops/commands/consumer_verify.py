"""`weavehold consumer verify`."""

import asyncio
from pathlib import Path
from typing import Annotated, Final

import typer
from rich.console import Console
from rich.table import Table

from ops.cells import cell, line
from ops.command_fault import CommandFault
from ops.consumers.find_projection import find_projection
from ops.consumers.row_differences import RowDifference
from ops.consumers.verify_consumer import VerifyReport, verify_consumer
from ops.embedded.directory import default_directory
from ops.embedded.environment import DirectoryOption
from ops.output import JsonOption, print_result
from ops.projection_file import NotAProjection
from ops.running_stack import database_access
from services.process.database import Timeouts, connect

groups_shown_max: Final = 200
"""Groups in the table for people; --json has all."""


def command(
    name: Annotated[str, typer.Argument(metavar="NAME", help="A consumer, a projection's file, or a Worker.")],
    group: Annotated[list[str] | None, typer.Option(help="Only this Group. May be repeated.")] = None,
    directory: DirectoryOption = default_directory,
    as_json: JsonOption = False,
) -> None:
    """Prove that a projection equals a replay of the log up to its own Cursors, digest for digest; exit 1 if not.

    Its process may go on meanwhile. Rows that differ are shown with table, key, live and replayed values (the first
    50); `weavehold consumer rebuild` repairs them.

    \b
    Examples:
      weavehold consumer verify mission_board
      weavehold consumer verify mission_board --group urn:weavehold:group:website --json
      weavehold consumer verify .weavehold/workers/worker-a.sqlite
    """
    report = asyncio.run(_verify(name, group or [], directory))
    print_result(report, as_json=as_json, people=lambda console: _show(console, report))
    if not report.ok:
        raise typer.Exit(1)


async def _verify(name: str, group_ids: list[str], directory: Path) -> VerifyReport:
    place, access = find_projection(name, directory), database_access(directory)
    connection = await connect(access.url, name="weavehold-consumer", timeouts=Timeouts(statement=0))
    try:
        report = await verify_consumer(connection, access.organization_id, place, group_ids)
    except NotAProjection as fault:
        raise CommandFault(str(fault)) from fault
    finally:
        await connection.close()
    missing = set(group_ids) - {verdict.group_id for verdict in report.groups}
    if missing:
        raise CommandFault(f"{place} has no Group {min(missing)}; check the ID, or wait until it is projected")
    return report


def _show(console: Console, report: VerifyReport) -> None:
    table = Table("Group", "Cursor", "verdict", "live digest")
    for each in report.groups[:groups_shown_max]:
        values = (each.group_id, each.sequence, each.problem or "equal", each.live_digest)
        table.add_row(*(cell(value) for value in values))
    console.print(table)
    for difference in report.differences:
        console.print(line(_words(difference)))
    if report.found > len(report.differences):
        console.print(line(f"{report.found - len(report.differences)} more rows differ"))
    verdict = "equals its replay" if report.ok else "does not equal its replay"
    console.print(line(f"{report.name} {verdict}: {len(report.groups)} Groups"))
    if report.standing:
        stand = "1 Group stands" if len(report.standing) == 1 else f"{len(report.standing)} Groups stand"
        console.print(line(f"{stand} before an Event that cannot be applied: weavehold quarantine list"))


def _words(difference: RowDifference) -> str:
    key = ", ".join(f"{column} {value}" for column, value in difference.key.items())
    return f"{difference.table} ({key}): live {difference.live}, replayed {difference.replayed}"
