"""What was consumed and no longer exists is found, told exactly, and rebuilt in silence (PRJ-3, NEW-1, RULE-19…22)."""

from collections.abc import AsyncIterator, Sequence
from pathlib import Path

import pytest

import projections.fill_gap
from contracts.cursor import Contact, cursor_start
from contracts.identifiers import GroupSequence
from contracts.payloads.requests import GroupHead, GroupPage
from contracts.timestamps import parse_timestamp
from projections.apply_event import Unproven
from projections.arrival import Arrival, read_arrival
from projections.group_run import Question
from projections.history import GroupNotShown, HistoryRefused, HistoryUnavailable
from projections.projection import Projection
from projections.proof import SignatureProof
from projections.repair_group import repair_group
from projections.settle_fork import settle_fork
from projections.store import Fork, remembered_pairs_max
from projections.store.sqlite import SqliteStore
from services.feed.trusted_keys import TrustedKeys
from tests.builders import BuiltEvent, build_event, test_incarnation, test_organization
from tests.history_double import HistoryDouble, restored_incarnation
from tests.mission_history import extend_history, mission_history, more_messages
from tests.simulation.ledger import Ledger
from tests.trust_rig import Reader, RegistryDouble, anchors, authority_key

group = "urn:test:group:one"
other = "urn:test:group:two"


@pytest.fixture
async def projection(tmp_path: Path) -> AsyncIterator[Projection]:
    made = Projection(await open_store(tmp_path))
    yield made
    await made.store.close()


async def open_store(folder: Path) -> SqliteStore:
    return await SqliteStore.open(folder / "ledger.db", Ledger("forks"), test_organization)


def arrive(history: Sequence[BuiltEvent]) -> list[Arrival]:
    return [read_arrival(built.raw) for built in history]


def restored(kept: Sequence[BuiltEvent], length: int, incarnation: str = restored_incarnation) -> list[BuiltEvent]:
    """A history that goes on otherwise after `kept`, up to a length."""
    facts = more_messages(500, length - len(kept))
    return extend_history(kept, kept[0].mark.group_id, facts, salt=incarnation[:1], incarnation=incarnation)


def ids(history: Sequence[BuiltEvent]) -> list[str]:
    return [built.event.event_id for built in history]


async def forks(projection: Projection) -> list[Fork]:
    return await projection.store.read(lambda transaction: transaction.forks())


async def column(projection: Projection, table: str, group_id: str = group) -> list[str]:
    """The Event IDs of a Group's rows, or of its intents."""
    names, rows = await projection.store.read(lambda tx: tx.rows(f"ledger_forks_{table}", group_id))
    return [row[names.index("event_id")] for row in rows]


async def ask(projection: Projection, source: HistoryDouble, group_id: str = group) -> Sequence[Fork]:
    """A repair that begins with a doubt about the Group."""
    cursor = await projection.cursor(group_id)
    assert cursor is not None
    return (await repair_group(projection, source, group_id, Question(Contact.UNKNOWN, cursor))).forks


# --- what is told ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("kept", "shared"), [(20, 20), (1, 1), (0, 0)])
async def test_exactly_the_lost_events_are_named(projection: Projection, kept: int, shared: int) -> None:
    """PRJ-3, NEW-1: the report has what was seen, where the histories part, and each lost Event with its sequence."""
    old = mission_history(group)
    await projection.receive(arrive(old))
    new = restored(old[:kept], 60) if kept else mission_history(group, messages=24, salt="restored")
    [fork] = await ask(projection, HistoryDouble(new))
    assert (fork.seen.sequence, fork.seen.chain_hash) == (len(old), old[-1].mark.chain_hash)
    assert [(lost.sequence, lost.event_id) for lost in fork.lost] == list(
        zip(range(kept + 1, len(old) + 1), ids(old[kept:]), strict=True)
    )
    assert fork.shared == shared
    assert parse_timestamp(fork.noticed_at)
    assert await column(projection, "entry") == ids(new)


