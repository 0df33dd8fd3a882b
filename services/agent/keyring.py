"""Key files of Principals: found by the file's name or by the Principal's ID.

A key file is the JSON that `contracts.signature` reads (RULE-29), mode 0600. A file that others may read is refused,
since whoever reads it can act as its Principal.
"""

import stat
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from contracts.signature import SigningKey

key_files_max: Final = 10_000
"""Key files read from one folder."""


class KeyFault(Exception):
    """A key cannot be used; the message names the file or Principal and the remedy."""


def load_key(path: Path) -> SigningKey:
    """Read one key file. Raises KeyFault when it is missing, malformed, or open to others."""
    try:
        mode = stat.S_IMODE(path.stat().st_mode)
    except FileNotFoundError as fault:
        raise KeyFault(f"no key file {path}: create the key first (`weavehold init` makes some)") from fault
    except OSError as fault:
        raise KeyFault(f"key file {path} cannot be looked at: {fault.strerror}") from fault
    if mode & 0o077:
        raise KeyFault(f"key file {path} has mode {mode:04o}, so others may use it: chmod 600 {path}")
    try:
        return SigningKey.from_file(path)
    except (ValueError, KeyError, OSError) as fault:
        raise KeyFault(f"key file {path} is not a key: {fault}") from fault


class Keyring:
    """Keys by name (the file's name without `.json`) and by Principal ID."""

    def __init__(self, keys: Mapping[str, SigningKey]) -> None:
        self._by_name = dict(keys)
        self._by_principal = {key.principal.id: key for key in self._by_name.values()}

    @classmethod
    def from_folder(cls, folder: Path) -> "Keyring":
        """All `*.json` of a folder. Raises KeyFault for the first bad file or for too many of them."""
        paths = sorted(folder.glob("*.json"))
        if len(paths) > key_files_max:
            raise KeyFault(f"{folder} holds {len(paths)} key files, more than {key_files_max}")
        return cls({path.stem: load_key(path) for path in paths})

    def named(self, name: str) -> SigningKey:
        """The key of this name. Raises KeyFault with the names that exist."""
        if name not in self._by_name:
            raise KeyFault(f"no key named {name!r}; there are: {', '.join(sorted(self._by_name)) or 'none'}")
        return self._by_name[name]

    def of(self, principal_id: str) -> SigningKey:
        """The key of this Principal. Raises KeyFault when there is none."""
        if principal_id not in self._by_principal:
            raise KeyFault(f"no key of {principal_id} in this keyring")
        return self._by_principal[principal_id]
