"""One Mission led by hand at a real authority: whoever acts states the fences that are current."""

import json
from datetime import UTC, datetime, timedelta
from typing import Any

import msgspec
from msgspec import UNSET

from contracts.command import session_open
from contracts.documents.common import Actor, ActorType
from contracts.entities import WorkItemRecord
from contracts.event import Event
from contracts.group_state import GroupState, evolve, facts_of
from contracts.receipt import Receipt
from contracts.signature import SigningKey, sign_document
from contracts.timestamps import format_timestamp
from ops.bench.workload import register_agent, signed_command
from services.authority.admitted import Answer
from services.authority.decide_mission import main_conversation_id
from services.process.unique import uuid7_urn
from tests.authority_rig import InProcessAuthority, moved_clock, receipt_of, rows, run_sql
from tests.mission_documents import approval, artifact, content, contract, creation, evidence, selection_basis

skill = {"id": "bench.coordination", "version": "1.0.0"}
"""What the Agents are registered with."""


def agent(name: str) -> SigningKey:
    """A new key of an Agent."""
    return SigningKey.generate(Actor(type=ActorType.AGENT, id=f"urn:weavehold:agent:{name}"))


class StagedMission:
    """A Group; its Coordinator is whoever the state says."""

    def __init__(self, authority: InProcessAuthority, name: str) -> None:
        self.authority = authority
        self.organization = authority.organization
        self.owner = self.organization.keys.mission_owner
        self.group_id = f"urn:weavehold:group:{name}"
        self.mission_id = f"urn:weavehold:mission:{name}"
        self.ahead = timedelta()

    @property
    def now(self) -> str:
        """The time of the database's clock."""
        return format_timestamp(datetime.now(UTC) + self.ahead)

    async def pass_time(self, seconds: float) -> None:
        """Move the database's clock on."""
        self.ahead += timedelta(seconds=seconds)
        await run_sql(self.authority.url, moved_clock.format(f"{self.ahead.total_seconds()} seconds"))

    async def staff(self, *agents: SigningKey) -> None:
        """Register Agents and open their first sessions."""
        keys = self.organization.keys
        for key in agents:
            await self.authority.receipt(
                register_agent(keys.operator, keys.registry, key, self.organization.organization_id)
            )
            await self.open_session(key)

    async def open_session(self, key: SigningKey) -> None:
        """The Agent's next session."""
        payload = {"agentId": key.principal.id, "keyId": key.key_id}
        signer = self.organization.keys.authority
        await self.authority.receipt(signed_command(signer, session_open, None, payload, issuedAt=self.now))

    async def create(self, coordinator: SigningKey, **members: Any) -> Receipt:
        """The Mission with its Group."""
        own = {"missionId": self.mission_id, "groupId": self.group_id, "coordinatorId": coordinator.principal.id}
        deadline = {"deadline": format_timestamp(datetime.now(UTC) + timedelta(days=30))}
        payload = creation(**own, **deadline, **members)
        command = signed_command(self.owner, "mission.create", self.group_id, payload, issuedAt=self.now)
        return await self.authority.receipt(command)

    async def state(self) -> GroupState:
        """The Group as its log says."""
        statement = "SELECT event FROM event_log WHERE group_id = %s ORDER BY sequence"
        state = GroupState.empty(self.organization.organization_id, self.group_id)
        for (raw,) in await rows(self.authority.url, statement, self.group_id):
            state.apply(evolve(state, facts_of(msgspec.json.decode(raw, type=Event))))
        return state

    async def work(self, work_item_id: str) -> WorkItemRecord:
        """A WorkItem that must exist."""
        record = (await self.state()).work_item(work_item_id)
        assert record is not None
        return record

    async def ask(self, key: SigningKey, kind: str, payload: dict[str, Any], **members: Any) -> Answer:
        """The answer to a Command with the fences that are current; `members` of the envelope replace them."""
        state = await self.state()
        membership = state.membership(key.principal.id)
        fences: dict[str, Any] = {"issuedAt": self.now}
        if membership is not None:
            fences["membershipEpoch"] = membership.membership_epoch
        if key.principal.type is ActorType.AGENT:
            [(epoch,)] = await rows(
                self.authority.url, "SELECT session_epoch FROM agent WHERE agent_id = %s", key.principal.id
            )
            fences["sessionEpoch"] = epoch
        if state.mission.coordinator.agent_id == key.principal.id:
            fences["coordinatorEpoch"] = state.mission.coordinator.coordinator_epoch
        command = signed_command(key, kind, self.group_id, payload, **(fences | members))
        return await self.authority.answer(command)

    async def do(self, key: SigningKey, kind: str, payload: dict[str, Any], **members: Any) -> Receipt:
        """`ask` for what must be accepted."""
        return receipt_of(await self.ask(key, kind, payload, **members))

    async def admit(self, key: SigningKey, member: SigningKey, **members: Any) -> None:
        """A new member, a Worker that sees everything."""
        payload = {"principal": actor(member), "role": "worker", "visibilityAfterSequence": 0}
        await self.do(key, "membership.change", payload | members)

    async def admit_for_a_day(self, key: SigningKey, member: SigningKey) -> None:
        """A provisional member, which the acceptance of an offer makes a full one."""
        end = format_timestamp(datetime.now(UTC) + timedelta(days=1))
        terms = {"contextPackageId": f"{self.mission_id}:context", "provisionalExpiresAt": end}
        await self.admit(key, member, provisional=True, **terms)

    async def say(self, key: SigningKey, text: str, *mentioned: SigningKey) -> None:
        """A Message to all."""
        await self.do(key, "message.post", self.message(text, *mentioned))

    def message(self, text: str, *mentioned: SigningKey) -> dict[str, Any]:
        """The payload of a Message."""
        return {
            "messageId": uuid7_urn(),
            "conversationId": main_conversation_id(self.group_id),
            "content": [{"type": "text", "text": text}],
            "mentions": [actor(each) for each in mentioned],
        }

    async def authorize(self, key: SigningKey, work_item_id: str, **members: Any) -> None:
        """A WorkItem under a contract."""
        deadline = format_timestamp(datetime.now(UTC) + timedelta(days=1))
        terms = contract(requiredCapabilities=[skill], deadline=deadline, **members)
        await self.do(key, "work.authorize", {"workItemId": work_item_id, "contract": terms})

    async def offer(self, key: SigningKey, work_item_id: str, *candidates: SigningKey) -> None:
        """Offer a WorkItem."""
        payload = {
            "workItemId": work_item_id,
            "candidateAgentIds": [each.principal.id for each in candidates],
            "selectionBasis": selection_basis(requiredCapabilities=[skill], verifiedMatches=[skill]),
        }
        await self.do(key, "work.offer", payload)

    async def start(self, key: SigningKey, work_item_id: str, seconds: int = 60) -> None:
        """Start what the Agent owns."""
        epoch = (await self.work(work_item_id)).ownership_epoch
        payload = {"workItemId": work_item_id, "ownershipEpoch": epoch, "executionLeaseSeconds": seconds}
        await self.do(key, "work.start", payload)

    async def fences(self, work_item_id: str) -> dict[str, Any]:
        """Current epoch and lease of a WorkItem that is being worked on."""
        record = await self.work(work_item_id)
        assert record.execution_lease is not UNSET
        return {
            "workItemId": work_item_id,
            "ownershipEpoch": record.ownership_epoch,
            "executionLeaseId": record.execution_lease.lease_id,
        }

    async def publish(self, key: SigningKey, work_item_id: str) -> str:
        """An Artifact of a WorkItem that is being worked on; its ID."""
        fences = await self.fences(work_item_id)
        manifest = artifact(work_item_id, key.principal, **self._place(), producer=self._producer(key))
        fences.pop("workItemId")
        await self.do(key, "artifact.publish", {"artifact": self.signed(manifest, key), **fences})
        return str(manifest["artifactId"])

    def proof(self, key: SigningKey, work_item_id: str, **members: Any) -> dict[str, Any]:
        """Evidence that a criterion holds."""
        return self.signed(evidence(work_item_id, key.principal, **self._place(), **members), key)

    def decision(self, revision: int) -> dict[str, Any]:
        """The owner's final approval of a revision."""
        own = {"groupId": self.group_id, "missionId": self.mission_id, "occurredAt": self.now}
        approver = {"approver": actor(self.owner)}
        return self.signed(approval(revision, (content,), **own, **approver), self.owner)

    def signed(self, document: dict[str, Any], key: SigningKey) -> dict[str, Any]:
        """The document with the key's signature in place of what stands for one."""
        unsigned = {name: value for name, value in document.items() if name != "signature"}
        protected = unsigned.get("createdAt") or unsigned["occurredAt"]
        signed: dict[str, Any] = json.loads(sign_document(unsigned, key, protected))
        return signed

    def _place(self) -> dict[str, Any]:
        return {"groupId": self.group_id, "missionId": self.mission_id, "createdAt": self.now}

    def _producer(self, key: SigningKey) -> dict[str, Any]:
        return {"agentId": key.principal.id, "agentCardVersion": 1, "capabilities": [skill]}


def actor(key: SigningKey) -> dict[str, str]:
    """The Principal of a key as documents name it."""
    return {"type": key.principal.type.value, "id": key.principal.id}
