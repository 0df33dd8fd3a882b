"""The session handshake: a challenge that works once, a proof, and the next Session Epoch (RULE-29).

Authoritative here: the challenge row. Any process may answer either step, so what was said in step one lives in
PostgreSQL; deleting the row is what makes it single use, and it is gone whatever the proof is worth.

What each crash point leaves behind: a challenge that nobody answers, forgotten after its seconds; a consumed challenge
without a session, or a session whose acceptance was lost: either way the client starts again, and the newer session
fences the older one.
"""

import hashlib
import secrets
from collections.abc import Awaitable, Callable
from datetime import UTC, datetime, timedelta
from typing import Any, Final

import msgspec
from msgspec import UNSET, Struct
from psycopg import AsyncConnection

from contracts.bounds import lease_seconds_max
from contracts.canonical import ParseFault, canonical_bytes, parse_strict
from contracts.documents.common import Actor, ActorType
from contracts.documents.reading import read
from contracts.identifiers import SessionEpoch
from contracts.payloads.handshake import (
    Challenge,
    ClientInit,
    ClientProof,
    HandshakeReply,
    HandshakeRequest,
    ServerAccept,
    ServerChallenge,
    challenge_seconds,
    handshake_bytes_max,
    supported_version,
)
from contracts.rejection import Code, Rejection, reject
from contracts.signature import base64url_bytes, base64url_text, verify_ed25519
from contracts.timestamps import format_timestamp, instant, parse_timestamp
from contracts.verification import RegisteredKey, Stage
from services.authority.admitted import AuthenticationFailure
from services.authority.audit_failure import audit_failure
from services.authority.decide_organization import rejected_proof
from services.authority.key_book import registered_key
from services.process.database import Connections
from services.process.statements import load

open_challenges_max: Final = 2_000
"""Challenges of one Organization that may wait for their answers at once."""
challenge_bytes_max: Final = 4 * 1024
"""Bytes of one decoded challenge."""
_nonce_bytes: Final = 32
_challenge_id_bytes: Final = 18
"""24 characters in base64url."""
_retry_after_ms: Final = 1_000

sql = load(__package__)


class SessionOpened(Struct, frozen=True, kw_only=True):
    """An accepted session: its epoch, and when it was opened on the database clock (`…ffffffZ`)."""

    session_epoch: SessionEpoch
    opened_at: str


OpenSession = Callable[[str, str], Awaitable[SessionOpened | Rejection]]
"""Runs the `session_open` Command for (agent ID, key ID) through the Organization shard's lane."""


class _OpenChallenge(Struct, frozen=True):
    """A consumed challenge with the clock at that moment and the registered key of that name, if there is one."""

    agent_id: str
    key_id: str
    client_nonce: str
    server_nonce: str
    challenge: bytes
    expires_at: datetime
    now: datetime
    judged_at: datetime
    key: RegisteredKey | None


class _Unproven(Struct, frozen=True):
    """Why a proof fails, for the audit record alone."""

    stage: str
    reason: str


async def serve_session(
    pool: Connections, organization_id: str, raw: bytes, open_session: OpenSession
) -> HandshakeReply | Rejection:
    """Answer one step of the handshake. All failures of the proof look the same on the wire (TRU-5)."""
    try:
        request = read(parse_strict(raw, handshake_bytes_max), HandshakeRequest)
    except ParseFault as fault:
        return reject(Code.PROTOCOL_VIOLATION, str(fault))
    except msgspec.ValidationError as fault:
        return reject(Code.SCHEMA_VALIDATION_FAILED, f"handshake request: {fault}")
    if request.client_init is not UNSET:
        async with pool.connection() as connection:
            return await issue_challenge(connection, organization_id, request.client_init)
    assert request.client_proof is not UNSET  # noqa: S101 - a request holds one of the two
    proof = request.client_proof
    async with pool.connection() as connection:
        challenge = await consume_challenge(connection, organization_id, proof)
        fault_found = _unproven(challenge, proof)
        if fault_found is not None:
            await audit_failure(connection, organization_id, _audit_record(fault_found, proof, raw))
            return reject(Code.AUTH_INVALID_SIGNATURE, rejected_proof)
    opened = await open_session(proof.agent_id, proof.key_id)
    if isinstance(opened, Rejection):
        return opened
    assert challenge is not None  # noqa: S101 - without a challenge or its key the proof fails
    assert challenge.key is not None  # noqa: S101
    return HandshakeReply(
        server_accept=ServerAccept(
            selected_version=supported_version,
            session_epoch=opened.session_epoch,
            expires_at=_expiry(opened, challenge.key),
        )
    )


