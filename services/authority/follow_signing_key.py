"""The service's signing key, followed as its file is replaced: rotation without a restart (TRU-2).

A new key takes over between two batches, once the registry has it and it is valid; until then the one at hand goes on.
Authoritative is the registry: a batch whose key is not valid at its moment of acceptance commits nothing.
"""

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import Final

from contracts.signature import SigningKey
from contracts.timestamps import format_timestamp, instant
from services.authority.batch_facts import sql
from services.authority.judge_batch import Office
from services.authority.key_book import registered_key
from services.process.database import FaultKind, Pool, classify
from services.process.health import READY, Finding
from services.process.logs import get_log

look_seconds: Final = 1.0
"""Seconds between two looks at the key file."""

log = get_log(__name__)

type _FileMark = tuple[int, int, int]


class SigningKeyFollower:
    """Replaces `office.key` when the key file holds another key that may sign now."""

    def __init__(self, office: Office, file: Path, pool: Pool) -> None:
        """`file` is the one that `office.key` came from."""
        self._office = office
        self._file = file
        self._pool = pool
        self._seen: _FileMark | None = None
        self._told: str | None = None

    async def run(self, beat: Callable[[], None]) -> None:
        """Look once a second until cancelled."""
        while True:
            beat()
            try:
                await self.look()
            except Exception as fault:
                if classify(fault) is not FaultKind.TRANSIENT:
                    raise
                self._tell(f"the key registry cannot be read: {fault}")
            await asyncio.sleep(look_seconds)

    async def look(self) -> None:
        """Take over a changed file's key when it may sign; say once why it may not. Raises psycopg errors."""
        try:
            status = self._file.stat()
            mark = (status.st_ino, status.st_mtime_ns, status.st_size)
            if mark == self._seen:
                return
            key = SigningKey.from_file(self._file)
        except (OSError, ValueError) as fault:
            self._tell(f"the key file cannot be used: {fault}")
            return
        if key.key_id != self._office.key.key_id:
            if (refusal := await self._refusal(key)) is not None:
                self._tell(refusal)
                return
            log.info("signing_key_replaced", before=self._office.key.key_id, now=key.key_id)
            self._office.key = key
        self._seen, self._told = mark, None

    async def check(self) -> Finding:
        """Readiness: whether the key at hand may sign now."""
        refusal = await self._refusal(self._office.key)
        return READY if refusal is None else Finding.failed(refusal)

    async def _refusal(self, key: SigningKey) -> str | None:
        if key.principal != self._office.key.principal:
            return f"key {key.key_id} belongs to {key.principal.id}, not to {self._office.key.principal.id}"
        asked = {"organization_id": self._office.organization_id, "key_id": key.key_id}
        async with self._pool.connection() as connection:
            [row] = await (await connection.execute(sql.read_signing_key, asked, binary=True)).fetchall()
        *registered, now, judged_at = row
        if registered[0] is None:
            return f"key {key.key_id} is not registered here; `weavehold init` registers the key at hand"
        found = registered_key(registered)
        if (found.principal, found.public_key) != (key.principal, key.public_key):
            return f"key {key.key_id} is registered otherwise"
        valid = all(found.covers(instant(format_timestamp(moment))) for moment in (now, judged_at))
        return None if valid else f"key {key.key_id} is not valid now"

    def _tell(self, refusal: str) -> None:
        """A fault that lasts is logged once."""
        if refusal != self._told:
            log.warning("signing_key_not_replaced", file=str(self._file), reason=refusal)
            self._told = refusal
