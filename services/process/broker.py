"""The connection to NATS: never given up, and never silent about what goes wrong.

nats-py reports slow consumers, permission violations and lost connections only to callbacks; without them a
refused publish looks like a timeout. Here each becomes a log line and a metric.
"""

import random
import ssl
from pathlib import Path
from typing import Any, Final

import nkeys
from nats.aio.client import Client, Server

from services.process.encrypted_transport import EncryptedTransport
from services.process.logs import get_log
from services.process.metrics import Metrics
from services.process.settings import BrokerCredentials, SettingsFault

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

shared_inbox_prefix: Final = "_INBOX"
"""Where answers to clients without a key of their own go."""
no_credentials: Final = BrokerCredentials()

_log = get_log(__name__)


def reconnect_delay(attempt: int) -> float:
    """Seconds before attempt number `attempt` (from 0): exponential, bounded, full jitter."""
    ceiling = min(reconnect_wait_seconds_max, reconnect_wait_seconds * 2 ** min(attempt, 16))
    return random.uniform(0, ceiling)  # noqa: S311 - jitter, not a secret


def _next_server(servers: list[Server], _information: dict[str, Any]) -> tuple[Server, float]:
    """The server tried least often, after a bounded wait."""
    chosen = min(servers, key=lambda server: server.reconnects)
    return chosen, reconnect_delay(chosen.reconnects)


def public_nkey(seed_file: Path) -> str:
    """The public half of the key in a seed file. Raises `SettingsFault`."""
    variable, remedy = "WEAVEHOLD_NATS_NKEY_SEED_FILE", "Name a seed file of `weavehold nats provision`"
    try:
        pair = nkeys.from_seed(bytearray(seed_file.read_bytes().strip()))
        return bytes(pair.public_key).decode()
    except OSError as fault:
        raise SettingsFault(variable, f"is {seed_file}, which cannot be read: {fault.strerror}", remedy) from fault
    except nkeys.NkeysError as fault:
        raise SettingsFault(variable, f"is {seed_file}, which holds no nkey seed", remedy) from fault


def own_inbox_prefix(public: str) -> str:
    """Where answers to the client with this public nkey go: nobody else may be allowed to listen there."""
    return f"{shared_inbox_prefix}.{public}"


def _presented(credentials: BrokerCredentials) -> dict[str, Any]:
    """The client library's options for these credentials. Raises `SettingsFault`."""
    options: dict[str, Any] = {"token": credentials.token}
    prefix = shared_inbox_prefix
    if credentials.nkey_seed_file is not None:
        options["nkeys_seed"] = str(credentials.nkey_seed_file)
        prefix = own_inbox_prefix(public_nkey(credentials.nkey_seed_file))
    options["inbox_prefix"] = credentials.inbox_prefix or prefix
    return options


def _encryption(url: str, credentials: BrokerCredentials) -> ssl.SSLContext | None:
    """Whom to trust, None for a connection in plain text. Raises `SettingsFault`."""
    if credentials.ca_file is None and "tls://" not in url:
        return None
    try:
        return ssl.create_default_context(cafile=credentials.ca_file)
    except (OSError, ssl.SSLError) as fault:
        variable, remedy = "WEAVEHOLD_NATS_CA_FILE", "Name a file with certificates as PEM"
        raise SettingsFault(variable, f"is {credentials.ca_file}, which cannot be used: {fault}", remedy) from fault


def _witnesses(name: str, metrics: Metrics | None) -> dict[str, Any]:
    """The client library's callbacks: each event becomes a log line, and a count where there are metrics."""
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

    return {
        "error_cb": on_error,
        "disconnected_cb": on_disconnected,
        "reconnected_cb": on_reconnected,
        "closed_cb": on_closed,
        "lame_duck_mode_cb": on_lame_duck,
    }


async def connect(
    url: str,
    *,
    name: str,
    token: str | None = None,
    credentials: BrokerCredentials = no_credentials,
    metrics: Metrics | None = None,
    wait: bool = False,
) -> Client:
    """Connect to the broker at `url` (comma-separated for several), reconnecting for ever once connected.

    The first connection is tried once per server and raises `OSError`, `TimeoutError` or `nats.errors.Error`;
    with `wait` it is retried for ever too. `token` is short for credentials with nothing else. Raises `SettingsFault`
    for credentials that cannot be used, before anything is tried. Close with `await client.drain()` or
    `client.close()`.
    """
    shown = credentials if token is None else BrokerCredentials(token=token)
    presented, encryption = _presented(shown), _encryption(url, shown)
    client = Client()
    if encryption is not None and url.startswith("ws"):
        presented["tls"] = encryption
    elif encryption is not None:
        # There is no public way to give the client a transport.
        client._transport = EncryptedTransport(encryption)  # noqa: SLF001
    await client.connect(
        url.split(","),
        name=name,
        allow_reconnect=True,
        connect_timeout=connect_timeout_seconds,
        max_reconnect_attempts=-1 if wait else 1,
        reconnect_time_wait=1,
        reconnect_to_server_handler=_next_server,
        ping_interval=ping_interval_seconds,
        max_outstanding_pings=pings_outstanding_max,
        pending_size=pending_bytes_max,
        drain_timeout=drain_seconds,
        **presented,
        **_witnesses(name, metrics),
    )
    # From here on a lost connection is retried without end, whatever bounded the first one.
    client.options["max_reconnect_attempts"] = -1
    return client
