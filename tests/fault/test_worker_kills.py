"""A Worker killed at every named point of its steps, with clocks that disagree, and beside a double of itself."""

import asyncio
from collections import Counter

import psycopg
import pytest

from tests.agent_rig import (
    PlantedMission,
    assert_done_once,
    mission_text,
    running_stack,
    shared_organization_of,
    small_mission,
)

pytestmark = [pytest.mark.fault, pytest.mark.timeout(900)]

first_lives = (
    *("before:work.accept_offer", "written:work.accept_offer", "answered:work.accept_offer"),
    *("before:work.start", "written:work.start", "answered:work.start", "after:work.start"),
    *("before:work.checkpoint", "written:work.checkpoint", "answered:work.checkpoint", "after:work.checkpoint"),
    *("before:artifact.publish", "written:artifact.publish", "answered:artifact.publish"),
    *("before:work.submit", "written:work.submit"),
)
second_lives = ("after:work.accept_offer", "after:artifact.publish", "answered:work.submit")
"""Every point of every step, once; a step that was accepted does not come again, so it takes two WorkItems."""


async def planted(stack, folder, name, *, job="steps = 4"):
    await stack.register("editor", "ada")
    coordinator = await stack.client("editor")
    await coordinator.open_session()
    mission = PlantedMission(stack, coordinator, small_mission(folder, mission_text.replace("steps = 4", job)), name)
    await mission.create()
    await mission.invite("ada")
    return mission


async def test_killed_at_every_point_of_every_step(postgres_server, tmp_path):
    """SCH-7, MWP-WRK-014: nineteen lives of a Worker, each killed -9 at another point of its work."""
    async with shared_organization_of(postgres_server, tmp_path) as shared, running_stack(*shared, tmp_path) as stack:
        mission = await planted(stack, tmp_path, "lives", job="steps = 6, checkpointEvery = 1")
        for item, lives in ((mission.file.work[0], first_lives), (mission.file.work[1], second_lives)):
            work = await mission.offer(item)
            for kill_at in lives:
                await stack.life("ada", kill_at)
            async with stack.working("ada"):
                await mission.until(work, "submitted")
            assert_done_once(mission, work)


@pytest.mark.parametrize("skew", [60, -60])
async def test_clocks_that_disagree_by_a_minute(postgres_server, tmp_path, skew):
    """LSE-1, TRU-6: the authority's clock alone counts; a Worker a minute off renews in time and is not refused."""
    async with shared_organization_of(postgres_server, tmp_path) as shared:
        with psycopg.connect(shared[1], autocommit=True) as connection:
            connection.execute(
                "CREATE OR REPLACE FUNCTION weavehold_clock() RETURNS timestamptz LANGUAGE sql VOLATILE AS "
                f"$$ SELECT clock_timestamp() + interval '{skew} seconds' $$"
            )
        async with running_stack(*shared, tmp_path) as stack:
            mission = await planted(stack, tmp_path, "skew", job="steps = 3, stepMillis = 1500, checkpointEvery = 9")
            async with stack.working("ada", WEAVEHOLD_WORKER_LEASE_SECONDS="3"):
                work = await mission.offer(mission.file.work[0])
                await mission.until(work, "submitted")
            kinds = Counter(mission.kinds())
            assert kinds["work.progressed"] >= 2
            assert kinds["work.started"] == 1
            assert_done_once(mission, work)


async def test_an_outage_longer_than_the_lease(postgres_server, tmp_path):
    """LSE-1, MWP-WRK-014: the Worker stops by its own clock; the work is taken up again from its checkpoint."""
    async with shared_organization_of(postgres_server, tmp_path) as shared, running_stack(*shared, tmp_path) as stack:
        mission = await planted(stack, tmp_path, "outage", job="steps = 8, stepMillis = 1000, checkpointEvery = 2")
        async with stack.working("ada", WEAVEHOLD_WORKER_LEASE_SECONDS="4") as worker:
            work = await mission.offer(mission.file.work[0])
            await mission.until_recorded("work.checkpointed")
            await mission.until(work, "active")
            await asyncio.sleep(0.5)
            authority = stack.processes[0]
            authority.kill()
            await asyncio.sleep(6)
            assert "work_set_aside" in worker.log.read_text()
            authority.start()
            await mission.until(work, "submitted", seconds=120)
        assert_done_once(mission, work)


async def test_two_processes_with_one_agents_key_do_not_fight_for_ever(postgres_server, tmp_path):
    """MWP-WRK-014, RULE-25: each new session ends the other's; the process that is replaced too often gives up."""
    async with shared_organization_of(postgres_server, tmp_path) as shared, running_stack(*shared, tmp_path) as stack:
        mission = await planted(stack, tmp_path, "twins", job="steps = 30, stepMillis = 300, checkpointEvery = 1")
        first = stack.worker("ada")
        second = stack.worker("ada", WEAVEHOLD_WORKER_DATABASE=str(tmp_path / "twin.sqlite"))
        first.start()
        second.start()
        work = await mission.offer(mission.file.work[0])
        ended = [asyncio.create_task(asyncio.to_thread(each.wait, 180.0)) for each in (first, second)]
        done, _ = await asyncio.wait(ended, return_when=asyncio.FIRST_COMPLETED)
        assert {task.result() for task in done} <= {1}
        await mission.until(work, "submitted", seconds=180)
        for each in (first, second):
            each.end()
        await asyncio.gather(*ended)
        assert_done_once(mission, work)
