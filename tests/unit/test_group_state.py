"""The fold: entities and their bytes, digests, faults, and what stands for unknown kinds (NEW-4, PRJ-5)."""

import random
from typing import Any

import pytest
from msgspec import ValidationError
from msgspec.structs import replace

from contracts.chain import chain_start
from contracts.documents.mission import MissionState
from contracts.entities import EntityKey, EntityKind, entity_digest, past_owners_max
from contracts.event import late_result_recorded, lease_expired
from contracts.group_state import (
    EventFacts,
    FoldFault,
    GroupState,
    combined_digest,
    decode_entity,
    entity_bytes,
    evolve,
    facts_of,
    state_digest,
)
from contracts.identifiers import GroupSequence
from tests.builders import build_event, signing_key, test_group, test_organization
from tests.mission_documents import artifact, coordinator, evidence, item, message, owner, rival, worker
from tests.scene import Scene


def finished() -> Scene:
    """A Group that has seen every Event kind of a WorkItem's way to its result, a Message, and a fenced owner."""
    scene = Scene().with_work("active")
    scene.accept("message.post", message(), worker)
    scene.pass_time(3_600)
    scene.accept("work.offer", scene.offer(rival), coordinator)
    scene.accept("work.accept_offer", {"workItemId": item}, rival)
    scene.accept("work.start", {"workItemId": item, "ownershipEpoch": 2}, rival)
    scene.accept("artifact.publish", {"artifact": artifact(by=rival), **scene.fences(named=False)}, rival)
    scene.accept("work.submit", scene.submission(evidence=[evidence(by=rival)]), rival)
    scene.accept("work.accept_result", {"workItemId": item, "evidence": [evidence(by=coordinator)]}, coordinator)
    return scene


def replayed(events: list[EventFacts]) -> tuple[GroupState, str]:
    """The fold of a history from nothing, and the digest of what it leaves."""
    state = GroupState.empty(test_organization, test_group)
    rows: dict[EntityKey, tuple[int, bytes]] = {}
    for event in events:
        changes = evolve(state, event)
        state.apply(changes)
        rows |= {change.key: (change.revision, entity_bytes(change.entity)) for change in changes}
    return state, state_digest((key.kind, key.entity_id, *row) for key, row in rows.items())


def test_the_fold_of_the_history_is_the_stored_state() -> None:
    """NEW-4: what the authority writes change by change equals the fold of the log, digest for digest."""
    scene = finished()
    state, digest = replayed(scene.events)
    assert digest == scene.digest()
    assert state.work_item(item) == scene.work()


def test_a_state_restored_from_its_rows_is_the_same() -> None:
    """NEW-4: bytes → entity → bytes is the identity, and the indexes come back with the entities."""
    scene = finished()
    restored = GroupState.empty(test_organization, test_group)
    rows = list(scene.rows.items())
    random.Random(7).shuffle(rows)
    for (kind, entity_id), (revision, raw) in rows:
        entity = decode_entity(kind, raw)
        assert entity_bytes(entity) == raw
        restored.restore(kind, entity_id, revision, entity)
    restored.move_to(scene.state.sequence, scene.state.chain_hash)
    assert (restored.size, restored.reserved) == (scene.state.size, scene.state.reserved)
    assert restored.unfinished_work_count == 0
    assert restored.mission_record == scene.state.mission_record
    assert restored.size == len(rows) - 1, "Messages are written but not held"


def test_a_row_that_contradicts_itself_is_refused() -> None:
    """A stored revision is that of the content; a kind's bytes are that kind's."""
    scene = finished()
    revision, raw = scene.rows[("work_item", item)]
    state = GroupState.empty(test_organization, test_group)
    with pytest.raises(ValueError, match="stored as revision"):
        state.restore("work_item", item, revision + 1, decode_entity("work_item", raw))
    with pytest.raises(ValidationError):
        decode_entity("mission", raw)
    with pytest.raises(ValueError, match="ledger"):
        decode_entity("ledger", raw)


def test_the_digest_depends_on_content_only() -> None:
    """NEW-4: any order gives the same digest, any changed byte, name or revision another one."""
    rows: list[tuple[EntityKind | str, str, int, bytes]] = [
        (EntityKind.MESSAGE, "urn:a", 1, b"{}"),
        ("message", "urn:b", 1, b"{}"),
        ("artifact", "urn:a", 1, b"{}"),
    ]
    digest = state_digest(rows)
    assert digest.startswith("sha256:")
    assert state_digest(reversed(rows)) == digest
    assert combined_digest(entity_digest(*row) for row in rows) == digest
    others: list[tuple[Any, str, int, bytes]] = [
        ("message", "urn:a", 2, b"{}"),
        ("message", "urn:c", 1, b"{}"),
        ("message", "urn:a", 1, b"[]"),
        ("group", "urn:a", 1, b"{}"),
    ]
    assert all(state_digest([other, *rows[1:]]) != digest for other in others)
    assert state_digest(rows[:2]) != digest


