"""Conduct one Mission of a file: the MissionOwner's and the Coordinator's part of it.

A loop looks at the Group's folded state and does what is due next. It keeps nothing that the history does not say, so
an answer lost in an outage costs one more look.
"""

import asyncio
from collections.abc import Callable
from typing import Final

from msgspec import Struct

from contracts.documents.common import Actor, ActorType, Document
from contracts.documents.lease import Lease
from contracts.documents.membership import Role
from contracts.documents.message import TextPart
from contracts.documents.mission import MissionState
from contracts.documents.work_item import OfferStatus, WorkItemState
from contracts.entities import WorkItemRecord
from contracts.payloads.membership import MembershipChange
from contracts.payloads.message import MessagePost
from contracts.payloads.mission import (
    MissionApprove,
    MissionRenewCoordinator,
    MissionRequestChanges,
    MissionSubmitForApproval,
)
from contracts.payloads.work import WorkAcceptResult, WorkAuthorize, WorkOffer
from contracts.rejection import Code
from contracts.timestamps import instant
from ops.demo.mission_documents import (
    agent_id,
    final_approval,
    mission_creation,
    review_evidence,
    selection_basis,
    work_contract,
)
from ops.demo.mission_tables import MissionFile, WorkTable
from ops.demo.watch_group import GroupView
from services.agent.connect import Client
from services.agent.read_history import Unavailable
from services.agent.send_command import Answer, Answered, Refused, Unresolved
from services.agent.sign_command import Intent, derived_token
from services.process.unique import uuid7_urn
from services.worker.artifact_store import ArtifactStore

look_seconds: Final = 0.5
"""Seconds between two looks at a Group: never more often than twice a second."""
refusals_max: Final = 12
"""Refusals in a row after which the Mission is given up: something is wrong that looking again does not mend."""
_moved_on_codes: Final = frozenset({Code.INVALID_STATE_TRANSITION, Code.REVISION_CONFLICT, Code.AUTH_STALE_COORDINATOR})
"""Refusals that mean that the Group has moved on since the last look."""


class ConductFault(Exception):
    """The Mission cannot go on."""


class MissionMark(Struct, frozen=True):
    """The identifiers of one run of a Mission."""

    mission_id: str
    group_id: str

    def work_item_id(self, name: str) -> str:
        """Identifier of a WorkItem of the file in this run."""
        return f"urn:weavehold:work:{derived_token(self.group_id, name)[:32]}"


