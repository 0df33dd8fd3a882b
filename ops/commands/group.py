"""`weavehold group show` and `weavehold group events`."""

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Annotated, Any, Final

import msgspec
import typer
from msgspec import UNSET
from psycopg import AsyncConnection
from rich.console import Console
from rich.table import Table

from contracts.bounds import replay_page_events_max
from contracts.event import Event
from contracts.payloads.requests import GroupPage, GroupReplay, ReplayedEvent
from contracts.rejection import Rejection
from contracts.service_principals import operator
from ops.cells import cell, line, time_left
from ops.command_fault import CommandFault
from ops.embedded.directory import default_directory
from ops.embedded.environment import DirectoryOption
from ops.group_report import GroupReport, read_group
from ops.output import JsonOption, print_result
from ops.running_stack import database_access
from services.authority.serve_replay import serve_group_replay
from services.process.database import connect

events_shown_default: Final = 50
events_shown_max: Final = 10_000
"""Events that one call prints."""
rows_shown_max: Final = 200
"""Rows of one table for people; --json has all."""

app = typer.Typer(
    add_completion=False, rich_markup_mode=None, no_args_is_help=True, help="Look at one Group: its state, its Events."
)
GroupArgument = Annotated[str, typer.Argument(metavar="GROUP", help="The Group's ID.")]


@app.command()
def show(group: GroupArgument, directory: DirectoryOption = default_directory, as_json: JsonOption = False) -> None:
    """Show a Group as it is now: Mission, members, WorkItems, running leases with the time left, head.

    Exits with 1 when there is no such Group.

    \b
    Examples:
      weavehold group show urn:weavehold:group:website
      weavehold group show urn:weavehold:group:website --json
    """

    async def read(connection: AsyncConnection[Any], organization_id: str) -> GroupReport:
        report = await read_group(connection, organization_id, group)
        if report is None:
            raise CommandFault(f"{organization_id} has no Group {group}; check the ID")
        return report

    report = asyncio.run(_with_database(directory, read))
    print_result(report, as_json=as_json, people=lambda console: _show_report(console, report))


@app.command()
def events(
    group: GroupArgument,
    after: Annotated[int, typer.Option(min=0, help="Only Events with a higher sequence.")] = 0,
    limit: Annotated[int, typer.Option(min=1, max=events_shown_max, help="Events at most.")] = events_shown_default,
    directory: DirectoryOption = default_directory,
    as_json: JsonOption = False,
) -> None:
    """List a Group's Events in order, as they are in the log. With --json each Event has its signed bytes' members.

    The answer's `next` is the following --after, null at the head. Exits with 1 when there is no such Group.

    \b
    Examples:
      weavehold group events urn:weavehold:group:website
      weavehold group events urn:weavehold:group:website --after 120 --limit 1000 --json
    """

    async def read(connection: AsyncConnection[Any], organization_id: str) -> GroupPage:
        return await _read_events(connection, organization_id, group, after, limit)

    page = asyncio.run(_with_database(directory, read))
    print_result(page, as_json=as_json, people=lambda console: _show_events(console, page))


async def _with_database[T](directory: Path, read: Callable[[AsyncConnection[Any], str], Awaitable[T]]) -> T:
    access = database_access(directory)
    connection = await connect(access.url, name="weavehold-group")
    try:
        return await read(connection, access.organization_id)
    finally:
        await connection.close()


async def _read_events(
    connection: AsyncConnection[Any], organization_id: str, group_id: str, after: int, limit: int
) -> GroupPage:
    """Up to `limit` Events, page by page."""
    found: list[ReplayedEvent] = []
    following: int | None = after
    while True:
        asked = GroupReplay(
            group_id=group_id, after=following or 0, limit_events=min(limit - len(found), replay_page_events_max)
        )
        # Whoever may reach the database is an operator.
        page = await serve_group_replay(connection, organization_id, operator, asked)
        if isinstance(page, Rejection):
            raise CommandFault(f"{organization_id} has no Group {group_id}; check the ID")
        found.extend(page.events)
        following = page.next
        if following is None or len(found) >= limit:
            return GroupPage(events=tuple(found), next=following, head=page.head)


def _show_report(console: Console, report: GroupReport) -> None:
    console.print(line(f"Group {report.group_id} in shard {report.shard_id}, read at {report.read_at}"))
    console.print(line(f"head  sequence {report.head.sequence}, chain hash {report.head.chain_hash}"))
    console.print(line(f"      incarnation {report.head.incarnation}"))
    console.print(line("holds " + ", ".join(f"{kind} {amount}" for kind, amount in sorted(report.entities.items()))))
    if report.mission is None and "key" in report.entities:
        console.print("This is the history of the key registry; `weavehold keys show` tells how the keys stand.")
    if report.mission is not None:
        mission = report.mission
        console.print(line(f"\u25b8 {mission.title} ({mission.mission_id})"))
        console.print(line(f"  {mission.state}, revision {mission.revision}, due {mission.deadline}"))
        console.print(line(f"  owner {mission.mission_owner}"))
        console.print(line(f"  Coordinator {mission.coordinator}, epoch {mission.coordinator_epoch}"))
    _print_rows(
        console,
        ("member", "role", "state", "epoch", "visible after"),
        [(m.principal, m.role, m.state, m.membership_epoch, m.visibility_start_sequence) for m in report.members],
    )
    _print_rows(
        console,
        ("WorkItem", "state", "owner", "epoch", "Artifacts", "goal"),
        [(w.work_item_id, w.state, w.owner, w.ownership_epoch, w.artifacts, w.goal) for w in report.work_items],
    )
    _print_rows(
        console,
        ("lease", "holder", "session", "WorkItem", "time"),
        [(x.lease_type, x.holder, x.session_epoch, x.work_item_id, time_left(x.seconds_left)) for x in report.leases],
    )


def _print_rows(console: Console, columns: tuple[str, ...], rows: list[tuple[object, ...]]) -> None:
    if not rows:
        return
    table = Table(*columns)
    for row in rows[:rows_shown_max]:
        table.add_row(*(cell(value) for value in row))
    console.print(table)
    if len(rows) > rows_shown_max:
        console.print(f"… and {len(rows) - rows_shown_max} more: use --json")


def _show_events(console: Console, page: GroupPage) -> None:
    table = Table("sequence", "occurred at", "kind", "actor", "WorkItem", "Event ID")
    for replayed in page.events:
        event = msgspec.json.decode(replayed.event, type=Event)
        work_item = None if event.work_item_id is UNSET else event.work_item_id
        cells = (event.group_sequence, event.occurred_at, event.kind, event.actor.id, work_item, event.event_id)
        table.add_row(*(cell(value) for value in cells))
    console.print(table)
    console.print(line(f"head at sequence {page.head.sequence}"))
    if page.next is not None:
        console.print(f"more follows: --after {page.next}")
