"""The session handshake over the broker: the HELLO transcript of the protocol in two request/reply steps (RULE-29).

The client asks for a challenge, signs the decoded challenge bytes as received (plain Ed25519), and gets the next
Session Epoch. A challenge works once and for `challenge_seconds`.
"""

from typing import Annotated, Final

from msgspec import UNSET, Meta, UnsetType

from contracts.documents.common import Document
from contracts.identifiers import Base64Url, Identifier, SessionEpochField
from contracts.timestamps import Timestamp

supported_version: Final = "0.1"
"""The protocol version that this authority speaks."""
versions_max: Final = 16
"""Versions that one client may offer."""
challenge_seconds: Final = 30
"""Seconds for which a challenge may be answered."""
handshake_bytes_max: Final = 16 * 1024
"""Bytes of one handshake request."""

ProtocolVersion = Annotated[str, Meta(pattern=r"\A[0-9]+\.[0-9]+\Z", max_length=16)]


class ClientInit(Document, frozen=True, kw_only=True):
    """Step one: who wants a session, under which key."""

    agent_id: Identifier
    key_id: Identifier
    client_nonce: Base64Url
    supported_versions: Annotated[tuple[ProtocolVersion, ...], Meta(min_length=1, max_length=versions_max)]


class ClientProof(Document, frozen=True, kw_only=True):
    """Step two: everything said before, once more and equal, with the signature over the decoded challenge."""

    agent_id: Identifier
    key_id: Identifier
    client_nonce: Base64Url
    server_nonce: Base64Url
    challenge: Base64Url
    challenge_signature: Base64Url


class HandshakeRequest(Document, frozen=True, kw_only=True):
    """One of the two steps."""

    client_init: ClientInit | UnsetType = UNSET
    client_proof: ClientProof | UnsetType = UNSET

    def __post_init__(self) -> None:
        """Exactly one step stands in a request."""
        if (self.client_init is UNSET) == (self.client_proof is UNSET):
            raise ValueError("a handshake request holds either clientInit or clientProof")


class Challenge(Document, frozen=True, kw_only=True):
    """What the client signs, as RFC 8785 bytes: exactly these seven members. `expires_at` ends in `+00:00`."""

    agent_id: Identifier
    challenge_id: Base64Url
    client_nonce: Base64Url
    expires_at: str
    key_id: Identifier
    protocol_version: str
    server_nonce: Base64Url


class ServerChallenge(Document, frozen=True, kw_only=True):
    """The answer to step one; `challenge` is unpadded base64url of the bytes to sign."""

    selected_version: str
    client_nonce: Base64Url
    server_nonce: Base64Url
    challenge: Base64Url


class ServerAccept(Document, frozen=True, kw_only=True):
    """The answer to step two. The session lasts until it is replaced, at most until `expires_at`."""

    selected_version: str
    session_epoch: SessionEpochField
    expires_at: Timestamp


class HandshakeReply(Document, frozen=True, kw_only=True):
    """What the authority answers when the step succeeded."""

    server_challenge: ServerChallenge | UnsetType = UNSET
    server_accept: ServerAccept | UnsetType = UNSET
