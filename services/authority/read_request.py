"""The gate of signed reads: from bytes to who asks what, in the order of checks that Commands have (RULE-01).

size → parse → schema → signature → freshness → kind and payload → critical extensions → session. The clock, the key as
it is registered now and the Session Epoch come from one statement, so a revoked key or a replaced session reads
nothing, whatever a cache remembers. Nothing is recorded but authentication failures, in the protected audit table.
"""

import hashlib
from collections.abc import Callable, Collection
from datetime import datetime
from typing import Any

import msgspec
from msgspec import UNSET, Struct
from psycopg import AsyncConnection

from contracts.bounds import request_bytes_max
from contracts.command import Command
from contracts.document_kinds import DocumentKind
from contracts.documents.common import Actor, ActorType
from contracts.identifiers import SessionEpoch
from contracts.payloads.requests import ReadPayload, read_payload
from contracts.rejection import Code, Rejection, reject
from contracts.timestamps import format_timestamp, instant
from contracts.verification import RegisteredKey, Stage, VerificationFailure, Verified, verify_document
from services.authority.admitted import AuthenticationFailure
from services.authority.audit_failure import audit_failure
from services.authority.freshness import Freshness
from services.authority.key_book import registered_key
from services.authority.key_cache import KeyRegistryCache
from services.authority.refuse_document import refuse_document, rejected_words
from services.process.database import Connections
from services.process.statements import load

sql = load(__package__)


class Reader(Struct, frozen=True, kw_only=True):
    """Who asks: a verified Principal; `session_epoch` is an Agent's current one, 0 for people and services."""

    actor: Actor
    session_epoch: SessionEpoch


class ReadRequest(Struct, frozen=True, kw_only=True):
    """A read that passed the gate. `action_id` names it: no other request has it."""

    action_id: str
    reader: Reader
    payload: ReadPayload


class _Believed(Struct, frozen=True):
    """A request whose signature, key and time hold, with the Session Epoch that its actor has now."""

    command: Command
    session_epoch: int


class ReadTrust(Struct, frozen=True, kw_only=True):
    """What every request of one Organization is verified by; `keys` are re-read where they are believed.

    While `registry_fault` gives a reason, the registry as a whole is not valid, so no request can be believed.
    """

    organization_id: str
    keys: KeyRegistryCache
    freshness: Freshness
    registry_fault: Callable[[], str | None]


async def read_request(
    pool: Connections, trust: ReadTrust, raw: bytes, kinds: Collection[str]
) -> ReadRequest | Rejection:
    """Verify one request whose kind must be among `kinds`. Raises psycopg errors as they come."""
    if trust.registry_fault() is not None:
        return registry_not_trusted()
    verified = await _verify(trust.keys, raw)
    if isinstance(verified, VerificationFailure):
        return await _refuse_document(pool, trust.organization_id, raw, verified)
    async with pool.connection() as connection:
        believed = await _believe(connection, trust, verified, raw)
    if isinstance(believed, Rejection):
        return believed
    command = believed.command
    payload = _payload(command, kinds)
    if isinstance(payload, Rejection):
        return payload
    agent = command.actor.type is ActorType.AGENT
    if agent and command.session_epoch != believed.session_epoch:
        message = f"session epoch {command.session_epoch} of {command.actor.id} is not current; open a new session"
        return _refuse(command, Code.AUTH_STALE_SESSION, message)
    epoch = SessionEpoch(believed.session_epoch if agent else 0)
    reader = Reader(actor=command.actor, session_epoch=epoch)
    return ReadRequest(action_id=command.action_id, reader=reader, payload=payload)


class _Noting:
    """Resolves from what is remembered and notes the key that was not."""

    def __init__(self, keys: KeyRegistryCache) -> None:
        self._keys = keys
        self.unknown: str | None = None

    def resolve(self, key_id: str) -> RegisteredKey | None:
        key = self._keys.resolve(key_id)
        if key is None:
            self.unknown = key_id
        return key


