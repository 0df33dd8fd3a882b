"""Set the database back under a running stack, as a restored volume would: who notices, decides, finds the fork.

A Mission is created and a copy of the database taken. Messages that follow are accepted, published and applied by the
board and a Worker. Then the copy comes back. The authority must hold, for the streams end beyond its log; an operator
opens a new incarnation; consumers that applied the lost Messages must find the FORK, rebuild, and name exactly them.
"""

import asyncio
import subprocess
import time
from collections.abc import Awaitable, Callable, Mapping
from pathlib import Path
from typing import Final

from msgspec import Struct

from contracts.documents.common import Actor, ActorType, Document
from contracts.documents.membership import Role
from contracts.documents.message import TextPart
from contracts.payloads.membership import MembershipChange
from contracts.payloads.message import MessagePost
from contracts.receipt import Receipt
from ops.command_fault import CommandFault
from ops.demo.mission_documents import agent_id, mission_creation
from ops.demo.mission_tables import MissionFile
from ops.demo.observe_stack import Observatory
from ops.demo.watch_group import GroupView
from ops.embedded.supervisor import Supervisor, database_unit
from ops.incarnation.open_incarnation import open_incarnation
from ops.incarnation.read_incarnations import read_incarnations
from ops.projection_file import NotAProjection
from ops.projection_place import ProjectionPlace, open_place, projection_places
from ops.running_stack import BrokerAccess
from projections.store import Fork
from services.agent.connect import Client
from services.agent.send_command import Answered
from services.agent.sign_command import Intent
from services.process import database
from services.process.settings import BrokerCredentials
from services.process.unique import uuid7_urn

lost_messages: Final = 3
"""Messages that are accepted after the copy and lost with its return."""
step_seconds_max: Final = 60.0
"""Seconds for each step of the drill."""
look_seconds: Final = 0.2
copy_seconds_max: Final = 60.0
"""Seconds for copying the data directory."""


class DrillFault(Exception):
    """A step of the drill did not come about."""


class ForkFound(Struct, frozen=True, kw_only=True, rename="camel"):
    """One consumer that had applied lost Events: which, and how many of them it names."""

    consumer: str
    seen_sequence: int
    found_sequence: int
    lost_event_ids: tuple[str, ...]


class Restored(Struct, frozen=True, kw_only=True, rename="camel"):
    """What became of the drill. Seconds count from the database's return to each effect."""

    held_because: str
    incarnation: str
    held_seconds: float
    accepting_seconds: float
    rebuilt_seconds: float
    lost_event_ids: tuple[str, ...]
    forks: tuple[ForkFound, ...]


