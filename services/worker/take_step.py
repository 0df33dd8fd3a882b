"""One step of a Worker: a Command with a derived Action ID, written down before it is sent.

The Action ID comes from Agent, WorkItem, Ownership Epoch, step and attempt. A step that an earlier run of this Worker
left unsettled goes out again as the same bytes; one whose bytes were lost is built again under the same Action ID, so
that the authority refuses it as a collision when the first one was accepted: then the Events will tell.
"""

from msgspec import Struct

from contracts.receipt import Receipt
from contracts.rejection import Code
from services.agent.connect import Client, SessionLost
from services.agent.send_command import Answer, Answered, Refused, RetryPolicy, Unresolved
from services.agent.sign_command import Intent, derived_action_id, derived_token
from services.process.logs import get_log
from services.process.metrics import Counter
from services.worker.command_journal import CommandJournal

_log = get_log(__name__)


class StepNotTaken(Exception):
    """The step was refused or stays unknown: whoever needed it gives up, and the Events will show what is true."""

    def __init__(self, step: str, reason: str, code: Code | None) -> None:
        """`code` is None when no final answer came in time."""
        super().__init__(f"{step}: {reason}")
        self.code = code


class Step(Struct, frozen=True, kw_only=True):
    """What is to be done: `scope` and `name` identify it for ever. A step that is not `once` may be taken again."""

    scope: tuple[str | int, ...]
    name: str
    intent: Intent
    once: bool = True


class StepTaker:
    """Takes steps for one Agent."""

    def __init__(self, client: Client, journal: CommandJournal, counted: Counter) -> None:
        self._client = client
        self._journal = journal
        self._counted = counted

    async def take(self, step: Step, policy: RetryPolicy) -> Receipt:
        """Send the step's Command until it is settled. Raises StepNotTaken, or SessionLost for a replaced session."""
        answer = await (self._send_once(step, policy) if step.once else self._client.send(step.intent, policy=policy))
        if isinstance(answer, Unresolved):
            self._counted.add(kind=step.intent.kind, outcome="unresolved")
            raise StepNotTaken(step.name, answer.last_problem, None)
        if isinstance(answer, Answered):
            self._counted.add(kind=step.intent.kind, outcome="accepted")
            return answer.value
        self._counted.add(kind=step.intent.kind, outcome=answer.code.value)
        raise self._refused(step, answer)

    async def _send_once(self, step: Step, policy: RetryPolicy) -> Answer:
        """Send under the step's own Action ID, the bytes kept until there is a final answer."""
        who = self._client.principal_id
        key = derived_token(who, *step.scope, step.name)
        answer = await self._client.send(
            step.intent,
            policy=policy,
            name_attempt=lambda attempt: derived_action_id(who, *step.scope, step.name, attempt),
            remember=lambda command: self._journal.remember(key, command),
            resume=await self._journal.find(key),
        )
        if not isinstance(answer, Unresolved):
            await self._journal.settle(key)
        return answer

    def _refused(self, step: Step, answer: Refused) -> StepNotTaken | SessionLost:
        message = answer.refusal.rejection.message
        _log.info("step_refused", step=step.name, kind=step.intent.kind, code=answer.code.value, message=message)
        if answer.code is Code.AUTH_STALE_SESSION:
            return SessionLost(f"{self._client.principal_id}: {message}")
        return StepNotTaken(step.name, f"{answer.code.value}: {message}", answer.code)