def test_an_empty_group_has_nothing() -> None:
    """A Group before its first Event stands at sequence 0 and the start of its chain."""
    state = GroupState.empty(test_organization, test_group)
    assert (state.exists, state.sequence, state.size) == (False, 0, 0)
    assert state.chain_hash == chain_start(test_organization, test_group)
    for read in ("mission", "mission_record", "group"):
        with pytest.raises(LookupError):
            getattr(state, read)


def test_unknown_kinds_fold_to_nothing() -> None:
    """PRJ-5: what this version does not know changes no entity."""
    scene = Scene().with_mission()
    event = replace(scene.events[0], kind="ext.future.kind.happened", payload={"any": 1})
    assert evolve(scene.state, event) == ()


def test_the_fold_reads_events_of_the_log() -> None:
    """NEW-4: a signed Event gives the fold the same facts as the decision did."""
    first = Scene().with_mission().events[0]
    built = build_event("mission.created", first.payload, signing_key("authority", "service"), aggregate_revision=1)
    facts = facts_of(built.event)
    assert (facts.group_id, facts.sequence, facts.aggregate_revision) == (test_group, 1, 1)
    assert evolve(GroupState.empty(test_organization, test_group), facts)


def _damage(event: EventFacts, **members: Any) -> EventFacts:
    return replace(event, **members)


@pytest.mark.parametrize("place", range(1, 12))
def test_an_event_that_cannot_have_happened_is_a_fault(place: int) -> None:
    """Every kind of a WorkItem's way: another shape, another revision, or a second time is a FoldFault by name."""
    events = finished().events
    state, _ = replayed(events[:place])
    event = events[place]
    for damaged in (
        _damage(event, payload={**event.payload, "surprise": 1}),
        _damage(event, payload={}),
        _damage(event, aggregate_revision=event.aggregate_revision + 1),
    ):
        with pytest.raises(FoldFault, match=f"Event {event.sequence} .* of Group {test_group}") as caught:
            evolve(state, damaged)
        assert (caught.value.group_id, caught.value.sequence) == (test_group, event.sequence)
    state.apply(evolve(state, event))
    if event.kind != "message.posted":
        with pytest.raises(FoldFault):
            evolve(state, event)


def test_events_outside_the_tables_are_faults() -> None:
    """STM-W, STM-M: a transition that the tables lack cannot be folded either."""
    scene = Scene().with_work("active")
    started = scene.events[-1]
    with pytest.raises(FoldFault, match="is active"):
        evolve(scene.state, replace(started, aggregate_revision=started.aggregate_revision + 1))
    scene.force_mission(MissionState.CANCELLED)
    with pytest.raises(FoldFault, match="Mission is cancelled"):
        evolve(scene.state, started)


def test_epochs_never_go_down_in_the_fold() -> None:
    """LSE-2, ACC-6: an assignment or change under an old epoch is a damaged history."""
    scene = Scene().with_mission()
    (assigned,) = scene.accept("mission.assign_coordinator", {"coordinatorId": coordinator.id}, owner)
    with pytest.raises(FoldFault, match="Coordinator Epoch 2 is not above 2"):
        evolve(scene.state, scene.events[-1])
    assert assigned.payload["coordinatorEpoch"] == 2
    changed = next(event for event in scene.events if event.kind == "membership.changed")
    with pytest.raises(FoldFault, match="Membership Epoch 1 is not above 1"):
        evolve(scene.state, changed)


def test_a_lease_that_was_not_running_cannot_lapse() -> None:
    """MWP-WRK-014: the fold knows the running lease."""
    scene = Scene().with_work("active").pass_time(300)
    scene.refuse("work.submit", scene.submission(), worker)
    lapsed = scene.events[-1]
    assert lapsed.kind == lease_expired
    scene.accept("work.start", {"workItemId": item, "ownershipEpoch": 1}, worker)
    revision = scene.work().item.revision + 1
    with pytest.raises(FoldFault, match="is not the one that was running"):
        evolve(scene.state, replace(lapsed, aggregate_revision=revision))


def test_a_late_result_of_an_unknown_work_item_is_a_fault() -> None:
    """MWP-WRK-019: even what changes nothing speaks of something that exists."""
    payload = {"workItemId": item, "ownershipEpoch": 1, "artifactIds": [], "evidence": [], "kind": "work.submit"}
    event = EventFacts(
        group_id=test_group,
        sequence=GroupSequence(9),
        kind=late_result_recorded,
        aggregate_revision=1,
        occurred_at="2026-07-15T08:00:00Z",
        payload=payload,
    )
    with pytest.raises(FoldFault, match="unknown"):
        evolve(Scene().with_mission().state, event)


def test_remembered_owners_are_bounded() -> None:
    """MWP-WRK-019: a WorkItem remembers its last fenced owners, never without bound."""
    scene = Scene().with_mission(coordinatorLeaseSeconds=31_536_000, deadline="2027-08-01T00:00:00Z")
    scene.with_work("open", deadline="2027-07-01T00:00:00Z")
    for _ in range(past_owners_max + 2):
        scene.accept("work.offer", scene.offer(worker), coordinator)
        scene.accept("work.accept_offer", {"workItemId": item, "ownershipLeaseSeconds": 1}, worker)
        scene.pass_time(1)
    epochs = [past.ownership_epoch for past in scene.work().past_owners]
    assert epochs == list(range(2, past_owners_max + 2))
