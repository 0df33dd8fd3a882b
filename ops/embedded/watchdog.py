"""Stops the embedded servers of a directory when their supervisor is gone: `python -m ops.embedded.watchdog DIRECTORY`.

Reads standard input, whose other end the supervisor holds. A word on it says that the supervisor has stopped
everything itself; its closing without a word, that the supervisor was killed: then PostgreSQL and NATS are stopped in
order. Should the watchdog be killed too, the next start finds and stops what is left.
"""

import os
import shutil
import signal
import sys
import time
from pathlib import Path
from typing import Final

from ops.embedded.broker_server import binary
from ops.embedded.directory import DirectoryLock, StackDirectory
from ops.embedded.postgres_server import binaries
from ops.embedded.processes import end, running_under

server_seconds_max: Final = 20.0
"""Seconds that a server gets to stop before it is killed."""
lock_seconds_max: Final = 30.0
"""Seconds that a dying supervisor may hold its lock after its pipe has closed."""
lock_poll_seconds: Final = 0.05
"""Seconds between two tries in that time."""


def stop_remains(directory: Path) -> None:
    """Stop every embedded server that works under the directory: brokers first, then databases."""
    for program, request in ((binary(), signal.SIGTERM), (binaries() / "postgres", signal.SIGINT)):
        for process in running_under(directory, program):
            end(process, request=request, seconds=server_seconds_max)


def main() -> int:
    """Wait for the supervisor's end. With `--remove` the directory goes too (for tests)."""
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)
    directory = Path(sys.argv[1]).resolve()
    supervisor = os.getppid()
    if os.read(0, 1024):
        return 0
    lock = DirectoryLock(StackDirectory(directory))
    # The pipe of a killed process may close a moment before its lock comes free; another holder cleans up itself.
    deadline = time.monotonic() + lock_seconds_max
    while not lock.try_acquire("clean-up"):
        if lock.holder().get("pid") != supervisor or time.monotonic() > deadline:
            return 1
        time.sleep(lock_poll_seconds)
    stop_remains(directory)
    if "--remove" in sys.argv[2:]:
        shutil.rmtree(directory, ignore_errors=True)
    lock.release()
    return 0


if __name__ == "__main__":
    sys.exit(main())
