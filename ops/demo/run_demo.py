"""Run Missions on a stack of one's own while its processes are killed, then prove that nothing was lost or doubled.

The stack is started, Agents are registered, every Mission of the files runs with its Workers as real processes. Worker,
relay, authority and broker are killed with -9 on the way, and the broker's store is wiped once. When the Missions are
approved and every Event is published and applied, the database is set back to an earlier copy, and the history goes on
in a new incarnation. At the end verification compares log, state, receipts and streams.
"""

import asyncio
import time
from collections import Counter
from collections.abc import Sequence
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Final

from ops.command_fault import CommandFault
from ops.demo.conduct_mission import ConductFault
from ops.demo.demo_report import DemoReport, MissionOutcome
from ops.demo.inject_faults import FaultPlan
from ops.demo.mission_documents import agent_id
from ops.demo.mission_tables import MissionFile
from ops.demo.observe_stack import Observatory
from ops.demo.prepare_demo import Cast, agents_of, prepare_demo
from ops.demo.restore_drill import DrillFault, Restored, RestoreDrill
from ops.demo.show_progress import Progress
from ops.embedded.services import projector, standard_services
from ops.embedded.supervisor import StackOptions, Supervisor
from ops.projection_place import projection_places
from ops.verify.finding import Report
from ops.verify.run import verify_all
from services.process import database
from services.process.settings import BrokerCredentials

missions_seconds_max: Final = 180.0
"""Seconds for all Missions together with the kills."""
quiet_seconds_max: Final = 45.0
"""Seconds until everything accepted must be published and applied."""
quiet_look_seconds: Final = 0.5
"""Seconds between two looks at whether everything is."""


async def run_demo(files: Sequence[MissionFile], directory: Path, progress: Progress, *, keep: bool) -> DemoReport:
    """Run the Missions of the files; `directory` is where the stack lives. Raises UsageFault, EmbeddedFault."""
    began = time.monotonic()
    agents_of(files)
    progress.tell("starting PostgreSQL, NATS, authority, relay and projector")
    async with AsyncExitStack() as closing:
        stack = await closing.enter_async_context(
            Supervisor(directory, standard_services(), StackOptions(organization_name="demo"))
        )
        cast = await prepare_demo(stack, files, progress.tell, closing)
        progress.follow(cast.conductors)
        connection = await database.connect(stack.database_url, name="weavehold-demo")
        observatory = Observatory(stack, connection, cast.owner.connection)
        closing.push_async_callback(observatory.close)
        demo = Demo(stack, cast, observatory, progress)
        faults = await demo.run_missions()
        faults += await demo.wait_quiet()
        if not faults:
            faults += await demo.set_back(files[0])
            faults += await demo.wait_quiet()
        verification = await verify_all(
            stack.database_url,
            stack.organization.organization_id,
            nats_url=stack.nats_url,
            nats_credentials=BrokerCredentials(token=stack.nats_token),
            projections=projection_places(directory),
            progress=lambda check: progress.tell(f"verifying: {check}"),
        )
        return await demo.report(verification, faults, time.monotonic() - began, directory if keep else None)


class Demo:
    """A running demo: its stack, Missions and observers."""

    def __init__(self, stack: Supervisor, cast: Cast, observatory: Observatory, progress: Progress) -> None:
        """Nothing runs yet but the stack and the Workers."""
        self._conductors = cast.conductors
        self._workers = cast.workers
        self._observatory = observatory
        self._progress = progress
        self._plan = FaultPlan(stack, observatory, cast.conductors, cast.workers)
        self._drill = RestoreDrill(stack, observatory, cast.owner)
        self._restored: Restored | None = None

    async def run_missions(self) -> list[str]:
        """All Missions to their approval, with the kills on the way; reasons why it failed."""
        try:
            async with asyncio.timeout(missions_seconds_max), asyncio.TaskGroup() as tasks:
                for conductor in self._conductors:
                    tasks.create_task(conductor.run(self._progress.changed))
                await self._plan.run(self._progress.tell)
                for conductor in self._conductors:
                    conductor.may_approve.set()
        except TimeoutError:
            return [f"the Missions were not approved within {missions_seconds_max:g} s"]
        except ExceptionGroup as group:
            faults, others = group.split(ConductFault)
            if others is not None:
                raise others from None
            return [str(fault) for fault in faults.exceptions] if faults else []
        return [f"{recovery.killed} did not recover" for recovery in self._plan.recoveries if recovery.seconds is None]

    async def set_back(self, file: MissionFile) -> list[str]:
        """The database set back, and how the history goes on; reasons why it failed."""
        try:
            self._restored = await self._drill.run(file, self._progress.tell)
        except (DrillFault, CommandFault) as fault:
            return [f"the database was set back: {fault}"]
        finally:
            await self._observatory.reconnect()
        return []

    async def wait_quiet(self) -> list[str]:
        """Until everything accepted is published, and applied by board and Workers; what is still missing."""
        self._progress.tell("waiting until everything is published and applied")
        ends = time.monotonic() + quiet_seconds_max
        while True:
            missing = [
                f"{events} Events of shard {shard} are not published"
                for shard, events in (await self._observatory.unpublished()).items()
            ]
            missing += [
                f"{name} has applied {count} of {outcome.events} Events of {outcome.name}"
                for outcome in await self._outcomes()
                for name, count in outcome.applied.items()
                if count < outcome.events
            ]
            if not missing or time.monotonic() > ends:
                return missing
            await asyncio.sleep(quiet_look_seconds)

    async def _outcomes(self) -> list[MissionOutcome]:
        groups = [conductor.mark.group_id for conductor in self._conductors]
        applied, ends = await self._observatory.applied(groups), await self._observatory.group_ends(groups)
        projected = await self._observatory.projected()
        return [
            MissionOutcome(
                name=conductor.file.mission.name,
                mission_id=conductor.mark.mission_id,
                group_id=conductor.mark.group_id,
                state=conductor.view.state.mission.state.value if conductor.view.state.exists else "not created",
                events=ends.get(conductor.mark.group_id, 0),
                applied={name: applied.get((conductor.mark.group_id, agent_id(name)), 0) for name in conductor.workers}
                | {"mission board": projected.get(conductor.mark.group_id, 0)},
            )
            for conductor in self._conductors
        ]

    async def report(
        self, verification: Report, faults: Sequence[str], seconds: float, kept: Path | None
    ) -> DemoReport:
        """Everything together."""
        counters = Counter(self._plan.counted_before_kills)
        for service in (*self._workers.values(), projector().name):
            counters.update(await self._observatory.counters_of(service))
        outcomes = await self._outcomes()
        heads = await self._observatory.log_heads()
        published = [await self._observatory.published(shard) for shard in heads]
        return DemoReport(
            ok=verification.ok and not faults,
            seconds=round(seconds, 1),
            missions=tuple(outcomes),
            commands_accepted=await self._observatory.commands_accepted(),
            events_accepted=sum(heads.values()),
            events_published=sum(published),
            events_applied=sum(sum(outcome.applied.values()) for outcome in outcomes),
            events_to_apply=sum(outcome.events * len(outcome.applied) for outcome in outcomes),
            duplicates_dropped=counters["duplicates_dropped"],
            gaps_filled=counters["gaps_filled"],
            recoveries=tuple(self._plan.recoveries),
            restored=self._restored,
            verification=verification,
            faults=tuple(faults),
            directory=None if kept is None else str(kept),
        )
