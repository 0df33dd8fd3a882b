"""`weavehold verify`: one byte changed anywhere is found and named; an untouched stack agrees."""

import json
import os
import sqlite3
import subprocess
import sys
from datetime import UTC, datetime
from io import StringIO
from pathlib import Path

import nats
import pytest
from rich.console import Console

from contracts import subjects
from contracts.chain import ChainHash
from contracts.cursor import EventMark, cursor_start
from contracts.identifiers import GroupSequence, ShardId
from contracts.timestamps import format_timestamp
from contracts.upcasting import contract_extension, contract_mark
from ops.bench.workload import group_name
from ops.commands.verify import described, show
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
from tests.builders import BuiltEvent, build_event, insert_history

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
        "incarnations": 1,
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


newer = "message.posted of contract version 2 cannot be read: this version of Weavehold reads it up to 1"
unknown = "unknown critical extension urn:test:extension:unheard 1.0.0; run a version of Weavehold that reads it"


async def test_what_a_later_version_wrote_is_counted_or_named(database_url: str, history: Organization) -> None:
    """PRJ-5: an unknown kind is counted and no finding; a contract that must not be read is named with its place."""
    [(shard, position, incarnation, sequence, chain_hash)] = await rows(
        database_url,
        "SELECT shard_id, (SELECT max(position) FROM event_log beside WHERE beside.shard_id = log.shard_id), "
        "incarnation, sequence, chain_hash FROM event_log log WHERE group_id = %s ORDER BY sequence DESC LIMIT 1",
        group_name(0),
    )
    head = EventMark(incarnation, group_name(0), GroupSequence(sequence), ChainHash(b""), ChainHash(bytes(chain_hash)))
    key, now = history.keys.authority, format_timestamp(datetime.now(UTC))
    unheard = {"version": "1.0.0", "critical": True, "data": None}
    planted: list[BuiltEvent] = []
    for kind, extensions in (
        ("ext.future.weather.observed", {}),
        ("ext.future.weather.observed", {contract_extension: contract_mark(3)}),
        ("group.archived", {}),
        ("message.posted", {contract_extension: contract_mark(2)}),
        ("ext.future.weather.observed", {"urn:test:extension:unheard": unheard}),
    ):
        place = {"group_id": group_name(0), "incarnation": incarnation, "previous": head, "occurred_at": now}
        planted.append(build_event(kind, {}, key, **place, extensions=extensions))
        head = planted[-1].mark
    async with await connect(database_url, name="plant", autocommit=False) as connection:
        await insert_history(connection, shard, planted, position + 1)
    report = await verify_all(database_url, history.organization_id)
    assert described(report)["passedOver"] == {"ext.future.weather.observed": 2, "group.archived": 1}
    assert [
        (finding.group_id, finding.sequence, finding.message)
        for finding in report.findings
        if finding.check == "contracts"
    ] == [
        (group_name(0), sequence + 4, f"{newer}; run one that reads message.posted 2"),
        (group_name(0), sequence + 5, f"ext.future.weather.observed has the {unknown}"),
    ]
    # Chain and signatures are verified all the same; of the state it is only said that it cannot be folded.
    assert {finding.check for finding in report.findings} == {"contracts", "state"}
    [state] = [finding.message for finding in report.findings if finding.check == "state"]
    assert newer in state
    shown = Console(width=200, record=True, file=StringIO())
    show(shown, report)
    assert "passed over: 2 of ext.future.weather.observed, which this version does not know" in shown.export_text()


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
