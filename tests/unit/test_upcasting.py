"""Versions of Event contracts: old payloads are read in the current shape by every reader, newer by none (PRJ-5)."""

import copy
from collections.abc import AsyncIterator, Iterable, Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from msgspec import json as msgspec_json

from contracts.chain import chain_start
from contracts.documents.common import Actor, ActorType, Extension
from contracts.event import Cause, CauseType, Event
from contracts.event_contracts import current_payload, event_contracts, versions
from contracts.group_state import facts_of
from contracts.identifiers import GroupSequence, ShardId, ShardPosition
from contracts.payloads.registry import event_payloads
from contracts.timestamps import format_timestamp
from contracts.upcasting import (
    ContractsInconsistent,
    ContractUnknown,
    EventContracts,
    EventUnread,
    Upcaster,
    contract_extension,
    contract_mark,
    contract_version,
    require_understood,
)
from projections.apply_event import apply_events, resume_stopped
from projections.arrival import LoggedEvent, read_arrival
from projections.consumer import Statement
from projections.digest import projection_digests
from projections.group_run import ApplyRules
from projections.listing import listed_consumers
from projections.mission_board.consumer import MissionBoard
from projections.projection import Projection
from projections.store import ProjectionStore
from projections.usage_report.consumer import UsageReport
from services.authority.append_events import EventAppender, Origin
from services.authority.decision import EventDraft
from tests.builders import BuiltEvent, build_event, identifier, test_group, test_incarnation, test_organization
from tests.consumer_rig import open_sqlite
from tests.mission_history import agent_id, authority_key, mission_facts
from tests.unit.test_group_state import replayed

authorized = "work.authorized"
future = "ext.future.thing.happened"


def _named_work_item(payload: Mapping[str, Any]) -> dict[str, Any]:
    return {"workItem": payload["item"], "conversation": payload["conversation"]}


def _with_proposal(payload: Mapping[str, Any]) -> dict[str, Any]:
    return {**payload, "proposalId": payload.get("proposal")}


upcasters = (Upcaster(authorized, 1, _named_work_item), Upcaster(authorized, 2, _with_proposal))
later = EventContracts({**versions, authorized: 3}, upcasters)
"""As Weavehold could read one day: what `work.authorized` says today is its third version then."""


def as_of(version: int, payload: Mapping[str, Any]) -> dict[str, Any]:
    """What an authorization says today, as a version of `later` says it."""
    item, conversation = payload["workItem"], payload["conversation"]
    match version:
        case 1:
            return {"item": item, "conversation": conversation}
        case 2:
            return {"workItem": item, "conversation": conversation}
        case _:
            return dict(payload)


def marked(version: int) -> dict[str, Any]:
    """The extensions of an Event of a version."""
    return {} if version == 1 else {contract_extension: contract_mark(version)}


def written_with(authorizations: Iterable[int]) -> list[BuiltEvent]:
    """The tests' Mission under the same IDs, its authorizations in these versions one after another."""
    wanted = iter(authorizations)
    history: list[BuiltEvent] = []
    for fact in mission_facts():
        version = next(wanted) if fact.kind == authorized else 1
        payload = as_of(version, fact.payload) if fact.kind == authorized else fact.payload
        history.append(
            build_event(
                fact.kind,
                payload,
                authority_key,
                group_id=test_group,
                previous=history[-1].mark if history else None,
                occurred_at=fact.occurred_at,
                aggregate_revision=fact.aggregate_revision,
                extensions=marked(version),
                workItemId=fact.payload.get("workItemId"),
                eventId=identifier("event", fact.sequence),
                cause={"type": "command", "id": identifier("action", fact.sequence)},
            )
        )
    return history


count = sum(fact.kind == authorized for fact in mission_facts())
today, mixed = [3] * count, [1 + number % 3 for number in range(count)]


def appended(history: list[BuiltEvent], kind: str, payload: Mapping[str, Any], extensions: Mapping[str, Any]) -> None:
    """One more Event at the end of a history."""
    event = build_event(
        kind, payload, authority_key, group_id=test_group, previous=history[-1].mark, extensions=extensions
    )
    history.append(event)


