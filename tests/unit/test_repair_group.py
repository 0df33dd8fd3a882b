"""Gaps, forks and lost state are repaired from the history source (MWP-WRK-029, PRJ-3, RULE-19, RULE-20, RULE-21)."""

import tempfile
from collections.abc import AsyncIterator, Sequence
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from msgspec import Raw
from msgspec.structs import replace

from contracts.identifiers import GroupSequence
from contracts.payloads.requests import GroupPage
from projections.arrival import Arrival, read_arrival
from projections.digest import GroupDigest, projection_digests
from projections.gap_buffer import GapBuffer
from projections.history import HistoryBroken, HistoryRefused, HistoryUnavailable
from projections.mission_board.consumer import MissionBoard
from projections.projection import Projection
from projections.rebuild import rebuild
from projections.repair_group import repair_group
from projections.settle_fork import settle_fork
from projections.store.sqlite import SqliteStore
from tests.builders import BuiltEvent, test_organization
from tests.history_double import HistoryDouble
from tests.mission_history import extend_history, mission_history, more_messages

group = "urn:test:group:one"


@pytest.fixture
async def projection(tmp_path: Path) -> AsyncIterator[Projection]:
    store = await SqliteStore.open(tmp_path / "board.db", MissionBoard(), test_organization)
    yield Projection(store)
    await store.close()


def arrive(history: Sequence[BuiltEvent]) -> list[Arrival]:
    return [read_arrival(built.raw) for built in history]


async def digests(projection: Projection) -> tuple[GroupDigest, ...]:
    return await projection.store.read(lambda tx: projection_digests(tx, projection.store.consumer))


async def rebuilt_digests(source: HistoryDouble, visible_after: dict[str, GroupSequence]) -> tuple[GroupDigest, ...]:
    with tempfile.TemporaryDirectory() as folder:
        store = await SqliteStore.open(Path(folder, "rebuilt.db"), MissionBoard(), test_organization)
        fresh = Projection(store)
        fresh.visible_after = visible_after
        await rebuild(fresh, source, sorted(source.groups))
        found = await digests(fresh)
        await store.close()
        return found


async def test_a_swap_closes_by_itself(projection: Projection) -> None:
    """MWP-WRK-029: Events that came in the wrong order are applied in sequence, without asking anybody."""
    arrivals = arrive(mission_history(group))
    for at in range(0, len(arrivals) - 1, 2):
        await projection.receive([arrivals[at + 1]])
        await projection.receive([arrivals[at]])
    assert projection.progress.applied == len(arrivals)
    assert len(projection.buffer) == 0


async def test_a_gap_is_filled_from_the_source_and_the_buffer_joins(projection: Projection) -> None:
    """MWP-WRK-029: the hole comes from the source; what waited beyond it is not read again."""
    history = mission_history(group, messages=400)
    arrivals = arrive(history)
    source = HistoryDouble(history)
    await projection.receive([*arrivals[:10], *arrivals[30:]])
    assert len(projection.buffer) == len(arrivals) - 30
    source.groups[group] = source.groups[group][:30]
    repaired = await repair_group(projection, source, group)
    assert repaired.events == len(arrivals) - 10
    assert len(projection.buffer) == 0
    assert projection.progress.gaps_filled == 1


async def test_a_buffer_that_does_not_join_is_discarded_and_refilled(projection: Projection) -> None:
    """RULE-20: on a chain mismatch while draining, the buffer is discarded and the source asked; nothing is mixed."""
    history = mission_history(group, messages=40)
    source = HistoryDouble(history)
    await projection.receive(arrive(history[:10]))
    await projection.receive(arrive(mission_history(group, messages=40, salt="given-up")[20:30]))
    assert len(projection.buffer) == 10
    await repair_group(projection, source, group)
    assert len(projection.buffer) == 0
    assert await digests(projection) == await rebuilt_digests(source, {})
    assert not await projection.store.read(lambda transaction: transaction.forks())


