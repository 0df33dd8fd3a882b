"""A Worker's inbox and queue are made of Events alone, and say what the authority's own fold says (MWP-WRK-008)."""

from collections.abc import AsyncIterator, Sequence
from pathlib import Path

import msgspec
import pytest

from contracts.documents.work_contract import WorkContract
from contracts.documents.work_item import Owner
from contracts.group_state import EventFacts, GroupState, evolve
from contracts.identifiers import GroupSequence
from projections.apply_event import apply_events
from projections.arrival import read_arrival
from projections.group_run import ApplyRules
from projections.mission_board.consumer import MissionBoard
from projections.mission_board.read_board import read_board
from projections.store.sqlite import SqliteStore
from projections.work_queue.consumer import WorkQueue
from projections.work_queue.read_queue import (
    read_groups,
    read_inbox,
    read_offers,
    read_owned,
    read_work_item_states,
)
from tests.builders import test_group, test_organization
from tests.mission_documents import coordinator, rival, worker
from tests.mission_history import agent_id, extend_history, mission_facts, mission_history
from tests.scene import Scene

group = "urn:test:group:one"


@pytest.fixture
async def store(tmp_path: Path) -> AsyncIterator[SqliteStore]:
    opened = await SqliteStore.open(tmp_path / "queue.db", WorkQueue(agent_id), test_organization)
    yield opened
    await opened.close()


async def apply(store: SqliteStore, facts: Sequence[EventFacts], visible_after: int = 0) -> None:
    history = extend_history([], group, facts)[visible_after:]
    rules = ApplyRules(visible_after={group: GroupSequence(visible_after)})
    applied = await apply_events(store, [read_arrival(built.raw) for built in history], rules)
    assert applied.applied == len(history)


def folded(facts: Sequence[EventFacts]) -> GroupState:
    """The authority's state of the same history."""
    state = GroupState.empty(test_organization, test_group)
    for fact in facts:
        state.apply(evolve(state, fact))
    return state


async def test_the_queue_agrees_with_the_authoritys_fold(store: SqliteStore) -> None:
    """States, revisions, owners, epochs and leases are those of the fold, after every single Event."""
    facts = mission_facts()
    queue = WorkQueue(agent_id)
    for length in range(1, len(facts) + 1):
        history = extend_history([], group, facts[:length])[-1:]
        await apply_events(store, [read_arrival(built.raw) for built in history], ApplyRules())
        state = folded(facts[:length])
        assert queue.agent_id == agent_id
        (row,) = await store.read(read_groups)
        membership = state.membership(agent_id)
        assert row.membership_epoch == (membership.membership_epoch if membership else None)
        assert (row.mission_state, row.coordinator_id, row.coordinator_epoch) == (
            state.mission.state.value,
            state.mission.coordinator.agent_id,
            state.mission.coordinator.coordinator_epoch,
        )
        for item in await store.read(lambda transaction: read_owned(transaction, agent_id)):
            record = state.work_item(item.work_item_id)
            assert record is not None
            assert (item.state, item.revision) == (record.item.state.value, record.item.revision)
            assert item.ownership_epoch == record.ownership_epoch
            assert item.owner is not None
            assert msgspec.json.decode(item.owner, type=Owner) == record.item.owner
            assert item.contract is not None
            assert msgspec.json.decode(item.contract, type=WorkContract) == record.item.contract
            running = record.execution_lease if record.item.state.value == "active" else None
            assert item.execution_lease_id == (running.lease_id if running else None)
            assert item.execution_expires_at == (running.expires_at if running else None)
        states = await store.read(lambda transaction: read_work_item_states(transaction, group))
        for work_item_id, found in states.items():
            record = state.work_item(work_item_id)
            assert record is not None
            assert found == record.item.state.value


