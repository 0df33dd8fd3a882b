"""Lease deadlines, the scheduler's rule and the content-addressed store of the Worker."""

import os
from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from services.worker.artifact_store import ArtifactFault, ArtifactStore, artifact_bytes_max, content_hash
from services.worker.lease_clock import clock_drift_max, lease_clock, lease_deadline
from services.worker.scheduler import ReadyWork, Scheduler


@given(
    st.floats(0.2, 1_000_000),
    st.floats(0, 30),
    st.floats(-clock_drift_max, clock_drift_max),
)
def test_worker_stops_before_the_authority_calls_the_lease_expired(lease_seconds, travel_seconds, drift):
    """LSE-1: whatever the request's travel time and the drift of the clocks, the Worker stops first."""
    sent_at = 1_000.0
    deadline = lease_deadline(sent_at, lease_seconds)
    expires_here = sent_at + travel_seconds + lease_seconds * (1 - drift)
    assert deadline.stop_at < expires_here
    assert sent_at < deadline.renew_at < deadline.stop_at


def test_lease_clock_is_not_the_wall_clock():
    """LSE-1: a wall clock that is wrong by a minute changes nothing, since it is not read."""
    assert lease_clock() <= lease_clock()
    assert abs(lease_clock() - datetime.now(UTC).timestamp()) > 3600


def ready(group, work, minutes):
    return ReadyWork(group, work, datetime(2026, 1, 1, tzinfo=UTC) + timedelta(minutes=minutes))


def test_groups_take_turns_and_the_earliest_due_goes_first():
    """SCH-2: one Group's queue, however long or urgent, does not keep another Group waiting for more than one turn."""
    scheduler = Scheduler()
    queue = [ready("a", f"a{n}", n) for n in range(5)] + [ready("b", "b0", 500), ready("c", "c0", 900)]
    chosen = []
    while queue:
        work = scheduler.choose(queue)
        chosen.append(work.work_item_id)
        queue.remove(work)
    assert chosen == ["a0", "b0", "c0", "a1", "a2", "a3", "a4"]
    assert Scheduler().choose([]) is None


async def test_content_is_addressed_and_checked(tmp_path):
    """RULE-33: content is stored once under its hash and damaged content is never returned."""
    store = ArtifactStore(tmp_path / "content")
    named = await store.write(b"result")
    assert named == content_hash(b"result") == await store.write(b"result")
    assert await store.read(named) == b"result"
    [path] = [path for path in (tmp_path / "content").rglob("*") if path.is_file()]
    path.write_bytes(b"resulT")
    with pytest.raises(ArtifactFault, match="damaged"):
        await store.read(named)
    assert await store.write(b"result") == named
    assert await store.read(named) == b"result"


async def test_absent_foreign_and_oversized_content_is_refused(tmp_path, monkeypatch):
    """RULE-33: no content leaves or enters under a name that is not its hash."""
    store = ArtifactStore(tmp_path)
    for named in ("sha256:" + "0" * 64, "sha256:../../etc/passwd", "md5:1"):
        with pytest.raises(ArtifactFault):
            await store.read(named)
    monkeypatch.setattr("services.worker.artifact_store.artifact_bytes_max", 10)
    assert artifact_bytes_max > 10
    with pytest.raises(ArtifactFault, match="larger than 10"):
        await store.write(b"x" * 11)


async def test_a_write_that_fails_leaves_nothing_visible(tmp_path, monkeypatch):
    """RULE-33: content appears whole or not at all."""
    store = ArtifactStore(tmp_path)

    def full(_handle):
        raise OSError("disk full")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(OSError, match="disk full"):
        await store.write(b"result")
    assert [path for path in tmp_path.rglob("*") if path.is_file()] == []
