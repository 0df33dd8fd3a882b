"""The registered keys, remembered: verification asks for one key per document, the registry changes rarely.

Authoritative is view `registered_key`. What is remembered here may be a little old: acceptance judges every key again
under its locks (RULE-06), and a read request looks its key up again. Keys are remembered one by one as they are asked
for, so neither an unknown key nor a large registry costs more than one look-up; an announced change forgets them all.
"""

import time
from collections import OrderedDict
from collections.abc import Callable, Sequence
from typing import Any, Final

import psycopg
from msgspec import Struct

from contracts.verification import RegisteredKey
from services.authority.key_book import registered_key
from services.process.database import Pool, connection_string
from services.process.statements import load

keys_remembered_max: Final = 50_000
"""Keys remembered by one process; beyond it those asked for longest ago are forgotten."""
key_age_seconds_max: Final = 60.0
"""Seconds after which a remembered key is looked up again, in case the announcement of a change was lost."""
absent_keys_max: Final = 4_096
"""Key IDs remembered as not registered."""
absence_seconds_max: Final = 1.0
"""Seconds for which a key ID counts as not registered without another look."""
look_ups_max: Final = 3
"""Times that one key is looked up while the registry changes under the look-up."""
connection_attempts_max: Final = 2
"""Connections tried for one look-up: the one at hand may have been cut."""

sql = load(__package__)


class KeysUnavailable(Exception):
    """The registry cannot be read now; whoever asked may ask again. It never means "no such key"."""


class _Remembered(Struct, frozen=True):
    key: RegisteredKey
    until: float


class _Memory:
    """Keys and absences with their ends, both bounded. Not shared between threads."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._keys: OrderedDict[str, _Remembered] = OrderedDict()
        self._absent: OrderedDict[str, float] = OrderedDict()

    def find(self, key_id: str) -> RegisteredKey | None:
        """A key that is remembered and not too old."""
        remembered = self._keys.get(key_id)
        if remembered is None or remembered.until <= self._clock():
            return None
        self._keys.move_to_end(key_id)
        return remembered.key

    def is_absent(self, key_id: str) -> bool:
        """Whether this key was looked up a moment ago and not found."""
        return self._absent.get(key_id, 0.0) > self._clock()

    def put(self, key_id: str, row: Sequence[Any] | None) -> RegisteredKey | None:
        """Remember what a look-up gave."""
        self._keys.pop(key_id, None)
        self._absent.pop(key_id, None)
        if row is None:
            self._absent[key_id] = self._clock() + absence_seconds_max
            if len(self._absent) > absent_keys_max:
                self._absent.popitem(last=False)
            return None
        key = registered_key(row)
        self._keys[key_id] = _Remembered(key, self._clock() + key_age_seconds_max)
        if len(self._keys) > keys_remembered_max:
            self._keys.popitem(last=False)
        return key

    def clear(self) -> None:
        """Forget everything."""
        self._keys.clear()
        self._absent.clear()


class KeyRegistryCache:
    """The keys as one event loop remembers them. `resolve` never waits; `learn` looks up what it did not know.

    `version` rises with each announced change; processes that remember keys of their own compare it.
    """

    def __init__(self, pool: Pool, organization_id: str, clock: Callable[[], float] = time.monotonic) -> None:
        """`clock` gives monotonic seconds."""
        self._pool = pool
        self._organization_id = organization_id
        self._memory = _Memory(clock)
        self.version = 1

    def resolve(self, key_id: str) -> RegisteredKey | None:
        """A remembered key. None may also mean that it was never looked up: then `learn` and resolve again."""
        return self._memory.find(key_id)

    async def learn(self, key_id: str) -> bool:
        """Look up one key; whether it is registered. Raises psycopg errors as they come."""
        if self._memory.find(key_id) is not None:
            return True
        if self._memory.is_absent(key_id):
            return False
        for _ in range(look_ups_max):
            version = self.version
            async with self._pool.connection() as connection:
                cursor = await connection.execute(sql.find_signing_key, _asked(self._organization_id, key_id))
                row = await cursor.fetchone()
            # If the registry changed while it was read, this row may be the older one.
            if version == self.version:
                break
        return self._memory.put(key_id, row) is not None

    def invalidate(self) -> None:
        """The registry changed: forget all that is remembered (`subjects.keys_changed`)."""
        self.version += 1
        self._memory.clear()


class SynchronousKeyResolver:
    """The keys as an admission process remembers them, over a plain connection of its own. Used by one thread."""

    def __init__(self, database_url: str, organization_id: str, clock: Callable[[], float] = time.monotonic) -> None:
        """Connects at the first look-up; `clock` gives monotonic seconds."""
        self._conninfo = connection_string(database_url, name="weavehold-keys")
        self._organization_id = organization_id
        self._memory = _Memory(clock)
        self._connection: psycopg.Connection[Any] | None = None
        self._version = 0

    def resolve(self, key_id: str) -> RegisteredKey | None:
        """The key, looked up unless remembered; None when it is not registered. Raises KeysUnavailable."""
        known = self._memory.find(key_id)
        if known is not None or self._memory.is_absent(key_id):
            return known
        return self._memory.put(key_id, self._look_up(key_id))

    def at_least(self, version: int) -> None:
        """Forget what was remembered before this version of the registry."""
        if version > self._version:
            self._memory.clear()
            self._version = version

    def close(self) -> None:
        """Close the connection; the next look-up opens another."""
        connection, self._connection = self._connection, None
        if connection is not None:
            connection.close()

    def _look_up(self, key_id: str) -> Sequence[Any] | None:
        for attempt in range(connection_attempts_max):
            try:
                if self._connection is None:
                    self._connection = psycopg.connect(self._conninfo, autocommit=True)
                return self._connection.execute(sql.find_signing_key, _asked(self._organization_id, key_id)).fetchone()
            except psycopg.OperationalError as fault:
                self.close()
                if attempt + 1 == connection_attempts_max:
                    raise KeysUnavailable(str(fault)) from fault
        return None


def _asked(organization_id: str, key_id: str) -> dict[str, str]:
    return {"organization_id": organization_id, "key_id": key_id}
