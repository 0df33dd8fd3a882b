"""`weavehold board`."""

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
from projections.mission_board.consumer import MissionBoard
from projections.mission_board.read_board import BoardMission, read_board


class Board(Struct, frozen=True, kw_only=True, rename="camel"):
    """What the projection shows, the Mission with the latest activity first."""

    organization_id: str
    missions: tuple[BoardMission, ...]
    stopped: tuple[StoppedGroup, ...]


def command(
    group: Annotated[str | None, typer.Option(help="Only this Group.")] = None,
    directory: DirectoryOption = default_directory,
    as_json: JsonOption = False,
) -> None:
    """Show every Mission with its state, Coordinator, WorkItems and last activity, as the projector has projected it.

    Reads the projector's file in WEAVEHOLD_PROJECTIONS_DIR or the stack's directory, or with
    WEAVEHOLD_PROJECTION_STORE=postgres its schema in WEAVEHOLD_PROJECTION_DATABASE_URL; neither authority nor broker is
    asked, so it shows what was projected last. `weavehold group show` asks the authority.

    \b
    Examples:
      weavehold board
      weavehold board --group urn:weavehold:group:website --json
    """
    board = _read(directory, group)
    print_result(board, as_json=as_json, people=lambda console: _show(console, board))


def _read(directory: Path, group_id: str | None) -> Board:
    """The board of one Group or of all. Raises CommandFault."""
    looked = look_at_projection(MissionBoard(), directory, group_id, read_board)
    missions = tuple(mission for mission in looked.seen if group_id in (None, mission.group_id))
    if group_id is not None and not missions:
        raise CommandFault(f"the board has no Group {group_id}; check the ID, or wait until it is projected")
    return Board(organization_id=looked.organization_id, missions=missions, stopped=looked.stopped)


def _show(console: Console, board: Board) -> None:
    # Identifiers are folded, not cut: one wants to copy them.
    headers = ("Mission and Group", "state", "Coordinator", "WorkItems", "history")
    table = Table(*(Column(header, overflow="fold") for header in headers), show_lines=True)
    for mission in board.missions:
        members = sum(member.state != "ended" for member in mission.members)
        work_items = (f"{count} {state}" for state, count in mission.work_items.items())
        table.add_row(
            _lines(mission.title or mission.mission_id, mission.group_id),
            _lines(mission.state),
            _lines(mission.coordinator_id, f"{members} members"),
            _lines(*work_items),
            _lines(f"{mission.last_sequence} Events", f"{mission.message_count} Messages", mission.last_activity_at),
        )
    console.print(table)
    for stop in board.stopped:
        console.print(line(f"{stop.group_id} stands before Event {stop.sequence}: {stop.reason}"))


def _lines(*values: object) -> Text:
    """Several values one below the other in one cell."""
    return Text("\n").join(cell(value) for value in values)
