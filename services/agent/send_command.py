"""The one retry layer of a client (MWP-EXT-005, DUR-3): who may be sent again, unchanged, and who must be built anew.

- Lost transport, a timeout, no responder, or a retryable error: the same bytes again, so that a Command whose answer
  was lost gets its Receipt. Exponential backoff with full jitter, inside one deadline and one number of attempts.
- A stale session, Membership or Coordinator epoch, expired freshness, or an Action ID collision: the same bytes can
  never succeed. The caller's `rebuild` makes a new Command with a new Action ID, or gives up.
- Everything else is final and returned as a value.

The broker client sends no request twice by itself. What it had buffered while disconnected may still arrive later
(a ghost write): that is the same bytes under the same Action ID, so it gets the same Receipt.
"""

import asyncio
import random
import time
from collections.abc import Awaitable, Callable
from typing import Any, Final, Protocol

import msgspec
from msgspec import Struct
from nats.errors import Error as BrokerError

from contracts.bounds import freshness_future_seconds, freshness_past_seconds
from contracts.receipt import Receipt
from contracts.rejection import Code, Rejection
from contracts.timestamps import parse_timestamp
from services.agent.sign_command import SignedCommand

rebuilds_max: Final = 3
"""Times that one call may build its Command anew."""

stale_epoch_codes: Final = frozenset({Code.AUTH_STALE_SESSION, Code.MEMBERSHIP_STALE, Code.AUTH_STALE_COORDINATOR})


class RetryPolicy(Struct, frozen=True, kw_only=True):
    """Bounds of one call. All times in seconds; the deadline counts from the call on a monotonic clock."""

    deadline_seconds: float = 30.0
    attempts_max: int = 40
    reply_timeout_seconds: float = 3.0
    first_backoff_seconds: float = 0.05
    backoff_seconds_max: float = 2.0


class RequestLink(Protocol):
    """One request and its reply over the broker; raises a broker error or a timeout when there is no reply."""

    async def request(self, subject: str, payload: bytes, timeout_seconds: float) -> bytes:
        """The reply's bytes."""
        ...


class Refusal(Struct, frozen=True, kw_only=True):
    """A refusal as it came; `occurred_at` is the authority's clock."""

    rejection: Rejection
    occurred_at: str

    @property
    def code(self) -> Code:
        """The protocol's error code."""
        return self.rejection.code


class Answered[T](Struct, frozen=True, kw_only=True):
    """The authority's answer; `command` is the one that got it (the last one built)."""

    value: T
    command: SignedCommand
    attempts: int


class Refused(Struct, frozen=True, kw_only=True):
    """The authority said no, and neither waiting nor rebuilding helps."""

    refusal: Refusal
    command: SignedCommand
    attempts: int

    @property
    def code(self) -> Code:
        """The protocol's error code."""
        return self.refusal.code


class Unresolved(Struct, frozen=True, kw_only=True):
    """The bounds ran out without a final answer. It may have been accepted: send the same bytes again."""

    command: SignedCommand
    attempts: int
    last_problem: str


Answer = Answered[Receipt] | Refused | Unresolved
"""What became of a Command."""
Rebuild = Callable[[Refusal, SignedCommand], Awaitable[SignedCommand | None]]
"""Makes a new Command with a new Action ID after a refusal that the old bytes can never get past; None gives up."""


class ReplyFault(Exception):
    """A reply that is neither a Receipt nor an error of the protocol."""


class _ErrorReply(Struct, frozen=True, kw_only=True):
    """`{"error": …}`; a Rejection on the wire also says when."""

    error: dict[str, Any]


class _ReceiptReply(Struct, frozen=True, kw_only=True):
    """`{"receipt": …}`."""

    receipt: Receipt


def read_receipt(raw: bytes) -> Receipt | Refusal:
    """Decode the reply to a Command (RULE-30). Raises ReplyFault when it is neither a Receipt nor an error."""
    reply = read_reply(raw, _ReceiptReply)
    return reply if isinstance(reply, Refusal) else reply.receipt


def read_reply[T](raw: bytes, shape: type[T]) -> T | Refusal:
    """Decode a reply of this shape, or the error in its place. Raises ReplyFault when it is neither."""
    try:
        return msgspec.json.decode(raw, type=shape)
    except msgspec.MsgspecError as fault:
        refusal = _read_refusal(raw)
        if refusal is None:
            raise ReplyFault(f"no valid {shape.__name__} in the reply {raw[:80]!r}: {fault}") from fault
        return refusal


