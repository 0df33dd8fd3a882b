"""Files put in place whole or not at all, durable on return.

The content goes to a draft beside the file first, which no failure leaves behind. A killed writer does; its draft is
known by its name, and whoever is alone in the folder next removes it.
"""

import os
import re
import secrets
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

private_mode: Final = 0o600
"""Of a file for its owner alone."""


def replace_durably(path: Path, content: bytes, *, mode: int) -> None:
    """Put a file in place of what may be there. Raises OSError; nothing has changed then."""
    with _draft(path, content, mode) as draft:
        draft.replace(path)
    sync_directory(path.parent)


def create_durably(path: Path, content: bytes, *, mode: int) -> bool:
    """Put a file where none is; False when there is one, which stays. Raises OSError."""
    with _draft(path, content, mode) as draft:
        try:
            os.link(draft, path)
        except FileExistsError:
            return False
    sync_directory(path.parent)
    return True


def make_private_directory(path: Path) -> None:
    """Make a directory for its owner alone, with its parents. Raises OSError."""
    path.mkdir(parents=True, exist_ok=True, mode=0o700)


def remove_drafts(path: Path) -> None:
    """Remove what killed writers of this file left. Only for whoever is alone in the folder. Raises OSError."""
    name = re.compile(rf"\.{re.escape(path.name)}\.[0-9a-f]{{16}}\.new")
    for each in list(path.parent.iterdir()):
        if name.fullmatch(each.name):
            each.unlink(missing_ok=True)


def sync_directory(directory: Path) -> None:
    """Make what was linked, renamed or removed in a directory durable. Raises OSError."""
    descriptor = os.open(directory, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


@contextmanager
def _draft(path: Path, content: bytes, mode: int) -> Iterator[Path]:
    """A durable draft beside a file, gone afterwards whatever happens."""
    draft = path.with_name(f".{path.name}.{secrets.token_hex(8)}.new")
    try:
        with os.fdopen(os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL, mode), "wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        yield draft
    finally:
        draft.unlink(missing_ok=True)
