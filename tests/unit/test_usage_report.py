"""The usage report reserves what the authority's own fold reserves, exactly, and counts what happened."""

from collections.abc import AsyncIterator, Sequence
from decimal import Decimal
from pathlib import Path

import pytest

from contracts.budgets import allocation, minus
from contracts.documents.work_item import WorkItemState
from contracts.group_state import EventFacts, GroupState, evolve
from projections.apply_event import apply_events
from projections.arrival import read_arrival
from projections.consumer import Statement
from projections.group_run import ApplyRules
from projections.store.sqlite import SqliteStore
from projections.usage_report.consumer import UsageReport
from projections.usage_report.read_usage import MissionUsage, Usage, read_usage
from services.authority.decision import LateResult
from tests.builders import test_group, test_organization
from tests.mission_documents import coordinator, message, rival, worker
from tests.mission_history import extend_history
from tests.scene import Scene

one, two = "urn:test:group:one", "urn:test:group:two"
limits = {
    "currency": "EUR",
    "financialLimit": 1_000_000_000_000.1,
    "modelTokenLimit": 2**53 - 1,
    "toolCallLimit": 40,
    "wallClockSecondsLimit": 0,
}


@pytest.fixture
async def store(tmp_path: Path) -> AsyncIterator[SqliteStore]:
    opened = await SqliteStore.open(tmp_path / "usage.db", UsageReport(), test_organization)
    yield opened
    await opened.close()


async def apply(store: SqliteStore, facts: Sequence[EventFacts], group_id: str = one) -> Usage:
    """Apply a history, and read the report of its Group."""
    history = extend_history([], group_id, facts)
    applied = await apply_events(store, [read_arrival(built.raw) for built in history], ApplyRules())
    assert applied.applied == len(history)
    return await store.read(lambda snapshot: read_usage(snapshot, group_id))


def scene() -> Scene:
    """WorkItems whose budgets no binary sum gets right, in many states, with checkpoints and Messages."""
    made = Scene().with_mission(budget=limits)
    for number, state in enumerate(("open", "offered", "queued", "active", "submitted", "verified")):
        budget = {"currency": "EUR", "financialLimit": 0.1, "modelTokenLimit": 2**40 + 1, "toolCallLimit": number}
        made.with_work(state, f"urn:test:item:{number}", budget=budget)
    checkpoint = {"phase": "counting", "completedMilestones": [], "createdAt": made.time}
    made.accept("work.checkpoint", made.fences("urn:test:item:3") | {"checkpoint": checkpoint}, worker)
    for number in (1, 2):
        made.accept("message.post", message(number), coordinator)
    return made


def told(mission: MissionUsage) -> tuple[Decimal, ...]:
    """What is left, in the order of the contracts' dimensions."""
    [money] = mission.budget.money
    left = {line.dimension: line.remaining for line in mission.budget.counted}
    names = ("modelTokens", "toolCalls", "computeSeconds", "wallClockSeconds", "externalSideEffects")
    return (Decimal(money.remaining or 0), *(Decimal(left[name] or 0) for name in names))


async def test_what_is_left_is_what_the_authority_would_still_grant(store: SqliteStore) -> None:
    """BUD-1: limit less reservations, in all six dimensions, digit for digit as the fold has it."""
    made = scene()
    [mission] = (await apply(store, made.events)).missions
    state = GroupState.empty(test_organization, test_group)
    for fact in made.events:
        state.apply(evolve(state, fact))
    assert told(mission) == minus(allocation(state.mission.budget), state.reserved)
    [money] = mission.budget.money
    assert (money.currency, money.limit, money.reserved) == ("EUR", "1000000000000.1", "0.6")
    assert money.remaining == "999999999999.5"
    lines = {line.dimension: line for line in mission.budget.counted}
    assert lines["wallClockSeconds"].limit == 0
    assert (lines["computeSeconds"].limit, lines["computeSeconds"].remaining) == (None, None)


async def test_what_happened_is_counted(store: SqliteStore) -> None:
    """WorkItems by state as the fold has them; Messages, checkpoints and late results."""
    made = scene()
    made.with_work("active", "urn:test:item:6")
    late = made.submission("urn:test:item:6")
    made.pass_time(3_600).accept("work.offer", made.offer(rival, work_item_id="urn:test:item:6"), coordinator)
    assert isinstance(made.when("work.submit", late, worker), LateResult)
    [mission] = (await apply(store, made.events)).missions
    states = [made.work(f"urn:test:item:{number}").item.state.value for number in range(7)]
    assert mission.outcomes.work_items == {state: states.count(state) for state in sorted(set(states))}
    counts = (mission.outcomes.messages, mission.outcomes.checkpoints, mission.outcomes.late_results)
    assert counts == (2, 1, 1)


@pytest.mark.parametrize("state", [WorkItemState.FAILED, WorkItemState.CANCELLED])
async def test_what_failed_or_was_cancelled_gives_its_budget_back(store: SqliteStore, state: WorkItemState) -> None:
    """BUD-1: its reservation goes, as in the fold; no Command of this authority leads there yet, so rows are put so."""
    await apply(store, scene().events)
    row = {"group_id": one, "work_item_id": "urn:test:item:5", "state": state.value}
    await store.transaction(lambda changing: changing.run([Statement("put_work_item_state", row)]))
    [mission] = (await store.read(read_usage)).missions
    [money] = mission.budget.money
    assert money.reserved == "0.5"
    assert {line.dimension: line.reserved for line in mission.budget.counted}["modelTokens"] == 5 * (2**40 + 1)


async def test_totals_are_sums_over_the_groups(store: SqliteStore) -> None:
    """RULE-24: each Group contributes its own rows; one that is reset goes out of the total, and comes back."""
    euros = await apply(store, scene().events)
    dollars = Scene().with_mission(budget={"currency": "USD", "financialLimit": 0.2, "modelTokenLimit": 7})
    await apply(store, dollars.events, two)
    whole = await store.read(read_usage)
    assert [(line.currency, line.limit) for line in whole.budget.money] == [("EUR", "1000000000000.1"), ("USD", "0.2")]
    tokens = {line.dimension: line.limit for line in whole.budget.counted}["modelTokens"]
    assert tokens == 2**53 - 1 + 7
    assert len(whole.missions) == 2
    await store.transaction(lambda changing: changing.reset_group(two))
    assert await store.read(read_usage) == euros
    await apply(store, dollars.events, two)
    assert await store.read(read_usage) == whole
