"""One actor's connection to the authority: who it is, which session and epochs it holds, what it asks.

`Client` gathers signing, sending and reading, and knows how to build a refused Command anew: it corrects its clock
after expired freshness, reads its Memberships again after a stale epoch, and, if it may, opens its next session after
the last one was replaced. A Worker may not: there a replaced session ends every execution lease, so the whole Worker
has to begin anew. A Coordinator's epoch stands in the intent: whoever made that hears when it is stale.
"""

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from datetime import timedelta
from typing import Final

from nats.aio.client import Client as BrokerClient

from contracts import subjects
from contracts.documents.common import ActorType, Document
from contracts.identifiers import MembershipEpoch
from contracts.rejection import Code
from contracts.signature import SigningKey
from contracts.timestamps import parse_timestamp
from services.agent.open_session import Session, open_session
from services.agent.read_history import HistoryReader, Standing, Unavailable
from services.agent.send_command import (
    Answer,
    Answered,
    Rebuild,
    Refusal,
    RetryPolicy,
    Unresolved,
    exchange,
    freshness_expired,
    send_command,
)
from services.agent.sign_command import (
    Epochs,
    Intent,
    SignedCommand,
    current_time,
    sign_command,
    signed_membership_epoch,
)
from services.process import broker
from services.process.settings import BrokerCredentials

resumed_attempts_max: Final = 1_000
"""Earlier attempts among which a resumed Command's Action ID is looked for."""

Remember = Callable[[SignedCommand], Awaitable[None]]
"""Stores a Command durably before it is sent for the first time."""
NameAttempt = Callable[[int], str]
"""The Action ID of the n-th Command, from 0, that is built for one intent."""


class BrokerLink:
    """Requests over a broker connection."""

    def __init__(self, connection: BrokerClient) -> None:
        self._connection = connection

    async def request(self, subject: str, payload: bytes, timeout_seconds: float) -> bytes:
        """The reply's bytes. Raises `nats.errors.Error`, and at once while the broker is away."""
        if not self._connection.is_connected:
            raise ConnectionError("the broker is not connected")
        return (await self._connection.request(subject, payload, timeout=timeout_seconds)).data


class SessionLost(Exception):
    """The Agent's session was replaced or could not be opened; nothing can be sent under it."""


