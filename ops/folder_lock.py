"""One at a time in a folder of files that are read, thought about and written again: keys and trust anchors."""

import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


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
