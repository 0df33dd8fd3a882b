"""What a client corrects after a refusal, with a scripted authority (MWP-EXT-005, RULE-17)."""

import json
from types import SimpleNamespace
from typing import Any

import pytest

from contracts.documents.common import Actor, ActorType
from contracts.identifiers import SessionEpoch
from contracts.rejection import Code
from contracts.signature import SigningKey
from services.agent.connect import Client
from services.agent.open_session import Session
from services.agent.send_command import Answered, Refused, RetryPolicy
from services.agent.sign_command import Intent, current_time
from services.worker.runtime import Limits, Runtime
from services.worker.take_step import StepNotTaken

agent = Actor(type=ActorType.AGENT, id="urn:test:agent")
group = "urn:test:group"
policy = RetryPolicy(deadline_seconds=30, attempts_max=6, first_backoff_seconds=0.001, backoff_seconds_max=0.01)


class Authority:
    """Accepts Commands under the current Membership Epoch; another call reads it while the first is on its way."""

    is_connected = True

    def __init__(self, current: int, read_meanwhile: bool) -> None:
        self.current = self.told = current
        self.read_meanwhile = read_meanwhile
        self.client: Client | None = None
        self.epochs: list[int] = []

    async def request(self, _subject: str, raw: bytes, timeout: float) -> Any:  # noqa: ASYNC109 - the broker client's
        del timeout
        command = json.loads(raw)
        if command["kind"].endswith("memberships"):
            return SimpleNamespace(data=json.dumps(self._memberships(command)).encode())
        self.epochs.append(command["membershipEpoch"])
        if command["membershipEpoch"] == self.current:
            return SimpleNamespace(data=json.dumps(self._receipt(command)).encode())
        if self.read_meanwhile:
            self.read_meanwhile = False
            assert self.client is not None
            await self.client.memberships()
        error = {"code": Code.MEMBERSHIP_STALE.value, "message": "stale", "retryable": False}
        return SimpleNamespace(data=json.dumps({"error": error | {"occurredAt": current_time()}}).encode())

    def _receipt(self, command: dict[str, Any]) -> dict[str, Any]:
        return {
            "receipt": {
                "actionId": command["actionId"],
                "actor": command["actor"],
                "commandHash": "sha256:" + "0" * 64,
                "events": [{"eventId": "urn:e", "sequence": 4, "groupId": group}],
                "aggregateRevision": 4,
                "outcome": "accepted",
                "acceptedAt": current_time(),
            }
        }

    def _memberships(self, command: dict[str, Any]) -> dict[str, Any]:
        held = {
            "groupId": group,
            "missionId": "urn:test:mission",
            "shardId": 1,
            "role": "worker",
            "state": "active",
            "membershipEpoch": self.told,
            "visibilityStartSequence": 0,
        }
        return {
            "actionId": command["actionId"],
            "incarnation": "0" * 32,
            "shardCount": 1,
            "memberships": [held],
            "deliveries": [],
            "next": None,
        }


def client_of(authority: Authority) -> Client:
    client = Client(authority, "urn:test:organization", SigningKey.generate(agent), policy=policy)  # type: ignore[arg-type]
    client.session = Session(agent_id=agent.id, epoch=SessionEpoch(2), expires_at="2099-01-01T00:00:00Z")
    authority.client = client
    return client


@pytest.mark.parametrize("read_meanwhile", [False, True])
async def test_a_stale_membership_is_compared_with_what_was_signed(read_meanwhile: bool) -> None:
    """RULE-17: after a new incarnation every call under way is refused; each is built anew, whoever read first."""
    authority = Authority(5, read_meanwhile)
    answer = await client_of(authority).send(Intent(kind="work.start", payload={}, group_id=group))
    assert isinstance(answer, Answered)
    assert authority.epochs == [1, 5]


async def test_a_membership_that_did_not_change_is_refused_for_good() -> None:
    """MWP-EXT-005: the same epoch would be refused again."""
    authority = Authority(5, False)
    authority.told = 1
    answer = await client_of(authority).send(Intent(kind="work.start", payload={}, group_id=group))
    assert isinstance(answer, Refused)
    assert authority.epochs == [1]


@pytest.mark.parametrize(
    ("code", "left"), [(Code.MEMBERSHIP_STALE, False), (None, False), (Code.INVALID_STATE_TRANSITION, True)]
)
async def test_only_a_judged_offer_is_left(code: Code | None, left: bool) -> None:
    """MWP-WRK-005, RULE-17: a Worker that was fenced answers the offer under its next epoch."""

    class Steps:
        async def take(self, _step: Any, _policy: Any) -> Any:
            raise StepNotTaken("accept", "no", code)

    means: Any = SimpleNamespace(client=SimpleNamespace(principal_id=agent.id), steps=Steps())
    limits = Limits(slots=1, queue_length_max=1, finish_seconds=1)
    runtime = Runtime(None, SessionEpoch(1), means, None, limits)  # type: ignore[arg-type]
    offer: Any = SimpleNamespace(offer_id="urn:test:offer", work_item_id="urn:test:work", group_id=group)
    with pytest.raises(StepNotTaken):
        await runtime._accept(offer)
    assert (offer.offer_id in runtime._judged) is left
