"""Run a plan from beginning to end in a loop of its own, with clock, chance and bounds put in from outside."""

import asyncio
import hashlib
import logging
import random
import sys
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from unittest import mock

import msgspec
import structlog

import outbox_relay.publish_pipeline
import outbox_relay.relay_lease
import projections.fill_gap
import projections.pull
import projections.repairs
import projections.run_consumer
import projections.watch_heads
import services.process.broker
from tests.simulation.plan import Plan, Step
from tests.simulation.virtual_loop import VirtualLoop
from tests.simulation.world import Note, World


class Outcome(msgspec.Struct, frozen=True):
    """What became of a run. `trace` is its notes, `digest` over them tells two runs apart."""

    violation: str | None
    notes: tuple[Note, ...]
    applied: int
    forks: int
    virtual_seconds: float

    @property
    def digest(self) -> str:
        return hashlib.sha256(repr(self.notes).encode()).hexdigest()


def run_plan(plan: Plan, steps: Sequence[Step] | None = None) -> Outcome:
    """One run of a plan, or of some of its steps."""
    storing = random.Random(f"{plan.seed}/store")
    loop = VirtualLoop(lambda: storing.uniform(0.0001, 0.004))
    memory = Path("/dev/shm")
    with ExitStack() as stack:
        stack.callback(loop.close)
        stack.enter_context(_decided_by(plan, loop))
        folder = stack.enter_context(tempfile.TemporaryDirectory(dir=memory if memory.is_dir() else None))
        return loop.run_until_complete(_run(plan, loop, folder, plan.steps if steps is None else steps))


async def _run(plan: Plan, loop: VirtualLoop, folder: str, steps: Sequence[Step]) -> Outcome:
    world = World(plan, loop, folder)
    living = loop.create_task(world.live(steps))
    try:
        await asyncio.wait({living, world.failed}, return_when=asyncio.FIRST_COMPLETED)
        if living.done():
            await living
        return Outcome(
            world.violation,
            tuple(world.notes),
            sum(consumer.checker.applied for consumer in world.consumers),
            sum(consumer.checker.forks for consumer in world.consumers),
            loop.time(),
        )
    finally:
        living.cancel()
        await asyncio.gather(living, return_exceptions=True)
        await world.end()


@contextmanager
def _decided_by(plan: Plan, loop: VirtualLoop) -> Iterator[None]:
    """Clock, chance and bounds of the code under test come from the plan; its logs are silent."""
    chance = random.Random(f"{plan.seed}/jitter")
    clock = mock.Mock(monotonic=loop.time)
    pairs, events = plan.settings.remembered_pairs, plan.settings.batch_events
    with ExitStack() as stack:
        for module in (
            projections.repairs,
            projections.run_consumer,
            projections.watch_heads,
            services.process.broker,
        ):
            stack.enter_context(mock.patch.object(module, "random", chance))
        for module in (projections.pull, projections.repairs, outbox_relay.publish_pipeline, outbox_relay.relay_lease):
            stack.enter_context(mock.patch.object(module, "time", clock))
        for name, module in sorted(sys.modules.items()):
            if name.startswith("projections.") and hasattr(module, "remembered_pairs_max"):
                stack.enter_context(mock.patch.object(module, "remembered_pairs_max", pairs))
        stack.enter_context(mock.patch.object(projections.fill_gap, "replay_batch_events", events))
        configured = structlog.get_config()
        structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(logging.CRITICAL))
        stack.callback(structlog.configure, **configured)
        yield
