"""The pure parts of a rebuild: Cursors side by side, progress, patience, differing rows; and replay into a store."""

from pathlib import Path

import pytest

from contracts.chain import ChainHash
from contracts.cursor import Cursor
from contracts.identifiers import GroupSequence
from ops.consumers.rebuild_progress import Progress
from ops.consumers.row_differences import RowDifference, key_columns, row_differences
from ops.consumers.steady_history import Patience, SteadyHistory
from projections.digest import projection_digests
from projections.exchange_groups import Standing, compare_cursors
from projections.history import HistoryUnavailable
from projections.mission_board.consumer import MissionBoard
from projections.projection import Projection
from projections.rebuild import rebuild
from projections.store.sqlite import SqliteStore
from projections.work_queue.consumer import WorkQueue
from tests.builders import test_incarnation, test_organization
from tests.history_double import HistoryDouble
from tests.mission_history import mission_history

one = "urn:test:group:one"


def at(sequence: int, history: str = "a") -> Cursor:
    return Cursor(test_incarnation, one, GroupSequence(sequence), ChainHash(history.encode() * 32))


def known(sequence: int) -> ChainHash | None:
    """A green version that remembers what it applied from 10 on."""
    return at(sequence).chain_hash if sequence >= 10 else None


@pytest.mark.parametrize(
    ("live", "green", "proven", "standing"),
    [
        (None, at(20), False, Standing.ABSENT),
        (None, None, False, Standing.ABSENT),
        (at(20), at(20), False, Standing.LEVEL),
        (at(20, "b"), at(20), True, Standing.UNPROVEN),
        (at(10), at(20), False, Standing.BEHIND),
        (at(9), at(20), False, Standing.UNPROVEN),
        (at(9), at(20), True, Standing.BEHIND),
        (at(10, "b"), at(20), False, Standing.UNPROVEN),
        (at(21), at(20), True, Standing.AHEAD),
        (at(1), None, True, Standing.AHEAD),
    ],
)
def test_a_live_cursor_beside_the_rebuilt_one(
    live: Cursor | None, green: Cursor | None, proven: bool, standing: Standing
) -> None:
    """RULE-22: only what is at or before the rebuilt Cursor, on the history that it is made of, may be exchanged."""
    assert compare_cursors(live, green, known, proven=proven) is standing
    assert standing.may_be_exchanged() is (standing in {Standing.ABSENT, Standing.LEVEL, Standing.BEHIND})
    assert standing.may_be_exchanged(keeps_intents=True) is (standing is Standing.LEVEL)


def test_progress_in_words() -> None:
    """PRJ-4: Groups, Events, rate and time left; none without a rate."""
    progress = Progress(groups_done=1, groups=3, events_done=2_000, events=6_000, seconds=4.0)
    assert (progress.rate, progress.seconds_left) == (500.0, 8.0)
    assert str(progress) == "1 of 3 Groups, 2,000 of 6,000 Events, 500 Events/s, about 8 s left"
    assert Progress(groups_done=0, groups=3, events_done=0, events=9, seconds=0.0).seconds_left is None


async def test_a_source_that_is_away_is_asked_a_bounded_number_of_times() -> None:
    """PRJ-4: an outage ends after `attempts_max` attempts; a page is cut to what the rate allows in a second."""
    source = HistoryDouble(mission_history(one))
    patience = Patience(attempts_max=3, first_backoff_seconds=0, backoff_seconds_max=0)
    steady = SteadyHistory(source, 4.0, patience)
    page = await steady.page(one, GroupSequence(0), 1_000)
    assert (len(page.events), page.next, steady.events) == (4, 4, 4)
    source.available = False
    with pytest.raises(HistoryUnavailable):
        await steady.heads((one,))


def test_rows_are_named_by_their_keys() -> None:
    """NEW-4: of a row that differs only what differs is told, beside its key; a missing row is told whole."""
    board = MissionBoard()
    keys = key_columns(board)
    assert keys["mission_board_mission"] == ("group_id",)
    assert all(columns[0] == "group_id" for columns in key_columns(WorkQueue("urn:test:agent:a")).values())
    table = "mission_board_mission"
    row = {"group_id": one, "title": "a", "state": "active"}
    [changed] = row_differences(board, one, {(table, (one,)): row | {"title": "b"}}, {(table, (one,)): row})
    assert changed == RowDifference(
        group_id=one, table=table, key={"group_id": one}, live={"title": "b"}, replayed={"title": "a"}
    )
    [missing] = row_differences(board, one, {}, {(table, (one,)): row})
    assert (missing.live, missing.replayed) == (None, row)
    assert row_differences(board, one, {(table, (one,)): row}, {(table, (one,)): row}) == []


@pytest.mark.parametrize("given_up", [0, 5], ids=["level", "ahead"])
async def test_a_leftover_on_a_history_that_was_given_up_begins_anew(tmp_path: Path, given_up: int) -> None:
    """PRJ-3, PRJ-4: the authority was restored meanwhile; what was rebuilt before is replaced, not mixed."""
    source = HistoryDouble(mission_history(one, messages=given_up, salt="given-up"))
    store = await SqliteStore.open(tmp_path / "green.db", MissionBoard(), test_organization)
    await rebuild(Projection(store), source, (one,))
    source.replace(mission_history(one))
    rebuilt = await rebuild(Projection(store), source, (one,))
    assert rebuilt.events == len(mission_history(one))
    fresh = await SqliteStore.open(tmp_path / "fresh.db", MissionBoard(), test_organization)
    await rebuild(Projection(fresh), source, (one,))
    digests = [await each.read(lambda found: projection_digests(found, MissionBoard())) for each in (store, fresh)]
    assert digests[0] == digests[1]
    assert (await rebuild(Projection(store), source, (one,))).events == 0
    await store.close()
    await fresh.close()
