"""A Worker at work while its history goes on in a new incarnation: fenced, back by itself, nothing done twice."""

from collections import Counter

from contracts.command import history_resume
from contracts.event import history_resumed
from contracts.payloads.history import HistoryResume
from services.agent.connect import connect
from services.agent.send_command import Answered
from services.agent.sign_command import Intent
from tests.agent_rig import (
    PlantedMission,
    mission_text,
    patient,
    running_stack,
    shared_organization_of,
    small_mission,
)

job = "steps = 20, stepMillis = 400, checkpointEvery = 99"
"""Long enough for the operator to decide meanwhile."""


async def test_work_goes_on_under_the_raised_epochs(postgres_server, tmp_path):
    """RULE-17, MWP-WRK-014, SCH-7: the execution is revoked; the Worker opens a session and starts anew by itself."""
    folder = tmp_path / "stack"
    folder.mkdir()
    async with shared_organization_of(postgres_server, folder) as shared, running_stack(*shared, folder) as stack:
        await stack.register("editor", "ada")
        coordinator = await stack.client("editor")
        await coordinator.open_session()
        file = small_mission(tmp_path, mission_text.replace("steps = 4", job))
        mission = PlantedMission(stack, coordinator, file, "resumed")
        await mission.create()
        await mission.invite("ada")
        async with stack.working("ada"):
            work = await mission.offer(mission.file.work[0])
            await mission.until(work, "active")
            await open_incarnation(stack)
            await mission.until(work, "submitted")
        kinds = mission.kinds()
        resumed = kinds.index(history_resumed)
        assert "work.started" in kinds[:resumed]
        assert "work.started" in kinds[resumed:]
        assert kinds[-1] == "work.submitted"
        counted = Counter(kinds)
        # One acceptance, one Artifact, one submission; the first execution ended with the old incarnation.
        once = {counted[kind] for kind in ("work.offer.accepted", "artifact.published", "work.submitted")}
        ended = counted["work.checkpointed"] + counted["work.submitted"] + counted[history_resumed]
        assert (once, counted["work.started"]) == ({1}, ended), kinds


async def open_incarnation(stack):
    """The operator decides that the history goes on."""
    organization = stack.organization
    payload = HistoryResume(incarnation=organization.incarnation, reason="drill")
    identity = organization.organization_id
    async with connect(stack.nats_url, identity, organization.keys.operator, policy=patient) as operator:
        answer = await operator.send(Intent(kind=history_resume, payload=payload, group_id=identity))
    assert isinstance(answer, Answered), answer
