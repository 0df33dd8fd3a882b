"""One connection to PostgreSQL in one thread of its own: made when it is needed, and made anew when it is lost.

A lost or unusable server is waited for as long as it takes, since there is nothing else to do: `problem` says what is
missing. Nothing here decides what a lost connection leaves in doubt; that is for who gives the work.
"""

import asyncio
import contextlib
import os
import random
import socket
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Final

import psycopg
from psycopg.types.numeric import Int8Dumper

from services.process.database import FaultKind, classify, connection_string
from services.process.logs import get_log

first_backoff_seconds: Final = 0.1
backoff_seconds_max: Final = 2.0
"""Seconds between two attempts: exponential, bounded, full jitter."""
answer_seconds_max: Final = 60.0
"""Seconds of one attempt, connecting included, after which a connection that does not answer is cut."""
prepared_statements_max: Final = 256
"""Prepared statements kept per connection."""

type Connection = psycopg.Connection[tuple[Any, ...]]

_log = get_log(__name__)


class HeldElsewhere(Exception):
    """Another process writes this projection: this one waits for its turn."""


class PostgresSession:
    """Runs functions on its connection, one after another. `problem` is None, or why it cannot at the moment."""

    def __init__(self, url: str, name: str, begin: Callable[[Connection], None]) -> None:
        """Describe a session; nothing is opened. `begin` readies each new connection, and may raise HeldElsewhere."""
        self.problem: str | None = None
        self._address = connection_string(url, name=name)
        self._name = name
        self._begin = begin
        self._connection: Connection | None = None
        self._thread = ThreadPoolExecutor(1, thread_name_prefix=name)
        self._turn = asyncio.Lock()

    async def run[T](self, work: Callable[[Connection], T]) -> T:
        """What `work` returns on the connection, which is ready and in no transaction.

        It is called anew after a transient fault (DUR-3), also when an earlier call did everything and only the answer
        was lost. Raises what it raises otherwise.
        """
        async with self._turn:
            attempt = 0
            while True:
                try:
                    result = await self._in_thread(self._on_connection, work)
                except Exception as fault:
                    if not isinstance(fault, HeldElsewhere) and classify(fault) is FaultKind.PERMANENT:
                        raise
                    attempt += 1
                    self._report(fault, attempt)
                else:
                    self.problem = None
                    return result
                await asyncio.sleep(_backoff(attempt))

    def _report(self, fault: Exception, attempt: int) -> None:
        problem = str(fault).strip() or type(fault).__name__
        if problem != self.problem:
            _log.warning("projection_store_waits", session=self._name, reason=problem, attempts=attempt)
        self.problem = problem

    async def _in_thread[**P, T](self, work: Callable[P, T], *arguments: P.args, **named: P.kwargs) -> T:
        loop = asyncio.get_running_loop()
        silence = loop.call_later(answer_seconds_max, self._cut)
        try:
            return await loop.run_in_executor(self._thread, lambda: work(*arguments, **named))
        finally:
            silence.cancel()

    def _on_connection[T](self, work: Callable[[Connection], T]) -> T:
        connection = self._connection
        try:
            if connection is None:
                connection = self._connection = self._connect()
                self._begin(connection)
            return work(connection)
        except BaseException as fault:
            # Whatever state a fault of the server left it in, a new one is sound; it must not hold the lock either.
            if isinstance(fault, psycopg.Error | HeldElsewhere):
                self._drop()
            raise

    def _connect(self) -> Connection:
        connection = psycopg.connect(self._address, autocommit=True, prepare_threshold=2)
        connection.prepared_max = prepared_statements_max
        # Integers of every size are one type to the server, so that a statement is prepared once.
        connection.adapters.register_dumper(int, Int8Dumper)
        return connection

    def _drop(self) -> None:
        if self._connection is not None:
            self._connection.close()
        self._connection = None

    def _cut(self) -> None:
        """End the wait of the thread for an answer that does not come."""
        connection = self._connection
        with contextlib.suppress(OSError, psycopg.Error):
            if connection is not None:
                with socket.socket(fileno=os.dup(connection.fileno())) as line:
                    line.shutdown(socket.SHUT_RDWR)

    async def close(self) -> None:
        """Let the work in progress end, then close the connection."""
        await self._in_thread(self._drop)
        self._thread.shutdown()


def _backoff(attempt: int) -> float:
    ceiling = min(backoff_seconds_max, first_backoff_seconds * 2 ** min(attempt, 16))
    return random.uniform(0, ceiling)  # noqa: S311 - jitter, not a secret