async def test_a_known_head_that_never_was_is_forgotten(projection: Projection) -> None:
    """RULE-20: a sequence that only a given-up history reached is not asked for again and again."""
    history = mission_history(group)
    await projection.receive(arrive(mission_history(group, messages=5, salt="x")[-1:]))
    assert await projection.heads_ahead() == {group: len(history) + 5}
    await repair_group(projection, HistoryDouble(history), group)
    assert await projection.heads_ahead() == {}


@pytest.mark.parametrize("new_length", [12, 20, 21, 36])
async def test_a_fork_is_recorded_and_the_group_rebuilt(projection: Projection, new_length: int) -> None:
    """PRJ-3, NEW-1: the new head may be lower than the Cursor, equal to it, one above, or far beyond it."""
    old, new = mission_history(group), mission_history(group)[:8]
    await projection.receive(arrive(old[:20]))
    facts = [*more_messages(1, 28)]
    new = extend_history(new, group, facts[: new_length - 8], salt="restored", incarnation="f" * 32)
    source = HistoryDouble(new)
    fork = await settle_fork(projection, source, group)
    assert fork is not None
    assert (fork.seen.sequence, fork.seen.chain_hash) == (20, old[19].mark.chain_hash)
    assert (fork.found.sequence, fork.found.incarnation) == (new_length, "f" * 32)
    assert [event.event_id for event in fork.lost] == [built.event.event_id for built in old[8:20]]
    await repair_group(projection, source, group)
    assert await digests(projection) == await rebuilt_digests(source, {})
    assert await projection.store.read(lambda transaction: transaction.forks()) == [fork]
    assert (await projection.store.read(lambda transaction: transaction.counts()))["forks"] == 1


async def test_a_stray_event_of_another_history_is_not_a_fork(projection: Projection) -> None:
    """RULE-21: only the primary's word makes a fork; a stray Event is dropped and the projection stays."""
    history = mission_history(group)
    source = HistoryDouble(history)
    await projection.receive(arrive(history[:20]))
    applied = await projection.receive(arrive(mission_history(group, salt="stray")[5:6]))
    repaired = await repair_group(projection, source, group, applied.questions[0])
    assert repaired.forks == ()
    assert await digests(projection) == await rebuilt_digests(source, {})


async def test_a_fork_met_while_filling_is_followed(projection: Projection) -> None:
    """PRJ-3: the new head has overtaken the Cursor, and only the pages show that they do not continue it."""
    old = mission_history(group)
    new = extend_history(old[:15], group, more_messages(1, 60), salt="restored", incarnation="f" * 32)
    source = HistoryDouble(new)
    await projection.receive(arrive(old[:25]))
    repaired = await repair_group(projection, source, group)
    assert [fork.seen.sequence for fork in repaired.forks] == [25]
    assert await digests(projection) == await rebuilt_digests(source, {})


async def test_an_outage_leaves_the_cursor_and_is_told(projection: Projection) -> None:
    """The source away: nothing changes, and the caller learns that later may help."""
    history = mission_history(group)
    source = HistoryDouble(history)
    source.available = False
    await projection.receive(arrive(history[:5]))
    with pytest.raises(HistoryUnavailable):
        await repair_group(projection, source, group)
    source.available = True
    await repair_group(projection, source, group)
    assert (await digests(projection))[0].sequence == len(history)


async def test_a_group_that_is_not_shown_is_refused(projection: Projection) -> None:
    with pytest.raises(HistoryRefused):
        await repair_group(projection, HistoryDouble(), group)


