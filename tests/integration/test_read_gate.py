"""The gate of signed reads: who is believed, and what a refusal tells (RULE-01, TRU-5, TRU-6, ACC-6)."""

import asyncio
from pathlib import Path
from typing import Any

import msgspec
import pytest

from contracts import subjects
from contracts.bounds import request_bytes_max
from contracts.payloads.requests import (
    acknowledge_request,
    heads_groups_max,
    heads_request,
    memberships_request,
    replay_request,
)
from services.authority import serve_requests
from tests.builders import revoke_key, signing_key
from tests.reads_rig import Asker, Authority, code_of, now, planted, read_bytes, reply_seconds, serving
from tests.relay_rig import eventually

group = "urn:weavehold:group:alpha"


async def test_a_stale_session_reads_nothing(database_url: str, nats_url: str, tmp_path: Path) -> None:
    """ACC-6, MWP-WRK-014: once the next session is open, reads of the one before it are refused everywhere."""
    async with planted(database_url, tmp_path) as org, serving(database_url, nats_url, org) as authority:
        key = await org.add_agent("worker", session_epoch=4)
        await org.plant_group(group, 2)
        await org.plant_membership(group, key.principal)
        asked = [
            (subjects.replay(org.id), replay_request, {"groupId": group, "after": 0}),
            (subjects.query(org.id), heads_request, {"groupIds": [group]}),
            (subjects.query(org.id), memberships_request, {}),
            (
                subjects.acknowledgement(org.id),
                acknowledge_request,
                {"groupId": group, "incarnation": org.incarnation, "sequence": 1, "chainHash": "0" * 64},
            ),
        ]
        current = Asker(authority.nc, org.id, key, session_epoch=4)
        assert code_of(await current.ask(*asked[0])) is None
        await org.set_session(key, 5)
        stale = [await current.ask(*each) for each in asked]
        early = await Asker(authority.nc, org.id, key, session_epoch=6).ask(*asked[0])
    assert {code_of(reply) for reply in (*stale, early)} == {"AUTH_STALE_SESSION"}


@pytest.mark.parametrize("age", [-301, 90])
async def test_reads_must_be_fresh_on_the_database_clock(
    database_url: str, nats_url: str, tmp_path: Path, age: int
) -> None:
    """TRU-6, LSE-1: outside 5 min back and 1 min ahead of the database clock a read is not believed."""
    async with planted(database_url, tmp_path) as org, serving(database_url, nats_url, org) as authority:
        key = await org.add_agent("worker")
        asker, subject = Asker(authority.nc, org.id, key), subjects.query(org.id)
        # It stands still, two hours ahead of this machine's: no wait moves a request into its window.
        await org.connection.execute(
            "CREATE OR REPLACE FUNCTION weavehold_clock() RETURNS timestamptz LANGUAGE sql VOLATILE AS "
            f"$$ SELECT timestamptz '{now(7_200)}' $$"
        )
        refused = await asker.ask(subject, heads_request, {"groupIds": [group]}, issued_at=now(7_200 + age))
        fresh = await asker.ask(subject, heads_request, {"groupIds": [group]}, issued_at=now(7_200))
        failures = await org.failures()
    assert (code_of(refused), refused["error"]["message"]) == ("AUTH_INVALID_SIGNATURE", "signed document rejected")
    assert fresh == {"heads": []}
    assert [stage for stage, _ in failures] == ["freshness"]


