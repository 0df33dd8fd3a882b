"""Do one WorkItem under one Execution Lease: start, steps, then a checkpoint or the result.

The order of durable things is what makes a kill at any instruction harmless:
1. `work.start` gives a lease. Killed after it: the next session revokes it, the WorkItem waits again.
2. Steps are pure. Killed among them: the latest checkpoint of the history is where the next run begins.
3. Checkpoint and result bytes are durable in the content store before the Command that names them (RULE-33).
4. `artifact.publish`, then `work.submit`. Killed between them: the Artifact is in the history under its derived name
   and the next run submits it without publishing again.
"""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any, Final

import msgspec
from msgspec import Struct

from contracts.canonical import canonical_bytes, parse_strict
from contracts.documents.checkpoint import Checkpoint
from contracts.event import Event
from contracts.event_contracts import current_payload
from contracts.payloads.artifact import ArtifactPublish
from contracts.payloads.work import WorkCheckpoint, WorkStart, WorkStarted, WorkSubmit
from contracts.receipt import Receipt
from contracts.rejection import Code
from contracts.upcasting import EventUnread
from services.agent.connect import Client
from services.agent.send_command import Refusal, RetryPolicy
from services.agent.sign_command import Intent
from services.process.logs import get_log
from services.worker.artifact_store import ArtifactFault, ArtifactStore, artifact_bytes_max
from services.worker.assigned_work import Acceptance, AssignedWork
from services.worker.hold_lease import HeldLease, under_lease
from services.worker.jobs.job import Job, Result, State
from services.worker.lease_clock import lease_clock
from services.worker.sign_results import artifact_id, sign_artifact, sign_evidence
from services.worker.take_step import Step, StepNotTaken, StepTaker
from services.worker.work_plan import Plan, PlanFault, bind_inputs, plan_work

start_policy: Final = RetryPolicy(deadline_seconds=15.0)
"""A start that nobody answers is given up; the WorkItem is chosen again."""
published_already_codes: Final = frozenset({Code.INVALID_STATE_TRANSITION, Code.ACTION_ID_COLLISION})
"""How the authority refuses an Artifact whose name it knows, or this very step whose bytes were lost."""

_log = get_log(__name__)


class Means(Struct, frozen=True, kw_only=True):
    """What every execution of a Worker uses. `stopping` asks for a checkpoint after the current step."""

    client: Client
    steps: StepTaker
    store: ArtifactStore
    lease_seconds: int
    stopping: asyncio.Event
    find_acceptance: Callable[[AssignedWork], Awaitable[Acceptance]]


