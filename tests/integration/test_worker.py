"""A Worker as a real process on a real stack: it takes offers, works, renews, resumes, and is killed at will."""

import asyncio
import itertools
import json
from collections import Counter
from datetime import timedelta

import msgspec
import pytest
import pytest_asyncio

from contracts.timestamps import parse_timestamp
from services.worker.artifact_store import ArtifactStore
from tests.agent_rig import (
    PlantedMission,
    assert_done_once,
    mission_text,
    running_stack,
    shared_organization_of,
    small_mission,
)

pytestmark = pytest.mark.asyncio(loop_scope="module")
names = itertools.count(1)


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def stack(postgres_server, tmp_path_factory):
    folder = tmp_path_factory.mktemp("stack")
    async with shared_organization_of(postgres_server, folder) as shared, running_stack(*shared, folder) as running:
        await running.register("editor", "ada", "grace", "mary")
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
    async with stack.working("ada"):
        work = await mission.offer(mission.file.work[0])
        await mission.until(work, "submitted")
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


async def test_killed_at_a_named_point_nothing_is_lost_or_doubled(stack, coordinator, tmp_path):
    """SCH-7, MWP-WRK-014, MWP-EVT-003: four lives of one Worker, each killed -9 at another point of the same work."""
    mission = await planted(stack, coordinator, tmp_path, "grace")
    work = await mission.offer(msgspec.structs.replace(mission.file.work[0], candidates=("grace",)))
    for kill_at in (
        "answered:work.accept_offer",
        "answered:work.start",
        "after:artifact.publish",
        "written:work.submit",
    ):
        await stack.life("grace", kill_at)
    async with stack.working("grace"):
        await mission.until(work, "submitted")
    assert_done_once(mission, work)
    # The submission was written down and not sent: the next life sent those very bytes under their own session.
    assert mission.kinds()[-2:] == ["work.started", "work.submitted"]


async def test_a_lease_is_renewed_while_work_goes_on(stack, coordinator, tmp_path):
    """MWP-WRK-013, LSE-1: work that takes longer than its Execution Lease goes on under renewals of the same lease."""
    lease_seconds = 3
    job = "steps = 4, stepMillis = 1500, checkpointEvery = 9"
    mission = await planted(stack, coordinator, tmp_path, "ada", job=job)
    async with stack.working("ada", WEAVEHOLD_WORKER_LEASE_SECONDS=str(lease_seconds)):
        work = await mission.offer(mission.file.work[0])
        await mission.until(work, "submitted")
    # A machine that was away for as long as the lease may have lost an earlier execution.
    begun = max(place for place, kind in enumerate(mission.kinds()) if kind == "work.started")
    execution = mission.view.events[begun:]
    leases = [event.payload["executionLease"]["leaseId"] for event in execution if "executionLease" in event.payload]
    assert Counter(event.kind for event in execution)["work.progressed"] >= 3
    assert len(set(leases)) == 1
    lasted = parse_timestamp(execution[-1].occurred_at) - parse_timestamp(execution[0].occurred_at)
    assert lasted > timedelta(seconds=lease_seconds)
    assert_done_once(mission, work)


async def test_one_worker_serves_two_groups_in_turn(stack, coordinator, tmp_path):
    """SCH-2, MWP-WRK-008: with one slot, two Groups' WorkItems alternate at their checkpoints."""
    job = "steps = 4, stepMillis = 200, checkpointEvery = 1"
    missions = [await planted(stack, coordinator, tmp_path, "ada", job=job) for _ in range(2)]
    works = [await mission.offer(mission.file.work[0]) for mission in missions]
    async with stack.working("ada"):
        for mission, work in zip(missions, works, strict=True):
            await mission.until(work, "submitted")
    events = [(event, number) for number, mission in enumerate(missions) for event in mission.view.events]
    started = sorted((event.occurred_at, number) for event, number in events if event.kind == "work.started")
    order = [number for _, number in started]
    assert order.count(0) == order.count(1) == 4
    # In turn from when both are there to do.
    both = max(event.occurred_at for event, _ in events if event.kind == "work.offer.accepted")
    order = [number for at, number in started if at > both]
    longest = max(len(list(run)) for _, run in itertools.groupby(order))
    assert longest <= 2
    for mission, work in zip(missions, works, strict=True):
        assert_done_once(mission, work)


async def test_a_stopped_worker_leaves_a_checkpoint(stack, coordinator, tmp_path):
    """MWP-WRK-015, OPS-1: asked to stop, a Worker finishes its step, records a checkpoint and gives its slot back."""
    job = "steps = 200, stepMillis = 300, checkpointEvery = 999"
    # Mary's alone: what is left to do would keep whoever works next in her name.
    mission = await planted(stack, coordinator, tmp_path, "mary", job=job)
    async with stack.working("mary"):
        work = await mission.offer(msgspec.structs.replace(mission.file.work[0], candidates=("mary",)))
        await mission.until(work, "active")
    await mission.until(work, "queued")
    assert mission.kinds()[-1] == "work.checkpointed"
    assert mission.view.state.work_item(work).latest_checkpoint.next_step is not None


async def test_work_that_this_worker_cannot_do_is_left_to_others(stack, coordinator, tmp_path):
    """MWP-WRK-005: an offer whose job is unknown stays an offer."""
    mission = await planted(stack, coordinator, tmp_path, "ada")
    strange = msgspec.structs.replace(mission.file.work[1], job={"type": "word-count", "input": 1})
    async with stack.working("ada"):
        left = await mission.offer(strange)
        done = await mission.offer(mission.file.work[0])
        await mission.until(done, "submitted")
    assert mission.view.state.work_item(left).item.state.value == "offered"


@pytest.mark.parametrize(
    ("variables", "words"),
    [
        ({"WEAVEHOLD_SIGNING_KEY_FILE": "absent.json"}, "no key file absent.json"),
        ({"WEAVEHOLD_TRUST_ANCHORS_FILE": "absent.json"}, "WEAVEHOLD_TRUST_ANCHORS_FILE is absent.json"),
        ({"WEAVEHOLD_WORKER_SLOTS": "0"}, "WEAVEHOLD_WORKER_SLOTS is '0'"),
    ],
)
async def test_unusable_settings_end_a_worker_with_2(stack, variables, words):
    """OPS-2: what cannot be used is named, with the remedy."""
    worker = stack.worker("ada", **variables)
    worker.start()
    assert await asyncio.to_thread(worker.wait, 60) == 2
    assert words in worker.log.read_text()


async def test_a_key_that_is_no_agents_ends_a_worker_with_2(stack):
    """OPS-2: a Worker acts as an Agent."""
    path = stack.organization.keys_directory / "operator.json"
    worker = stack.worker("ada", WEAVEHOLD_SIGNING_KEY_FILE=str(path))
    worker.start()
    assert await asyncio.to_thread(worker.wait, 60) == 2
    assert "which is no Agent" in worker.log.read_text()
