"""The retry rules of the client (MWP-EXT-005, DUR-3), against a scripted authority."""

import json
import time

import pytest
from nats.errors import NoRespondersError

from contracts.documents.common import Actor, ActorType
from contracts.signature import SigningKey
from services.agent.send_command import (
    Answered,
    Refused,
    ReplyFault,
    RetryPolicy,
    Unresolved,
    freshness_expired,
    read_receipt,
    rebuilds_max,
    send_command,
)
from services.agent.sign_command import Epochs, Intent, current_time, sign_command

key = SigningKey.generate(Actor(type=ActorType.HUMAN, id="urn:test:human"))
quick = RetryPolicy(
    deadline_seconds=30.0,
    attempts_max=6,
    first_backoff_seconds=0.001,
    backoff_seconds_max=0.01,
    reply_timeout_seconds=0.5,
)


def signed(issued_at=None):
    return sign_command(Intent(kind="mission.create", payload={}, group_id="urn:g"), Epochs(), key, issued_at=issued_at)


def receipt(action_id="urn:test:action"):
    actor = {"type": "human", "id": "urn:test:human"}
    body = {
        "actionId": action_id,
        "actor": actor,
        "commandHash": "sha256:" + "0" * 64,
        "events": [{"eventId": "urn:e", "sequence": 1, "groupId": "urn:g"}],
        "aggregateRevision": 1,
        "outcome": "accepted",
        "acceptedAt": current_time(),
    }
    return json.dumps({"receipt": body}).encode()


def error(code, **facts):
    body = {"code": code, "message": "because", "retryable": False, "occurredAt": current_time()} | facts
    return json.dumps({"error": body}).encode()


class Script:
    """Plays replies and faults in order, the last one for ever, and keeps what was sent."""

    def __init__(self, *replies):
        self.replies = list(replies)
        self.sent = []

    async def request(self, subject, payload, timeout_seconds):
        assert 0 < timeout_seconds <= quick.reply_timeout_seconds
        self.sent.append(payload)
        reply = self.replies.pop(0) if len(self.replies) > 1 else self.replies[0]
        if isinstance(reply, Exception):
            raise reply
        return reply


@pytest.mark.parametrize(
    "trouble",
    [TimeoutError(), NoRespondersError(), ConnectionError(), error("BACKPRESSURE", retryable=True)],
    ids=["timeout", "no responder", "lost connection", "retryable error"],
)
async def test_unchanged_retry_keeps_action_id_and_bytes(trouble):
    """MWP-EXT-005: after an outage or a retryable error the very same bytes go out again."""
    link, command = Script(trouble, trouble, receipt()), signed()
    answer = await send_command(link, "cmd", command, policy=quick)
    assert isinstance(answer, Answered)
    assert answer.attempts == 3
    assert link.sent == [command.raw] * 3


@pytest.mark.parametrize("code", ["AUTH_FORBIDDEN", "INVALID_STATE_TRANSITION", "REVISION_CONFLICT", "BUDGET_EXCEEDED"])
async def test_final_errors_are_values_and_are_not_sent_again(code):
    """DUR-3: validation and permission are final."""
    link = Script(error(code, details={"hint": 1}))
    answer = await send_command(link, "cmd", signed(), policy=quick)
    assert isinstance(answer, Refused)
    assert (answer.code.value, answer.attempts, len(link.sent)) == (code, 1, 1)


@pytest.mark.parametrize(
    "code", ["AUTH_STALE_SESSION", "MEMBERSHIP_STALE", "AUTH_STALE_COORDINATOR", "ACTION_ID_COLLISION"]
)
async def test_stale_epochs_and_collisions_need_a_new_command(code):
    """MWP-EXT-005: the caller builds a new Action ID and signature; the old bytes are not sent again."""
    link, first, second = Script(error(code), receipt()), signed(), signed()

    async def rebuild(refusal, refused):
        assert (refusal.code.value, refused) == (code, first)
        return second

    answer = await send_command(link, "cmd", first, policy=quick, rebuild=rebuild)
    assert isinstance(answer, Answered)
    assert answer.command is second
    assert link.sent == [first.raw, second.raw]


async def test_rebuilding_is_bounded_and_may_be_declined():
    """DUR-3: no endless loop of rebuilt Commands; without a rebuild the refusal is the answer."""
    link, built = Script(error("AUTH_STALE_SESSION")), []

    async def rebuild(refusal, refused):
        built.append(refused)
        return signed()

    answer = await send_command(link, "cmd", signed(), policy=quick, rebuild=rebuild)
    assert isinstance(answer, Refused)
    assert len(built) == rebuilds_max
    declined = await send_command(Script(error("AUTH_STALE_SESSION")), "cmd", signed(), policy=quick)
    assert isinstance(declined, Refused)


async def test_expired_freshness_is_told_from_a_bad_signature_by_the_authoritys_clock():
    """TRU-6: both look the same on the wire; the Command's age on the authority's clock tells."""
    old, fresh = signed("2020-01-01T00:00:00.000000Z"), signed()
    refusal = read_receipt(error("AUTH_INVALID_SIGNATURE"))
    assert freshness_expired(refusal, old)
    assert not freshness_expired(refusal, fresh)
    assert not freshness_expired(read_receipt(error("AUTH_FORBIDDEN")), old)

    async def rebuild(refusal, refused):
        return fresh

    link = Script(error("AUTH_INVALID_SIGNATURE"), receipt())
    answer = await send_command(link, "cmd", old, policy=quick, rebuild=rebuild)
    assert isinstance(answer, Answered)
    assert answer.command is fresh


async def test_attempts_and_deadline_are_bounded():
    """DUR-3: one layer owns the attempts and the deadline; what stays unknown is said, with the bytes to send again."""
    link, command = Script(NoRespondersError()), signed()
    answer = await send_command(link, "cmd", command, policy=quick)
    assert isinstance(answer, Unresolved)
    assert (answer.attempts, answer.command) == (quick.attempts_max, command)
    assert "NoResponders" in answer.last_problem

    hurried = RetryPolicy(
        deadline_seconds=0.3, attempts_max=10_000, first_backoff_seconds=0.01, backoff_seconds_max=0.05,
        reply_timeout_seconds=0.5,
    )  # fmt: skip
    answer = await send_command(link, "cmd", command, policy=hurried)
    assert isinstance(answer, Unresolved)
    # It was the deadline: as many attempts would have taken minutes.
    assert answer.attempts < hurried.attempts_max


async def test_the_authoritys_wait_is_respected():
    """ERR-1: `retryAfterMs` is the least wait before the next attempt; one beyond the deadline is not waited for."""
    began = time.monotonic()
    link = Script(error("RATE_LIMITED", retryable=True, retryAfterMs=200), receipt())
    assert isinstance(await send_command(link, "cmd", signed(), policy=quick), Answered)
    assert time.monotonic() - began >= 0.2
    link = Script(error("RATE_LIMITED", retryable=True, retryAfterMs=60_000))
    assert isinstance(await send_command(link, "cmd", signed(), policy=quick), Unresolved)


@pytest.mark.parametrize("reply", [b"", b"[]", b"{}", b'{"receipt":{}}', b'{"error":{"code":"NOPE"}}', b"\xff"])
async def test_replies_outside_the_protocol_are_faults(reply):
    """ERR-1: what is neither a Receipt nor an error of the protocol is never taken for an answer."""
    with pytest.raises(ReplyFault):
        await send_command(Script(reply), "cmd", signed(), policy=quick)