async def test_what_is_no_longer_remembered_may_be_lost_too(projection: Projection) -> None:
    """RULE-19, NEW-1: beyond the remembered Events the report does not claim to know where the histories part."""
    old = mission_history(group, messages=remembered_pairs_max)
    await projection.receive(arrive(old))
    [fork] = await ask(projection, HistoryDouble(restored(old[:8], 30)))
    assert (fork.shared, ids(old)[-remembered_pairs_max:]) == (None, [lost.event_id for lost in fork.lost])


async def test_a_history_that_changes_while_it_is_compared_is_asked_again(projection: Projection) -> None:
    """RULE-21: answers of two histories make no verdict; nothing is recorded and nothing removed."""
    old = mission_history(group)

    class Changing(HistoryDouble):
        async def heads(self, group_ids: Sequence[str]) -> Sequence[GroupHead]:
            heads = await super().heads(group_ids)
            self.replace(restored(old[:30], 40))
            return heads

    await projection.receive(arrive(old[:25]))
    source = Changing(restored(old[:10], 20))
    with pytest.raises(HistoryUnavailable):
        await settle_fork(projection, source, group)
    assert (await forks(projection), await column(projection, "entry")) == ([], ids(old[:25]))


# --- Groups that were lost as a whole ----------------------------------------------------------------------------


async def test_a_group_lost_as_a_whole_is_a_fork_to_nothing(projection: Projection) -> None:
    """PRJ-3: the restored authority does not know the Group: recorded, its rows go, other Groups stay."""
    old = mission_history(group)
    source = HistoryDouble(old, mission_history(other))
    await projection.receive(arrive([*old, *mission_history(other)]))
    source.lose(group)
    [fork] = await ask(projection, source)
    assert fork.found == cursor_start(test_organization, group, restored_incarnation)
    assert ([lost.event_id for lost in fork.lost], fork.shared) == (ids(old), 0)
    assert [cursor.group_id for cursor in await projection.cursors()] == [other]
    assert await column(projection, "entry") == []
    assert await column(projection, "entry", other) == ids(mission_history(other))
    # It is founded once more: its Events have never been asked for.
    again = mission_history(group, salt="again", incarnation=restored_incarnation)
    await projection.receive(arrive(again))
    assert (await column(projection, "entry"), (await column(projection, "intent"))[len(old) :]) == (ids(again),) * 2


async def test_a_gap_in_a_lost_group_shows_that_it_is_lost(projection: Projection) -> None:
    """PRJ-3: whoever fills a gap and is shown no such Group asks what became of it."""
    old = mission_history(group)
    source = HistoryDouble(old)
    await projection.receive(arrive([*old[:5], old[9]]))
    source.lose(group)
    repaired = await repair_group(projection, source, group)
    assert [fork.found.sequence for fork in repaired.forks] == [0]
    assert await projection.heads_ahead() == {}


class _Denied(HistoryDouble):
    """It lists no Group, and refuses pages for another reason than that there is none."""

    async def heads(self, group_ids: Sequence[str]) -> Sequence[GroupHead]:
        return []

    async def page(self, group_id: str, after: GroupSequence, limit: int) -> GroupPage:
        raise HistoryRefused("AUTH_FORBIDDEN")


class _Undecided(HistoryDouble):
    """It lists no Group, and has pages of it all the same."""

    async def heads(self, group_ids: Sequence[str]) -> Sequence[GroupHead]:
        return []


@pytest.mark.parametrize("doubt", ["an agent", "the same incarnation", "denied", "undecided", "away"])
async def test_rows_of_a_group_that_may_exist_are_kept(projection: Projection, doubt: str) -> None:
    """PRJ-3: a refusal alone never removes rows: not to an Agent, in the same incarnation, or without two answers."""
    old = mission_history(group)
    await projection.receive(arrive(old))
    source = {"denied": _Denied, "undecided": _Undecided}.get(doubt, HistoryDouble)(old)
    source.current = test_incarnation if doubt == "the same incarnation" else restored_incarnation
    source.shows_all = doubt != "an agent"
    source.available = doubt != "away"
    if doubt in ("an agent", "the same incarnation"):
        del source.groups[group]
    expected = HistoryUnavailable if doubt in ("undecided", "away") else HistoryRefused
    with pytest.raises(expected) as refusal:
        await ask(projection, source)
    assert (refusal.type is GroupNotShown) == (doubt in ("an agent", "the same incarnation"))
    assert (await forks(projection), await column(projection, "entry")) == ([], ids(old))


