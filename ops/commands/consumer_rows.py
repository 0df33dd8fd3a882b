"""`weavehold consumer rows`."""

from itertools import islice
from typing import Annotated, Any, Final

import typer
from msgspec import Struct
from rich.console import Console
from rich.table import Column, Table

from ops.cells import cell, line
from ops.command_fault import CommandFault
from ops.consumers.find_projection import find_projection
from ops.embedded.directory import default_directory
from ops.embedded.environment import DirectoryOption
from ops.output import JsonOption, print_result
from ops.projection_file import NotAProjection, OpenedProjection
from ops.projection_place import open_place
from projections.digest import plain

rows_shown_default: Final = 100
rows_shown_max: Final = 10_000
"""Rows of one table that one call prints."""


class TableRows(Struct, frozen=True, kw_only=True):
    """Rows of one table of a consumer, Group after Group; `more` tells whether there are others."""

    table: str
    columns: tuple[str, ...]
    rows: tuple[tuple[Any, ...], ...]
    more: bool


class ConsumerRows(Struct, frozen=True, kw_only=True, rename="camel"):
    """What a projection holds, at its version."""

    organization_id: str
    consumer: str
    version: int
    tables: tuple[TableRows, ...]


def command(
    name: Annotated[str, typer.Argument(help="A consumer, such as mission_board, a Worker, or a SQLite file.")],
    group: Annotated[str | None, typer.Option(metavar="ID", help="Only this Group.")] = None,
    limit: Annotated[int, typer.Option(min=1, max=rows_shown_max, help="Rows of each table at most.")] = (
        rows_shown_default
    ),
    directory: DirectoryOption = default_directory,
    as_json: JsonOption = False,
) -> None:
    """Show the rows of any projection as they lie in its store, table by table.

    \b
    Examples:
      weavehold consumer rows mission_board
      weavehold consumer rows ada
      weavehold consumer rows usage_report --group urn:weavehold:group:website --json
      weavehold consumer rows .weavehold/workers/ada.sqlite
    """
    place = find_projection(name, directory)
    try:
        with open_place(place) as opened:
            found = _read(opened, group, limit)
    except NotAProjection as fault:
        raise CommandFault(f"{fault}; `weavehold consumer list` shows the projections that there are") from fault
    print_result(found, as_json=as_json, people=lambda console: _show(console, found))


def _read(opened: OpenedProjection, group_id: str | None, limit: int) -> ConsumerRows:
    groups = [cursor.group_id for cursor in opened.snapshot.cursors() if group_id in (None, cursor.group_id)]
    if group_id is not None and not groups:
        raise CommandFault(
            f"{opened.consumer.name} has no Group {group_id}; check the ID, or wait until it is projected"
        )
    tables = tuple(_table(opened, table, sorted(groups), limit) for table in opened.consumer.tables)
    return ConsumerRows(
        organization_id=opened.organization_id,
        consumer=opened.consumer.name,
        version=opened.consumer.version,
        tables=tables,
    )


def _table(opened: OpenedProjection, table: str, groups: list[str], limit: int) -> TableRows:
    # Without a Group the columns are those that no row has.
    columns, _ = opened.snapshot.rows(table, "")
    rows = (tuple(map(plain, row)) for group in groups for row in opened.snapshot.rows(table, group)[1])
    shown = tuple(islice(rows, limit))
    return TableRows(table=table, columns=columns, rows=shown, more=next(rows, None) is not None)


def _show(console: Console, found: ConsumerRows) -> None:
    for table in found.tables:
        # Identifiers are folded, not cut: one wants to copy them.
        shown = Table(*(Column(name, overflow="fold") for name in table.columns), title=table.table)
        for row in table.rows:
            shown.add_row(*map(cell, row))
        console.print(shown)
        if table.more:
            console.print(line(f"{table.table} has more rows: give a --group or a higher --limit"))
