"""Work under an Execution Lease stops before the lease does (LSE-1), against a scripted authority.

The clock is the loop's own, which nothing but the waits of a test moves: a busy machine takes no lease away.
"""

import asyncio
import functools
from unittest import mock

import pytest

from contracts.identifiers import OwnershipEpoch
from contracts.rejection import Code
from services.agent.connect import SessionLost
from services.worker import hold_lease
from services.worker.assigned_work import AssignedWork
from services.worker.hold_lease import HeldLease, LeaseEnded, under_lease
from services.worker.take_step import StepNotTaken
from tests.simulation.virtual_loop import VirtualLoop

work = AssignedWork(
    group_id="urn:g",
    mission_id="urn:m",
    work_item_id="urn:w",
    revision=3,
    contract=None,
    ownership_epoch=OwnershipEpoch(1),
    ownership_lease_id="urn:l",
    checkpoint=None,
    running_lease_id=None,
)


def now():
    """Seconds on the clock of the running test."""
    return asyncio.get_running_loop().time()


def on_its_own_clock(test):
    """Run a test in virtual time."""

    @functools.wraps(test)
    def run(**given):
        loop = VirtualLoop(lambda: 0.0)
        try:
            with mock.patch.object(hold_lease, "lease_clock", now):
                loop.run_until_complete(test(**given))
        finally:
            loop.close()

    return run


class Steps:
    """Answers renewals in order, the last answer for ever."""

    def __init__(self, *answers):
        self.answers = list(answers)
        self.renewals = 0

    async def take(self, step, policy):
        assert policy.deadline_seconds >= 0
        self.renewals += 1
        answer = self.answers.pop(0) if len(self.answers) > 1 else self.answers[0]
        if isinstance(answer, Exception):
            raise answer


def held(seconds=0.3, age=0.0):
    return HeldLease(work, "urn:lease", seconds, now() - age)


async def working(seconds):
    await asyncio.sleep(seconds)
    return "done"


@on_its_own_clock
async def test_a_renewed_lease_outlives_its_first_length():
    """MWP-WRK-013: renewals keep the lease; they begin at a third of its length."""
    steps = Steps(None)
    assert await under_lease(held(), steps, working(0.7)) == "done"
    assert steps.renewals >= 4


@pytest.mark.parametrize(
    "answer", [StepNotTaken("renew", "no answer", None), StepNotTaken("renew", "frozen", Code.INVALID_COMMAND)]
)
@on_its_own_clock
async def test_work_is_cancelled_at_the_deadline_without_a_renewal(answer):
    """LSE-1: a failed renewal extends nothing; the work ends before the lease, not after it."""
    began, lease = now(), held()
    with pytest.raises(LeaseEnded, match="not renewed in time"):
        await under_lease(lease, Steps(answer), working(5))
    assert 0.2 < now() - began < 0.3
    assert lease.remaining_seconds == 0


@on_its_own_clock
async def test_a_refused_renewal_ends_the_work_at_once():
    """MWP-WRK-014: a lease that was revoked or taken over is not worked under for another moment."""
    began = now()
    with pytest.raises(LeaseEnded, match="WORK_LEASE_EXPIRED"):
        await under_lease(
            held(), Steps(StepNotTaken("renew", "WORK_LEASE_EXPIRED", Code.WORK_LEASE_EXPIRED)), working(5)
        )
    assert now() - began < 0.2


@on_its_own_clock
async def test_a_lost_session_ends_the_work():
    """MWP-WRK-014: a replaced session fences everything of the Agent at once."""
    with pytest.raises(SessionLost):
        await under_lease(held(), Steps(SessionLost("replaced")), working(5))


@on_its_own_clock
async def test_a_suspended_machine_wakes_up_without_a_lease():
    """LSE-1: time passes while the machine sleeps, so an old lease is not used after waking."""
    lease = held(seconds=10, age=20)
    with pytest.raises(LeaseEnded):
        await under_lease(lease, Steps(None), working(5))
    assert lease.policy().deadline_seconds == 0


@on_its_own_clock
async def test_nothing_is_renewed_once_the_lease_is_being_given_back():
    """MWP-WRK-013: a renewal that crosses the checkpoint on its way is not taken for the end of the lease."""
    lease, steps = held(), Steps(StepNotTaken("renew", "released", Code.WORK_LEASE_EXPIRED))

    async def give_back():
        lease.last_policy()
        return await working(0.2)

    assert await under_lease(lease, steps, give_back()) == "done"
    assert steps.renewals == 0


@on_its_own_clock
async def test_faults_of_the_work_are_its_own():
    """The keeping ends with the work, whatever ended it."""

    async def broken():
        raise OSError("disk full")

    with pytest.raises(OSError, match="disk full"):
        await under_lease(held(), Steps(None), broken())
    before = asyncio.all_tasks()
    await asyncio.sleep(0)
    assert len(before) == 1
