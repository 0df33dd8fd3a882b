"""Quarantined Groups whose Event vanished, was dealt with by others, or was never met again (DUR-5, PRJ-3)."""

import asyncio
from pathlib import Path
from typing import Any

import pytest

from contracts.identifiers import GroupSequence
from projections import apply_event
from projections.arrival import read_arrival
from projections.audit_trail.consumer import AuditTrail
from projections.fill_gap import fill_gap
from projections.group_run import ApplyRules
from projections.projection import Projection
from projections.quarantine import DecisionRefused, tried_seconds_max
from projections.repairs import Repairs, RepairTimes
from projections.store import Verb
from projections.store.sqlite import SqliteStore
from projections.watch_quarantine import QuarantineWatch
from tests.builders import BuiltEvent, test_organization
from tests.consumer_rig import until
from tests.history_double import HistoryDouble, restored_incarnation
from tests.mission_history import extend_history, mission_history, more_messages
from tests.unit.test_quarantine import Bench, Fragile, bench, one

__all__ = ["bench"]


def restored(kept: int, added: int) -> list[BuiltEvent]:
    """The history after a restore to `kept` Events, which goes on in another incarnation."""
    return extend_history(
        mission_history(one)[:kept], one, more_messages(900, added), salt="r", incarnation=restored_incarnation
    )


async def quarantined_at_eight(bench: Bench) -> list[BuiltEvent]:
    history = mission_history(one)
    bench.break_at(history[7])
    await bench.apply(history)
    assert [(each.stop.sequence, each.tried_at) for each in await bench.quarantined()] == [(8, None)]
    return history


async def test_another_event_in_its_place_lets_the_group_go_on(bench: Bench) -> None:
    """PRJ-3: the authority was restored to just before the Event and went on: the Group stands before nothing."""
    await quarantined_at_eight(bench)
    applied = await bench.apply(restored(7, 3))
    assert (applied.applied, await bench.reached(), await bench.quarantined()) == (3, 10, [])


async def test_the_same_event_keeps_the_group_standing(bench: Bench) -> None:
    """DUR-5: whatever comes behind it, nothing is taken and nothing is fetched."""
    history = await quarantined_at_eight(bench)
    applied = await bench.apply(history[7:])
    assert (applied.applied, applied.ahead, applied.questions, await bench.reached()) == (0, [], [], 7)
    assert len(await bench.quarantined()) == 1


@pytest.mark.parametrize("added", [0, 3])
async def test_a_lost_event_is_noticed_at_the_source(bench: Bench, added: int) -> None:
    """PRJ-3: nothing of the new history was delivered; reading it lifts the quarantine, tried again or not."""
    await quarantined_at_eight(bench)
    projection = Projection(bench.store, clock=bench.clock)
    await fill_gap(projection, HistoryDouble(restored(7, added)), one)
    assert (await bench.reached(), await bench.quarantined()) == (7 + added, [])
    assert await projection.heads_ahead() == {}


async def test_a_standing_group_is_looked_at_now_and_then(bench: Bench) -> None:
    """PRJ-3: its head is known to reach further; whether its Event is still there is asked once in a while."""
    history = await quarantined_at_eight(bench)
    source = HistoryDouble(history)
    projection = Projection(bench.store, clock=bench.clock)
    times = RepairTimes(gap_wait_seconds=0.001)
    async with asyncio.TaskGroup() as tasks:
        repairs = Repairs(source, times, tasks)
        for _ in range(5):
            repairs.reach(projection, one, GroupSequence(len(history)))
            while repairs._running:
                await asyncio.sleep(0.001)
    assert len(source.pages_asked) <= 2
    assert (await bench.reached(), len(await bench.quarantined())) == (7, 1)


async def test_a_group_that_was_lost_as_a_whole_stands_before_nothing(bench: Bench) -> None:
    """PRJ-3: its first Event was quarantined, then a restore removed the Group: no Cursor, so no fork, tells of it."""
    history = mission_history(one)
    bench.break_at(history[0])
    await bench.apply(history)
    assert len(await bench.quarantined()) == 1
    source = HistoryDouble(history)
    source.lose(one)
    projection = Projection(bench.store, clock=bench.clock)
    async with asyncio.TaskGroup() as tasks:
        repairs = Repairs(source, RepairTimes(gap_wait_seconds=0.001), tasks)
        repairs.reach(projection, one, GroupSequence(len(history)))
    assert await bench.quarantined() == []
    assert await projection.heads_ahead() == {}


