"""Facts that a Command meets on its way stand whatever becomes of it: lapsed leases, replaced sessions."""

from collections.abc import AsyncIterator
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from contracts.command import session_open
from contracts.documents.common import Actor, ActorType
from contracts.event import lease_expired, lease_revoked
from contracts.rejection import Code
from contracts.signature import SigningKey
from contracts.timestamps import format_timestamp
from ops.bench.workload import create_mission, group_name, register_agent, signed_command
from ops.init import Organization
from tests.authority_rig import InProcessAuthority, authority_on, moved_clock, refusal_of, rows, run_sql, verified
from tests.mission_documents import contract, selection_basis

coordinator = SigningKey.generate(Actor(type=ActorType.AGENT, id="urn:weavehold:agent:lead"))
worker = SigningKey.generate(Actor(type=ActorType.AGENT, id="urn:weavehold:agent:hand"))
group = group_name(0)
skill = {"id": "bench.coordination", "version": "1.0.0"}
first, second = "urn:weavehold:work:first", "urn:weavehold:work:second"


class Mission:
    """A Mission whose Worker has started two WorkItems."""

    def __init__(self, authority: InProcessAuthority) -> None:
        self.authority = authority
        self.sessions = {coordinator: 1, worker: 1}

    def command(self, key: SigningKey, kind: str, payload: dict[str, Any], **members: Any) -> bytes:
        return signed_command(key, kind, group, payload, 1, sessionEpoch=self.sessions[key], **members)

    async def lead(self, kind: str, payload: dict[str, Any]) -> None:
        await self.authority.receipt(self.command(coordinator, kind, payload, coordinatorEpoch=1))

    async def open_session(self, key: SigningKey) -> None:
        authority_key = self.authority.organization.keys.authority
        await self.authority.receipt(
            signed_command(authority_key, session_open, None, {"agentId": key.principal.id, "keyId": key.key_id})
        )

    async def start(self) -> None:
        organization = self.authority.organization
        keys = organization.keys
        for key in (coordinator, worker):
            await self.authority.receipt(
                register_agent(keys.operator, keys.registry, key, organization.organization_id)
            )
            await self.open_session(key)
        await self.authority.receipt(create_mission(keys.mission_owner, 0, coordinator.principal.id))
        await self.lead("membership.change", {"principal": _actor(worker), "role": "worker"})
        deadline = format_timestamp(datetime.now(UTC) + timedelta(days=1))
        for item in (first, second):
            terms = contract(requiredCapabilities=[skill], deadline=deadline)
            await self.lead("work.authorize", {"workItemId": item, "contract": terms})
            basis = selection_basis(requiredCapabilities=[skill], verifiedMatches=[skill])
            offer = {"workItemId": item, "candidateAgentIds": [worker.principal.id], "selectionBasis": basis}
            await self.lead("work.offer", offer)
            await self.authority.receipt(self.command(worker, "work.accept_offer", {"workItemId": item}))
            started = {"workItemId": item, "ownershipEpoch": 1, "executionLeaseSeconds": 60}
            await self.authority.receipt(self.command(worker, "work.start", started))


def _actor(key: SigningKey) -> dict[str, str]:
    return {"type": key.principal.type.value, "id": key.principal.id}


@pytest.fixture
async def mission(database_url: str, organization: Organization) -> AsyncIterator[Mission]:
    async with authority_on(database_url, organization) as authority:
        started = Mission(authority)
        await started.start()
        yield started


async def _kinds(database_url: str, after: int) -> list[tuple[str, int]]:
    return [
        (kind, sequence)
        for kind, sequence in await rows(
            database_url,
            "SELECT kind, sequence FROM event_log WHERE group_id = %s AND sequence > %s ORDER BY sequence",
            group,
            after,
        )
    ]


async def _head(database_url: str) -> int:
    [(head,)] = await rows(database_url, "SELECT max(sequence) FROM event_log WHERE group_id = %s", group)
    return int(head)


async def test_a_replaced_session_revokes_before_anything_new(
    mission: Mission, database_url: str, organization: Organization
) -> None:
    """RULE-07, MWP-WRK-014, ACC-4: both leases of the old session are revoked, then the new session's start follows,
    in consecutive sequences of one transaction.
    """
    await mission.open_session(worker)
    mission.sessions[worker] = 2
    head = await _head(database_url)
    committed = await mission.authority.commit(
        mission.command(worker, "work.start", {"workItemId": first, "ownershipEpoch": 1})
    )
    assert [event.mark.sequence for event in committed.events] == [head + 1, head + 2, head + 3]
    assert await _kinds(database_url, head) == [
        (lease_revoked, head + 1),
        (lease_revoked, head + 2),
        ("work.started", head + 3),
    ]
    await verified(database_url, organization)


async def test_the_old_session_is_fenced_at_once(mission: Mission, database_url: str) -> None:
    """RULE-07, ACC-6: the old session's Command is refused in a Group that has not heard of the new one yet; what it
    found on its way is recorded all the same (ACC-1).
    """
    await mission.open_session(worker)
    head = await _head(database_url)
    receipts = await rows(database_url, "SELECT count(*) FROM receipt")
    checkpoint = {"phase": "half", "completedMilestones": [], "createdAt": format_timestamp(datetime.now(UTC))}
    answer = await mission.authority.answer(
        mission.command(
            worker,
            "work.checkpoint",
            {
                "workItemId": first,
                "ownershipEpoch": 1,
                "executionLeaseId": "urn:x:any",
                "checkpoint": checkpoint,
            },
        )
    )
    assert refusal_of(answer).code is Code.AUTH_STALE_SESSION
    assert await _kinds(database_url, head) == [(lease_revoked, head + 1), (lease_revoked, head + 2)]
    assert await rows(database_url, "SELECT count(*) FROM receipt") == receipts


async def test_a_lapsed_lease_returns_its_work_item_though_the_command_fails(
    mission: Mission, database_url: str, organization: Organization
) -> None:
    """RULE-10, ACC-1, MWP-WRK-013: judged by the database clock alone; the late renewal is refused, the Event stays."""
    await run_sql(database_url, moved_clock.format("61 seconds"))
    head = await _head(database_url)
    [(body,)] = await rows(database_url, "SELECT body FROM entity WHERE entity_id = %s", first)
    lease_id = bytes(body).split(b'"executionLease":')[1].split(b'"leaseId":"')[1].split(b'"')[0].decode()
    renewal = {"workItemId": first, "ownershipEpoch": 1, "executionLeaseId": lease_id}
    kind = "ext.missionweaveprotocol.core.work_execution_lease_renew"
    now = format_timestamp(datetime.now(UTC) + timedelta(seconds=61))
    answer = await mission.authority.answer(mission.command(worker, kind, renewal, issuedAt=now))
    assert refusal_of(answer).code is Code.WORK_LEASE_EXPIRED
    assert (lease_expired, head + 1) in await _kinds(database_url, head)
    await verified(database_url, organization)
