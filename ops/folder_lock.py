"""One at a time in a folder of files that are read, thought about and written again: keys and trust anchors."""

import fcntl
import os
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Final

poll_seconds: Final = 0.05
"""Seconds between two attempts to be alone."""


class FolderInUse(Exception):
    """Somebody else is at work in the folder."""


@contextmanager
def alone_in(folder: Path) -> Iterator[None]:
    """Keep everybody else of the same mind out of a folder; the kernel frees it with its holder.

    Nothing is waited for. Raises FolderInUse, and OSError for a folder that cannot be opened.
    """
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(descriptor)
        raise FolderInUse(str(folder)) from None
    try:
        yield
    finally:
        os.close(descriptor)


@contextmanager
def in_turn_in(folder: Path, wait_seconds: float) -> Iterator[None]:
    """As `alone_in`, after waiting so many seconds for others at most. Raises FolderInUse, OSError."""
    deadline = time.monotonic() + wait_seconds
    with ExitStack() as stack:
        while True:
            try:
                stack.enter_context(alone_in(folder))
                break
            except FolderInUse:
                if time.monotonic() > deadline:
                    raise
            time.sleep(poll_seconds)
        yield