async def test_every_failure_of_trust_looks_the_same(database_url: str, nats_url: str, tmp_path: Path) -> None:
    """TRU-5: unknown key, another's key, a broken signature, an expired key: one answer; the audit knows which."""
    async with planted(database_url, tmp_path) as org, serving(database_url, nats_url, org) as authority:
        key = await org.add_agent("worker")
        # Valid at `issuedAt`, ended since: only the look at the database catches it.
        ended = await org.add_agent("ended", valid_until=now(-60))
        subject, payload = subjects.query(org.id), {"groupIds": [group]}
        honest = read_bytes(org.id, heads_request, payload, key)
        document = msgspec.json.decode(honest)
        requests = {
            "signature": honest.replace(b'"groupIds":["', b'"groupIds":["x'),
            "key-resolution": read_bytes(org.id, heads_request, payload, signing_key("nobody")),
            "signature-envelope": msgspec.json.encode(
                document | {"signature": document["signature"] | {"createdAt": now(1)}}
            ),
            "key-resolution at reading": read_bytes(org.id, heads_request, payload, ended, issued_at=now(-120)),
        }
        replies = []
        for raw in requests.values():
            reply = msgspec.json.decode((await authority.nc.request(subject, raw, timeout=reply_seconds)).data)
            reply["error"].pop("occurredAt")
            reply["error"].pop("relatedActionId", None)
            replies.append(reply)
        failures = await org.failures()
    expected = {"error": {"code": "AUTH_INVALID_SIGNATURE", "message": "signed document rejected", "retryable": False}}
    assert replies == [expected] * 4
    assert [stage for stage, _ in failures] == [name.removesuffix(" at reading") for name in requests]


async def test_a_new_key_is_believed_and_a_revoked_one_is_not(database_url: str, nats_url: str, tmp_path: Path) -> None:
    """TRU-2, RULE-06: an unknown key is looked up, and a key revoked a moment ago reads nothing, caches or not."""
    async with planted(database_url, tmp_path) as org, serving(database_url, nats_url, org) as authority:
        subject, asked = subjects.query(org.id), (heads_request, {"groupIds": [group]})
        unknown = await Asker(authority.nc, org.id, signing_key("worker")).ask(subject, *asked)
        await asyncio.sleep(1.05)
        key = await org.add_agent("worker")
        asker = Asker(authority.nc, org.id, key)
        known = await asker.ask(subject, *asked)
        await revoke_key(org.connection, key.key_id, now(-1))
        revoked = await asker.ask(subject, *asked, issued_at=now(-30))
    assert [code_of(reply) for reply in (unknown, known, revoked)] == [
        "AUTH_INVALID_SIGNATURE",
        None,
        "AUTH_INVALID_SIGNATURE",
    ]


async def test_what_is_not_asked_rightly_is_refused_by_name(database_url: str, nats_url: str, tmp_path: Path) -> None:
    """RULE-01, RULE-09: size, strictness, shape, kind, payload and extensions, each with its own code."""
    async with planted(database_url, tmp_path) as org, serving(database_url, nats_url, org) as authority:
        key = await org.add_agent("worker")
        subject = subjects.query(org.id)

        async def answer(raw: bytes) -> str | None:
            reply = msgspec.json.decode((await authority.nc.request(subject, raw, timeout=reply_seconds)).data)
            assert reply["error"]["occurredAt"].endswith("Z")
            return code_of(reply)

        def signed(kind: str, payload: dict[str, Any], **members: Any) -> bytes:
            return read_bytes(org.id, kind, payload, key, **members)

        critical = {"urn:example:extension": {"version": "1.0.0", "critical": True, "data": {}}}
        many = [f"urn:weavehold:group:{number}" for number in range(heads_groups_max + 1)]
        codes = [
            await answer(b" " * (request_bytes_max + 1)),
            await answer(b'{"a":1,"a":2}'),
            await answer(b"{}"),
            await answer(signed(replay_request, {"groupId": group, "after": 0})),
            await answer(signed("work.start", {})),
            await answer(signed(heads_request, {"groupIds": []})),
            await answer(signed(heads_request, {"groupIds": many})),
            await answer(signed(heads_request, {"groupIds": [group], "more": 1})),
            await answer(signed(memberships_request, {"afterGroupId": None})),
            await answer(signed(heads_request, {"groupIds": [group]}, extensions=critical)),
        ]
        failures = await org.failures()
    assert codes == [
        "PROTOCOL_VIOLATION",
        "PROTOCOL_VIOLATION",
        "SCHEMA_VALIDATION_FAILED",
        "INVALID_COMMAND",
        "INVALID_COMMAND",
        *["SCHEMA_VALIDATION_FAILED"] * 4,
        "UNKNOWN_CRITICAL_EXTENSION",
    ]
    assert failures == []


