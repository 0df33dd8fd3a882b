"""Processes on this machine: recognising, ending, and waiting for them.

A process is recognised by its command line or by PID and start time together, never by its PID alone, since a PID
that stands in a file may belong to somebody else by now.
"""

import contextlib
import signal
import subprocess
import time
from collections.abc import Callable
from pathlib import Path
from typing import Final

import psutil

poll_seconds: Final = 0.02
"""Seconds between two looks at a condition."""


def wait_until(condition: Callable[[], bool], seconds: float) -> bool:
    """Whether the condition became true within `seconds`."""
    deadline = time.monotonic() + seconds
    while not condition():
        if time.monotonic() >= deadline:
            return False
        time.sleep(poll_seconds)
    return True


def started_with(argument: str) -> list[psutil.Process]:
    """Live processes that have `argument` (a path of ours) as one whole word of their command line."""
    found = []
    for process in psutil.process_iter():
        with contextlib.suppress(psutil.Error):
            if process.status() != psutil.STATUS_ZOMBIE and argument in process.cmdline():
                found.append(process)
    return found


def running_under(directory: Path, program: Path) -> list[psutil.Process]:
    """Live processes of `program` that were started with a path under `directory`."""
    found = []
    for process in psutil.process_iter():
        with contextlib.suppress(psutil.Error, OSError):
            words = process.cmdline()
            if words and words[0] == str(program) and any(directory in Path(word).parents for word in words[1:]):
                found.append(process)
    return found


def working_in(directory: Path) -> list[psutil.Process]:
    """Live processes whose current directory is `directory`."""
    found = []
    for process in psutil.process_iter():
        with contextlib.suppress(psutil.Error, OSError):
            if process.status() != psutil.STATUS_ZOMBIE and process.cwd() == str(directory):
                found.append(process)
    return found


def recognised(pid: int, started_at: float) -> psutil.Process | None:
    """The live process with this PID and start time (seconds since the epoch), if it is still that one."""
    try:
        process = psutil.Process(pid)
        same = abs(process.create_time() - started_at) < 0.05 and process.status() != psutil.STATUS_ZOMBIE
    except psutil.Error:
        return None
    return process if same else None


def end(process: psutil.Process, *, request: signal.Signals, seconds: float) -> bool:
    """Ask the process to end with `request`; kill it after `seconds`. Returns whether it ended when asked."""
    with contextlib.suppress(psutil.NoSuchProcess):
        process.send_signal(request)
        try:
            process.wait(seconds)
        except psutil.TimeoutExpired:
            process.kill()
            with contextlib.suppress(psutil.TimeoutExpired):
                process.wait(seconds)
            return False
    return True


def end_child(child: "subprocess.Popen[bytes]", *, request: signal.Signals, seconds: float) -> bool:
    """The same for a child of this process, which is reaped."""
    if child.poll() is None:
        child.send_signal(request)
    try:
        child.wait(seconds)
    except subprocess.TimeoutExpired:
        child.kill()
        child.wait()
        return False
    return True


def log_tail(path: Path, lines: int = 12) -> str:
    """The last lines of a log file, for a message; empty when there are none."""
    try:
        with path.open("rb") as file:
            file.seek(max(0, path.stat().st_size - 8192))
            return "\n".join(file.read().decode(errors="replace").splitlines()[-lines:])
    except OSError:
        return ""
