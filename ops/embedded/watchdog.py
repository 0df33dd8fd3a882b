"""Stops the embedded servers of a directory when their supervisor is gone: `python -m ops.embedded.watchdog DIRECTORY`.

Reads standard input, whose other end the supervisor holds. When it closes, the supervisor has stopped (then nothing
is left to do) or was killed (then its PostgreSQL and NATS are stopped in order). Should the watchdog be killed too,
the next start finds and stops what is left.
"""

import os
import shutil
import signal
import sys
from pathlib import Path
from typing import Final

from ops.embedded.broker_server import binary
from ops.embedded.directory import DirectoryLock, StackDirectory
from ops.embedded.postgres_server import binaries
from ops.embedded.processes import end, running_under

server_seconds_max: Final = 20.0
"""Seconds that a server gets to stop before it is killed."""


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
    while os.read(0, 1024):
        pass
    if directory.exists():
        lock = DirectoryLock(StackDirectory(directory))
        if lock.try_acquire("clean-up"):
            stop_remains(directory)
            if "--remove" in sys.argv[2:]:
                shutil.rmtree(directory, ignore_errors=True)
            lock.release()
    return 0


if __name__ == "__main__":
    sys.exit(main())