# --- rebuilt in silence ------------------------------------------------------------------------------------------


async def test_a_refill_keeps_no_intents_up_to_the_head_that_was_found(projection: Projection) -> None:
    """RULE-22: what is replayed after a fork asks for nothing again; what follows the found head does."""
    old = mission_history(group)
    new = restored(old[:8], 50)
    await projection.receive(arrive(old[:20]))
    assert await column(projection, "intent") == ids(old[:20])
    source = HistoryDouble(new[:40])
    await ask(projection, source)
    await projection.receive(arrive(new[40:]))
    assert await column(projection, "entry") == ids(new)
    assert await column(projection, "intent") == [*ids(old[:20]), *ids(new[40:])]
    assert await projection.store.read(lambda transaction: transaction.silences()) == {}


async def test_a_refill_that_is_cut_short_goes_on_in_silence(
    projection: Projection, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """RULE-22: the source goes away in the middle, the process dies; delivery and later repairs stay silent."""
    monkeypatch.setattr(projections.fill_gap, "replay_batch_events", 5)
    monkeypatch.setattr(projections.fill_gap, "replay_page_events_max", 5)
    old = mission_history(group)
    new = restored(old[:8], 50)

    class Fading(HistoryDouble):
        refills = False

        async def page(self, group_id: str, after: GroupSequence, limit: int) -> GroupPage:
            self.refills |= after == 0
            self.available = not self.refills or after < 15
            return await super().page(group_id, after, limit)

    await projection.receive(arrive(old[:20]))
    with pytest.raises(HistoryUnavailable):
        await ask(projection, Fading(new[:40]))
    await projection.store.close()
    projection.store = await open_store(tmp_path)
    cursor = await projection.cursor(group)
    assert cursor is not None
    assert 0 < cursor.sequence < 20
    await projection.receive(arrive(new[cursor.sequence : 33]))
    await repair_group(projection, HistoryDouble(new), group)
    assert await column(projection, "entry") == ids(new)
    assert await column(projection, "intent") == [*ids(old[:20]), *ids(new[40:])]


async def test_two_forks_in_a_row(projection: Projection) -> None:
    """PRJ-3, RULE-22: each is recorded with its own loss; only what the last one found is silent."""
    old = mission_history(group)
    second = restored(old[:8], 45)
    third = restored(second[:12], 30, "e" * 32)
    await projection.receive(arrive(old[:20]))
    source = HistoryDouble(second)
    await ask(projection, source)
    source.replace(third[:18])
    await ask(projection, source)
    await projection.receive(arrive(third[18:]))
    assert [(fork.seen.sequence, fork.shared, len(fork.lost)) for fork in await forks(projection)] == [
        (20, 8, 12),
        (45, 12, 33),
    ]
    assert await column(projection, "entry") == ids(third)
    assert await column(projection, "intent") == [*ids(old[:20]), *ids(third[18:])]


async def test_a_fork_while_a_fork_is_refilled(projection: Projection, monkeypatch: pytest.MonkeyPatch) -> None:
    """PRJ-3: the history is cut again in the middle of the refill, below what is refilled already."""
    monkeypatch.setattr(projections.fill_gap, "replay_batch_events", 5)
    monkeypatch.setattr(projections.fill_gap, "replay_page_events_max", 5)
    old = mission_history(group)
    second = restored(old[:8], 45)
    third = restored(second[:12], 60, "e" * 32)

    class Restored(HistoryDouble):
        async def page(self, group_id: str, after: GroupSequence, limit: int) -> GroupPage:
            if after >= 25:
                self.replace(third)
            return await super().page(group_id, after, limit)

    await projection.receive(arrive(old[:20]))
    first, again = await ask(projection, Restored(second))
    assert (first.shared, again.shared, again.seen.incarnation) == (8, 12, restored_incarnation)
    assert [lost.event_id for lost in again.lost] == ids(second[12 : again.seen.sequence])
    assert await column(projection, "entry") == ids(third)
    assert await column(projection, "intent") == ids(old[:20])


async def test_a_fork_while_a_gap_is_filled(projection: Projection, monkeypatch: pytest.MonkeyPatch) -> None:
    """PRJ-3: the history is cut below the Cursor between two pages of a gap."""
    monkeypatch.setattr(projections.fill_gap, "replay_batch_events", 5)
    monkeypatch.setattr(projections.fill_gap, "replay_page_events_max", 5)
    old = mission_history(group)
    new = restored(old[:7], 60)

    class Restored(HistoryDouble):
        async def page(self, group_id: str, after: GroupSequence, limit: int) -> GroupPage:
            if after >= 20:
                self.replace(new)
            return await super().page(group_id, after, limit)

    await projection.receive(arrive(old[:10]))
    [fork] = (await repair_group(projection, Restored(old), group)).forks
    assert (fork.shared, [lost.event_id for lost in fork.lost]) == (7, ids(old[7 : fork.seen.sequence]))
    assert await column(projection, "entry") == ids(new)


async def test_a_found_head_that_is_lost_in_turn_ends_the_silence(projection: Projection) -> None:
    """RULE-22: the head that was found vanished before the refill got there; Events in its place are new."""
    old = mission_history(group)
    second = restored(old[:8], 40)

    class Lost(HistoryDouble):
        async def page(self, group_id: str, after: GroupSequence, limit: int) -> GroupPage:
            if after == 0:
                self.replace(second[:30])
            return await super().page(group_id, after, limit)

    await projection.receive(arrive(old[:20]))
    await ask(projection, Lost(second))
    last = restored(second[:30], 45, "e" * 32)
    await projection.receive(arrive(last[30:]))
    assert await column(projection, "entry") == ids(last)
    assert await column(projection, "intent") == [*ids(old[:20]), *ids(last[30:])]


async def test_a_late_member_whose_start_moved_compares_what_it_may_see(projection: Projection) -> None:
    """RULE-23, PRJ-3: what is hidden now is neither compared nor called lost, and hides no fork."""
    old = mission_history(group)
    source = HistoryDouble(new := restored(old[:20], 50))
    source.visible_after = {group: 15}
    await projection.receive(arrive(old[:30]))
    projection.visible_after = {group: GroupSequence(15)}
    [fork] = await ask(projection, source)
    assert (fork.shared, [lost.event_id for lost in fork.lost]) == (20, ids(old[20:30]))
    assert await column(projection, "entry") == ids(new[15:])


# --- the registry's own history ----------------------------------------------------------------------------------


async def test_a_key_whose_registration_was_lost_proves_nothing(tmp_path: Path) -> None:
    """TRU-2, PRJ-3: nobody keeps a Cursor in the registry; a key is what the restored registry says of it now."""
    first, second = authority_key(1), authority_key(2)
    fact = more_messages(1, 1)[0]
    built = [build_event(fact.kind, fact.payload, second, group_id=group)]
    built.append(build_event(fact.kind, fact.payload, second, group_id=group, previous=built[0].mark))
    events = arrive(built)
    registry = RegistryDouble(first, second)
    keys = TrustedKeys(Reader(registry), anchors(first))
    store = await open_store(tmp_path)
    projection = Projection(store, SignatureProof(keys))
    assert (await projection.receive(events[:1])).applied == 1
    registry.keys.remove(second)
    keys.forget()
    applied = await projection.receive(events[1:])
    assert applied.applied == 0
    [unproven] = applied.unproven
    assert isinstance(unproven, Unproven)
    assert not unproven.for_now
    await store.close()