class RestoreDrill:
    """One drill on a running stack, with a Mission of its own."""

    def __init__(self, stack: Supervisor, observatory: Observatory, owner: Client) -> None:
        """`owner` acts as MissionOwner."""
        self._stack = stack
        self._observatory = observatory
        self._owner = owner
        run = f"restore-drill-{uuid7_urn().rpartition(':')[2]}"
        self._mission_id, self._group_id = f"urn:weavehold:mission:{run}", f"urn:weavehold:group:{run}"
        self._copy = stack.directory.path / "database-copy"

    async def run(self, file: MissionFile, tell: Callable[[str], None]) -> Restored:
        """Do it; Coordinator and member are those of `file`. Raises DrillFault, CommandFault."""
        conversation_id = await self._create(file)
        tell("kill -9 database, copy its data, go on")
        await self._database_down(self._take_copy)
        lost = [await self._say(conversation_id, f"Message {number}") for number in range(1, lost_messages + 1)]
        last = lost[-1].events[0].sequence
        await self._observatory.reconnect()
        await self._until(lambda: self._all_applied(last), "every consumer had applied the lost Messages")
        await self._until(self._all_published, "the lost Messages were published")
        tell("kill -9 database, put the earlier copy back")
        await self._database_down(self._put_copy_back)
        began = time.monotonic()
        held_because = await self._until(self._held, "the authority held")
        held = time.monotonic() - began
        tell(f"the authority holds: {held_because.partition(';')[0]}")
        incarnation = await self._decide()
        tell(f"the operator opened incarnation {incarnation}")
        await self._until(self._ready, "the authority accepted again")
        after = await self._say(conversation_id, "After the restore")
        accepting = time.monotonic() - began
        forks = await self._until(
            lambda: self._forks(after.events[0].sequence), "every consumer had found its fork and rebuilt"
        )
        lost_ids = tuple(receipt.events[0].event_id for receipt in lost)
        if wrong := [fork.consumer for fork in forks if fork.lost_event_ids != lost_ids]:
            raise DrillFault(f"{', '.join(wrong)} named other Events than the {lost_messages} lost ones")
        return Restored(
            held_because=held_because,
            incarnation=incarnation,
            held_seconds=round(held, 3),
            accepting_seconds=round(accepting, 3),
            rebuilt_seconds=round(time.monotonic() - began, 3),
            lost_event_ids=lost_ids,
            forks=forks,
        )

    async def _create(self, file: MissionFile) -> str:
        """The Mission with one more member; its main Conversation."""
        await self._own("mission.create", mission_creation(file, self._mission_id, self._group_id))
        member = Actor(type=ActorType.AGENT, id=agent_id(file.work[0].candidates[0]))
        joined = await self._own("membership.change", MembershipChange(principal=member, role=Role.WORKER))
        view = GroupView(self._owner, self._group_id)
        await view.refresh()
        await self._until(lambda: self._all_applied(joined.events[0].sequence), "the Mission was applied")
        return view.state.group.main_conversation_id

    async def _say(self, conversation_id: str, words: str) -> Receipt:
        payload = MessagePost(message_id=uuid7_urn(), conversation_id=conversation_id, content=(TextPart(text=words),))
        return await self._own("message.post", payload)

    async def _own(self, kind: str, payload: Document) -> Receipt:
        answer = await self._owner.send(Intent(kind=kind, payload=payload, group_id=self._group_id))
        if not isinstance(answer, Answered):
            raise DrillFault(f"{kind} was not accepted: {answer}")
        return answer.value

    async def _database_down(self, act: Callable[[], None]) -> None:
        """Kill the database, do something to its files, start it again."""
        await self._stack.kill(database_unit, restart=False)
        await self._stack.wait_ended(database_unit)
        await asyncio.to_thread(act)
        await self._stack.start_again(database_unit)

    def _take_copy(self) -> None:
        _copy(self._stack.directory.postgres / "data", self._copy)

    def _put_copy_back(self) -> None:
        data = self._stack.directory.postgres / "data"
        data.rename(data.with_name("data-lost"))
        _copy(self._copy, data)

    async def _all_published(self) -> bool:
        return not await self._observatory.unpublished()

    async def _held(self) -> str | None:
        return (await self._stack.unready()).get(self._authority)

    async def _ready(self) -> bool:
        return await self._stack.service(self._authority).unready() is None

    @property
    def _authority(self) -> str:
        services = (self._stack.service(name) for name in self._stack.service_names)
        return next(service.name for service in services if service.spec.arguments[0] == "authority")

    async def _decide(self) -> str:
        """The operator's part, as `weavehold incarnation open` does it; the new incarnation."""
        organization = self._stack.organization
        connection = await database.connect(self._stack.database_url, name="weavehold-drill")
        try:
            report = await read_incarnations(connection, self._owner.connection, organization.organization_id)
            if not report.faults:
                raise DrillFault("nothing spoke against the restored database")
            credentials = BrokerCredentials(token=self._stack.nats_token)
            access = BrokerAccess(organization.organization_id, self._stack.nats_url, credentials)
            await open_incarnation(access, organization.keys.operator, report, "drill: an earlier copy was restored")
            report = await read_incarnations(connection, None, organization.organization_id)
        finally:
            await connection.close()
        return report.incarnations[-1].incarnation

    async def _all_applied(self, sequence: int) -> bool:
        """Whether every consumer that has this Group has applied it so far, the board among them."""
        reached = await asyncio.to_thread(self._cursors)
        return len(reached) >= self._consumers_min and all(cursor >= sequence for cursor in reached.values())

    @property
    def _consumers_min(self) -> int:
        """The member's work queue and the mission board at least."""
        return 2

    def _cursors(self) -> Mapping[str, int]:
        found: dict[str, int] = {}
        for place in self._places():
            with open_place(place) as opened:
                cursor = opened.snapshot.cursor(self._group_id)
                if cursor is not None:
                    found[place.name] = cursor.sequence
        return found

    async def _forks(self, sequence: int) -> tuple[ForkFound, ...] | None:
        """The forks of this Group once every consumer that has it stands at `sequence` again."""
        if not await self._all_applied(sequence):
            return None
        found = await asyncio.to_thread(self._recorded_forks)
        expected = await asyncio.to_thread(self._cursors)
        return found if len(found) == len(expected) else None

    def _recorded_forks(self) -> tuple[ForkFound, ...]:
        found: list[ForkFound] = []
        for place in self._places():
            with open_place(place) as opened:
                forks = [fork for fork in opened.snapshot.forks() if fork.group_id == self._group_id]
            found += [_found(place, fork) for fork in forks]
        return tuple(found)

    def _places(self) -> list[ProjectionPlace]:
        return projection_places(self._stack.directory.path)

    async def _until[T](self, look: Callable[[], Awaitable[T | None]], what: str) -> T:
        """Look until it is so, within `step_seconds_max`. Raises DrillFault."""
        ends = time.monotonic() + step_seconds_max
        while True:
            try:
                if found := await look():
                    return found
            except (NotAProjection, CommandFault):
                pass  # it is being made anew
            if time.monotonic() > ends:
                raise DrillFault(f"not within {step_seconds_max:g} s: {what}")
            await asyncio.sleep(look_seconds)


def _found(place: ProjectionPlace, fork: Fork) -> ForkFound:
    return ForkFound(
        consumer=place.name,
        seen_sequence=fork.seen.sequence,
        found_sequence=fork.found.sequence,
        lost_event_ids=tuple(event.event_id for event in fork.lost),
    )


def _copy(source: Path, target: Path) -> None:
    """A copy with owners and times, as a volume snapshot has them."""
    subprocess.run(["cp", "-a", str(source), str(target)], check=True, timeout=copy_seconds_max)  # noqa: S603, S607
