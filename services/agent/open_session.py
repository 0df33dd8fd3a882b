"""Open a session: the HELLO handshake over the broker (`contracts.payloads.handshake`).

The Agent proves its key by signing the decoded challenge bytes exactly as received. Acceptance gives the next Session
Epoch, which fences every earlier session of the Agent at once, so a lost last reply costs one epoch and nothing else:
the handshake starts again with a new nonce. A challenge works once; a step is therefore never sent twice.
"""

import secrets
from typing import Final

import msgspec
from msgspec import UNSET, Struct
from nats.errors import Error as BrokerError

from contracts import subjects
from contracts.canonical import canonical_bytes
from contracts.identifiers import SessionEpoch
from contracts.payloads.handshake import (
    Challenge,
    ClientInit,
    ClientProof,
    HandshakeReply,
    HandshakeRequest,
    ServerChallenge,
    supported_version,
)
from contracts.signature import SigningKey, base64url_bytes, base64url_text
from services.agent.send_command import (
    Attempts,
    Refusal,
    RequestLink,
    RetryPolicy,
    read_reply,
    retry_after_seconds,
)

nonce_bytes: Final = 32


class Session(Struct, frozen=True, kw_only=True):
    """A live session. `expires_at` is the authority's time."""

    agent_id: str
    epoch: SessionEpoch
    expires_at: str


class HandshakeFault(Exception):
    """The other side broke the handshake: it did not echo what was sent, or sent nothing that one may sign."""


async def open_session(
    link: RequestLink, organization_id: str, key: SigningKey, policy: RetryPolicy
) -> Session | Refusal | None:
    """Open the Agent's next session. None when the bounds ran out without an answer.

    Raises HandshakeFault or ReplyFault when the answers do not follow the protocol.
    """
    subject, attempts = subjects.session(organization_id), Attempts(policy)
    while True:
        pause_seconds = 0.0
        try:
            outcome = await _handshake(link, subject, key, attempts)
        except (BrokerError, TimeoutError, OSError):
            pass
        else:
            if isinstance(outcome, Session) or not outcome.rejection.retryable:
                return outcome
            pause_seconds = retry_after_seconds(outcome)
        if not await attempts.wait(pause_seconds):
            return None


async def _handshake(link: RequestLink, subject: str, key: SigningKey, attempts: Attempts) -> Session | Refusal:
    """One run through both steps."""
    opening = ClientInit(
        agent_id=key.principal.id,
        key_id=key.key_id,
        client_nonce=base64url_text(secrets.token_bytes(nonce_bytes)),
        supported_versions=(supported_version,),
    )
    reply = await _step(link, subject, HandshakeRequest(client_init=opening), attempts)
    if isinstance(reply, Refusal):
        return reply
    if reply.server_challenge is UNSET:
        raise HandshakeFault("the first step was not answered with a challenge")
    proof = ClientProof(
        agent_id=opening.agent_id,
        key_id=opening.key_id,
        client_nonce=opening.client_nonce,
        server_nonce=reply.server_challenge.server_nonce,
        challenge=reply.server_challenge.challenge,
        challenge_signature=key.sign(_bytes_to_sign(reply.server_challenge, opening)),
    )
    reply = await _step(link, subject, HandshakeRequest(client_proof=proof), attempts)
    if isinstance(reply, Refusal):
        return reply
    if reply.server_accept is UNSET:
        raise HandshakeFault("the second step was not answered with an acceptance")
    accept = reply.server_accept
    return Session(agent_id=key.principal.id, epoch=accept.session_epoch, expires_at=accept.expires_at)


async def _step(
    link: RequestLink, subject: str, request: HandshakeRequest, attempts: Attempts
) -> HandshakeReply | Refusal:
    raw = await link.request(subject, canonical_bytes(request), attempts.begin())
    return read_reply(raw, HandshakeReply)


def _bytes_to_sign(offered: ServerChallenge, opening: ClientInit) -> bytes:
    """The decoded challenge, once it is clear that it answers this client and is nothing else that one could sign."""
    raw = base64url_bytes(offered.challenge)
    if raw is None:
        raise HandshakeFault("the challenge is not base64url")
    try:
        challenge = msgspec.json.decode(raw, type=Challenge)
    except msgspec.MsgspecError as fault:
        raise HandshakeFault(f"the challenge holds something else: {fault}") from fault
    named = (challenge.agent_id, challenge.key_id, challenge.client_nonce, challenge.server_nonce)
    ours = (opening.agent_id, opening.key_id, opening.client_nonce, offered.server_nonce)
    if named != ours or offered.client_nonce != opening.client_nonce:
        raise HandshakeFault("the challenge does not answer this client: refusing to sign it")
    return raw
