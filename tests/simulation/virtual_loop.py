"""An asyncio event loop without time, sockets and threads: its clock jumps to the next thing that is due."""

import asyncio
from collections.abc import Callable
from typing import Any


class Stalled(Exception):
    """Nothing is due any more: everything waits for something that never comes."""


class VirtualLoop(asyncio.BaseEventLoop):
    """Runs callbacks in the order of their virtual times. `storing` draws how long one call of an executor takes.

    What is handed to an executor (a store's thread) runs inside the loop at its virtual time, in order per executor.
    A call whose caller is gone by then is not made: its process died before it.
    """

    def __init__(self, storing: Callable[[], float]) -> None:
        super().__init__()
        self._now = 0.0
        self._storing = storing
        self._free_at: dict[Any, float] = {}
        self._once_returned: list[Callable[[], None]] = []
        self._selector = self

    def time(self) -> float:
        """Virtual seconds since the beginning."""
        return self._now

    def select(self, timeout: float | None) -> list[Any]:
        """Let time pass; nothing ever comes from outside."""
        if timeout is None:
            raise Stalled
        self._now += timeout
        return []

    def run_in_executor(self, executor: Any, func: Callable[..., Any], *args: Any) -> asyncio.Future[Any]:
        """Call `func` in the loop, after the calls that the same executor was given before."""
        future = self.create_future()
        at = max(self._free_at.get(executor, 0.0), self._now) + self._storing()
        self._free_at[executor] = at
        self.call_at(at, self._call, future, func, args)
        return future

    def once_returned(self, callback: Callable[[], None]) -> None:
        """Inside an executor's call: what to do at the same moment, if it returns without a fault."""
        self._once_returned.append(callback)

    def _call(self, future: asyncio.Future[Any], func: Callable[..., Any], args: tuple[Any, ...]) -> None:
        if future.cancelled():
            return
        self._once_returned = []
        try:
            result = func(*args)
        except Exception as fault:  # noqa: BLE001 - handed to whoever asked
            future.set_exception(fault)
        else:
            future.set_result(result)
            for callback in self._once_returned:
                callback()

    def _process_events(self, event_list: list[Any]) -> None:
        """There are none."""

    def _write_to_self(self) -> None:
        """Nobody else wakes this loop."""
