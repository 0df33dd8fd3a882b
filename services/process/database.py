"""Connections to PostgreSQL: bounded pools, timeouts on every wait, and faults sorted before any retry (DUR-3).

The timeouts travel as connection options; in production the database roles carry them too, since a pooler
loses session settings.
"""

import time
from collections.abc import Iterator
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass
from enum import Enum
from typing import Any, Final, Protocol
from weakref import WeakKeyDictionary

import psycopg
from psycopg import AsyncConnection
from psycopg.conninfo import conninfo_to_dict, make_conninfo
from psycopg_pool import AsyncConnectionPool, PoolClosed, PoolTimeout, TooManyRequests

from services.process.statements import load

connect_timeout_seconds: Final = 5
"""Seconds to open one connection."""
lock_timeout_seconds: Final = 5
"""Seconds to wait for one lock."""
idle_in_transaction_seconds: Final = 15
"""Seconds that an open transaction may sit idle before the server ends it."""
statement_timeout_seconds: Final = 30
"""Seconds of one statement."""
unacknowledged_milliseconds: Final = 10_000
"""Milliseconds that sent bytes may stay unacknowledged before the kernel gives the connection up."""
pool_wait_seconds: Final = 10.0
"""Seconds that a caller waits for a connection of a pool."""
pool_waiting_max: Final = 512
"""Callers that may wait for a connection of a pool at once."""
trusted_seconds: Final = 1.0
"""Seconds for which a connection of a pool that was handed out is taken to stand."""
pool_idle_seconds: Final = 300.0
"""Seconds after which a surplus connection of a pool is closed."""
pool_reconnect_seconds: Final = 30.0
"""Seconds of one series of attempts to replace a lost connection; the next request starts another."""

lookup_plans: Final = "-c enable_seqscan=off -c enable_hashjoin=off -c enable_mergejoin=off"
"""Every statement of ours looks rows up by a key. A plan that was made and kept while the tables were empty would
otherwise scan them whole, for ever more slowly, until someone analyzes them."""


class Connections(Protocol):
    """What lends connections."""

    def connection(self) -> AbstractAsyncContextManager[AsyncConnection[tuple[Any, ...]]]:
        """Lend one. Raises what a pool raises, and what the lender adds to it."""
        ...


type Connection = AsyncConnection[tuple[Any, ...]]
type Pool = AsyncConnectionPool[AsyncConnection[tuple[Any, ...]]]


@dataclass(frozen=True, kw_only=True)
class Timeouts:
    """What a connection may wait for, in seconds. 0 for `statement` waits without end (long reads)."""

    lock: float = lock_timeout_seconds
    idle_in_transaction: float = idle_in_transaction_seconds
    statement: float = statement_timeout_seconds


default_timeouts: Final = Timeouts()


def connection_string(url: str, *, name: str, timeouts: Timeouts = default_timeouts) -> str:
    """The URL with the application name, keepalives and timeouts that every connection of ours has."""
    options = {
        "lock_timeout": timeouts.lock,
        "idle_in_transaction_session_timeout": timeouts.idle_in_transaction,
        "statement_timeout": timeouts.statement,
    }
    settings = " ".join(f"-c {option}={int(seconds * 1000)}" for option, seconds in options.items())
    settings = f"{settings} {lookup_plans}"
    given = conninfo_to_dict(url)
    bounds: dict[str, str | int] = {
        "application_name": name,
        "connect_timeout": connect_timeout_seconds,
        "keepalives": 1,
        "keepalives_idle": 5,
        "keepalives_interval": 2,
        "keepalives_count": 3,
        "tcp_user_timeout": unacknowledged_milliseconds,
    }
    # What the URL itself says wins over our defaults; our options come first, so that its own ones win too.
    merged = bounds | {key: value for key, value in given.items() if value is not None}
    merged["options"] = " ".join(filter(None, (settings, str(given.get("options") or ""))))
    return make_conninfo("", **merged)


async def connect(url: str, *, name: str, timeouts: Timeouts = default_timeouts, autocommit: bool = True) -> Connection:
    """Open one connection. Raises `psycopg.OperationalError` within `connect_timeout_seconds`."""
    return await AsyncConnection.connect(
        connection_string(url, name=name, timeouts=timeouts), autocommit=autocommit, prepare_threshold=2
    )


