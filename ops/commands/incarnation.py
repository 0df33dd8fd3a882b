"""`weavehold incarnation show|open`."""

import asyncio
import sys
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.table import Table

from ops.cells import cell, line
from ops.command_fault import CommandFault, UsageFault
from ops.embedded.directory import default_directory
from ops.embedded.environment import DirectoryOption
from ops.incarnation.open_incarnation import OpenedReport, open_incarnation
from ops.incarnation.read_incarnations import IncarnationReport, read_incarnations
from ops.operator_key import operator_key
from ops.output import JsonOption, print_result
from ops.running_stack import broker_access, database_access
from services.process.broker import connect as connect_broker
from services.process.database import connect

reason_characters_max = 10_000

app = typer.Typer(
    add_completion=False,
    rich_markup_mode=None,
    no_args_is_help=True,
    help="""See which incarnations a history had, whether the database is in doubt, and decide how it goes on.

    \b
    Examples:
      weavehold incarnation show
      weavehold incarnation open --reason "restored the dump of 02:00"
    """,
)


@app.callback()
def _root() -> None:
    """Take no options before the subcommand."""


@app.command()
def show(directory: DirectoryOption = default_directory, as_json: JsonOption = False) -> None:
    """Show all incarnations and compare the database with the cluster it was founded on and with the broker.

    Exits with 1 when the database need not hold the whole history: then the authority accepts nothing, and
    `weavehold incarnation open` decides.

    \b
    Examples:
      weavehold incarnation show
      weavehold incarnation show --json
    """
    report = asyncio.run(_read(directory))
    print_result(report, as_json=as_json, people=lambda console: _show(console, report))
    if report.faults or report.unexamined:
        raise typer.Exit(1)


@app.command(name="open")
def open_(
    reason: Annotated[str, typer.Option(help="Why, for whoever reads the history: which restore, which failover.")],
    yes: Annotated[bool, typer.Option("--yes", help="Do not ask.")] = False,
    key: Annotated[Path | None, typer.Option(help="The operator's key file; by default the stack's.")] = None,
    directory: DirectoryOption = default_directory,
    as_json: JsonOption = False,
) -> None:
    """Declare that what the database holds is the history, and let it go on in a new incarnation.

    What only others have seen is given up: consumers find it out, rebuild those Groups, and report what they had seen
    (`weavehold cursor forks`). Every session, lease and epoch of before is fenced. A better copy of the database is to
    be restored before this, not after it.

    \b
    Examples:
      weavehold incarnation show
      weavehold incarnation open --reason "restored the dump of 02:00"
      weavehold incarnation open --reason "failover to db-2" --yes --json
    """
    if not reason.strip() or len(reason) > reason_characters_max:
        raise UsageFault(f"--reason has 1 to {reason_characters_max} characters; say what was restored, and why")
    signer = operator_key(directory, key)
    report = asyncio.run(_read(directory))
    if not yes:
        _confirm(report)
    opened = asyncio.run(open_incarnation(broker_access(directory), signer, report, reason))
    print_result(opened, as_json=as_json, people=lambda console: _show_opened(console, opened))


async def _read(directory: Path) -> IncarnationReport:
    access, at = database_access(directory), broker_access(directory)
    async with AsyncExitStack() as stack:
        connection = await connect(access.url, name="weavehold-incarnation")
        stack.push_async_callback(connection.close)
        broker = await connect_broker(at.url, name="weavehold-incarnation", credentials=at.credentials)
        stack.push_async_callback(broker.close)
        report = await read_incarnations(connection, broker, access.organization_id)
    if not report.incarnations:
        raise CommandFault(f"{access.organization_id} has no incarnation; run weavehold init")
    return report


def _confirm(report: IncarnationReport) -> None:
    """Ask on a terminal; without one nobody could answer."""
    if not sys.stdin.isatty():
        raise UsageFault("an incarnation is opened for good and nobody can be asked here; say --yes")
    for fault in report.faults or ("nothing speaks against this database",):
        typer.echo(fault, err=True)
    if not typer.confirm("Give up whatever this database does not hold, for good?", err=True):
        raise CommandFault("no incarnation was opened")


def _show(console: Console, report: IncarnationReport) -> None:
    table = Table("no.", "incarnation", "opened", "reason", "shares its parent's log up to")
    for each in report.incarnations:
        forks = ", ".join(f"shard {fork.shard_id}: {fork.position}" for fork in each.forks)
        table.add_row(*(cell(value) for value in (each.ordinal, each.incarnation, each.opened_at, each.reason, forks)))
    console.print(table)
    if report.evidence is not None:
        ends = Table("shard", "log ends at", "stream ends at", title="The database against the broker")
        for shard in report.evidence.shards:
            ends.add_row(*(cell(value) for value in (shard.shard_id, shard.log, shard.stream)))
        console.print(ends)
    for fault in report.faults:
        console.print(line(fault))
    if report.faults:
        console.print(line("restore a better copy, or go on from this one: weavehold incarnation open --reason …"))
    elif report.unexamined:
        console.print(line(f"nothing was compared: {report.unexamined}"))
    else:
        console.print(line("the database holds the whole history, as far as its cluster and the broker can tell"))


def _show_opened(console: Console, opened: OpenedReport) -> None:
    [event] = opened.receipt.events
    console.print(line(f"a new incarnation follows {opened.followed}; its first Event is {event.event_id}"))
    console.print(
        line("see it with `weavehold incarnation show`, and what consumers lost with `weavehold cursor forks`")
    )
