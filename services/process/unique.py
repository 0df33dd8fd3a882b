"""New unique names: `urn:uuid:` of version 7, which sort by the time of their making (RFC 9562, 5.7).

And names of lease holders, `<instance>-<life>`.
"""

import os
import secrets
import socket
import time
import uuid
from typing import Final

_random_bytes_kept: Final = 4_096
"""Random bytes taken from the kernel at once: names are made by the hundred, and each call costs."""


class _RandomBytes:
    """The kernel's random bytes in portions; no byte is given twice. Not shared between processes or threads."""

    def __init__(self) -> None:
        self._kept = b""
        self._next = 0
        self._owner = 0

    def take(self, count: int) -> bytes:
        """`count` bytes, at most `_random_bytes_kept`."""
        end = self._next + count
        if end > len(self._kept) or self._owner != os.getpid():
            self._kept, self._owner, end = os.urandom(_random_bytes_kept), os.getpid(), count
            self._next = 0
        taken = self._kept[self._next : end]
        self._next = end
        return taken


random_bytes = _RandomBytes().take
"""Bytes for names and salts made by the event loop's thread."""

_RANDOM_BYTES: Final = 10
_RANDOM_BITS: Final = 74


def uuid7_urn() -> str:
    """A new name; unique by 74 random bits within one millisecond. Its time decides nothing."""
    milliseconds = time.time_ns() // 1_000_000
    random = int.from_bytes(random_bytes(_RANDOM_BYTES)) & (1 << _RANDOM_BITS) - 1
    high, low = random >> 62, random & (1 << 62) - 1
    return uuid.UUID(int=milliseconds << 80 | 0x7 << 76 | high << 64 | 0b10 << 62 | low).urn


def default_instance(service: str) -> str:
    """The name of an instance that was given none: of this process on this host.

    Two that run at once must never share a name, or each would take the other's leases for those of its earlier life.
    In containers, where every process has the same number, the host's name is what tells them apart.
    """
    return f"{service}_{socket.gethostname()}_{os.getpid()}"


def holder_name(instance: str) -> str:
    """A new lease holder's name for this life of `instance`, in which hyphens and dots become underscores."""
    return f"{instance.replace('-', '_').replace('.', '_')}-{secrets.token_hex(8)}"