class _Checked:
    """Asks a connection whether it still stands, unless it did a moment ago: each question is a round trip."""

    def __init__(self) -> None:
        self._stood: WeakKeyDictionary[Connection, float] = WeakKeyDictionary()

    async def check(self, connection: Connection) -> None:
        """Raises `psycopg.OperationalError` for a connection that does not stand any more."""
        now = time.monotonic()
        if now - self._stood.get(connection, -trusted_seconds) >= trusted_seconds:
            await AsyncConnectionPool.check_connection(connection)
        self._stood[connection] = now


async def open_pool(
    url: str,
    *,
    name: str,
    minimum: int = 1,
    maximum: int,
    timeouts: Timeouts = default_timeouts,
    wait: bool = True,
) -> Pool:
    """Open a pool of `minimum` to `maximum` autocommit connections; close it with `await pool.close()`.

    Raises `PoolTimeout` when the first connections cannot be opened within `pool_wait_seconds` (not with
    `wait=False`, which opens in the background). A connection found broken is replaced before it is handed out; one
    that was handed out within `trusted_seconds` is not asked again.
    """
    pool: Pool = AsyncConnectionPool(
        connection_string(url, name=name, timeouts=timeouts),
        kwargs={"autocommit": True, "prepare_threshold": 2},
        min_size=minimum,
        max_size=maximum,
        open=False,
        name=name,
        timeout=pool_wait_seconds,
        max_waiting=pool_waiting_max,
        max_idle=pool_idle_seconds,
        reconnect_timeout=pool_reconnect_seconds,
        check=_Checked().check,
    )
    try:
        await pool.open(wait=wait, timeout=pool_wait_seconds)
    except BaseException:
        await pool.close()
        raise
    return pool


class PrimaryState(Enum):
    """What a server may do for a writer."""

    WRITABLE = "writable"
    READ_ONLY = "read-only"
    STANDBY = "standby"


async def primary_state(connection: Connection) -> PrimaryState:
    """Whether the server behind the connection is a writable primary. Raises `psycopg.Error` when it is gone."""
    cursor = await connection.execute(load(__package__).primary_state)
    row = await cursor.fetchone()
    in_recovery, read_only = row or (True, True)
    if in_recovery:
        return PrimaryState.STANDBY
    return PrimaryState.READ_ONLY if read_only else PrimaryState.WRITABLE


class FaultKind(Enum):
    """Whether the same work may succeed when it is tried again."""

    TRANSIENT = "transient"
    PERMANENT = "permanent"


_TRANSIENT_CLASSES: Final = ("08", "40", "53")
"""SQLSTATE classes: connection exception, transaction rollback, insufficient resources."""
_TRANSIENT_STATES: Final = frozenset(
    {
        "25006",  # read-only: a standby, or a primary that lost its writability; another one may take over
        "25P03",  # idle-in-transaction timeout ended the session
        "55P03",  # lock timeout
        "57014",  # statement timeout
        "57P01",  # administrator shut the server down
        "57P02",  # the server crashed
        "57P03",  # the server is starting up
        "57P05",  # idle session timeout
    }
)


def _causes(error: BaseException) -> Iterator[BaseException]:
    """The error and what is inside it, when it is a group."""
    if isinstance(error, BaseExceptionGroup):
        for inner in error.exceptions:
            yield from _causes(inner)
    else:
        yield error


def _classify_one(error: BaseException) -> FaultKind:
    if isinstance(error, PoolClosed):
        return FaultKind.PERMANENT
    if isinstance(error, (PoolTimeout, TooManyRequests, OSError, TimeoutError)):
        return FaultKind.TRANSIENT
    if not isinstance(error, psycopg.Error):
        return FaultKind.PERMANENT
    state = error.sqlstate
    if state is None:
        # The server said nothing: the connection was refused, cut or is closed.
        return FaultKind.TRANSIENT if isinstance(error, psycopg.OperationalError) else FaultKind.PERMANENT
    transient = state in _TRANSIENT_STATES or state[:2] in _TRANSIENT_CLASSES
    return FaultKind.TRANSIENT if transient else FaultKind.PERMANENT


def classify(error: BaseException) -> FaultKind:
    """Sort a fault before any retry (DUR-3): a group of faults is transient only when every one in it is.

    Transient does not mean "did not happen": after a lost connection the outcome of a commit is unknown.
    """
    kinds = {_classify_one(cause) for cause in _causes(error)}
    return FaultKind.TRANSIENT if kinds == {FaultKind.TRANSIENT} else FaultKind.PERMANENT