async def both_wait(authority: Authority) -> bool:
    """Whether two requests wait for a lock."""
    async with authority.pool.connection() as connection:
        cursor = await connection.execute(
            "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock'"
        )
        return await cursor.fetchone() == (2,)


async def test_beyond_the_bound_the_answer_is_backpressure(
    database_url: str, nats_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """ERR-1: overload is answered at once with a time to wait, never with silence, and other subjects go on."""
    monkeypatch.setattr(serve_requests, "replays_in_flight_max", 2)
    async with planted(database_url, tmp_path) as org, serving(database_url, nats_url, org) as authority:
        key = await org.add_agent("worker")
        await org.plant_group(group, 2)
        await org.plant_membership(group, key.principal)
        asker, asked = Asker(authority.nc, org.id, key), (replay_request, {"groupId": group, "after": 0})
        async with org.connection.transaction():
            # What every replay reads is locked: those in flight wait.
            await org.connection.execute("LOCK TABLE mission_group IN ACCESS EXCLUSIVE MODE")
            waiting = [asyncio.create_task(asker.ask(subjects.replay(org.id), *asked)) for _ in range(2)]
            await eventually(lambda: both_wait(authority), reply_seconds, "two replays in flight")
            refused = await asker.ask(subjects.replay(org.id), *asked)
            other = await asker.ask(subjects.query(org.id), "work.start", {})
        served = await asyncio.gather(*waiting)
    assert code_of(refused) == "BACKPRESSURE"
    assert refused["error"]["retryable"] is True
    assert refused["error"]["retryAfterMs"] > 0
    assert code_of(other) == "INVALID_COMMAND"
    assert [len(reply["events"]) for reply in served] == [2, 2]


async def test_a_database_that_is_away_is_a_retryable_answer(database_url: str, nats_url: str, tmp_path: Path) -> None:
    """DUR-3, ERR-1: lost connections become a retryable answer or are replaced; nothing stays silent."""
    async with planted(database_url, tmp_path) as org, serving(database_url, nats_url, org) as authority:
        key = await org.add_agent("worker")
        await org.plant_group(group, 2)
        await org.plant_membership(group, key.principal)
        asker, asked = Asker(authority.nc, org.id, key), (replay_request, {"groupId": group, "after": 0})
        await asker.ask(subjects.replay(org.id), *asked)
        await org.connection.execute(
            "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name = 'authority-test'"
        )
        reply = await asker.ask(subjects.replay(org.id), *asked)
        assert code_of(reply) in (None, "BACKPRESSURE")
        assert "events" in await asker.ask(subjects.replay(org.id), *asked)


async def test_an_answer_that_the_broker_would_refuse_is_said_so(
    database_url: str, nats_url: str, tmp_path: Path
) -> None:
    """ERR-1, RULE-09: an answer beyond the broker's `max_payload` becomes an error with a remedy, not silence."""
    async with planted(database_url, tmp_path) as org, serving(database_url, nats_url, org) as authority:
        key = await org.add_agent("worker")
        await org.plant_group(group, 20)
        await org.plant_membership(group, key.principal)
        authority.nc._max_payload = 8_000
        asker, subject = Asker(authority.nc, org.id, key), subjects.replay(org.id)
        large = await asker.ask(subject, replay_request, {"groupId": group, "after": 0})
        small = await asker.ask(subject, replay_request, {"groupId": group, "after": 0, "limitEvents": 2})
    assert code_of(large) == "INTERNAL_ERROR"
    assert "max_payload" in large["error"]["message"]
    assert len(small["events"]) == 2