@pytest.fixture
async def board(tmp_path: Path) -> AsyncIterator[ProjectionStore]:
    opened = await open_sqlite(tmp_path / "board", MissionBoard())
    yield opened
    await opened.close()


@pytest.mark.parametrize(
    ("kinds", "steps", "words"),
    [
        ({"a": 2}, [], "needs upcasters that read 1 to 1; there are []"),
        ({"a": 3}, [("a", 1)], "needs upcasters that read 1 to 2; there are [1]"),
        ({"a": 3}, [("a", 2)], "needs upcasters that read 1 to 2; there are [2]"),
        ({"a": 2}, [("a", 1), ("a", 2)], "there are [1, 2]"),
        ({"a": 1}, [("a", 1)], "needs none; there are [1]"),
        ({"a": 0}, [], "needs none"),
        ({"a": 2}, [("a", 1), ("a", 1)], "two upcasters read a 1"),
        ({"a": 1}, [("b", 1)], "b, which is no known Event kind"),
    ],
)
def test_versions_and_upcasters_must_fit_each_other(
    kinds: dict[str, int], steps: list[tuple[str, int]], words: str
) -> None:
    """PRJ-5: a version that nothing leads up from, or a step that leads nowhere, is refused when it is declared."""
    with pytest.raises(ContractsInconsistent) as fault:
        EventContracts(kinds, [Upcaster(kind, reads, dict) for kind, reads in steps])
    assert words in str(fault.value)


def test_every_kind_that_is_written_has_a_version() -> None:
    """PRJ-5: what the authority writes is read; another kind has no version here."""
    assert all(event_contracts.current(kind) for kind in event_payloads)
    assert event_contracts.current(future) is None


@pytest.mark.parametrize("version", [1, 2, 3])
def test_a_payload_takes_every_step_from_its_version_on(version: int) -> None:
    """PRJ-5: whichever version it was written in, it is read in the current one; what was given stays as it was."""
    current = next(fact.payload for fact in mission_facts() if fact.kind == authorized)
    old = as_of(version, current)
    kept = copy.deepcopy(old)
    assert later.upcast(authorized, version, old) == current
    assert old == kept


@pytest.mark.parametrize(
    ("kind", "version", "known", "words"),
    [
        (authorized, 4, 3, "reads it up to 3; run one that reads work.authorized 4"),
        (authorized, 0, 3, "reads it up to 3"),
        ("message.posted", 2, 1, "reads it up to 1; run one that reads message.posted 2"),
        (future, 1, 0, "does not know the kind"),
    ],
)
def test_a_version_that_is_not_known_is_not_read(kind: str, version: int, known: int, words: str) -> None:
    """PRJ-5: the fault names kind, version and what is known, and says what to do."""
    with pytest.raises(ContractUnknown) as fault:
        later.upcast(kind, version, {})
    assert (fault.value.kind, fault.value.version, fault.value.known) == (kind, version, known)
    assert words in str(fault.value)


@pytest.mark.parametrize(
    "payload",
    [
        {},
        {"item": {}},
        {"item": {}, "conversation": {}, "more": {}},
    ],
)
def test_a_payload_of_another_shape_is_told_by_its_version(payload: dict[str, Any]) -> None:
    """PRJ-5: a step that meets another shape says of which version the Event claims to be."""

    def strict(found: Mapping[str, Any]) -> dict[str, Any]:
        if len(found) > 2:
            raise ValueError("a member too many")
        return _named_work_item(found)

    contracts = EventContracts({authorized: 2}, [Upcaster(authorized, 1, strict)])
    with pytest.raises(EventUnread, match=r"this work\.authorized is none of contract version 1: "):
        contracts.upcast(authorized, 1, payload)


@pytest.mark.parametrize("value", ["text", 1, None, []])
def test_whatever_reading_another_shape_ends_in_is_told(value: object) -> None:
    """PRJ-5: no type of value in the place of an object gets through as another fault."""
    steps = (lambda found: {"b": found["a"]["b"]}, lambda found: {"b": found["a"].get("b")})
    for step in steps:
        contracts = EventContracts({"a": 2}, [Upcaster("a", 1, step)])
        with pytest.raises(EventUnread):
            contracts.upcast("a", 1, {"a": value})


