"""A Worker at work: judges offers, fills slots, and looks again whenever its queue or a slot has changed.

The runtime keeps nothing that counts. Its queue is made of Events, so whatever is refused, unknown or interrupted is
decided by the next look. Only two things are remembered meanwhile: how far a Group's Events must have come before
its WorkItems are believed again, and which WorkItems rest after a failure.
"""

import asyncio
import time
from collections.abc import Callable, Coroutine
from typing import Any, Final

import msgspec
from msgspec import Struct

from contracts.documents.work_contract import WorkContract
from contracts.identifiers import SessionEpoch
from contracts.payloads.work import WorkAcceptOffer
from contracts.timestamps import parse_timestamp
from projections.store import ProjectionStore
from projections.work_queue.read_queue import QueueOffer
from services.agent.read_history import Unavailable
from services.agent.send_command import ReplyFault, RetryPolicy, stale_epoch_codes
from services.agent.sign_command import Intent
from services.process.logs import get_log
from services.worker.artifact_store import ArtifactFault
from services.worker.assigned_work import AssignedWork
from services.worker.execute_work import Execution, Means
from services.worker.hold_lease import LeaseEnded
from services.worker.read_ready import Queue, read_queue
from services.worker.scheduler import ReadyWork, Scheduler
from services.worker.take_step import Step, StepNotTaken
from services.worker.work_plan import PlanFault, plan_work

look_seconds_max: Final = 1.0
"""Seconds between two looks at the queue when nothing wakes the runtime."""
rest_seconds_first: Final = 0.5
rest_seconds_max: Final = 15.0
"""Seconds for which a WorkItem rests after a failure: doubled from the first to the longest."""
accept_policy: Final = RetryPolicy(deadline_seconds=15.0)
"""An offer that cannot be answered is judged again."""

expected_faults: Final = (StepNotTaken, LeaseEnded, PlanFault, ArtifactFault, Unavailable, ReplyFault, OSError)
"""What sets a WorkItem aside for a while; anything else ends the runtime."""

_log = get_log(__name__)


class Limits(Struct, frozen=True, kw_only=True):
    """What the Worker takes on: executions at once, WorkItems owned and unfinished, seconds to finish when stopping."""

    slots: int
    queue_length_max: int
    finish_seconds: float


class _Rest(Struct):
    until: float
    seconds: float