async def test_offers_are_open_until_an_event_settles_them(store: SqliteStore) -> None:
    """An offer to this Agent goes when someone accepts, or when only others are offered the WorkItem anew."""
    scene = Scene().with_work("offered", "urn:test:item:won").with_work("offered", "urn:test:item:lost")
    scene.with_work("offered", "urn:test:item:again")
    await apply(store, scene.events)
    offers = {offer.work_item_id for offer in await store.read(read_offers)}
    assert offers == {"urn:test:item:won", "urn:test:item:lost", "urn:test:item:again"}
    seen = len(scene.events)
    scene.accept("work.accept_offer", {"workItemId": "urn:test:item:won"}, worker)
    scene.accept("work.accept_offer", {"workItemId": "urn:test:item:lost"}, rival)
    scene.accept("work.offer", scene.offer(rival, work_item_id="urn:test:item:again"), coordinator)
    repeated = len(scene.events)
    scene.pass_time(301).accept("work.offer", scene.offer(rival, work_item_id="urn:test:item:again"), coordinator)
    history = [read_arrival(built.raw) for built in extend_history([], group, scene.events)]
    await apply_events(store, history[seen:repeated], ApplyRules())
    assert [offer.work_item_id for offer in await store.read(read_offers)] == ["urn:test:item:again"]
    await apply_events(store, history[repeated:], ApplyRules())
    assert await store.read(read_offers) == []
    (owned,) = await store.read(lambda transaction: read_owned(transaction, agent_id))
    assert owned.work_item_id == "urn:test:item:won"


async def test_the_inbox_holds_what_concerns_the_agent(store: SqliteStore) -> None:
    """Memberships, offers, acceptances, revocations and mentions of this Agent, in the Group's order."""
    await apply(store, mission_facts())
    entries = await store.read(lambda transaction: read_inbox(transaction, group, 0, 100))
    assert [entry.sequence for entry in entries] == sorted(entry.sequence for entry in entries)
    kinds = [entry.kind for entry in entries]
    assert kinds.count("membership.changed") == 1
    assert kinds.count("message.posted") == 3
    assert kinds.count("work.result.accepted") == 1
    assert kinds.count("ext.missionweaveprotocol.core.work_execution_lease_revoked") == 1
    later = await store.read(lambda transaction: read_inbox(transaction, group, entries[2].sequence, 2))
    assert later == entries[3:5]


async def test_a_late_member_can_work_from_its_offer_alone(store: SqliteStore) -> None:
    """RULE-23: whoever joined after the WorkItem was authorized gets contract, Mission and its state from the offer."""
    facts = mission_facts()
    offered = next(at for at, fact in enumerate(facts) if fact.kind == "work.offer.created")
    await apply(store, facts[: offered + 1], visible_after=offered - 2)
    (row,) = await store.read(read_groups)
    assert (row.mission_state, row.title) == ("active", None)
    (offer,) = await store.read(read_offers)
    assert msgspec.json.decode(offer.contract, type=WorkContract).goal == "Count the words."


async def test_another_agents_queue_is_discarded(store: SqliteStore) -> None:
    """PRJ-4: the same store opened for another Agent holds nothing of the first."""
    await apply(store, mission_facts())
    other = await SqliteStore.open(store._path, WorkQueue(rival.id), test_organization)
    assert await other.read(lambda transaction: transaction.cursors()) == []
    await other.close()


async def test_the_board_shows_the_mission(tmp_path: Path) -> None:
    """Title, state, Coordinator, WorkItems by state, members, Messages and last activity; sums are made when read."""
    store = await SqliteStore.open(tmp_path / "board.db", MissionBoard(), test_organization)
    for group_id in (group, "urn:test:group:two"):
        history = mission_history(group_id)
        await apply_events(store, [read_arrival(built.raw) for built in history], ApplyRules())
    first, second = await store.read(read_board)
    assert {first.group_id, second.group_id} == {group, "urn:test:group:two"}
    state = folded(mission_facts())
    assert (first.title, first.state) == ("Test", "active")
    assert first.coordinator_id == coordinator.id
    assert first.message_count == 6
    assert first.last_sequence == len(mission_facts())
    assert sum(first.work_items.values()) == 6
    assert first.work_items == {"verified": 1, "submitted": 1, "queued": 2, "offered": 1, "open": 1}
    members = {member.member_id: member.role for member in first.members}
    assert members == {
        member: state.membership(member).role.value  # type: ignore[union-attr]
        for member in (worker.id, rival.id, coordinator.id, state.mission.mission_owner.id)
    }
    await store.close()
