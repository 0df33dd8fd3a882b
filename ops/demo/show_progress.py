"""Live progress of a demo on stderr: a table on a terminal, a line for each change elsewhere."""

import time
from collections.abc import Sequence
from types import TracebackType
from typing import Final, Self

from rich.console import Console, Group
from rich.live import Live
from rich.table import Table
from rich.text import Text

from ops.demo.conduct_mission import Conductor

told_lines_max: Final = 12
"""Lines of what happened that stay under the table."""


class Progress:
    """What the Missions do and what is done to the stack."""

    def __init__(self, console: Console) -> None:
        """`console` writes to stderr: stdout belongs to the result."""
        self._console = console
        self._began = time.monotonic()
        self._conductors: Sequence[Conductor] = ()
        self._told: list[str] = []
        self._shown: dict[str, str] = {}
        self._live = Live(console=console, auto_refresh=False, transient=True) if console.is_terminal else None

    def __enter__(self) -> Self:
        """Begin to show."""
        if self._live is not None:
            self._live.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, fault: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Show nothing more."""
        if self._live is not None:
            self._live.stop()

    def follow(self, conductors: Sequence[Conductor]) -> None:
        """Show these Missions from now on."""
        self._conductors = conductors

    def tell(self, line: str) -> None:
        """Say what happened."""
        stamped = f"{time.monotonic() - self._began:6.1f} s  {line}"
        self._told = [*self._told, stamped][-told_lines_max:]
        if self._live is None:
            self._console.print(stamped, soft_wrap=True, highlight=False)
        self._draw()

    def changed(self) -> None:
        """A Group has changed."""
        for conductor in self._conductors:
            for name, state in _states(conductor):
                if self._shown.get(name) != state:
                    self._shown[name] = state
                    if self._live is None:
                        self.tell(f"{name}: {state}")
        self._draw()

    def _draw(self) -> None:
        if self._live is None:
            return
        tables = [_table(conductor) for conductor in self._conductors]
        self._live.update(Group(*tables, *(Text(line) for line in self._told)), refresh=True)


def _states(conductor: Conductor) -> list[tuple[str, str]]:
    """The Mission and its WorkItems with their states."""
    mission = conductor.file.mission.name
    if not conductor.view.state.exists:
        return [(mission, "to be created")]
    states = [(mission, conductor.view.state.mission.state.value)]
    for item in conductor.file.work:
        record = conductor.view.state.work_item(conductor.mark.work_item_id(item.id))
        if record is not None:
            owner = record.item.owner.agent_id.rpartition(":")[2] if record.item.owner else ""
            states.append((f"{mission}/{item.id}", f"{record.item.state.value} {owner}".strip()))
    return states


def _table(conductor: Conductor) -> Table:
    table = Table("", "state", title=conductor.file.mission.title, title_justify="left", min_width=60)
    for name, state in _states(conductor):
        table.add_row(name.rpartition("/")[2], state)
    return table
