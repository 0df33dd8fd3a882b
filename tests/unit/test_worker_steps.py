"""Steps of a Worker: written down first, recognised when repeated (SCH-7, MWP-EVT-003), with a scripted authority."""

import json
from types import SimpleNamespace

import pytest

from contracts.documents.common import Actor, ActorType
from contracts.identifiers import SessionEpoch
from contracts.rejection import Code
from contracts.signature import SigningKey
from services.agent.connect import Client, SessionLost
from services.agent.open_session import Session
from services.agent.send_command import RetryPolicy
from services.agent.sign_command import Intent, current_time
from services.process.metrics import Metrics
from services.worker.command_journal import CommandJournal
from services.worker.take_step import Step, StepNotTaken, StepTaker

agent = Actor(type=ActorType.AGENT, id="urn:test:agent")
quick = RetryPolicy(deadline_seconds=30, attempts_max=2, reply_timeout_seconds=0.1, first_backoff_seconds=0.001)
start = Step(
    scope=("urn:work", 1), name="start at 3", intent=Intent(kind="work.start", payload={}, group_id="urn:test:group")
)


class Connection:
    """Answers requests in order, the last answer for ever; an exception is raised."""

    is_connected = True

    def __init__(self, *answers):
        self.answers = list(answers)
        self.sent = []

    async def request(self, subject, payload, timeout):  # noqa: ASYNC109 - the broker client's own signature
        self.sent.append(payload)
        answer = self.answers.pop(0) if len(self.answers) > 1 else self.answers[0]
        if isinstance(answer, Exception):
            raise answer
        return SimpleNamespace(data=json.dumps(answer(json.loads(payload))).encode())


def accept(command):
    return {
        "receipt": {
            "actionId": command["actionId"],
            "actor": command["actor"],
            "commandHash": "sha256:" + "0" * 64,
            "events": [{"eventId": "urn:e", "sequence": 4, "groupId": "urn:test:group"}],
            "aggregateRevision": 4,
            "outcome": "accepted",
            "acceptedAt": current_time(),
        }
    }


def refuse(code):
    error = {"code": code.value, "message": "no", "retryable": False}
    return lambda command: {"error": error | {"occurredAt": current_time()}}


@pytest.fixture
async def journal(tmp_path):
    made = CommandJournal(tmp_path / "worker.sqlite")
    await made.open()
    yield made
    await made.close()


def taker(connection, journal):
    client = Client(connection, "urn:test:organization", SigningKey.generate(agent), reopens_session=False)
    client.session = Session(agent_id=agent.id, epoch=SessionEpoch(2), expires_at="2099-01-01T00:00:00Z")
    counted = Metrics("test").counter("commands", "", labels={"kind": 8, "outcome": 8})
    return StepTaker(client, journal, counted)


async def test_bytes_are_kept_from_before_the_sending_until_the_answer(journal, tmp_path):
    """SCH-7: what is sent is in the journal already, also for a process that opens the file after a kill."""
    connection = Connection(accept)
    steps = taker(connection, journal)
    kept = []

    async def look(subject, payload, timeout):  # noqa: ASYNC109 - as above
        other = CommandJournal(tmp_path / "worker.sqlite")
        await other.open()
        kept.extend(command.raw for _, command in await other.unsettled())
        await other.close()
        return await Connection(accept).request(subject, payload, timeout)

    connection.request = look
    receipt = await steps.take(start, quick)
    assert receipt.aggregate_revision == 4
    assert len(kept) == 1
    assert await journal.unsettled() == []


async def test_a_step_of_unknown_outcome_goes_out_again_as_the_same_bytes(journal):
    """MWP-EXT-005: the next attempt at the step sends what was signed first, not something new."""
    connection = Connection(TimeoutError())
    steps = taker(connection, journal)
    with pytest.raises(StepNotTaken) as caught:
        await steps.take(start, quick)
    assert caught.value.code is None
    connection.answers = [accept]
    await steps.take(start, quick)
    assert len(set(connection.sent)) == 1
    assert await journal.unsettled() == []


async def test_a_step_whose_bytes_were_lost_has_the_same_action_id(journal):
    """MWP-EVT-003: the authority can then tell the caller that this step was taken before."""
    connection = Connection(accept)
    steps = taker(connection, journal)
    await steps.take(start, quick)
    await steps.take(start, quick)
    first, second = (json.loads(raw)["actionId"] for raw in connection.sent)
    assert first == second
    assert connection.sent[0] != connection.sent[1]


async def test_refusals_settle_and_say_their_code(journal):
    """DUR-3: a final refusal ends the step."""
    steps = taker(Connection(refuse(Code.WORK_LEASE_EXPIRED)), journal)
    with pytest.raises(StepNotTaken) as caught:
        await steps.take(start, quick)
    assert caught.value.code is Code.WORK_LEASE_EXPIRED
    assert await journal.unsettled() == []


async def test_a_replaced_session_is_not_a_refusal_of_the_step(journal):
    """MWP-WRK-014: the whole Worker has to begin anew."""
    with pytest.raises(SessionLost):
        await taker(Connection(refuse(Code.AUTH_STALE_SESSION)), journal).take(start, quick)


async def test_what_may_be_repeated_is_not_kept(journal):
    """A renewal that is taken twice harms nothing: it has fresh Action IDs and no row."""
    connection = Connection(TimeoutError())
    steps = taker(connection, journal)
    again = Step(scope=start.scope, name="renew", intent=start.intent, once=False)
    for _ in range(2):
        with pytest.raises(StepNotTaken):
            await steps.take(again, RetryPolicy(deadline_seconds=30, attempts_max=1))
    assert len({json.loads(raw)["actionId"] for raw in connection.sent}) == 2
    assert await journal.unsettled() == []


async def test_a_new_session_empties_the_journal(journal):
    """SCH-7: bytes of an ended session can never be accepted any more."""
    with pytest.raises(StepNotTaken):
        await taker(Connection(TimeoutError()), journal).take(start, quick)
    assert len(await journal.unsettled()) == 1
    await journal.clear()
    assert await journal.unsettled() == []
