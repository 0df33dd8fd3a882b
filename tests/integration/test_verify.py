"""`weavehold verify`: one byte changed anywhere is found and named; an untouched stack agrees."""

import json
import os
import sqlite3
import subprocess
import sys
from pathlib import Path

import nats
import pytest

from contracts import subjects
from contracts.cursor import cursor_start
from contracts.identifiers import GroupSequence, ShardId
from ops.bench.workload import group_name
from ops.init import Organization
from ops.verify.finding import Finding, Report
from ops.verify.run import verify_all
from ops.verify.verify_projections import LogHistory
from projections.mission_board.consumer import MissionBoard
from projections.projection import Projection
from projections.rebuild import rebuild
from projections.store.sqlite import SqliteStore
from services.process.database import connect
from tests.authority_rig import authority_on, post, rows, run_sql, with_groups

untriggered = tuple(
    f"ALTER TABLE {table} DISABLE TRIGGER ALL" for table in ("event_log", "signing_key", "key_validity", "admission")
)


@pytest.fixture
async def history(database_url: str, organization: Organization) -> Organization:
    """Two Groups with a few Messages each."""
    async with authority_on(database_url, organization) as authority:
        await with_groups(authority, 0, 1)
        await authority.commit(*(post(organization, place % 2) for place in range(8)))
    return organization


async def findings(database_url: str, organization: Organization, **options: object) -> list[Finding]:
    """What verification finds."""
    report = await verify_all(database_url, organization.organization_id, **options)  # type: ignore[arg-type]
    return report.findings


async def board(file: Path, database_url: str, organization: Organization) -> Path:
    """A Mission board built from the log into a file."""
    heads = await rows(
        database_url,
        "SELECT DISTINCT ON (group_id) group_id, sequence, chain_hash FROM event_log WHERE group_id <> '' "
        "ORDER BY group_id, sequence DESC",
    )
    ends = {}
    for group_id, sequence, chain_hash in heads:
        start = cursor_start(organization.organization_id, group_id, organization.incarnation)
        ends[group_id] = type(start)(start.incarnation, group_id, GroupSequence(sequence), bytes(chain_hash))
    store = await SqliteStore.open(file, MissionBoard(), organization.organization_id)
    async with await connect(database_url, name="board") as connection:
        source = LogHistory(connection, organization.organization_id, ends)
        await rebuild(Projection(store), source, sorted(ends))
    await store.close()
    return file


async def test_an_untouched_history_agrees(database_url: str, history: Organization, tmp_path: Path) -> None:
    """NEW-4, NEW-5, MWP-WRK-008: log, Receipts, state and a projection agree, and everything was looked at."""
    file = await board(tmp_path / "board.sqlite", database_url, history)
    report: Report = await verify_all(database_url, history.organization_id, projections=[file])
    assert report.ok, report.findings
    assert report.examined == {
        "log": 11,
        "signature": 11,
        "receipts": 11,
        "admissions": 11,
        "state": 3,
        "keys": 5,
        "cursors": 2,
        "projections": 2,
    }


async def test_one_changed_byte_of_an_event_is_named(database_url: str, history: Organization) -> None:
    """NEW-5, MWP-EVT-005: Group and sequence of the changed Event stand in the finding."""
    await run_sql(
        database_url,
        *untriggered,
        f'UPDATE event_log SET event = set_byte(event, position(\'"text":"Hello\'::bytea in event) + 7, 88) '
        f"WHERE group_id = '{group_name(1)}' AND sequence = 3",
    )
    found = await findings(database_url, history)
    assert {(finding.group_id, finding.sequence) for finding in found if finding.check == "chain"} == {
        (group_name(1), 3)
    }
    assert any(finding.check == "signature" for finding in found)


async def test_a_removed_event_is_named(database_url: str, history: Organization) -> None:
    """NEW-5: a hole shows in the Group's sequence, in the shard's positions and in the Receipts."""
    await run_sql(
        database_url, *untriggered, f"DELETE FROM event_log WHERE group_id = '{group_name(0)}' AND sequence = 3"
    )
    found = await findings(database_url, history)
    assert any(f.check == "log" and f.group_id == group_name(0) and f.sequence == 4 for f in found)
    assert any(f.check == "receipts" for f in found)


