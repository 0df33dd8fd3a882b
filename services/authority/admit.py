"""Admission: bytes in, a verified Command out. The CPU work runs in a few processes of their own.

An admission process holds nothing of value: killed at any instruction, its batch is verified again by its successor.
"""

import asyncio
import hashlib
import multiprocessing
import multiprocessing.connection
import os
import threading
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from typing import Final

from msgspec import UNSET

from contracts.bounds import command_bytes_max
from contracts.command import Command
from contracts.document_kinds import DocumentKind
from contracts.rejection import Code, reject
from contracts.verification import KeyResolver, VerificationFailure, Verified, verify_document, verify_parsed
from services.authority.admitted import Admitted, AuthenticationFailure, Refused, SignedFact
from services.authority.decide import nested_documents
from services.authority.key_cache import KeysUnavailable, SynchronousKeyResolver
from services.process.logs import configure_logs, get_log

log = get_log(__name__)

admission_batch_max: Final = 32
"""Commands verified in one call to an admission process."""
respawns_max: Final = 3
"""Broken pools replaced within one batch before its Commands get a retryable answer."""

Admission = Admitted | Refused
"""Admission's answer to one Command."""


def admit_one(raw: bytes, keys: KeyResolver) -> Admission:
    """Size, strict parse, schema and signature of one Command and of the signed documents inside it."""
    if len(raw) > command_bytes_max:
        excess = f"the Command has {len(raw)} bytes; at most {command_bytes_max} are taken"
        return Refused(reject(Code.PROTOCOL_VIOLATION, f"{excess}: publish large content as an Artifact"))
    verified = verify_document(DocumentKind.COMMAND, raw, keys, command_bytes_max)
    if isinstance(verified, VerificationFailure):
        return _refused(raw, verified, None)
    command = verified.typed
    assert isinstance(command, Command)  # noqa: S101 - the Struct of this document kind
    nested: list[SignedFact] = []
    for kind, document in nested_documents(command):
        inner = verify_parsed(kind, document, keys)
        if isinstance(inner, VerificationFailure):
            return _refused(raw, inner, command)
        nested.append(_fact(inner))
    return Admitted(raw=raw, command=command, fact=_fact(verified), nested=tuple(nested))


def _fact(verified: Verified) -> SignedFact:
    return SignedFact(
        kind=verified.kind.value,
        signing_hash=verified.signing_hash,
        key_id=verified.key_id,
        principal=verified.principal,
    )


def _refused(raw: bytes, failure: VerificationFailure, command: Command | None) -> Refused:
    related = UNSET if command is None else command.action_id
    if failure.stage.wire_code is not Code.AUTH_INVALID_SIGNATURE:
        return Refused(reject(failure.stage.wire_code, failure.reason, related_action_id=related))
    audit = AuthenticationFailure(
        stage=failure.stage.value,
        reason=failure.reason,
        actor_id=None if command is None else command.actor.id,
        action_id=None if command is None else command.action_id,
        document_sha256=hashlib.sha256(raw).digest(),
    )
    return Refused(reject(Code.AUTH_INVALID_SIGNATURE, "signed document rejected"), audit)


# --- the admission processes -------------------------------------------------------------------------------------

_resolver: SynchronousKeyResolver | None = None


def _start_process(database_url: str, organization_id: str) -> None:
    """Set up one admission process: its own view of the keys, and its end when its parent ends."""
    global _resolver  # noqa: PLW0603 - one resolver per process, set once by the pool's initializer
    configure_logs("admission", "warning")
    _resolver = SynchronousKeyResolver(database_url, organization_id)
    parent = multiprocessing.parent_process()
    if parent is not None:
        threading.Thread(target=_end_with, args=(parent.sentinel,), daemon=True).start()


def _end_with(sentinel: int) -> None:
    multiprocessing.connection.wait([sentinel])
    os._exit(0)


def _admit_batch(raws: Sequence[bytes], registry_version: int) -> list[Admission]:
    assert _resolver is not None  # noqa: S101 - the pool's initializer ran first
    _resolver.at_least(registry_version)
    return [_admit_safely(raw, _resolver) for raw in raws]


def _admit_safely(raw: bytes, keys: KeyResolver) -> Admission:
    """One Command that admission cannot digest never takes its neighbours down with it."""
    try:
        return admit_one(raw, keys)
    except KeysUnavailable as fault:
        return _unavailable(str(fault))
    except Exception:
        log.exception("admission_failed", document_sha256=hashlib.sha256(raw).hexdigest())
        return Refused(reject(Code.INTERNAL_ERROR, "the Command could not be examined; nothing was changed"))


def _unavailable(why: str) -> Refused:
    return Refused(
        reject(Code.BACKPRESSURE, f"{why}; send the same Command again", retryable=True, retry_after_ms=1_000)
    )


class AdmissionPool:
    """A few admission processes. `admit` may be called from any task of one event loop."""

    def __init__(self, database_url: str, organization_id: str, processes: int) -> None:
        """`processes` of 1 suits two cores: PostgreSQL and the broker want the other."""
        self._initargs = (database_url, organization_id)
        self._processes = processes
        self._pool = self._new_pool()

    def _new_pool(self) -> ProcessPoolExecutor:
        return ProcessPoolExecutor(
            self._processes,
            mp_context=multiprocessing.get_context("spawn"),
            initializer=_start_process,
            initargs=self._initargs,
        )

    async def admit(self, raws: Sequence[bytes], registry_version: int) -> list[Admission]:
        """Verify up to `admission_batch_max` Commands together. A process that dies is replaced and asked again."""
        loop = asyncio.get_running_loop()
        for _ in range(respawns_max):
            pool = self._pool
            try:
                return await loop.run_in_executor(pool, _admit_batch, raws, registry_version)
            except BrokenProcessPool:
                if self._pool is pool:
                    self._pool = self._new_pool()
                    pool.shutdown(wait=False)
        return [_unavailable("admission processes keep dying") for _ in raws]

    def close(self) -> None:
        """Stop the processes."""
        self._pool.shutdown(wait=False, cancel_futures=True)
