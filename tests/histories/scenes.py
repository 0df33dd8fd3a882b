"""What was recorded at a real authority on a real PostgreSQL."""

from collections.abc import Awaitable, Callable
from types import MappingProxyType

from msgspec import Struct

from contracts.command import history_resume
from contracts.rejection import Code
from contracts.signature import SigningKey
from ops.bench.workload import signed_command
from services.authority.admitted import LateRecorded
from tests.authority_rig import InProcessAuthority, refusal_of
from tests.histories.staged_mission import StagedMission, agent
from tests.keys_rig import registration, retirement, revocation, second_key
from tests.mission_documents import content

renew = "ext.missionweaveprotocol.core.work_execution_lease_renew"
odd_texts = (
    "NUL \0 in the middle, DEL \x7f, and C1 \x85",
    "line\u2028paragraph\u2029end, no-break\u00a0space, zero\u200bwidth, \ufeffmark",
    "abc \u202egnp.exe\u202c, e\u0301 is not \u00e9, \u1e9b\u0323",
    "👩‍👩‍👧‍👦 🏴󠁧󠁢󠁳󠁣󠁴󠁿 𝔘𝔫𝔦 \U0010ffff \uffff",
    'quotes " \\ / \b \f \n \r \t',
)
"""Texts that stores, encodings and terminals stumble over."""


class Scene(Struct, frozen=True):
    """`play` returns the Agent whose work queue is recorded too."""

    about: str
    play: Callable[[InProcessAuthority], Awaitable[SigningKey]]


async def _whole_mission(authority: InProcessAuthority) -> SigningKey:
    mission = StagedMission(authority, "whole")
    lead, hand, owner, item = agent("lead"), agent("hand"), mission.owner, "urn:weavehold:work-item:count"
    await mission.staff(lead, hand)
    await mission.create(lead, permissions=["production.deploy"])
    await mission.admit_for_a_day(lead, hand)
    await mission.say(owner, "Please begin.", lead, hand)
    await mission.authorize(lead, item)
    await mission.offer(lead, item, hand)
    await mission.do(hand, "work.accept_offer", {"workItemId": item})
    await mission.start(hand, item)
    await mission.do(hand, renew, await mission.fences(item) | {"leaseSeconds": 120})
    checkpoint = {"phase": "half", "completedMilestones": ["read"], "nextStep": "count", "createdAt": mission.now}
    await mission.do(hand, "work.checkpoint", await mission.fences(item) | {"checkpoint": checkpoint})
    await mission.start(hand, item)
    artifact_id = await mission.publish(hand, item)
    proof = mission.proof(hand, item)
    result = {"artifactIds": [artifact_id], "evidence": [proof]}
    await mission.do(hand, "work.submit", await mission.fences(item) | result)
    await mission.do(lead, "mission.renew_coordinator", {"leaseSeconds": 600})
    review = {"workItemId": item, "evidence": [mission.proof(lead, item)]}
    await mission.do(lead, "work.accept_result", review)
    await mission.do(lead, "mission.submit_for_approval", {"artifactHashes": [content]})
    revision = (await mission.state()).mission.revision
    await mission.do(
        owner, "mission.request_changes", {"missionRevision": revision, "feedback": "Explain the second table."}
    )
    await mission.say(lead, "It is explained.", mission.owner)
    await mission.do(lead, "mission.submit_for_approval", {"artifactHashes": [content]})
    revision = (await mission.state()).mission.revision
    await mission.do(owner, "mission.approve", {"approval": mission.decision(revision)})
    return hand


async def _troubled_mission(authority: InProcessAuthority) -> SigningKey:
    mission, aside = StagedMission(authority, "troubled"), StagedMission(authority, "aside")
    lead, deputy, hand, rival = (agent(name) for name in ("lead", "deputy", "hand", "rival"))
    first, second = "urn:weavehold:work-item:first", "urn:weavehold:work-item:second"
    await mission.staff(lead, deputy, hand, rival)
    await mission.create(lead, title=f"Odd\0title {odd_texts[3]}", objective=odd_texts[1])
    await aside.create(deputy)
    await mission.admit(lead, hand)
    await mission.admit(lead, rival, visibilityAfterSequence=1)
    for text in odd_texts:
        await mission.say(mission.owner, text, rival)
        await aside.say(mission.owner, text)
    await mission.authorize(lead, first, goal=odd_texts[0])
    await mission.offer(lead, first, hand, rival)
    await mission.do(hand, "work.accept_offer", {"workItemId": first, "ownershipLeaseSeconds": 60})
    await mission.start(hand, first)
    late = await mission.fences(first)
    await mission.pass_time(61)
    await mission.offer(lead, first, rival)
    await mission.do(rival, "work.accept_offer", {"workItemId": first})
    await mission.start(rival, first, seconds=200)
    result = {"artifactIds": ["urn:weavehold:artifact:late"], "evidence": [mission.proof(hand, first)]}
    assert isinstance(await mission.ask(hand, "work.submit", late | result), LateRecorded)
    await mission.open_session(rival)
    await mission.start(rival, first, seconds=200)
    await mission.authorize(lead, second)
    await mission.offer(lead, second, hand, rival)
    await mission.do(mission.owner, "mission.assign_coordinator", {"coordinatorId": deputy.principal.id})
    await _change_keys(authority)
    await _resume(authority, mission)
    await mission.open_session(deputy)
    # The Group hears of the new incarnation before the Command is judged, which states the epochs of before.
    greeting = mission.message("Back again.")
    assert refusal_of(await mission.ask(deputy, "message.post", greeting)).code is Code.MEMBERSHIP_STALE
    await mission.say(mission.owner, odd_texts[2], deputy)
    return rival


async def _change_keys(authority: InProcessAuthority) -> None:
    """The registry's own Group: a key more, which shall end in an hour and is stolen before."""
    organization = authority.organization
    key = second_key(organization)
    retired, revoked = retirement(organization, key, 3_600), revocation(organization, key)
    for command in (registration(organization, key), retired, revoked):
        await authority.receipt(command)


async def _resume(authority: InProcessAuthority, mission: StagedMission) -> None:
    """The operator goes on in a new incarnation, as after a restore."""
    organization = authority.organization
    payload = {"incarnation": organization.incarnation, "reason": "restored from a backup"}
    signer = organization.keys.operator
    await authority.receipt(
        signed_command(signer, history_resume, organization.organization_id, payload, issuedAt=mission.now)
    )


scenes = MappingProxyType(
    {
        "whole-mission": Scene("A Mission from its creation to its approval, with one Worker.", _whole_mission),
        "troubled-mission": Scene(
            "Leases expired and revoked, a late result, a new Coordinator, changed keys, a new incarnation, odd texts.",
            _troubled_mission,
        ),
    }
)
"""Name of the history → its scene."""