@pytest.mark.parametrize(
    "version", ["", "2", "2.0", "2.1.0", "2.0.1", "02.0.0", "0.0.0", "-2.0.0", "2.0.0-rc.1", "9999999999.0.0", "2.0.0 "]
)
def test_a_mark_of_another_form_is_not_guessed_at(version: str) -> None:
    """PRJ-5, RULE-15: only a whole version is one."""
    mark = {contract_extension: Extension(version=version, critical=False, data=None)}
    with pytest.raises(EventUnread, match="no whole version"):
        contract_version(authorized, mark)


def test_marks_say_the_version_that_is_written() -> None:
    """RULE-15: the first version has no mark, a later one says itself and is not critical."""
    assert later.marks("message.posted") == later.marks(future) == {}
    [(name, mark)] = later.marks(authorized).items()
    assert (name, mark) == (contract_extension, {"version": "3.0.0", "critical": False, "data": None})
    assert contract_version(authorized, {name: Extension(**mark)}) == 3
    assert contract_version(authorized, {}) == 1


def test_only_a_critical_extension_must_be_known() -> None:
    """PRJ-5: one that is not critical is passed over; those that are read here may be critical."""

    def extension(critical: bool) -> Extension:
        return Extension(version="1.2.3", critical=critical, data=None)

    require_understood(future, {"urn:test:new": extension(False), contract_extension: extension(True)})
    with pytest.raises(EventUnread, match=r"unknown critical extension urn:test:new 1\.2\.3; run a version"):
        require_understood(future, {"urn:test:new": extension(True)})


def test_a_payload_of_an_unknown_kind_is_left_as_it_is() -> None:
    """PRJ-5: nobody here can bring it up, and nobody here needs it."""
    built = build_event(future, {"new": 1}, authority_key, extensions=marked(7))
    assert current_payload(built.event) == {"new": 1}


@pytest.mark.parametrize("place", range(len(listed_consumers(agent_id))))
async def test_every_consumer_reads_old_versions_as_the_current_one(place: int, tmp_path: Path) -> None:
    """PRJ-5: the same Mission gives each listed consumer the same rows, however its Events were written once."""
    consumer = listed_consumers(agent_id)[place]
    found = []
    for name, authorizations in (("today", today), ("mixed", mixed)):
        arrivals = [read_arrival(built.raw) for built in written_with(authorizations)]
        store = await open_sqlite(tmp_path / name, consumer)
        applied = await apply_events(store, arrivals, ApplyRules(contracts=later))
        assert (applied.applied, applied.stops) == (len(arrivals), [])
        # The chain is that of the bytes as they were signed, whatever was read from them.
        assert applied.cursors[0].chain_hash == arrivals[-1].mark.chain_hash
        [reached] = await store.read(lambda transaction: projection_digests(transaction, consumer))
        found.append(reached.digest)
        await store.close()
    assert found[0] == found[1]


def test_the_fold_reads_old_versions_as_the_current_one() -> None:
    """PRJ-5, NEW-4: the state is that of the Mission as it would be written today."""
    digests = [
        replayed([facts_of(built.event, later) for built in written_with(authorizations)])[1]
        for authorizations in (today, mixed)
    ]
    assert digests[0] == digests[1] == replayed(list(mission_facts()))[1]


def test_the_fold_does_not_read_a_newer_version() -> None:
    """PRJ-5: today's fold says that it cannot read what `later` writes."""
    [first, *_] = [built for built in written_with(today) if built.event.kind == authorized]
    with pytest.raises(ContractUnknown):
        facts_of(first.event)


async def test_a_newer_version_stops_its_group_until_it_is_known(board: ProjectionStore) -> None:
    """PRJ-5: what came before stays, the stop names kind and version, and who reads that version goes on from there."""
    history = written_with(today)
    arrivals = [read_arrival(built.raw) for built in history]
    before = next(number for number, built in enumerate(history) if built.event.kind == authorized)
    applied = await apply_events(board, arrivals, ApplyRules())
    assert applied.applied == before
    [stop] = applied.stops
    assert (stop.group_id, stop.sequence) == (test_group, before + 1)
    assert stop.reason == (
        "work.authorized of contract version 3 cannot be read: this version of Weavehold reads it up to 1; "
        "run one that reads work.authorized 3"
    )
    await resume_stopped(board)
    applied = await apply_events(board, arrivals[before:], ApplyRules(contracts=later))
    assert applied.cursors[0].sequence == len(history)


