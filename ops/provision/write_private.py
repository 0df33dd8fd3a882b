"""Files that hold secrets: whole or not at all, for their owner alone."""

import os
from pathlib import Path
from typing import Final

private_mode: Final = 0o600
directory_mode: Final = 0o700


def make_directory(path: Path) -> None:
    """Make a directory for its owner alone, with its parents. Raises OSError."""
    path.mkdir(parents=True, exist_ok=True, mode=directory_mode)


def write_private(path: Path, content: bytes) -> None:
    """Put a file in place at once, mode 0600 whatever was there. Raises OSError."""
    temporary = path.with_name(f"{path.name}.{os.getpid()}.new")
    descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, private_mode)
    with os.fdopen(descriptor, "wb") as file:
        file.write(content)
        file.flush()
        os.fsync(file.fileno())
    temporary.replace(path)