async def stop_late(bench: Bench, built: BuiltEvent) -> Any:
    """What a delivery does whose transaction was refused, after others had their turn."""
    return await apply_event._stop_at(
        bench.store, read_arrival(built.raw), "refused", ApplyRules(clock=bench.clock), apply_event.no_note
    )


async def test_a_late_stop_does_not_hold_what_others_applied(bench: Bench) -> None:
    """DUR-5: between the refusal and the quarantine the Event was applied elsewhere, or turned out to be lost."""
    history = mission_history(one)
    await bench.apply(history)
    applied = await stop_late(bench, history[7])
    assert (applied.stops, await bench.quarantined()) == ([], [])


async def test_a_failure_that_two_met_is_one_attempt(bench: Bench) -> None:
    """DUR-5: delivery and a repair fail at the same Event at once."""
    history = await quarantined_at_eight(bench)
    applied = await stop_late(bench, history[7])
    assert (applied.stops, [each.attempts for each in await bench.quarantined()]) == ([], [1])


async def test_a_late_stop_does_not_undo_a_skip(bench: Bench) -> None:
    """DUR-5: somebody passed the Event over meanwhile."""
    history = await quarantined_at_eight(bench)
    bench.now += 11
    await bench.decide(Verb.SKIP)
    assert (await stop_late(bench, history[7])).stops == []
    await bench.apply(history)
    assert (await bench.reached(), await bench.quarantined()) == (len(history), [])


async def test_what_was_skipped_is_skipped_for_one_consumer(tmp_path: Path) -> None:
    """DUR-5: another consumer that takes the file over applies every Event."""
    consumer = Fragile()
    made = Bench(await SqliteStore.open(tmp_path / "own.db", consumer, test_organization), consumer)
    await quarantined_at_eight(made)
    made.now += 11
    await made.decide(Verb.SKIP)
    await made.store.close()
    other = await SqliteStore.open(tmp_path / "own.db", AuditTrail(), test_organization)
    assert await other.read(lambda transaction: transaction.decisions()) == []
    await other.close()


async def test_a_group_that_was_never_met_again_stands(bench: Bench) -> None:
    """DUR-5: it was let go on and its Event did not come; nobody must take it for one that flows."""
    await quarantined_at_eight(bench)
    bench.now += 11
    await bench.decide(Verb.RETRY)
    told: list[tuple[int, int]] = []
    projection = Projection(bench.store, on_quarantined=lambda *each: told.append(each), clock=bench.clock)

    class Deaf:
        def reach(self, *_: Any) -> None:
            return

    watching = asyncio.create_task(QuarantineWatch((projection,), Deaf(), look_seconds=0.001).watch())  # type: ignore[arg-type]
    try:
        await until(lambda: _looked(told))
        assert told[-1] == (0, 0)
        bench.now += tried_seconds_max + 1

        async def stands() -> bool:
            return [each.tried_at for each in await bench.quarantined()] == [None]

        await until(stands)
        told.clear()
        await until(lambda: _looked(told))
        assert told[-1] == (1, 0)
    finally:
        watching.cancel()
        await asyncio.gather(watching, return_exceptions=True)
    await bench.decide(Verb.RETRY)


async def _looked(told: list[tuple[int, int]]) -> bool:
    return len(told) > 2


@pytest.mark.parametrize(("behind", "refused"), [(60, True), (7_200, False)])
async def test_a_clock_that_is_behind_opens_no_door(bench: Bench, behind: float, refused: bool) -> None:
    """DUR-5: the bound on the rate holds for who decides with another clock; a wrong moment does not block for ever."""
    await quarantined_at_eight(bench)
    bench.now -= behind
    if refused:
        with pytest.raises(DecisionRefused, match="a moment ago"):
            await bench.decide(Verb.RETRY)
    else:
        await bench.decide(Verb.RETRY)