async def test_swapped_events_are_named(database_url: str, history: Organization) -> None:
    """NEW-5: two Events that changed places do not chain."""
    where = f"organization_id = '{history.organization_id}' AND group_id = '{group_name(0)}'"
    await run_sql(
        database_url,
        *untriggered,
        f"UPDATE event_log SET sequence = 99 WHERE {where} AND sequence = 2",
        f"UPDATE event_log SET sequence = 2 WHERE {where} AND sequence = 3",
        f"UPDATE event_log SET sequence = 3 WHERE {where} AND sequence = 99",
    )
    assert any(f.check == "log" and f.group_id == group_name(0) for f in await findings(database_url, history))


@pytest.mark.parametrize(
    ("statement", "message"),
    [
        (
            "UPDATE entity SET body = replace(body::text, '48656c6c6f', '48656c6c70')::bytea WHERE kind = 'message'",
            "differs",
        ),
        ("DELETE FROM entity WHERE kind = 'mission'", "not stored"),
        (
            "INSERT INTO entity SELECT organization_id, group_id, kind, 'x', 1, body FROM entity WHERE kind = 'group'",
            "has no Event",
        ),
        ("UPDATE entity SET revision = 7 WHERE kind = 'conversation'", "differs"),
        ("UPDATE agent SET session_epoch = 5", "Agent"),
    ],
)
async def test_a_changed_entity_is_named(
    statement: str, message: str, database_url: str, history: Organization
) -> None:
    """NEW-4, MWP-EVT-005: stored state that is not the fold of the log is named, entity by entity."""
    await run_sql(database_url, statement)
    found = [finding for finding in await findings(database_url, history) if finding.check == "state"]
    assert found
    assert all(message in finding.message for finding in found), found


@pytest.mark.parametrize(
    "statement",
    [
        "DELETE FROM receipt WHERE first_position = 2",
        "UPDATE receipt SET event_count = 2 WHERE first_position = 2",
        "UPDATE receipt SET command = command || ' 1' WHERE first_position = 2",
        "UPDATE receipt SET command_hash = sha256('x') WHERE first_position = 2",
    ],
)
async def test_a_changed_receipt_is_named(statement: str, database_url: str, history: Organization) -> None:
    """MWP-EVT-003: Receipts and Events are compared both ways."""
    await run_sql(database_url, statement)
    assert (
        {"receipts"}
        <= {finding.check for finding in await findings(database_url, history)}
        <= {"receipts", "admissions"}
    )


@pytest.mark.parametrize(
    ("statement", "check"),
    [
        ("UPDATE receipt SET receipt = replace(encode(receipt, 'escape'), 'T', 't')::bytea", "receipts"),
        ("UPDATE event_log SET accepted_at = accepted_at + interval '9 hours'", "log"),
        ("DELETE FROM identifier", "receipts"),
        ("DELETE FROM admission", "admissions"),
        ("UPDATE admission SET key_id = 'urn:x:y'", "admissions"),
        ("UPDATE admission SET trusted_accepted_at = '2000-01-01'", "admissions"),
        ("DELETE FROM mission_group", "log"),
        ("UPDATE signing_key SET public_key = sha256('x') WHERE principal_type = 'agent'", "keys"),
    ],
)
async def test_what_stands_beside_the_log_is_compared_too(
    statement: str, check: str, database_url: str, history: Organization
) -> None:
    """NEW-4, TRU-2, TRU-4: Receipts' words, times, names, admissions, shards and keys agree with what was signed."""
    await run_sql(database_url, *untriggered, statement)
    assert check in {finding.check for finding in await findings(database_url, history)}


moved = "UPDATE admission SET trusted_accepted_at = trusted_accepted_at {} WHERE document_kind = '{}'"
claimed = "UPDATE admission SET accepted_by = 'urn:weavehold:service:registry' WHERE document_kind = '{}'"
retold = {
    "a Command by another service": (claimed.format("command"), 11, "log-authentication-failed"),
    "a Command a day later": (moved.format("+ interval '1 day'", "command"), 11, "command: was admitted at"),
    "a Command a moment earlier": (moved.format("- interval '1 us'", "command"), 11, "command: was admitted at"),
    "a card by another service": (claimed.format("agent-card"), 1, "log-authentication-failed"),
    "a card a moment later": (moved.format("+ interval '1 us'", "agent-card"), 1, "agent-card: was admitted at"),
    "a card earlier, by another Command": (moved.format("- interval '1 s'", "agent-card"), 0, ""),
}


