"""What a Worker accepted is read from a proven Event at its place, or not at all (TRU-1, MWP-WRK-025)."""

from pathlib import Path
from types import SimpleNamespace

import msgspec
import pytest

from contracts.payloads.requests import ReplayedEvent
from contracts.payloads.work import WorkOfferAccepted
from projections.apply_event import apply_events
from projections.arrival import read_arrival
from projections.group_run import ApplyRules
from projections.store.sqlite import SqliteStore
from projections.work_queue.consumer import WorkQueue
from services.agent.read_history import Unavailable
from services.worker.find_acceptance import find_acceptance
from tests.builders import BuiltEvent, build_event, test_organization
from tests.mission_history import agent_id, authority_key, mission_history
from tests.trust_rig import stranger
from tests.unit.test_apply_event import proof

group = "urn:test:group:one"
history = mission_history(group)
[place] = [
    number
    for number, built in enumerate(history)
    if built.event.kind == "work.offer.accepted" and built.event.work_item_id == "urn:weavehold:work-item:active"
]
true = history[place]


async def found(tmp_path: Path, told: BuiltEvent):
    """What a Worker finds when it is told this Event."""

    async def group_page(group_id: str, after: int, limit: int):
        assert (group_id, after, limit) == (group, place, 1)
        return SimpleNamespace(events=[ReplayedEvent(event=msgspec.Raw(told.raw), chain_hash="0" * 64)])

    store = await SqliteStore.open(tmp_path / "queue.db", WorkQueue(agent_id), test_organization)
    try:
        await apply_events(store, [read_arrival(built.raw) for built in history], ApplyRules())
        lease_id = msgspec.convert(true.event.payload, WorkOfferAccepted).owner.ownership_lease_id
        work = SimpleNamespace(group_id=group, work_item_id=true.event.work_item_id, ownership_lease_id=lease_id)
        client = SimpleNamespace(history=SimpleNamespace(group_page=group_page))
        return await find_acceptance(store, client, proof(), work)
    finally:
        await store.close()


async def test_the_true_event_is_taken(tmp_path: Path) -> None:
    """MWP-WRK-025: card version and pins are those of the acceptance."""
    accepted = msgspec.convert(true.event.payload, WorkOfferAccepted)
    assert (await found(tmp_path, true)).agent_card_version == accepted.owner.agent_card_version


lies = {
    "signed by a stranger": lambda: build_event(
        true.event.kind, true.event.payload, stranger, group_id=group, previous=history[place - 1].mark
    ),
    "of another place": lambda: build_event(
        true.event.kind, true.event.payload, authority_key, group_id=group, previous=history[place].mark
    ),
    "of another Group": lambda: mission_history("urn:test:group:two")[place],
}


@pytest.mark.parametrize("lie", lies.values(), ids=lies.keys())
async def test_anything_else_is_as_good_as_no_answer(tmp_path: Path, lie) -> None:
    """TRU-1: what is not proven to be the Event asked for is not what the Worker signs its results under."""
    with pytest.raises(Unavailable, match=r"is not proven|was given in place of"):
        await found(tmp_path, lie())