async def test_a_page_that_contradicts_itself_is_not_applied(projection: Projection) -> None:
    """The claimed chain hashes are checked, never believed; other Events than asked for are refused."""
    history = mission_history(group)

    class Lying(HistoryDouble):
        async def page(self, group_id: str, after: GroupSequence, limit: int) -> GroupPage:
            page = await super().page(group_id, after, limit)
            return replace(page, events=tuple(self.twist(page)))

        def twist(self, page: GroupPage) -> list[object]:
            return [replace(event, chain_hash="0" * 64) for event in page.events]

    class Skipping(Lying):
        def twist(self, page: GroupPage) -> list[object]:
            return list(page.events[1:])

    class Garbled(Lying):
        def twist(self, page: GroupPage) -> list[object]:
            return [replace(page.events[0], event=Raw(b'{"kind":1}')), *page.events[1:]]

    for source in (Lying(history), Skipping(history), Garbled(history)):
        with pytest.raises(HistoryBroken):
            await repair_group(projection, source, group)
    assert await digests(projection) == ()


async def test_a_late_member_is_filled_from_its_visibility_start(projection: Projection) -> None:
    """RULE-23: a late member rebuilds from its start, not from 1, and is never set back below it."""
    history = mission_history(group)
    source = HistoryDouble(history)
    source.visible_after = {group: 10}
    projection.visible_after = {group: GroupSequence(10)}
    await projection.receive(arrive(history[20:25]))
    await repair_group(projection, source, group)
    assert await digests(projection) == await rebuilt_digests(source, {group: GroupSequence(10)})
    assert min(after for _, after in source.pages_asked) == 10


async def test_a_visibility_that_moved_beyond_the_cursor_begins_anew(projection: Projection) -> None:
    """RULE-23: what lies between an old Cursor and a new visibility start cannot be had; the history begins there."""
    history = mission_history(group)
    await projection.receive(arrive(history[:5]))
    source = HistoryDouble(history)
    source.visible_after = {group: 12}
    projection.visible_after = {group: GroupSequence(12)}
    await repair_group(projection, source, group)
    assert await digests(projection) == await rebuilt_digests(source, {group: GroupSequence(12)})


async def test_a_fork_rebuild_of_five_thousand_events_goes_in_pages(projection: Projection) -> None:
    """Required of every replay: 5,000 Events from 0, in pages, with recomputed hashes."""
    history = mission_history(group, messages=5_000)
    source = HistoryDouble(history)
    repaired = await repair_group(projection, source, group)
    assert repaired.events == len(history)
    assert len(source.pages_asked) > 10


def test_the_buffer_is_bounded() -> None:
    """MWP-WRK-029: the buffer is bounded in Events and bytes; what does not fit is let go."""
    arrivals = arrive(mission_history(group))
    buffer = GapBuffer(events_max=5)
    buffer.hold(arrivals[10:])
    assert len(buffer) == 5
    small = GapBuffer(bytes_max=len(arrivals[10].raw) + 1)
    small.hold(arrivals[10:12])
    assert len(small) == 1
    assert small.take_joining(group, GroupSequence(10)) == [arrivals[10]]
    assert len(small) == 0


@settings(
    max_examples=40, deadline=None, suppress_health_check=[HealthCheck.too_slow, HealthCheck.function_scoped_fixture]
)
@given(
    order=st.lists(st.tuples(st.integers(0, 1), st.integers(0, 35)), max_size=80),
    sizes=st.lists(st.integers(1, 9), min_size=1, max_size=20),
)
async def test_any_delivery_ends_in_the_rebuilt_projection(order: list[tuple[int, int]], sizes: list[int]) -> None:
    """MWP-WRK-008, MWP-WRK-029: lost, doubled, swapped Events in any batches; then a repair; then digest for digest."""
    groups = ("urn:test:group:a", "urn:test:group:b")
    histories = [mission_history(name) for name in groups]
    source = HistoryDouble(*histories)
    arrivals = [read_arrival(histories[which][at].raw) for which, at in order]
    with tempfile.TemporaryDirectory() as folder:
        store = await SqliteStore.open(Path(folder, "live.db"), MissionBoard(), test_organization)
        live = Projection(store)
        at = 0
        for number in range(len(arrivals) + 1):
            size = sizes[number % len(sizes)]
            await live.receive(arrivals[at : at + size])
            at += size
        for name in groups:
            await repair_group(live, source, name)
        assert await digests(live) == await rebuilt_digests(source, {})
        await store.close()