@pytest.mark.parametrize(("statement", "count", "words"), retold.values(), ids=retold.keys())
async def test_who_admitted_and_when_is_told_by_receipt_and_event(
    statement: str, count: int, words: str, database_url: str, history: Organization
) -> None:
    """TRU-4: a record that was changed into another plausible one, inside the key's interval, is named."""
    await run_sql(database_url, *untriggered, statement)
    found = await findings(database_url, history)
    assert [finding.check for finding in found] == ["admissions"] * count
    assert all(words in finding.message for finding in found), found


async def test_a_changed_row_of_a_projection_is_named(database_url: str, history: Organization, tmp_path: Path) -> None:
    """MWP-WRK-008, NEW-4: Group and sequence of the projection that differs."""
    file = await board(tmp_path / "board.sqlite", database_url, history)
    with sqlite3.connect(file) as database:
        database.execute("UPDATE mission_board_mission SET title = 'x' WHERE group_id = ?", (group_name(1),))
    database.close()
    [finding] = await findings(database_url, history, projections=[file])
    assert (finding.check, finding.group_id, finding.sequence) == ("projections", group_name(1), 5)


async def test_a_cursor_of_another_history_is_named(database_url: str, history: Organization, tmp_path: Path) -> None:
    """PRJ-3, NEW-1: a projection that applied something else is a fork."""
    file = await board(tmp_path / "board.sqlite", database_url, history)
    with sqlite3.connect(file) as database:
        database.execute("UPDATE projection_cursor SET chain_hash = zeroblob(32) WHERE group_id = ?", (group_name(0),))
    database.close()
    [finding] = await findings(database_url, history, projections=[file])
    assert (finding.check, finding.group_id) == ("cursors", group_name(0))
    assert "fork" in finding.message


async def test_the_stream_is_compared_position_by_position(
    database_url: str, history: Organization, nats_url: str
) -> None:
    """OBX-1: a missing stream, a missing message, a changed message and a short stream are named."""
    options = {"nats_url": nats_url}
    assert {f.check for f in await findings(database_url, history, **options)} == {"stream"}
    broker = await nats.connect(nats_url)
    stream = broker.jetstream()
    events = await rows(database_url, "SELECT shard_id, position, subject, event FROM outbox ORDER BY 1, 2")
    for shard in sorted({row[0] for row in events}):
        await stream.add_stream(
            name=subjects.stream_name(history.organization_id, ShardId(shard), history.incarnation),
            subjects=[subjects.shard_events(history.organization_id, ShardId(shard))],
        )
    for _, _, subject, event in events[:-1]:
        await stream.publish(subject, bytes(event))
    [short] = await findings(database_url, history, **options)
    assert "ends at" in short.message
    await stream.publish(events[-1][2], bytes(events[-1][3]))
    assert await findings(database_url, history, **options) == []
    shard, position, *_ = events[-2]
    await stream.delete_msg(
        subjects.stream_name(history.organization_id, ShardId(shard), history.incarnation), position
    )
    [hole] = await findings(database_url, history, **options)
    assert (hole.shard_id, hole.position) == (shard, position)
    await broker.close()


async def test_the_command_prints_one_object_and_exits_with_the_verdict(
    database_url: str, history: Organization
) -> None:
    """OPS-2: `weavehold verify --json` prints one object; exit 0 when all agrees, 1 with findings, 2 when misused."""
    variables = os.environ | {
        "WEAVEHOLD_DATABASE_URL": database_url,
        "WEAVEHOLD_ORGANIZATION": history.organization_id,
    }

    def run(*arguments: str) -> subprocess.CompletedProcess[str]:
        command = [sys.executable, "-m", "ops.cli", "verify", "--json", *arguments]
        return subprocess.run(command, env=variables, capture_output=True, text=True, timeout=120, check=False)

    clean = run("--no-stream")
    assert (clean.returncode, json.loads(clean.stdout)["ok"]) == (0, True)
    await run_sql(database_url, "UPDATE entity SET revision = 9 WHERE kind = 'mission'")
    found = run("--no-stream")
    assert (found.returncode, json.loads(found.stdout)["ok"]) == (1, False)
    assert run("--unknown").returncode == 2
