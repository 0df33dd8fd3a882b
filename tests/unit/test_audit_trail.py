"""The audit trail says of each Event who, what, when, where and why, and finds its words."""

import json
from collections.abc import AsyncIterator
from pathlib import Path

import msgspec
import pytest

from projections.apply_event import apply_events
from projections.arrival import read_arrival
from projections.audit_trail.consumer import AuditTrail
from projections.audit_trail.free_text import free_text, separator, text_characters_max, text_members
from projections.audit_trail.search_trail import TrailPlace, TrailQuestion, search_trail, trail_start
from projections.group_run import ApplyRules
from projections.store.sqlite import SqliteStore
from tests.builders import BuiltEvent, build_event, message_payload, signing_key, test_organization
from tests.mission_history import authority_key, mission_history

one, two = "urn:test:group:one", "urn:test:group:two"


@pytest.fixture
async def store(tmp_path: Path) -> AsyncIterator[SqliteStore]:
    opened = await SqliteStore.open(tmp_path / "trail.db", AuditTrail(), test_organization)
    yield opened
    await opened.close()


async def apply(store: SqliteStore, history: list[BuiltEvent]) -> None:
    applied = await apply_events(store, [read_arrival(built.raw) for built in history], ApplyRules())
    assert applied.applied == len(history)


async def found(store: SqliteStore, after: TrailPlace = trail_start, limit: int = 1_000, **asked: str):
    """A page of what answers."""
    return await store.read(lambda snapshot: search_trail(snapshot, TrailQuestion(**asked), after, limit))


async def test_each_event_has_one_row_that_says_what_it_says(store: SqliteStore) -> None:
    """PRJ-1: the row is the envelope of the Event, the cause included; nothing of it says when it arrived."""
    history = [*mission_history(one), *mission_history(two)]
    await apply(store, history)
    rows = {(event.group_id, event.sequence): event for event in (await found(store)).events}
    assert len(rows) == len(history)
    for built in history:
        row, event = rows[built.mark.group_id, built.mark.sequence], built.event
        told = (row.event_id, row.kind, row.actor_type, row.actor_id, row.occurred_at, row.aggregate_revision)
        actor = (event.actor.type.value, event.actor.id)
        assert told == (event.event_id, event.kind, *actor, event.occurred_at, event.aggregate_revision)
        assert (row.cause_type, row.cause_id) == (event.cause.type.value, event.cause.id)
        assert row.work_item_id == (event.work_item_id if isinstance(event.work_item_id, str) else None)


async def test_pages_continue_where_the_one_before_ended(store: SqliteStore) -> None:
    """Every Event comes once, in the order of time, whatever the size of the pages; the last one says that it is."""
    await apply(store, [*mission_history(one), *mission_history(two)])
    whole = (await found(store)).events
    assert [event.place for event in whole] == sorted(
        (event.place for event in whole), key=lambda place: (place.occurred_at, place.group_id, place.sequence)
    )
    for limit in (1, 7, len(whole) - 1):
        pages = [await found(store, limit=limit)]
        while pages[-1].next is not None:
            assert len(pages[-1].events) == limit
            pages.append(await found(store, TrailPlace.read(str(pages[-1].next)), limit))
        assert tuple(event for page in pages for event in page.events) == whole
    assert (await found(store, limit=len(whole))).next is None


async def test_whatever_is_asked_for_narrows_the_trail(store: SqliteStore) -> None:
    """Group, WorkItem, actor, kind and time each leave exactly what answers, alone and together."""
    actor = signing_key("auditor")
    history = mission_history(one)
    history.append(
        build_event(
            "message.posted",
            message_payload(one, 900, text="100% of it_all"),
            authority_key,
            group_id=one,
            previous=history[-1].mark,
            actor=actor.principal,
            occurred_at="2026-07-20T00:00:00.000000Z",
        )
    )
    await apply(store, [*history, *mission_history(two)])
    whole = (await found(store)).events
    item = next(event.work_item_id for event in whole if event.work_item_id)
    narrowed = {
        "group_id": (two, lambda event: event.group_id == two),
        "work_item_id": (item, lambda event: event.work_item_id == item),
        "actor_id": (actor.principal.id, lambda event: event.actor_id == actor.principal.id),
        "kind": ("work.*", lambda event: event.kind.startswith("work.")),
        "since": ("2026-07-20T00:00:00.000000Z", lambda event: event.occurred_at >= "2026-07-20"),
        "until": ("2026-07-20T00:00:00.000000Z", lambda event: event.occurred_at < "2026-07-20"),
    }
    for name, (value, answers) in narrowed.items():
        expected = tuple(event for event in whole if answers(event))
        assert 0 < len(expected) < len(whole), name
        assert (await found(store, **{name: value})).events == expected, name
    both = await found(store, group_id=two, kind="message.posted")
    assert both.events == tuple(each for each in whole if each.group_id == two and each.kind == "message.posted")


@pytest.mark.parametrize(
    ("text", "is_found"),
    [("100%", True), ("it_all", True), ("OF IT", True), ("1%0", False), ("itXall", False), ("!", False), ("%%", False)],
)
async def test_text_is_looked_for_as_it_stands(store: SqliteStore, text: str, is_found: bool) -> None:
    """Nothing in the text is a pattern, and the case of ASCII letters does not matter."""
    payload = message_payload(one, 1, text="100% of it_all")
    await apply(store, [build_event("message.posted", payload, authority_key, group_id=one)])
    assert bool((await found(store, text=text)).events) is is_found


def words(payload: object) -> str:
    return free_text(msgspec.Raw(json.dumps(payload).encode()))


def test_free_text_is_found_by_the_names_of_its_members() -> None:
    """The most telling first, however deep it lies and whatever the kind; identifiers are no free text."""
    payload = {
        "deep": [{"reason": "because"}, {"conditions": ["one", "two", {"text": "three"}]}],
        "missionId": "urn:test:mission",
        "title": "Title",
        "goal": "Title",
        "phase": 7,
    }
    assert words(payload) == separator.join(["Title", "three", "because", "one", "two"])
    assert words({}) == words([]) == words("text") == words(None) == ""
    assert len(words({"text": "x" * (text_characters_max + 1)})) == text_characters_max
    assert len(set(text_members)) == len(text_members)


def test_a_place_is_read_as_it_was_written() -> None:
    """A continuation is text; another text is refused."""
    place = TrailPlace("2026-07-15T08:00:00.000000Z", 7, "urn:test:group/with/slashes")
    assert TrailPlace.read(str(place)) == place
    for wrong in ("", "a/b", "a/b/c"):
        with pytest.raises(ValueError, match=r".+"):
            TrailPlace.read(wrong)