async def issue_challenge(
    connection: AsyncConnection[Any], organization_id: str, init: ClientInit
) -> HandshakeReply | Rejection:
    """Store a new challenge. Whether Agent and key exist is not looked at here: the answer would tell."""
    if supported_version not in init.supported_versions:
        offered = ", ".join(init.supported_versions)
        return reject(Code.UNSUPPORTED_VERSION, f"this authority speaks {supported_version}, the client {offered}")
    [(now,)] = await (await connection.execute(sql.read_clock)).fetchall()
    expires_at = now.astimezone(UTC) + timedelta(seconds=challenge_seconds)
    challenge = Challenge(
        agent_id=init.agent_id,
        challenge_id=base64url_text(secrets.token_bytes(_challenge_id_bytes)),
        client_nonce=init.client_nonce,
        expires_at=expires_at.isoformat(),
        key_id=init.key_id,
        protocol_version=supported_version,
        server_nonce=base64url_text(secrets.token_bytes(_nonce_bytes)),
    )
    row = {
        "organization_id": organization_id,
        "challenge_id": challenge.challenge_id,
        "agent_id": init.agent_id,
        "key_id": init.key_id,
        "client_nonce": init.client_nonce,
        "server_nonce": challenge.server_nonce,
        "challenge": canonical_bytes(challenge),
        "expires_at": expires_at,
        "open_challenges_max": open_challenges_max,
    }
    async with connection.transaction():
        await connection.execute(sql.forget_expired_challenges, row)
        stored = await connection.execute(sql.store_challenge, row)
    if stored.rowcount != 1:
        message = f"{open_challenges_max} handshakes are open; begin again"
        return reject(Code.BACKPRESSURE, message, retryable=True, retry_after_ms=_retry_after_ms)
    return HandshakeReply(
        server_challenge=ServerChallenge(
            selected_version=supported_version,
            client_nonce=init.client_nonce,
            server_nonce=challenge.server_nonce,
            challenge=base64url_text(row["challenge"]),
        )
    )


async def consume_challenge(
    connection: AsyncConnection[Any], organization_id: str, proof: ClientProof
) -> _OpenChallenge | None:
    """Take the challenge that the proof names out of the table, for good; None when there is none (any more)."""
    named = base64url_bytes(proof.challenge)
    if named is None:
        return None
    try:
        challenge = read(parse_strict(named, challenge_bytes_max), Challenge)
    except (ParseFault, msgspec.ValidationError):
        return None
    asked = {"organization_id": organization_id, "challenge_id": challenge.challenge_id}
    row = await (await connection.execute(sql.consume_challenge, asked, binary=True)).fetchone()
    if row is None:
        return None
    agent_id, key_id, client_nonce, server_nonce, challenge_bytes, expires_at, now, judged_at, *key = row
    registered = None if key[0] is None else registered_key(key)
    return _OpenChallenge(
        agent_id, key_id, client_nonce, server_nonce, challenge_bytes, expires_at, now, judged_at, registered
    )


def _unproven(challenge: _OpenChallenge | None, proof: ClientProof) -> _Unproven | None:
    """The first fault of a proof, None when it stands."""
    if challenge is None:
        return _Unproven("challenge", "no open challenge of this name: never issued, used, or forgotten")
    if (fault := _transcript_fault(challenge, proof)) is not None:
        return _Unproven("challenge", fault)
    if (fault := _key_fault(challenge)) is not None:
        return _Unproven(Stage.KEY_RESOLUTION.value, fault)
    assert challenge.key is not None  # noqa: S101 - its absence is a key fault
    signature = base64url_bytes(proof.challenge_signature) or b""
    if not verify_ed25519(challenge.key.public_key, challenge.challenge, signature):
        return _Unproven(Stage.SIGNATURE.value, "the signature is not one of this key over the challenge")
    return None


def _transcript_fault(challenge: _OpenChallenge, proof: ClientProof) -> str | None:
    """Where the proof departs from what was said before, or that it comes too late."""
    said = (challenge.agent_id, challenge.key_id, challenge.client_nonce, challenge.server_nonce)
    if said != (proof.agent_id, proof.key_id, proof.client_nonce, proof.server_nonce):
        return "the proof does not repeat what was said before"
    if base64url_bytes(proof.challenge) != challenge.challenge:
        return "the challenge is not the one that was given"
    if challenge.now >= challenge.expires_at:
        return f"answered after {challenge.expires_at.isoformat()}"
    return None


def _key_fault(challenge: _OpenChallenge) -> str | None:
    """Why the named key may not open a session of this Agent at the moment when the challenge was consumed."""
    if challenge.key is None:
        return "the key is not registered"
    if challenge.key.principal != Actor(type=ActorType.AGENT, id=challenge.agent_id):
        return f"the key is bound to {challenge.key.principal.id}"
    if not all(challenge.key.covers(instant(format_timestamp(at))) for at in (challenge.now, challenge.judged_at)):
        return "the key is not valid now"
    return None


def _expiry(opened: SessionOpened, key: RegisteredKey) -> str:
    """A session ends when the next one opens; at the latest with its key, or after the longest time we promise."""
    longest = parse_timestamp(opened.opened_at) + timedelta(seconds=lease_seconds_max)
    ends = [end for end in (key.valid_until, key.revoked_at) if end is not None]
    return min([format_timestamp(longest), *ends], key=instant)


def _audit_record(fault: _Unproven, proof: ClientProof, raw: bytes) -> AuthenticationFailure:
    return AuthenticationFailure(
        stage=fault.stage,
        reason=fault.reason,
        key_id=proof.key_id,
        actor_id=proof.agent_id,
        document_sha256=hashlib.sha256(raw).digest(),
    )
