"""A Worker as a real process on a real stack: it takes offers, works, renews, resumes, and is killed at will."""

import asyncio
import itertools
import json

import pytest
import pytest_asyncio

from services.worker.artifact_store import ArtifactStore
from tests.agent_rig import PlantedMission, mission_text, running_stack, shared_organization_of, small_mission

pytestmark = pytest.mark.asyncio(loop_scope="module")
names = itertools.count(1)


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def stack(postgres_server, tmp_path_factory):
    folder = tmp_path_factory.mktemp("stack")
    async with shared_organization_of(postgres_server, folder) as shared, running_stack(*shared, folder) as running:
        await running.register("editor", "ada", "grace")
        yield running


@pytest_asyncio.fixture(loop_scope="module")
async def coordinator(stack):
    client = await stack.client("editor")
    await client.open_session()
    return client


async def planted(stack, coordinator, folder, *members, job="steps = 4"):
    file = small_mission(folder, mission_text.replace("steps = 4", job))
    mission = PlantedMission(stack, coordinator, file, f"worker-{next(names)}")
    await mission.create()
    for name in members:
        await mission.invite(name)
    return mission


async def test_offered_work_is_done(stack, coordinator, tmp_path):
    """SCH-7, MWP-WRK-025, RULE-33: from offer to submission, with the result's bytes under their hash and Evidence."""
    mission = await planted(stack, coordinator, tmp_path, "ada")
    worker = stack.worker("ada")
    worker.start()
    try:
        work = await mission.offer(mission.file.work[0])
        await mission.until(work, "submitted")
    finally:
        worker.end()
    record = mission.view.state.work_item(work)
    [named] = record.item.submission.artifact_hashes
    result = json.loads(await ArtifactStore(stack.folder / "artifacts").read(named))
    assert result == {"words": 6, "distinctWords": 3, "counts": {"one": 1, "two": 2, "three": 3}}
    [artifact] = mission.view.state.artifacts_with(named)
    assert artifact.producer.agent_card_version == record.item.owner.agent_card_version
    assert record.latest_checkpoint.completed_milestones == ("step-1", "step-2")
    kinds = [kind for kind in mission.kinds() if kind.startswith(("work.", "artifact."))]
    assert kinds == [
        "work.authorized",
        "work.offer.created",
        "work.offer.accepted",
        "work.started",
        "work.checkpointed",
        "work.started",
        "artifact.published",
        "work.submitted",
    ]