def _read_refusal(raw: bytes) -> Refusal | None:
    """The error that a reply carries, or None."""
    try:
        error = msgspec.json.decode(raw, type=_ErrorReply).error
        occurred_at = str(error.pop("occurredAt"))
        return Refusal(rejection=msgspec.convert(error, Rejection), occurred_at=occurred_at)
    except (KeyError, msgspec.MsgspecError):
        return None


def freshness_expired(refusal: Refusal, command: SignedCommand) -> bool:
    """Whether the refusal is explained by the Command's age on the authority's clock.

    On the wire a stale `issuedAt` looks like any signature failure; the error's own time gives it away.
    """
    if refusal.code is not Code.AUTH_INVALID_SIGNATURE:
        return False
    age = (parse_timestamp(refusal.occurred_at) - parse_timestamp(command.issued_at)).total_seconds()
    return not -freshness_future_seconds < age < freshness_past_seconds


def needs_rebuild(refusal: Refusal, command: SignedCommand) -> bool:
    """Whether only a new Action ID and signature can succeed (MWP-EXT-005)."""
    if refusal.code in stale_epoch_codes or refusal.code is Code.ACTION_ID_COLLISION:
        return True
    return freshness_expired(refusal, command)


class Attempts:
    """Attempts, deadline and waits of one call: the only place where a client decides to try again.

    `wait` returns False when the bounds are used up, without waiting past the deadline.
    """

    def __init__(self, policy: RetryPolicy) -> None:
        self._policy = policy
        self._ends = time.monotonic() + policy.deadline_seconds
        self.count = 0

    def begin(self) -> float:
        """Count one attempt; the seconds that its reply may take."""
        self.count += 1
        return max(0.001, min(self._policy.reply_timeout_seconds, self._ends - time.monotonic()))

    async def wait(self, at_least_seconds: float = 0.0) -> bool:
        """Wait before the next attempt: full jitter on a doubling ceiling, never below what the authority asked."""
        if self.count >= self._policy.attempts_max:
            return False
        ceiling = self._policy.first_backoff_seconds * 2.0 ** min(self.count - 1, 30)
        pause = at_least_seconds + random.uniform(0.0, min(ceiling, self._policy.backoff_seconds_max))  # noqa: S311 - jitter, not a secret
        if time.monotonic() + pause >= self._ends:
            return False
        await asyncio.sleep(pause)
        return True


async def send_command(
    link: RequestLink,
    subject: str,
    command: SignedCommand,
    *,
    policy: RetryPolicy,
    rebuild: Rebuild | None = None,
) -> Answer:
    """Send until there is a final answer or the bounds are used up.

    Raises ReplyFault for a reply outside the protocol. Cancelling it leaves the Command in doubt, as Unresolved does.
    """
    return await exchange(link, subject, command, read_receipt, policy=policy, rebuild=rebuild)


async def exchange[T](
    link: RequestLink,
    subject: str,
    command: SignedCommand,
    read: Callable[[bytes], T | Refusal],
    *,
    policy: RetryPolicy,
    rebuild: Rebuild | None = None,
) -> Answered[T] | Refused | Unresolved:
    """The same for any signed request; `read` decodes its reply and raises ReplyFault for what it cannot read."""
    attempts, rebuilds, problem = Attempts(policy), 0, "not sent"
    while True:
        pause_seconds = 0.0
        try:
            reply = read(await link.request(subject, command.raw, attempts.begin()))
        except (BrokerError, TimeoutError, OSError) as fault:
            problem = f"{type(fault).__name__}: {fault}"
        else:
            if not isinstance(reply, Refusal):
                return Answered(value=reply, command=command, attempts=attempts.count)
            problem = f"{reply.code.value}: {reply.rejection.message}"
            if needs_rebuild(reply, command):
                rebuilt = await rebuild(reply, command) if rebuild and rebuilds < rebuilds_max else None
                if rebuilt is None:
                    return Refused(refusal=reply, command=command, attempts=attempts.count)
                rebuilds, command = rebuilds + 1, rebuilt
            elif not reply.rejection.retryable:
                return Refused(refusal=reply, command=command, attempts=attempts.count)
            pause_seconds = retry_after_seconds(reply)
        if not await attempts.wait(pause_seconds):
            return Unresolved(command=command, attempts=attempts.count, last_problem=problem)


def retry_after_seconds(refusal: Refusal) -> float:
    """The least wait that the authority asks for, 0 when it names none."""
    asked = refusal.rejection.retry_after_ms
    return asked / 1000 if isinstance(asked, int) else 0.0