class Execution:
    """One run of one WorkItem in one slot."""

    def __init__(self, work: AssignedWork, means: Means) -> None:
        self._work = work
        self._means = means

    async def run(self) -> int:
        """Run until the slot is free again; the Group sequence that this run reached.

        Raises StepNotTaken, LeaseEnded, SessionLost, PlanFault, ArtifactFault, Unavailable, OSError; the WorkItem is
        then as the Events say.
        """
        plan = plan_work(self._constraints())
        inputs = [await self._means.store.read(named) for named in self._work.contract.input_artifacts]
        job = bind_inputs(plan, inputs)
        done, state = await self._resume(job)
        lease = await self._lease()
        return await under_lease(lease, self._means.steps, self._advance(lease, plan, job, done, state))

    async def _advance(self, lease: HeldLease, plan: Plan, job: Job, done: int, state: State) -> int:
        """Steps until the slot is given back or the result is handed in."""
        began = done
        while done < plan.steps:
            if done > began and (done - began >= plan.checkpoint_every or self._means.stopping.is_set()):
                return await self._checkpoint(lease, plan, done, state)
            state, _ = await asyncio.gather(
                asyncio.to_thread(job.advance, state, done), asyncio.sleep(plan.step_millis / 1000)
            )
            done += 1
        return await self._hand_in(lease, job, state)

    def _constraints(self) -> dict[str, Any]:
        constraints = self._work.contract.constraints
        return constraints if isinstance(constraints, dict) else {}

    async def _resume(self, job: Job) -> tuple[int, State]:
        """Steps done and state at the latest checkpoint; from the beginning when its bytes are gone."""
        checkpoint = self._work.checkpoint
        if checkpoint is None or not isinstance(checkpoint.state_artifact_hash, str):
            return 0, job.begin()
        try:
            kept = parse_strict(await self._means.store.read(checkpoint.state_artifact_hash), artifact_bytes_max)
        except ArtifactFault as fault:
            _log.warning("checkpoint_lost", work_item=self._work.work_item_id, reason=str(fault))
            return 0, job.begin()
        return int(kept["done"]), kept["state"]

    async def _lease(self) -> HeldLease:
        """A new Execution Lease, or the one that this session holds already, once it is renewed.

        Its deadline counts from before the request was sent (LSE-1).
        """
        seconds, sent_at = self._means.lease_seconds, lease_clock()
        if self._work.running_lease_id is not None:
            lease = HeldLease(self._work, self._work.running_lease_id, seconds, sent_at)
            await lease.renew(self._means.steps)
            return lease
        start = WorkStart(
            work_item_id=self._work.work_item_id,
            ownership_epoch=self._work.ownership_epoch,
            execution_lease_seconds=seconds,
        )
        receipt = await self._take("work.start", f"start at {self._work.revision}", start, start_policy)
        return HeldLease(self._work, await self._lease_of(receipt), seconds, sent_at)

    async def _lease_of(self, receipt: Receipt) -> str:
        """The lease that the start's Event names; the Receipt says where it stands in the history."""
        for recorded in receipt.events:
            page = await self._means.client.history.group_page(self._work.group_id, recorded.sequence - 1, limit=1)
            if isinstance(page, Refusal):
                raise StepNotTaken("start", f"{page.code.value}: {page.rejection.message}", page.code)
            for replayed in page.events:
                event = msgspec.json.decode(replayed.event, type=Event)
                if event.kind == "work.started" and event.event_id == recorded.event_id:
                    return _started(event).execution_lease.lease_id
        raise StepNotTaken("start", f"no work.started among the Events of {receipt.action_id}", None)

    async def _checkpoint(self, lease: HeldLease, plan: Plan, done: int, state: State) -> int:
        """Store the state, then give lease and slot back."""
        named = await self._means.store.write(canonical_bytes({"done": done, "state": state}))
        checkpoint = WorkCheckpoint(
            work_item_id=self._work.work_item_id,
            ownership_epoch=self._work.ownership_epoch,
            execution_lease_id=lease.lease_id,
            checkpoint=Checkpoint(
                phase=f"{done} of {plan.steps} steps",
                completed_milestones=tuple(f"step-{number}" for number in range(1, done + 1)),
                next_step=f"step-{done + 1}",
                state_artifact_hash=named,
                created_at=self._means.client.current_time(),
            ),
        )
        receipt = await self._take("work.checkpoint", f"checkpoint {lease.lease_id}", checkpoint, lease.last_policy())
        return _reached(receipt)

    async def _hand_in(self, lease: HeldLease, job: Job, state: State) -> int:
        """Store, confirm, publish and submit the result."""
        result = await asyncio.to_thread(job.finish, state)
        if not await asyncio.to_thread(job.confirm, result):
            raise PlanFault(f"the result of {self._work.work_item_id} was not confirmed: it is not submitted")
        named = await self._means.store.write(result.content)
        await self._means.store.read(named)
        await self._publish(lease, result, named)
        client = self._means.client
        submission = WorkSubmit(
            work_item_id=self._work.work_item_id,
            ownership_epoch=self._work.ownership_epoch,
            execution_lease_id=lease.lease_id,
            artifact_ids=(artifact_id(self._work),),
            evidence=sign_evidence(self._work, result, named, key=client.key, created_at=client.current_time()),
        )
        receipt = await self._take("work.submit", f"submit {lease.lease_id}", submission, lease.last_policy())
        return _reached(receipt)

    async def _publish(self, lease: HeldLease, result: Result, named: str) -> None:
        """Publish the manifest. Its derived name may be in the history already: the submission then tells."""
        acceptance = await self._means.find_acceptance(self._work)
        client = self._means.client
        publication = ArtifactPublish(
            artifact=sign_artifact(
                self._work, acceptance, result, named, key=client.key, created_at=client.current_time()
            ),
            ownership_epoch=self._work.ownership_epoch,
            execution_lease_id=lease.lease_id,
        )
        try:
            await self._take("artifact.publish", f"publish {lease.lease_id}", publication, lease.policy())
        except StepNotTaken as fault:
            if fault.code not in published_already_codes:
                raise

    async def _take(self, kind: str, name: str, payload: Any, policy: RetryPolicy) -> Receipt:
        step = Step(
            scope=(self._work.work_item_id, self._work.ownership_epoch),
            name=name,
            intent=Intent(
                kind=kind, payload=payload, group_id=self._work.group_id, work_item_id=self._work.work_item_id
            ),
        )
        return await self._means.steps.take(step, policy)


def _started(event: Event) -> WorkStarted:
    """What a start's Event says. Raises StepNotTaken for one that this version must not read."""
    try:
        return msgspec.convert(current_payload(event), WorkStarted)
    except EventUnread as fault:
        raise StepNotTaken("start", str(fault), None) from fault


def _reached(receipt: Receipt) -> int:
    """The last Group sequence that the Command's Events took."""
    return max(recorded.sequence for recorded in receipt.events)
