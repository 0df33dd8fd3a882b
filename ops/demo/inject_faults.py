"""Kill what can be killed while the Missions run, and measure how long each recovery takes.

Every time is counted from the moment after SIGKILL to an observable effect: a Command of the killed Worker accepted,
a new Command accepted, or a new Event (or all of them) in the streams.
"""

import asyncio
import shutil
import time
from collections import Counter
from collections.abc import Awaitable, Callable, Mapping, Sequence
from datetime import UTC, datetime
from typing import Final

from msgspec import Struct

from contracts.timestamps import parse_timestamp
from ops.demo.conduct_mission import Conductor
from ops.demo.mission_documents import agent_id
from ops.demo.observe_stack import Observatory
from ops.embedded.supervisor import Supervisor, broker_unit
from services.agent.send_command import Answered

look_seconds: Final = 0.1
"""Seconds between two looks while a recovery is being measured."""
opportunity_seconds_max: Final = 20.0
"""Seconds to wait until a Worker holds work, before it is killed anyway."""
recovery_seconds_max: Final = 60.0
"""Seconds after which a recovery counts as failed."""
calm_seconds: Final = 1.0
"""Seconds between a recovery and the next kill."""


class Recovery(Struct, frozen=True, kw_only=True, rename="camel"):
    """One kill: what was killed, until what was seen, and after how many seconds (None: not within the bound)."""

    killed: str
    until: str
    seconds: float | None


class FaultPlan:
    """The kills of one demo, in order."""

    def __init__(
        self, stack: Supervisor, observatory: Observatory, conductors: Sequence[Conductor], workers: Mapping[str, str]
    ) -> None:
        """`workers` maps Agent names to their services."""
        self.recoveries: list[Recovery] = []
        self.counted_before_kills: Counter[str] = Counter()
        self._stack = stack
        self._observatory = observatory
        self._conductors = conductors
        self._workers = workers

    async def run(self, tell: Callable[[str], None]) -> None:
        """Kill and measure, one after the other."""
        for kill in (self._kill_worker, self._kill_relay, self._kill_authority, self._kill_broker, self._wipe_broker):
            recovery = await kill(tell)
            self.recoveries.append(recovery)
            told = "did not recover" if recovery.seconds is None else f"recovered after {recovery.seconds:.2f} s"
            tell(f"{recovery.killed}: {told} ({recovery.until})")
            await asyncio.sleep(calm_seconds)

    async def _kill_worker(self, tell: Callable[[str], None]) -> Recovery:
        """Kill a Worker that is executing; it is back when one of its Commands is accepted."""
        name = await self._executing_worker()
        tell(f"kill -9 Worker {name} at work")
        self.counted_before_kills.update(await self._observatory.counters_of(self._workers[name]))
        await self._stack.kill(self._workers[name])
        killed_at = datetime.now(UTC)

        async def back() -> float | None:
            seconds = self._first_command_after(agent_id(name), killed_at)
            if seconds is not None or any(conductor.has_work_left for conductor in self._conductors):
                return seconds
            ready = await self._stack.service(self._workers[name]).unready() is None
            return (datetime.now(UTC) - killed_at).total_seconds() if ready else None

        return await self._measure(f"Worker {name}", "its next Command was accepted", back)

    async def _executing_worker(self) -> str:
        """A Worker with an active WorkItem, those of several Groups first; any Worker when none works in time."""
        ends = time.monotonic() + opportunity_seconds_max
        groups = Counter(name for conductor in self._conductors for name in conductor.workers)
        by_groups = sorted(self._workers, key=lambda name: -groups[name])
        while time.monotonic() < ends and any(conductor.has_work_left for conductor in self._conductors):
            for name in by_groups:
                for conductor in self._conductors:
                    if conductor.view.state.exists and conductor.view.state.executing(agent_id(name)):
                        return name
            await asyncio.sleep(look_seconds)
        return by_groups[0]

    def _first_command_after(self, principal: str, moment: datetime) -> float | None:
        """Seconds from a moment to the first Event that a Principal caused after it."""
        seen = [
            parse_timestamp(event.occurred_at)
            for conductor in self._conductors
            for event in conductor.view.events
            if event.actor.id == principal and event.cause.type.value == "command"
        ]
        later = [at for at in seen if at > moment]
        return (min(later) - moment).total_seconds() if later else None

    async def _kill_relay(self, tell: Callable[[str], None]) -> Recovery:
        """Kill the relay; it is back when an Event accepted after the kill is in its stream."""
        return await self._kill_and_publish(tell, "relay", self._of("relay"))

    async def _kill_authority(self, tell: Callable[[str], None]) -> Recovery:
        """Kill the authority; it is back when a Command sent after the kill is accepted."""
        name = self._of("authority")
        tell(f"kill -9 {name}")
        await self._stack.kill(name)
        began = time.monotonic()

        async def back() -> float | None:
            return time.monotonic() - began if await self._probe() else None

        return await self._measure("authority", "a new Command was accepted", back)

    async def _kill_broker(self, tell: Callable[[str], None]) -> Recovery:
        """Kill the broker with its store kept."""
        return await self._kill_and_publish(tell, "broker", broker_unit)

    async def _wipe_broker(self, tell: Callable[[str], None]) -> Recovery:
        """Kill the broker and delete everything it stored; it is back when all streams are full again."""
        tell("kill -9 broker, delete its whole store")
        await self._stack.kill(broker_unit, restart=False)
        began = time.monotonic()
        await self._stack.wait_ended(broker_unit)
        await asyncio.to_thread(shutil.rmtree, self._stack.directory.nats / "jetstream")
        await self._stack.start_again(broker_unit)

        async def back() -> float | None:
            return None if await self._observatory.unpublished() else time.monotonic() - began

        return await self._measure("broker, store wiped", "every stream was full again", back)

    async def _kill_and_publish(self, tell: Callable[[str], None], what: str, name: str) -> Recovery:
        tell(f"kill -9 {name}")
        await self._stack.kill(name)
        began = time.monotonic()
        event_id = await self._probe()
        place = await self._observatory.position_of(event_id) if event_id else None

        async def back() -> float | None:
            if place is None or await self._observatory.published(place[0]) < place[1]:
                return None
            return time.monotonic() - began

        return await self._measure(what, "a new Event was published", back)

    async def _probe(self) -> str | None:
        """Have a useful Command accepted (a coordinator lease renewed); its Event ID."""
        for conductor in self._conductors:
            if conductor.view.state.exists and not conductor.view.state.mission.state.terminal:
                answer = await conductor.renew()
                return answer.value.events[0].event_id if isinstance(answer, Answered) else None
        return None

    def _of(self, command: str) -> str:
        """The first service that runs a command of `weavehold`."""
        return next(
            name for name in self._stack.service_names if self._stack.service(name).spec.arguments[0] == command
        )

    async def _measure(self, killed: str, until: str, back: Callable[[], Awaitable[float | None]]) -> Recovery:
        """Look until `back` tells the seconds, within the bound."""
        ends = time.monotonic() + recovery_seconds_max
        while True:
            seconds = await back()
            if seconds is not None or time.monotonic() > ends:
                return Recovery(killed=killed, until=until, seconds=None if seconds is None else round(seconds, 3))
            await asyncio.sleep(look_seconds)
