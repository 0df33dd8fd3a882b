"""`weavehold verify`."""

import asyncio
from pathlib import Path
from typing import Annotated, Any

import msgspec
import typer
from rich.console import Console
from rich.table import Table

from ops.cells import cell, line
from ops.command_fault import CommandFault
from ops.embedded.directory import default_directory
from ops.embedded.environment import DirectoryOption
from ops.output import JsonOption, print_result
from ops.projection_file import NotAProjection
from ops.projection_place import place_called, projection_places
from ops.running_stack import broker_access, database_access
from ops.verify.finding import Finding, Report
from ops.verify.run import verify_all


def command(
    projection: Annotated[
        list[str] | None,
        typer.Option(help="A consumer, such as mission_board, or a SQLite file; by default all. May be repeated."),
    ] = None,
    stream: Annotated[bool, typer.Option("--stream/--no-stream", help="Compare the streams at the broker too.")] = True,
    directory: DirectoryOption = default_directory,
    as_json: JsonOption = False,
) -> None:
    """Prove that log, chain, signatures, Receipts, stream, stored state and projections agree; exit 1 if not.

    Run it while nothing is being accepted: what is on its way shows as a lag.

    \b
    Examples:
      weavehold verify
      weavehold verify --json
      weavehold verify --no-stream --projection worker-a.sqlite
    """
    report = asyncio.run(_verify(directory, projection, stream))
    print_result(described(report), as_json=as_json, people=lambda console: show(console, report))
    if not report.ok:
        raise typer.Exit(1)


async def _verify(directory: Path, projections: list[str] | None, stream: bool) -> Report:
    database = database_access(directory)
    broker = broker_access(directory) if stream else None
    try:
        places = (
            projection_places(directory)
            if projections is None
            else [place_called(called, directory) for called in projections]
        )
    except NotAProjection as fault:
        raise CommandFault(str(fault)) from fault
    return await verify_all(
        database.url,
        database.organization_id,
        nats_url=None if broker is None else broker.url,
        nats_credentials=None if broker is None else broker.credentials,
        projections=places,
    )


def described(report: Report) -> dict[str, Any]:
    """The report as one JSON object: `ok`, what was examined per check, kinds passed over, and the findings."""
    return {
        "ok": report.ok,
        "examined": report.examined,
        "passedOver": report.passed_over,
        "found": report.found,
        "findings": [msgspec.to_builtins(finding) for finding in report.findings],
    }


def _place(finding: Finding) -> str:
    """Where a finding is, in words."""
    group = None if finding.group_id is None else f"Group {finding.group_id}"
    shard = None if finding.shard_id is None or group else f"shard {finding.shard_id}"
    sequence = None if finding.sequence is None else f"sequence {finding.sequence}"
    position = None if finding.position is None or sequence else f"position {finding.position}"
    return ", ".join(part for part in (group, shard, sequence, position) if part)


def show(console: Console, report: Report) -> None:
    """The report as tables."""
    table = Table("check", "examined", "findings")
    found = report.by_check()
    for check in dict.fromkeys([*report.examined, *found]):
        table.add_row(cell(check), cell(report.examined.get(check, 0)), cell(found[check]))
    console.print(table)
    for kind, events in sorted(report.passed_over.items()):
        console.print(line(f"passed over: {events} of {kind}, which this version does not know"))
    for finding in report.findings:
        console.print(line(": ".join(part for part in (finding.check, _place(finding), finding.message) if part)))
    console.print(cell("everything agrees" if report.ok else f"{report.found} findings"))
