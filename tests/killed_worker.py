"""A Worker process that kills itself at a named point, for the tests that force it (SCH-7).

WEAVEHOLD_TEST_KILL_AT is `<point>:<Command kind>`; the points of one step, in order: `before` (nothing is written or
sent), `written` (the bytes are in the journal, nothing is sent), `answered` (the authority has accepted, the Worker has
not taken note), `after` (the step is settled, nothing follows it yet).
"""

import os
import signal

from services.worker.command_journal import CommandJournal
from services.worker.main import run
from services.worker.take_step import StepTaker

point, _, kind = os.environ["WEAVEHOLD_TEST_KILL_AT"].partition(":")


def _die() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def _arm() -> None:
    remember, settle, take = CommandJournal.remember, CommandJournal.settle, StepTaker.take
    steps: list[str] = []

    async def remembered(self, step, command):
        await remember(self, step, command)
        if point == "written" and command.kind == kind:
            _die()

    async def settled(self, step):
        if point == "answered" and steps and steps[-1] == kind:
            _die()
        await settle(self, step)

    async def taken(self, step, policy):
        steps.append(step.intent.kind)
        if point == "before" and step.intent.kind == kind:
            _die()
        receipt = await take(self, step, policy)
        if point == "after" and step.intent.kind == kind:
            _die()
        return receipt

    CommandJournal.remember = remembered
    CommandJournal.settle = settled
    StepTaker.take = taken


if __name__ == "__main__":
    _arm()
    raise SystemExit(run())
