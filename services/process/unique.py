"""New unique names: `urn:uuid:` of version 7, which sort by the time of their making (RFC 9562, 5.7)."""

import secrets
import time
import uuid
from typing import Final

_RANDOM_BITS: Final = 74


def uuid7_urn() -> str:
    """A new name; unique by 74 random bits within one millisecond. Its time decides nothing."""
    milliseconds = time.time_ns() // 1_000_000
    random = secrets.randbits(_RANDOM_BITS)
    high, low = random >> 62, random & (1 << 62) - 1
    return uuid.UUID(int=milliseconds << 80 | 0x7 << 76 | high << 64 | 0b10 << 62 | low).urn
