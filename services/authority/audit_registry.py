"""The whole registry as evidence, examined at the start and after each change: without it no key counts (TRU-2)."""

import asyncio
import time
from collections.abc import Callable
from typing import Final

from msgspec import ValidationError, to_builtins

from contracts.documents.reading import read
from contracts.key_registry import KeyRegistry, RegistryEvidence
from contracts.verification import RegistryFault
from services.authority.judge_batch import Office
from services.authority.key_cache import KeyRegistryCache
from services.authority.read_evidence import read_evidence
from services.process.database import FaultKind, Pool, classify
from services.process.health import READY, Finding
from services.process.logs import get_log

pause_seconds_min: Final = 5.0
"""Seconds between two examinations: a busy registrar must not occupy a core with them."""
examination_seconds_max: Final = 300.0
"""Seconds after which the registry is examined again, in case a change was not announced."""
look_seconds: Final = 1.0
"""Seconds between two looks whether the registry changed."""
not_examined_yet: Final = "the key registry has not been examined yet"

log = get_log(__name__)


class RegistryAuditor:
    """Keeps `office.registry_fault`: while it is set, nothing can be accepted."""

    def __init__(self, office: Office, keys: KeyRegistryCache, pool: Pool) -> None:
        """Until the first examination the registry counts as invalid."""
        self._office = office
        self._keys = keys
        self._pool = pool
        self._examined = 0
        self._last = -pause_seconds_min
        office.registry_fault = not_examined_yet

    async def run(self, beat: Callable[[], None]) -> None:
        """Examine after each announced change, and now and then without one, until cancelled."""
        while True:
            beat()
            version = self._keys.version
            pause = examination_seconds_max if version == self._examined else pause_seconds_min
            if time.monotonic() >= self._last + pause:
                try:
                    await self.examine()
                    self._examined = version
                except Exception as fault:
                    if classify(fault) is not FaultKind.TRANSIENT:
                        raise
                    log.warning("registry_not_examined", fault=str(fault))
                self._last = time.monotonic()
            await asyncio.sleep(look_seconds)

    async def examine(self) -> None:
        """Read and judge the whole registry. Raises psycopg errors; what was found before then stands."""
        try:
            async with self._pool.connection() as connection:
                evidence = await read_evidence(connection, self._office.organization_id)
            fault = await asyncio.to_thread(evidence_fault, evidence)
        except RegistryFault as unreadable:
            fault = _not_valid(unreadable)
        if fault is not None and fault != self._office.registry_fault:
            log.error("registry_invalid", reason=fault)
        self._office.registry_fault = fault

    async def check(self) -> Finding:
        """Readiness: whether the registry's evidence is valid."""
        fault = self._office.registry_fault
        return READY if fault is None else Finding.failed(fault)


def evidence_fault(evidence: RegistryEvidence) -> str | None:
    """Why this evidence is not valid as a whole, or None."""
    try:
        # Rows may hold what no Command could state: their shapes are examined too.
        KeyRegistry(read(to_builtins(evidence), RegistryEvidence))
    except (RegistryFault, ValidationError) as fault:
        return _not_valid(fault)
    return None


def _not_valid(fault: Exception) -> str:
    return f"the key registry is not valid: {fault}"