class Conductor:
    """Runs one Mission to its approval."""

    def __init__(
        self, file: MissionFile, mark: MissionMark, owner: Client, coordinator: Client, content: ArtifactStore
    ) -> None:
        """`owner` and `coordinator` are clients of those two Principals; results lie in `content`."""
        self.file = file
        self.mark = mark
        self.view = GroupView(coordinator, mark.group_id)
        self.may_approve = asyncio.Event()
        self.refusals: list[Refused] = []
        self.answered = 0
        self._owner = owner
        self._coordinator = coordinator
        self._content = content
        self._refused_in_a_row = 0

    @property
    def workers(self) -> list[str]:
        """Names of the Agents that work in this Group."""
        return sorted({name for item in self.file.work for name in item.candidates})

    @property
    def has_work_left(self) -> bool:
        """Whether some work of this round is not verified yet."""
        return not self.view.state.exists or not self._all_verified()

    async def run(self, on_change: Callable[[], None]) -> None:
        """Create the Mission and lead it to its approval. Raises ConductFault."""
        await self._create()
        while True:
            try:
                changed = await self.view.refresh()
                on_change()
                if self.view.state.mission.state is MissionState.APPROVED:
                    return
                if not await self._act() and not changed:
                    await asyncio.sleep(look_seconds)
            except Unavailable:
                await asyncio.sleep(look_seconds)

    async def _create(self) -> None:
        creation = mission_creation(self.file, self.mark.mission_id, self.mark.group_id)
        intent = Intent(kind="mission.create", payload=creation, group_id=self.mark.group_id)
        answer = await self._owner.send(intent)
        while isinstance(answer, Unresolved):
            answer = await self._owner.send(intent, resume=answer.command)
        await self._sent(answer)

    async def _act(self) -> bool:
        """Do what is due; whether anything was."""
        for name in self.workers:
            if self.view.state.membership(agent_id(name)) is None:
                return await self._invite(name)
        mission = self.view.state.mission
        if mission.state is MissionState.AWAITING_APPROVAL:
            return await self._judge()
        acted = False
        for item in self._due():
            acted |= await self._move_on(item)
        if not acted and self._all_verified():
            return await self._submit_mission()
        return acted

    def _due(self) -> list[WorkTable]:
        """The work of this round."""
        return [item for item in self.file.work if not item.rework or self._changes_requested()]

    def _changes_requested(self) -> bool:
        return any(event.kind == "mission.changes_requested" for event in self.view.events)

    def _record(self, name: str) -> WorkItemRecord | None:
        return self.view.state.work_item(self.mark.work_item_id(name))

    def _verified(self, name: str) -> bool:
        record = self._record(name)
        return record is not None and record.item.state is WorkItemState.VERIFIED

    def _all_verified(self) -> bool:
        return all(self._verified(item.id) for item in self._due())

    # --- the Coordinator's part ------------------------------------------------------------------------------------

    async def renew(self) -> Answer:
        """Renew the coordinator lease; also a way to ask whether Commands are accepted."""
        return await self._coordinate("mission.renew_coordinator", MissionRenewCoordinator())

    async def _coordinate(self, kind: str, payload: Document, work_item_id: str | None = None) -> Answer:
        epoch = self.view.state.mission.coordinator.coordinator_epoch
        intent = Intent(
            kind=kind,
            payload=payload,
            group_id=self.mark.group_id,
            work_item_id=work_item_id,
            coordinator_epoch=epoch,
        )
        return await self._coordinator.send(intent)

    async def _invite(self, name: str) -> bool:
        """A Worker becomes a member that sees the whole history."""
        member = Actor(type=ActorType.AGENT, id=agent_id(name))
        change = MembershipChange(principal=member, role=Role.WORKER, visibility_after_sequence=0)
        return await self._sent(await self._coordinate("membership.change", change))

    async def _move_on(self, item: WorkTable) -> bool:
        """Whatever this WorkItem needs from its Coordinator now."""
        record = self._record(item.id)
        if record is None:
            ready = all(self._verified(name) for name in item.after)
            return ready and await self._authorize(item)
        state = record.item.state
        if state is WorkItemState.SUBMITTED:
            return await self._review(record)
        if state is WorkItemState.OPEN or self._needs_offer(record):
            return await self._offer(item)
        return False

    def _needs_offer(self, record: WorkItemRecord) -> bool:
        """Offered in vain, or owned by somebody whose ownership has run out."""
        now = instant(self._coordinator.current_time())
        if record.item.state is WorkItemState.OFFERED:
            pending = [offer for offer in record.item.offers or () if offer.status is OfferStatus.PENDING]
            return all(instant(offer.expires_at) <= now for offer in pending)
        lease = record.ownership_lease
        owned = record.item.state in (WorkItemState.QUEUED, WorkItemState.ACTIVE)
        return owned and isinstance(lease, Lease) and instant(lease.expires_at) <= now

    async def _authorize(self, item: WorkTable) -> bool:
        before = [self._record(name) for name in item.after]
        hashes = [named for record in before if record and record.item.submission for named in _results(record)]
        dependencies = [self.mark.work_item_id(name) for name in item.after]
        contract = work_contract(item, self.view.state.mission.deadline, dependencies, list(dict.fromkeys(hashes)))
        payload = WorkAuthorize(work_item_id=self.mark.work_item_id(item.id), contract=contract)
        return await self._sent(await self._coordinate("work.authorize", payload, payload.work_item_id))

    async def _offer(self, item: WorkTable) -> bool:
        payload = WorkOffer(
            work_item_id=self.mark.work_item_id(item.id),
            candidate_agent_ids=tuple(agent_id(name) for name in item.candidates),
            selection_basis=selection_basis(item),
        )
        return await self._sent(await self._coordinate("work.offer", payload, payload.work_item_id))

    async def _review(self, record: WorkItemRecord) -> bool:
        """Fetch what was submitted, check it, and accept it on signed Evidence."""
        hashes = _results(record)
        for named in hashes:
            await self._content.read(named)
        evidence = review_evidence(record, hashes, self._coordinator.key, self._coordinator.current_time())
        payload = WorkAcceptResult(work_item_id=record.item.work_item_id, evidence=(evidence,))
        return await self._sent(await self._coordinate("work.accept_result", payload, payload.work_item_id))

    async def _submit_mission(self) -> bool:
        records = [record for item in self._due() if (record := self._record(item.id))]
        hashes = sorted({named for record in records for named in _results(record)})
        payload = MissionSubmitForApproval(artifact_hashes=tuple(hashes))
        return await self._sent(await self._coordinate("mission.submit_for_approval", payload))

    # --- the MissionOwner's part -----------------------------------------------------------------------------------

    async def _judge(self) -> bool:
        """Send the first submission back where the file says so, else approve once that is allowed."""
        words = self.file.mission.request_changes
        submission = self.view.state.mission_record.submission
        if words is not None and submission and not self._changes_requested():
            changes = MissionRequestChanges(mission_revision=submission.mission_revision, feedback=words)
            sent = await self._own("mission.request_changes", changes)
            return sent and await self._say(words)
        if not self.may_approve.is_set():
            return False
        approval = final_approval(self.view.state, self._owner.key, self._owner.current_time())
        return await self._own("mission.approve", MissionApprove(approval=approval))

    async def _say(self, words: str) -> bool:
        """Tell the Group in its main Conversation; a Message authorises nothing."""
        message = MessagePost(
            message_id=uuid7_urn(),
            conversation_id=self.view.state.group.main_conversation_id,
            content=(TextPart(text=words),),
            mentions=(self._coordinator.key.principal,),
        )
        return await self._own("message.post", message)

    async def _own(self, kind: str, payload: Document) -> bool:
        intent = Intent(kind=kind, payload=payload, group_id=self.mark.group_id)
        return await self._sent(await self._owner.send(intent))

    async def _sent(self, answer: Answer) -> bool:
        """Whether it was accepted. Raises ConductFault when refusals do not end."""
        if isinstance(answer, Answered):
            self._refused_in_a_row = 0
            self.answered += 1
            return True
        if isinstance(answer, Refused):
            self.refusals.append(answer)
            self._refused_in_a_row += 1
            message = f"{answer.command.kind}: {answer.code.value}: {answer.refusal.rejection.message}"
            if answer.code not in _moved_on_codes or self._refused_in_a_row >= refusals_max:
                raise ConductFault(f"{self.file.mission.name}: {message}")
        return False


def _results(record: WorkItemRecord) -> list[str]:
    """Content hashes of a WorkItem's submission."""
    return list(record.item.submission.artifact_hashes) if record.item.submission else []