class Client:
    """One Principal's client. Not shared between Principals; any number of calls may run at once."""

    def __init__(
        self,
        connection: BrokerClient,
        organization_id: str,
        key: SigningKey,
        *,
        policy: RetryPolicy | None = None,
        reopens_session: bool = True,
    ) -> None:
        self.connection = connection
        self.organization_id = organization_id
        self.key = key
        self.session: Session | None = None
        self.history = HistoryReader(organization_id, self._ask)
        self._link = BrokerLink(connection)
        self._policy = policy or RetryPolicy()
        self._reopens = reopens_session
        self._membership_epochs: dict[str, MembershipEpoch] = {}
        self._clock_offset = timedelta(0)

    @property
    def principal_id(self) -> str:
        """Who this client acts as."""
        return self.key.principal.id

    async def open_session(self, policy: RetryPolicy | None = None) -> Session:
        """Open the Agent's next session, which ends the one before. Raises SessionLost when there is none to have."""
        outcome = await open_session(self._link, self.organization_id, self.key, policy or self._policy)
        if outcome is None:
            raise SessionLost(f"no answer to the session handshake of {self.principal_id}")
        if isinstance(outcome, Refusal):
            raise SessionLost(f"{self.principal_id}: {outcome.code.value}: {outcome.rejection.message}")
        self.session = outcome
        return outcome

    async def memberships(self) -> Standing | Refusal:
        """The actor's Memberships; their epochs are used from now on."""
        standing = await self.history.memberships()
        if isinstance(standing, Standing):
            self._membership_epochs = {
                held.group_id: MembershipEpoch(held.membership_epoch) for held in standing.memberships
            }
        return standing

    def epochs(self, group_id: str | None) -> Epochs:
        """The epochs for a Command in this Group; a Membership that was never read counts as its first epoch."""
        return Epochs(
            session=self.session.epoch if self.session else None,
            membership=self._membership_epochs.get(group_id or "", MembershipEpoch(1)),
        )

    def sign(self, intent: Intent, action_id: str | None = None) -> SignedCommand:
        """Sign with the epochs and the clock of now."""
        epochs = self.epochs(intent.group_id)
        return sign_command(intent, epochs, self.key, issued_at=self.current_time(), action_id=action_id)

    def current_time(self) -> str:
        """The local clock, corrected by what the authority's answers have told about its own."""
        return current_time(self._clock_offset)

    async def send(
        self,
        intent: Intent,
        *,
        policy: RetryPolicy | None = None,
        name_attempt: NameAttempt | None = None,
        remember: Remember | None = None,
        resume: SignedCommand | None = None,
    ) -> Answer:
        """Send what `intent` asks and return what became of it.

        `name_attempt` chooses Action IDs (fresh ones otherwise); `remember` runs before new bytes are sent the first
        time; `resume` are bytes from an earlier run, sent before anything new is built. Raises ReplyFault.
        """
        built = 0 if resume is None or name_attempt is None else _attempts_before(name_attempt, resume.action_id)

        async def build() -> SignedCommand:
            nonlocal built
            signed = self.sign(intent, name_attempt(built) if name_attempt else None)
            built += 1
            if remember is not None:
                await remember(signed)
            return signed

        async def rebuild(refusal: Refusal, refused: SignedCommand) -> SignedCommand | None:
            return await build() if await self._corrected(refusal, refused, intent.group_id) else None

        command = resume or await build()
        answer = await self._send(command, policy or self._policy, rebuild)
        if isinstance(answer, Answered) and answer.attempts == 1 and resume is None:
            self._follow_clock(answer.value.accepted_at)
        return answer

    async def resend(self, command: SignedCommand, policy: RetryPolicy) -> Answer:
        """Send the bytes of an earlier run once more, unchanged; nothing is built anew."""
        return await self._send(command, policy, None)

    async def _send(self, command: SignedCommand, policy: RetryPolicy, rebuild: Rebuild | None) -> Answer:
        subject = subjects.command_ingress(self.organization_id)
        return await send_command(self._link, subject, command, policy=policy, rebuild=rebuild)

    def _follow_clock(self, told: str) -> None:
        """Correct the clock by the authority's time in an answer that came just now."""
        self._clock_offset = parse_timestamp(told) - parse_timestamp(current_time())

    async def _corrected(self, refusal: Refusal, refused: SignedCommand, group_id: str | None) -> bool:
        """Whether what the refusal complains about is now corrected, so that the intent may be signed anew."""
        if freshness_expired(refusal, refused):
            self._follow_clock(refusal.occurred_at)
            return True
        if refusal.code is Code.MEMBERSHIP_STALE:
            await self.memberships()
            # Compared with what was signed: another call may have read them again since.
            return self.epochs(group_id).membership != signed_membership_epoch(refused)
        if refusal.code is Code.AUTH_STALE_SESSION and self._reopens and self.key.principal.type is ActorType.AGENT:
            await self.open_session()
            return True
        return False

    async def _ask[T](
        self, subject: str, kind: str, payload: Document, read: Callable[[bytes], T | Refusal]
    ) -> Answered[T] | Refusal:
        """One signed read. The envelope's Group and Membership Epoch are not compared for reads."""
        services = self.key.principal.type is ActorType.SERVICE
        intent = Intent(kind=kind, payload=payload, group_id=None if services else self.organization_id)

        async def rebuild(refusal: Refusal, refused: SignedCommand) -> SignedCommand | None:
            return self.sign(intent) if await self._corrected(refusal, refused, None) else None

        answer = await exchange(self._link, subject, self.sign(intent), read, policy=self._policy, rebuild=rebuild)
        if isinstance(answer, Unresolved):
            raise Unavailable(f"{kind}: {answer.last_problem} after {answer.attempts} attempts")
        return answer if isinstance(answer, Answered) else answer.refusal


def _attempts_before(name_attempt: NameAttempt, action_id: str) -> int:
    """The number of the first attempt after the one that has this Action ID: a new Command never takes an old name."""
    for number in range(resumed_attempts_max):
        if name_attempt(number) == action_id:
            return number + 1
    return 0


@asynccontextmanager
async def connect(
    url: str,
    organization_id: str,
    key: SigningKey,
    *,
    credentials: BrokerCredentials = broker.no_credentials,
    policy: RetryPolicy | None = None,
) -> AsyncIterator[Client]:
    """A Client on a broker connection of its own, closed at the end. Raises OSError or a broker error."""
    connection = await broker.connect(url, name=key.principal.id, credentials=credentials)
    try:
        yield Client(connection, organization_id, key, policy=policy)
    finally:
        await connection.close()