async def test_a_newer_version_is_nothing_to_who_does_not_read_the_kind(tmp_path: Path) -> None:
    """PRJ-5: a consumer stops at what it would have to read, not at what it passes over."""
    history = written_with(today)[:1]
    appended(history, "membership.changed", {"unheard": "of"}, marked(2))
    store = await open_sqlite(tmp_path / "usage", UsageReport())
    applied = await apply_events(store, [read_arrival(built.raw) for built in history], ApplyRules())
    assert (applied.applied, applied.passed_over, applied.stops) == (2, 0, [])
    await store.close()


async def test_what_nobody_knows_is_passed_over_and_counted(tmp_path: Path) -> None:
    """PRJ-5: unknown kinds move the Cursor, marked or not, and their number is kept with it."""
    history = written_with(today)[:1]
    for extensions in ({}, marked(3), {contract_extension: contract_mark(2) | {"version": "2.1.0"}}):
        appended(history, future, {"new": 1}, extensions)
    arrivals = [read_arrival(built.raw) for built in history]
    for consumer in listed_consumers(agent_id):
        store = await open_sqlite(tmp_path / consumer.name, consumer)
        applied = await Projection(store).apply(arrivals)
        passed_over = 0 if consumer.kinds is None else 3
        assert (applied.applied, applied.passed_over, applied.stops) == (4, passed_over, [])
        counts = await store.read(lambda transaction: transaction.counts())
        assert counts.get("passed_over", 0) == passed_over
        await store.close()


async def test_a_consumer_may_read_the_first_version_of_a_kind_of_its_own(tmp_path: Path) -> None:
    """PRJ-5: who names a kind that the contracts lack reads its first version, and stops at a later one."""

    class Reader(MissionBoard):
        kinds = frozenset({future})

        def evolve(self, event: LoggedEvent) -> Iterable[Statement]:
            read.append(msgspec_json.decode(event.payload))
            return ()

    read: list[Any] = []
    history = written_with(today)[:1]
    for number, version in ((1, 1), (2, 2)):
        appended(history, future, {"number": number}, marked(version))
    store = await open_sqlite(tmp_path / "reader", Reader())
    applied = await apply_events(store, [read_arrival(built.raw) for built in history], ApplyRules())
    assert read == [{"number": 1}]
    assert (applied.applied, applied.passed_over) == (2, 0)
    assert "ext.future.thing.happened of contract version 2 cannot be read" in applied.stops[0].reason
    await store.close()


def test_the_authority_marks_what_it_writes_in_a_later_version() -> None:
    """PRJ-5, RULE-15: an Event says its contract version unless it is the first, and reads back in it."""
    service = Actor(type=ActorType.SERVICE, id="urn:weavehold:service:authority")
    now = datetime(2026, 7, 15, tzinfo=UTC)
    origin = Origin(
        correlation_id="urn:test:one",
        accepted_at=now,
        occurred_at=format_timestamp(now),
        command_hash=None,
        consulted={},
    )
    payload = next(fact.payload for fact in mission_facts() if fact.kind == authorized)
    for contracts, version in ((event_contracts, 1), (later, 3)):
        appender = EventAppender(test_incarnation, authority_key, lambda: "urn:test:event", contracts)
        draft = EventDraft(
            kind=authorized,
            payload=dict(payload),
            aggregate_revision=1,
            actor=service,
            cause=Cause(type=CauseType.COMMAND, id="urn:test:action"),
        )
        place = (ShardId(1), ShardPosition(1), GroupSequence(1))
        raw = appender.append(draft, origin, test_group, place, chain_start(test_organization, test_group)).raw
        event = msgspec_json.decode(raw, type=Event)
        assert isinstance(event.extensions, dict)
        assert contract_version(event.kind, event.extensions) == version
        assert current_payload(event, contracts) == payload
