"""`weavehold consumer`: the projections of a stack, listed here; each other subcommand has a module of its own."""

import asyncio
from pathlib import Path

import typer
from msgspec import Struct
from rich.console import Console
from rich.table import Table

from ops.cells import cell, line
from ops.command_fault import CommandFault
from ops.commands import consumer_new, consumer_rebuild, consumer_rows, consumer_verify
from ops.consumers.list_consumers import ConsumerLine, list_consumers
from ops.embedded.directory import default_directory
from ops.embedded.environment import DirectoryOption
from ops.output import JsonOption, print_result
from ops.projection_file import NotAProjection
from ops.projection_place import command_name, projection_places
from ops.running_stack import database_access
from services.process.database import connect

app = typer.Typer(
    add_completion=False,
    rich_markup_mode=None,
    no_args_is_help=True,
    help="""Projections: make one, see its rows, whether they equal their history, rebuild them beside the live version.

    \b
    Examples:
      weavehold consumer list
      weavehold consumer rows mission_board
    """,
)


app.command("new")(consumer_new.command)
app.command("rows")(consumer_rows.command)
app.command("verify")(consumer_verify.command)
app.command("rebuild")(consumer_rebuild.command)


@app.callback()
def _root() -> None:
    """Take no options before the subcommand."""


class _Listed(Struct, frozen=True, rename="camel"):
    organization_id: str
    consumers: tuple[ConsumerLine, ...]


@app.command("list")
def list_command(directory: DirectoryOption = default_directory, as_json: JsonOption = False) -> None:
    """List the projections of the stack: version, place, Groups, Events, how far behind, stopped, rebuilt or not.

    Exits with 1 when one cannot be read, has a stopped Group, or stands on another history than the authority's.

    \b
    Examples:
      weavehold consumer list
      weavehold consumer list --json
    """
    listed = asyncio.run(_list(directory))
    print_result(listed, as_json=as_json, people=lambda console: _show(console, listed))
    if any(each.problem or each.stopped or each.findings for each in listed.consumers):
        raise typer.Exit(1)


async def _list(directory: Path) -> _Listed:
    access = database_access(directory)
    try:
        places = projection_places(directory)
    except NotAProjection as fault:
        raise CommandFault(str(fault)) from fault
    connection = await connect(access.url, name="weavehold-consumer")
    try:
        return _Listed(access.organization_id, await list_consumers(connection, access.organization_id, places))
    finally:
        await connection.close()


def _show(console: Console, listed: _Listed) -> None:
    table = Table("consumer", "version", "Groups", "Events", "behind", "stopped", "state", "place")
    for each in listed.consumers:
        name = command_name(each.name, each.place) if each.name else None
        called = name if name == each.name else f"{name} ({each.name})"
        counts = (each.groups, each.events, each.behind, each.stopped)
        table.add_row(*(cell(value) for value in (called, each.version, *counts, each.state, each.place)))
    console.print(table)
    for each in listed.consumers:
        if each.problem:
            console.print(line(f"{each.place}: {each.problem}"))
        if each.findings:
            console.print(line(f"{each.place}: {each.findings} Cursors are not on this history"))