class Runtime:
    """One session's work."""

    def __init__(
        self, store: ProjectionStore, session: SessionEpoch, means: Means, scheduler: Scheduler, limits: Limits
    ) -> None:
        """`store` holds the work queue that a consumer keeps up to date."""
        self.wake = asyncio.Event()
        self._store = store
        self._session = session
        self._means = means
        self._scheduler = scheduler
        self._limits = limits
        self._agent_id = means.client.principal_id
        self._tasks: dict[str, asyncio.Task[None]] = {}
        self._executing: set[str] = set()
        self._believed_from: dict[str, int] = {}
        self._rests: dict[str, _Rest] = {}
        self._judged: set[str] = set()
        self._ended: Exception | None = None

    async def run(self, beat: Callable[[], None]) -> None:
        """Work until asked to stop, then let the executions reach their checkpoints.

        Raises SessionLost, and whatever unexpected fault a task met.
        """
        try:
            while not self._means.stopping.is_set() and self._ended is None:
                beat()
                self.wake.clear()
                queue = await self._store.read(lambda found: read_queue(found, self._agent_id, self._session))
                self._forget(queue)
                self._judge_offers(queue)
                self._fill_slots(queue)
                await self._wait()
            if self._ended is None:
                await self._finish()
        finally:
            for task in self._tasks.values():
                task.cancel()
            await asyncio.gather(*self._tasks.values(), return_exceptions=True)
        if self._ended is not None:
            raise self._ended

    async def _wait(self) -> None:
        """Until something changes, the process stops, or `look_seconds_max` have passed."""
        try:
            async with asyncio.timeout(look_seconds_max):
                await self.wake.wait()
        except TimeoutError:
            return

    async def _finish(self) -> None:
        """Let executions come to their checkpoints; offers that are being answered are left."""
        executing = {self._tasks[name] for name in self._executing}
        if executing:
            _, unfinished = await asyncio.wait(executing, timeout=self._limits.finish_seconds)
            for task in unfinished:
                _log.warning("work_interrupted", work_item=task.get_name())

    def end(self, fault: Exception) -> None:
        """End this runtime with a fault: the session was lost, or something unexpected happened."""
        self._ended = self._ended or fault
        self.wake.set()

    def _forget(self, queue: Queue) -> None:
        """Keep nothing about offers and WorkItems that are no longer in the queue or in hand."""
        self._judged &= {offer.offer_id for offer in queue.offers}
        known = {offer.work_item_id for offer in queue.offers} | {work.work_item_id for work in queue.startable}
        for name in (self._rests.keys() | self._believed_from.keys()) - known - self._tasks.keys():
            self._rests.pop(name, None)
            self._believed_from.pop(name, None)

    # --- offers ----------------------------------------------------------------------------------------------------

    def _judge_offers(self, queue: Queue) -> None:
        """Accept what this Worker can do in time and has room for (MWP-WRK-005)."""
        accepting = len(self._tasks) - len(self._executing)
        room = self._limits.queue_length_max - queue.unfinished - accepting
        for offer in queue.offers:
            if offer.offer_id in self._judged or self._occupied(offer.work_item_id, offer.group_id, queue):
                continue
            reason = self._unfit(offer)
            if reason is not None:
                _log.info("offer_left", work_item=offer.work_item_id, reason=reason)
                self._judged.add(offer.offer_id)
            elif room > 0:
                room -= 1
                self._begin(offer.work_item_id, self._accept(offer))

    def _unfit(self, offer: QueueOffer) -> str | None:
        """Why this Worker leaves an offer to others."""
        contract = _contract(offer.contract)
        try:
            plan_work(contract.constraints if isinstance(contract.constraints, dict) else {})
        except PlanFault as fault:
            return str(fault)
        if parse_timestamp(contract.deadline) <= parse_timestamp(self._means.client.current_time()):
            return f"its deadline {contract.deadline} has passed"
        return None

    async def _accept(self, offer: QueueOffer) -> None:
        step = Step(
            scope=(offer.work_item_id, offer.offer_id),
            name="accept",
            intent=Intent(
                kind="work.accept_offer",
                payload=WorkAcceptOffer(work_item_id=offer.work_item_id),
                group_id=offer.group_id,
                work_item_id=offer.work_item_id,
            ),
        )
        try:
            receipt = await self._means.steps.take(step, accept_policy)
        except StepNotTaken as fault:
            # A stale epoch says nothing about the offer: it is answered under the next one.
            if fault.code is not None and fault.code not in stale_epoch_codes:
                self._judged.add(offer.offer_id)
            raise
        self._judged.add(offer.offer_id)
        self._believed_from[offer.work_item_id] = max(recorded.sequence for recorded in receipt.events)

    # --- slots -----------------------------------------------------------------------------------------------------

    def _fill_slots(self, queue: Queue) -> None:
        """Start the next WorkItems while slots are free."""
        ready = {
            work.work_item_id: work
            for work in queue.startable
            if not self._occupied(work.work_item_id, work.group_id, queue)
        }
        while ready and len(self._executing) < self._limits.slots:
            chosen = self._scheduler.choose([_ready(work) for work in ready.values()])
            if chosen is None:
                return
            work = ready.pop(chosen.work_item_id)
            self._executing.add(work.work_item_id)
            self._begin(work.work_item_id, self._execute(work))

    def _occupied(self, work_item_id: str, group_id: str, queue: Queue) -> bool:
        """Whether a WorkItem is in hand, rests, or is not yet shown as its last Command left it."""
        if work_item_id in self._tasks:
            return True
        rest = self._rests.get(work_item_id)
        if rest is not None and time.monotonic() < rest.until:
            return True
        return queue.sequences.get(group_id, 0) < self._believed_from.get(work_item_id, 0)

    async def _execute(self, work: AssignedWork) -> None:
        try:
            self._believed_from[work.work_item_id] = await Execution(work, self._means).run()
        finally:
            self._executing.discard(work.work_item_id)

    # --- tasks -----------------------------------------------------------------------------------------------------

    def _begin(self, work_item_id: str, work: Coroutine[Any, Any, None]) -> None:
        self._tasks[work_item_id] = asyncio.create_task(self._watch(work_item_id, work), name=work_item_id)

    async def _watch(self, work_item_id: str, work: Coroutine[Any, Any, None]) -> None:
        """Run one task; whatever it meets, the WorkItem is looked at again, after a rest if it failed."""
        try:
            await work
            self._rests.pop(work_item_id, None)
        except expected_faults as fault:
            _log.warning("work_set_aside", work_item=work_item_id, reason=str(fault))
            self._rest(work_item_id)
        except Exception as fault:  # noqa: BLE001 - it ends the runtime, which raises it
            self.end(fault)
        finally:
            del self._tasks[work_item_id]
            self.wake.set()

    def _rest(self, work_item_id: str) -> None:
        before = self._rests.get(work_item_id)
        seconds = min(before.seconds * 2, rest_seconds_max) if before else rest_seconds_first
        self._rests[work_item_id] = _Rest(time.monotonic() + seconds, seconds)


def _ready(work: AssignedWork) -> ReadyWork:
    return ReadyWork(work.group_id, work.work_item_id, parse_timestamp(work.contract.deadline))


def _contract(text: str) -> WorkContract:
    return msgspec.json.decode(text, type=WorkContract)
