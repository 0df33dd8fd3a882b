"""Hold an Execution Lease while work goes on under it (LSE-1, MWP-WRK-013).

The lease is renewed from a third of its length on. A renewal extends the deadline only when its Receipt came, counted
from before it was sent; without one the work is cancelled at the old deadline, before the authority calls it expired.
Once the Command that gives the lease back is on its way nothing is renewed any more: that could only be refused.
"""

import asyncio
from collections.abc import Coroutine
from typing import Any, Final

from contracts.command import lease_renew
from contracts.payloads.work import WorkExecutionLeaseRenew
from contracts.rejection import Code
from services.agent.send_command import RetryPolicy
from services.agent.sign_command import Intent
from services.process.logs import get_log
from services.worker.assigned_work import AssignedWork
from services.worker.lease_clock import lease_clock, lease_deadline
from services.worker.take_step import Step, StepNotTaken, StepTaker

deadline_checks_per_lease: Final = 20
"""How often, at the least, the deadline is looked at: a suspended machine wakes up with an expired lease."""

_undecided_codes: Final = frozenset({None, Code.INVALID_COMMAND})
"""A renewal without an answer, or one that would not extend the lease (the authority's clock stands still): the lease
may still be good until the deadline."""

_log = get_log(__name__)


class LeaseEnded(Exception):
    """The lease ran out on the Worker's clock, or the authority no longer renews it: the work must stop."""


class HeldLease:
    """One Execution Lease as its holder sees it."""

    def __init__(self, work: AssignedWork, lease_id: str, seconds: int, sent_at: float) -> None:
        """`sent_at` is the reading of `lease_clock` before the request that gave or last renewed the lease."""
        self.lease_id = lease_id
        self.given_back = False
        self._work = work
        self._seconds = seconds
        self._deadline = lease_deadline(sent_at, seconds)

    @property
    def remaining_seconds(self) -> float:
        """Seconds until the work must stop."""
        return max(0.0, self._deadline.stop_at - lease_clock())

    def policy(self) -> RetryPolicy:
        """Bounds for a Command under this lease: it makes no sense after the deadline."""
        return RetryPolicy(deadline_seconds=self.remaining_seconds)

    def last_policy(self) -> RetryPolicy:
        """Bounds for the Command that gives the lease back, which ends renewing."""
        self.given_back = True
        return self.policy()

    async def keep(self, steps: StepTaker) -> None:
        """Renew for ever. Raises LeaseEnded at the deadline or at a refusal, SessionLost from a renewal."""
        look_seconds = self._seconds / deadline_checks_per_lease
        while self.remaining_seconds > 0:
            if not self.given_back and lease_clock() >= self._deadline.renew_at:
                await self._try_to_renew(steps)
            await asyncio.sleep(min(look_seconds, self.remaining_seconds))
        raise LeaseEnded(f"{self.lease_id} was not renewed in time")

    async def _try_to_renew(self, steps: StepTaker) -> None:
        try:
            await self.renew(steps)
        except StepNotTaken as fault:
            if fault.code not in _undecided_codes and not self.given_back:
                raise LeaseEnded(f"{self.lease_id} was not renewed: {fault}") from fault

    async def renew(self, steps: StepTaker) -> None:
        """One renewal, within what remains. Raises StepNotTaken, SessionLost."""
        sent_at = lease_clock()
        renewal = WorkExecutionLeaseRenew(
            work_item_id=self._work.work_item_id,
            ownership_epoch=self._work.ownership_epoch,
            execution_lease_id=self.lease_id,
            lease_seconds=self._seconds,
        )
        step = Step(
            scope=(self._work.work_item_id, self._work.ownership_epoch, self.lease_id),
            name="renew",
            intent=Intent(kind=lease_renew, payload=renewal, group_id=self._work.group_id),
            once=False,
        )
        await steps.take(step, self.policy())
        self._deadline = lease_deadline(sent_at, self._seconds)


async def under_lease[T](lease: HeldLease, steps: StepTaker, work: Coroutine[Any, Any, T]) -> T:
    """Run `work` while the lease is kept; when it cannot be kept, cancel the work and raise what ended the keeping."""
    body = asyncio.create_task(work)
    keeper = asyncio.create_task(lease.keep(steps))
    try:
        await asyncio.wait({body, keeper}, return_when=asyncio.FIRST_COMPLETED)
        if not body.done():
            body.cancel()
            await asyncio.wait({body})
        if body.cancelled():
            _log.warning("work_cancelled", lease=lease.lease_id, reason=str(keeper.exception()))
            keeper.result()
        return body.result()
    finally:
        body.cancel()
        keeper.cancel()
        await asyncio.gather(body, keeper, return_exceptions=True)
