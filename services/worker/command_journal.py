"""Commands of a Worker that are not settled yet, in its own database: the bytes first, then the sending.

A row exists from before a Command's first sending until its final answer. What a crash leaves behind is therefore at
most Commands of unknown outcome, each with its exact bytes: sent again unchanged they get their Receipt, or are
accepted now, or are refused because the session has been replaced meanwhile. Events alone decide what is true; a lost
journal costs only that knowledge, since Action IDs are derived from the step and a repeated step collides.
"""

import asyncio
import sqlite3
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, Final

from projections.store.sqlite import busy_seconds
from services.agent.sign_command import SignedCommand
from services.process.statements import load

_sql: Final = load(__package__)


class CommandJournal:
    """One connection in one thread; every statement is a transaction of its own, durable when it returns."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="command-journal")
        self._connection: sqlite3.Connection | None = None

    async def open(self) -> None:
        """Open or create the file. Raises sqlite3.Error when it cannot be used."""
        await self._run(self._open)

    async def remember(self, step: str, command: SignedCommand) -> None:
        """Keep the bytes that are about to be sent for this step, in place of earlier ones."""
        row: dict[str, str | bytes] = {
            "step": step,
            "action_id": command.action_id,
            "kind": command.kind,
            "issued_at": command.issued_at,
            "raw": command.raw,
        }
        await self._run(lambda: self._execute("remember_command", row))

    async def settle(self, step: str) -> None:
        """Forget a step whose Command has its final answer."""
        await self._run(lambda: self._execute("settle_command", {"step": step}))

    async def find(self, step: str) -> SignedCommand | None:
        """The unsettled Command of a step."""
        rows = await self._run(lambda: self._execute("find_command", {"step": step}))
        return _command(rows[0]) if rows else None

    async def unsettled(self) -> list[tuple[str, SignedCommand]]:
        """All unsettled Commands with their steps, oldest first."""
        rows = await self._run(lambda: self._execute("read_unsettled_commands", {}))
        return [(row[0], _command(row[1:])) for row in rows]

    async def clear(self) -> None:
        """Forget everything: a new session has made it impossible that any of it is still accepted."""
        await self._run(lambda: self._execute("clear_commands", {}))

    async def close(self) -> None:
        """Release the file."""
        if self._connection is not None:
            await self._run(self._connection.close)
        self._thread.shutdown()

    async def _run[T](self, work: Callable[[], T]) -> T:
        return await asyncio.get_running_loop().run_in_executor(self._thread, work)

    def _open(self) -> None:
        self._connection = sqlite3.connect(self._path, timeout=busy_seconds, autocommit=True)
        for name in ("use_write_ahead_log", "flush_every_commit", "create_command_journal"):
            self._connection.execute(_sql[name])

    def _execute(self, name: str, parameters: dict[str, str | bytes]) -> list[Any]:
        if self._connection is None:
            raise RuntimeError("the journal is not open")
        return self._connection.execute(_sql[name], parameters).fetchall()


def _command(row: Sequence[Any]) -> SignedCommand:
    action_id, kind, issued_at, raw = row
    return SignedCommand(action_id=action_id, kind=kind, issued_at=issued_at, raw=raw)
