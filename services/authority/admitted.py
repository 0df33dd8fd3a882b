"""A Command that passed admission, and the answers it may get."""

from msgspec import Struct

from contracts.chain import SigningHash
from contracts.command import Command
from contracts.documents.common import Actor
from contracts.rejection import Rejection


class SignedFact(Struct, frozen=True, kw_only=True):
    """One verified signed document: what its admission record will say (TRU-4)."""

    kind: str
    signing_hash: SigningHash
    key_id: str
    principal: Actor


class Admitted(Struct, frozen=True, kw_only=True):
    """A verified Command with the signed documents inside its payload. `raw` are its bytes as received."""

    raw: bytes
    command: Command
    fact: SignedFact
    nested: tuple[SignedFact, ...] = ()

    @property
    def facts(self) -> tuple[SignedFact, ...]:
        """The Command's own signature fact, then those of the documents inside it."""
        return (self.fact, *self.nested)


class AuthenticationFailure(Struct, frozen=True, kw_only=True):
    """For the protected audit record only: the wire says AUTH_INVALID_SIGNATURE and no more (TRU-5)."""

    stage: str
    reason: str
    key_id: str | None = None
    actor_id: str | None = None
    action_id: str | None = None
    document_sha256: bytes = b""


class Accepted(Struct, frozen=True):
    """The stored Receipt's bytes."""

    receipt: bytes


class LateRecorded(Struct, frozen=True):
    """A late result was kept as Evidence; the caller is told that its ownership is stale (MWP-WRK-019)."""

    receipt: bytes
    rejection: Rejection


Answer = Accepted | LateRecorded | Rejection


class Refused(Struct, frozen=True):
    """Admission's refusal, with the audit record that belongs to an authentication failure."""

    rejection: Rejection
    failure: AuthenticationFailure | None = None
