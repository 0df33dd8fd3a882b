"""The connection to NATS: never given up, and never silent about what goes wrong.

nats-py reports slow consumers, permission violations and lost connections only to callbacks; without them a
refused publish looks like a timeout. Here each becomes a log line and a metric.
"""

import random
from typing import Any, Final

from nats.aio.client import Client, Server

from services.process.logs import get_log
from services.process.metrics import Metrics

connect_timeout_seconds: Final = 2
"""Seconds to open one connection."""
reconnect_wait_seconds: Final = 0.25
"""The first wait between two attempts at one server; doubled per attempt, with full jitter."""
reconnect_wait_seconds_max: Final = 2.0
"""The longest wait between two attempts."""
ping_interval_seconds: Final = 5
"""Seconds between two pings; `pings_outstanding_max` unanswered ones end the connection."""
pings_outstanding_max: Final = 2
pending_bytes_max: Final = 8 * 1024 * 1024
"""Bytes buffered for sending while the broker is away or slow."""
drain_seconds: Final = 5
"""Seconds that a graceful close waits for messages in flight."""

_log = get_log(__name__)


def reconnect_delay(attempt: int) -> float:
    """Seconds before attempt number `attempt` (from 0): exponential, bounded, full jitter."""
    ceiling = min(reconnect_wait_seconds_max, reconnect_wait_seconds * 2 ** min(attempt, 16))
    return random.uniform(0, ceiling)  # noqa: S311 - jitter, not a secret


def _next_server(servers: list[Server], _information: dict[str, Any]) -> tuple[Server, float]:
    """The server tried least often, after a bounded wait."""
    chosen = min(servers, key=lambda server: server.reconnects)
    return chosen, reconnect_delay(chosen.reconnects)


async def connect(
    url: str,
    *,
    name: str,
    token: str | None = None,
    metrics: Metrics | None = None,
    wait: bool = False,
    inbox_prefix: str = "_INBOX",
) -> Client:
    """Connect to the broker at `url` (comma-separated for several), reconnecting for ever once connected.

    The first connection is tried once per server and raises `OSError`, `TimeoutError` or `nats.errors.Error`;
    with `wait` it is retried for ever too. Close with `await client.drain()` or `client.close()`.
    """
    counted = (
        None
        if metrics is None
        else metrics.counter(
            "broker_connection_events",
            "What happened to the connection to the broker",
            labels={"event": ("error", "disconnected", "reconnected", "closed", "lame_duck")},
        )
    )

    def note(event: str, **facts: Any) -> None:
        if counted is not None:
            counted.add(event=event)
        _log.warning(f"broker_{event}", connection=name, **facts)

    async def on_error(error: Exception) -> None:
        note("error", error=str(error) or type(error).__name__, error_type=type(error).__name__)

    async def on_disconnected() -> None:
        note("disconnected")

    async def on_reconnected() -> None:
        note("reconnected")

    async def on_closed() -> None:
        note("closed")

    async def on_lame_duck() -> None:
        note("lame_duck")

    client = Client()
    await client.connect(
        url.split(","),
        name=name,
        token=token,
        error_cb=on_error,
        disconnected_cb=on_disconnected,
        reconnected_cb=on_reconnected,
        closed_cb=on_closed,
        lame_duck_mode_cb=on_lame_duck,
        allow_reconnect=True,
        connect_timeout=connect_timeout_seconds,
        max_reconnect_attempts=-1 if wait else 1,
        reconnect_time_wait=1,
        reconnect_to_server_handler=_next_server,
        ping_interval=ping_interval_seconds,
        max_outstanding_pings=pings_outstanding_max,
        pending_size=pending_bytes_max,
        drain_timeout=drain_seconds,
        inbox_prefix=inbox_prefix,
    )
    # From here on a lost connection is retried without end, whatever bounded the first one.
    client.options["max_reconnect_attempts"] = -1
    return client