async def _verify(keys: KeyRegistryCache, raw: bytes) -> Verified | VerificationFailure:
    """Size and the six stages; once more when the key was not remembered but is registered."""
    noting = _Noting(keys)
    verified = verify_document(DocumentKind.COMMAND, raw, noting, request_bytes_max)
    if isinstance(verified, VerificationFailure) and noting.unknown and await keys.learn(noting.unknown):
        return verify_document(DocumentKind.COMMAND, raw, keys, request_bytes_max)
    return verified


async def _refuse_document(
    pool: Connections, organization_id: str, raw: bytes, failure: VerificationFailure
) -> Rejection:
    refused = refuse_document(raw, failure)
    if refused.failure is not None:
        async with pool.connection() as connection:
            await audit_failure(connection, organization_id, refused.failure)
    return refused.rejection


async def _believe(
    connection: AsyncConnection[Any], trust: ReadTrust, verified: Verified, raw: bytes
) -> _Believed | Rejection:
    """Judge key and time as the database has them now."""
    command = verified.typed
    assert isinstance(command, Command)  # noqa: S101 - the kind decides the type
    asked = {"organization_id": trust.organization_id, "key_id": verified.key_id, "actor_id": command.actor.id}
    row = await (await connection.execute(sql.read_request_facts, asked, binary=True)).fetchone()
    assert row is not None  # noqa: S101 - the statement always gives one row
    now, judged_at, session_epoch, *key = row
    if (fault := _key_fault(key, (now, judged_at))) is not None:
        stage = Stage.KEY_RESOLUTION.value
    elif (fault := trust.freshness.around(now).fault(command.issued_at)) is not None:
        stage = "freshness"
    else:
        return _Believed(command, session_epoch)
    record = AuthenticationFailure(
        stage=stage,
        reason=fault,
        key_id=verified.key_id,
        actor_id=command.actor.id,
        action_id=command.action_id,
        document_sha256=hashlib.sha256(raw).digest(),
    )
    await audit_failure(connection, trust.organization_id, record)
    return reject(Code.AUTH_INVALID_SIGNATURE, rejected_words)


def registry_not_trusted() -> Rejection:
    """The answer to whoever would have to be believed by a key while the registry is not valid."""
    message = "nobody can be verified now; send the same request again"
    return reject(Code.BACKPRESSURE, message, retryable=True, retry_after_ms=1_000)


def _key_fault(row: list[Any], moments: tuple[datetime, ...]) -> str | None:
    if row[0] is None:
        return "the key is no longer registered"
    key = registered_key(row)
    if not all(key.covers(instant(format_timestamp(moment))) for moment in moments):
        return f"key {key.key_id} is not valid at the time of reading"
    return None


def _payload(command: Command, kinds: Collection[str]) -> ReadPayload | Rejection:
    """What is asked, once kind, shape and extensions are what this subject takes."""
    if command.kind not in kinds:
        message = f"{command.kind} is not asked here; this subject takes {', '.join(sorted(kinds))}"
        return _refuse(command, Code.INVALID_COMMAND, message)
    try:
        payload = read_payload(command.kind, command.payload)
    except msgspec.ValidationError as fault:
        return _refuse(command, Code.SCHEMA_VALIDATION_FAILED, f"payload of {command.kind}: {fault}")
    extensions = {} if command.extensions is UNSET else command.extensions
    critical = sorted(name for name, extension in extensions.items() if extension.critical)
    if critical:
        # A read knows no extension, so a critical one forbids to answer.
        message = f"critical extensions are not understood: {', '.join(critical)}"
        return _refuse(command, Code.UNKNOWN_CRITICAL_EXTENSION, message)
    return payload


def _refuse(command: Command, code: Code, message: str) -> Rejection:
    return reject(code, message, related_action_id=command.action_id)
