"""The directory of one embedded stack (`.weavehold`): where everything lies, and who holds it.

The lock is a kernel lock on `lock`, gone with its holder however that died; the file's text says who holds it.
"""

import fcntl
import json
import os
import secrets
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, Self

import psutil

from ops.durable_file import private_mode, replace_durably
from ops.embedded.broker_server import free_port
from ops.embedded.fault import EmbeddedFault
from ops.embedded.processes import recognised

cleanup_seconds_max: Final = 45.0
"""Seconds that a start waits while the remains of a killed supervisor are being stopped."""
holder_poll_seconds: Final = 0.1
"""Seconds between two looks at a lock that a clean-up holds."""
default_directory: Final = Path(".weavehold")


@dataclass(frozen=True)
class StackDirectory:
    """Paths of one stack; made by `StackDirectory.at(path)`."""

    path: Path

    @classmethod
    def at(cls, path: Path) -> Self:
        """Describe the directory; nothing is made."""
        return cls(path.expanduser().resolve())

    @property
    def postgres(self) -> Path:
        """Data and socket of PostgreSQL."""
        return self.path / "postgres"

    @property
    def nats(self) -> Path:
        """Configuration and store of NATS."""
        return self.path / "nats"

    @property
    def keys(self) -> Path:
        """Private keys."""
        return self.path / "keys"

    @property
    def projections(self) -> Path:
        """Server-side projections, one SQLite file each."""
        return self.path / "projections"

    @property
    def logs(self) -> Path:
        """One log file per process."""
        return self.path / "logs"

    @property
    def run(self) -> Path:
        """What is true only while the stack runs, and the addresses that it keeps."""
        return self.path / "run"

    def log(self, name: str) -> Path:
        """The log file of one process."""
        return self.logs / f"{name}.log"

    def prepare(self) -> None:
        """Make the directories. Raises `EmbeddedFault` when that is not possible or not writable."""
        try:
            for directory in (self.path, self.logs, self.run):
                directory.mkdir(parents=True, exist_ok=True)
            self.keys.mkdir(mode=0o700, exist_ok=True)
            probe = self.run / f"probe.{os.getpid()}"
            probe.write_bytes(b"\0" * 4096)
            probe.unlink()
        except OSError as error:
            raise EmbeddedFault(
                f"the directory {self.path} cannot be written: {error.strerror}",
                "Make room on the disk and the directory writable, or choose another with --directory",
            ) from error

    @property
    def was_prepared(self) -> bool:
        """Whether a stack lies here, running or not."""
        return self.run.is_dir()

    def broker_address(self, port: int | None = None) -> tuple[int, str]:
        """Port and token of the broker, picked once and kept, so that a restart has the same address."""
        path = self.run / "broker.json"
        try:
            kept = json.loads(path.read_text())
            address = int(kept["port"]), str(kept["token"])
        except (OSError, ValueError, KeyError, TypeError):
            address = free_port(), secrets.token_urlsafe(32)
        address = port or address[0], address[1]
        write_private(path, {"port": address[0], "token": address[1]})
        return address

    def write_variables(self, variables: Mapping[str, str]) -> None:
        """Tell other commands how to reach the running stack."""
        write_private(self.run / "stack.json", dict(variables))

    def forget_variables(self) -> None:
        """Say that no stack runs here any more."""
        (self.run / "stack.json").unlink(missing_ok=True)

    def variables(self) -> dict[str, str]:
        """The `WEAVEHOLD_…` variables of the running stack; empty when none runs."""
        try:
            return dict(json.loads((self.run / "stack.json").read_text()))
        except (OSError, ValueError):
            return {}


def write_private(path: Path, value: Mapping[str, Any]) -> None:
    """Write a JSON file with mode 0600, whole or not at all."""
    replace_durably(path, f"{json.dumps(value, indent=1)}\n".encode(), mode=private_mode)


class DirectoryLock:
    """The right to run processes on a directory; held by one `up`, or by what cleans up after a killed one."""

    def __init__(self, directory: StackDirectory) -> None:
        """Describe the lock; it is not taken."""
        self._path = directory.path / "lock"
        self._descriptor: int | None = None

    @property
    def held(self) -> bool:
        """Whether this object holds the lock."""
        return self._descriptor is not None

    def try_acquire(self, role: str) -> bool:
        """Take the lock as `role` unless somebody holds it."""
        descriptor = os.open(self._path, os.O_RDWR | os.O_CREAT, 0o600)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            os.close(descriptor)
            return False
        holder = {"role": role, "pid": os.getpid(), "started_at": psutil.Process().create_time()}
        os.ftruncate(descriptor, 0)
        os.pwrite(descriptor, json.dumps(holder).encode(), 0)
        self._descriptor = descriptor
        return True

    def acquire(self) -> None:
        """Take the lock as `up`; waits for a clean-up or a dying holder. Raises `EmbeddedFault` naming the holder."""
        deadline = time.monotonic() + cleanup_seconds_max
        while not self.try_acquire("up"):
            holder = self.holder()
            alive = recognised(int(holder.get("pid", 0)), float(holder.get("started_at", 0))) is not None
            passing = holder.get("role") == "clean-up" or not alive
            if not passing or time.monotonic() > deadline:
                raise EmbeddedFault(
                    f"the directory {self._path.parent} is in use by `weavehold {holder.get('role', 'up')}` "
                    f"with PID {holder.get('pid') if alive else 'unknown'}",
                    "Stop that one first, or choose another directory with --directory",
                )
            time.sleep(holder_poll_seconds)

    def release(self) -> None:
        """Give the lock back."""
        if self._descriptor is not None:
            os.close(self._descriptor)
            self._descriptor = None

    def holder(self) -> dict[str, Any]:
        """Role, PID and start time of who took the lock last."""
        try:
            return dict(json.loads(self._path.read_text()))
        except (OSError, ValueError):
            return {"pid": 0}
