"""The session handshake: any process answers either step, a challenge works once, failures tell nothing (RULE-29)."""

import asyncio
from pathlib import Path
from typing import Any

import msgspec
import pytest

from contracts.payloads.handshake import challenge_seconds, handshake_bytes_max
from contracts.rejection import Code, reject
from contracts.signature import base64url_bytes, base64url_text
from contracts.timestamps import parse_timestamp
from services.authority import serve_session
from tests.builders import signing_key
from tests.reads_rig import Caller, PlantedOrganization, SessionLane, code_of, now, planted, serving

failure = {"code": "AUTH_INVALID_SIGNATURE", "message": "session proof rejected", "retryable": False}


def refused(reply: dict[str, Any]) -> bool:
    """Whether this is the one answer that every failed proof gets."""
    error = dict(reply["error"])
    return bool(error.pop("occurredAt")) and error == failure


async def open_challenges(org: PlantedOrganization) -> int:
    """Rows that wait for an answer."""
    cursor = await org.connection.execute("SELECT count(*) FROM session_challenge")
    [(count,)] = await cursor.fetchall()
    return count


async def test_a_handshake_over_two_processes(database_url: str, nats_url: str, tmp_path: Path) -> None:
    """RULE-29: one process gives the challenge, another takes the proof; the epoch rises by one each time."""
    async with planted(database_url, tmp_path) as org:
        key, lane = await org.add_agent("worker", session_epoch=0), SessionLane(org)
        async with serving(database_url, nats_url, org, lane) as first:
            caller = Caller(first.nc, org.id, key)
            challenge = await caller.challenge()
        # The first process is gone with all that it remembered.
        async with serving(database_url, nats_url, org, lane) as second:
            caller.nc = second.nc
            accepted = await caller.ask(caller.proof(challenge))
            again = Caller(second.nc, org.id, key)
            next_one = await again.ask(again.proof(await again.challenge()))
        assert await open_challenges(org) == 0
        assert await org.failures() == []
    assert lane.opened == [(key.principal.id, key.key_id)] * 2
    accept = accepted["serverAccept"]
    assert (accept["selectedVersion"], accept["sessionEpoch"]) == ("0.1", 1)
    assert parse_timestamp(accept["expiresAt"]) > parse_timestamp(now())
    assert next_one["serverAccept"]["sessionEpoch"] == 2


async def test_the_challenge_is_the_transcript(database_url: str, nats_url: str, tmp_path: Path) -> None:
    """RULE-29: what is signed is the canonical JSON of exactly the seven members of the HELLO transcript."""
    async with planted(database_url, tmp_path) as org, serving(database_url, nats_url, org) as authority:
        caller = Caller(authority.nc, org.id, signing_key("worker"))
        reply = await caller.challenge()
        raw = base64url_bytes(reply["challenge"])
        assert raw is not None
        members = msgspec.json.decode(raw)
    assert raw == msgspec.json.encode(members, order="sorted")
    assert set(members) == {
        *("agentId", "challengeId", "clientNonce", "expiresAt", "keyId", "protocolVersion", "serverNonce")
    }
    assert members["agentId"] == caller.identity["agentId"]
    assert members["clientNonce"] == reply["clientNonce"] == caller.identity["clientNonce"]
    assert members["serverNonce"] == reply["serverNonce"]
    assert (len(members["serverNonce"]), len(members["challengeId"])) == (43, 24)
    assert members["expiresAt"].endswith("+00:00")
    assert reply["selectedVersion"] == members["protocolVersion"] == "0.1"


async def test_a_replayed_challenge_is_refused(database_url: str, nats_url: str, tmp_path: Path) -> None:
    """RULE-29: a challenge works once: not after success, not after a failed try, and not twice at the same time."""
    async with planted(database_url, tmp_path) as org:
        key, lane = await org.add_agent("worker"), SessionLane(org)
        async with serving(database_url, nats_url, org, lane) as authority:
            caller = Caller(authority.nc, org.id, key)
            challenge = await caller.challenge()
            good, replayed = await caller.ask(caller.proof(challenge)), await caller.ask(caller.proof(challenge))
            spoiled = await caller.challenge()
            wrong = base64url_text(bytes(64))
            failed = await caller.ask(caller.proof(spoiled, challengeSignature=wrong))
            after = await caller.ask(caller.proof(spoiled))
            raced = await caller.challenge()
            both = await asyncio.gather(*(caller.ask(caller.proof(raced)) for _ in range(2)))
    assert "serverAccept" in good
    assert all(refused(reply) for reply in (replayed, failed, after))
    assert sorted(code_of(reply) or "accepted" for reply in both) == ["AUTH_INVALID_SIGNATURE", "accepted"]
    assert len(lane.opened) == 2


async def test_every_failed_proof_gets_the_same_answer(database_url: str, nats_url: str, tmp_path: Path) -> None:
    """TRU-5: nothing on the wire tells which part was wrong, nor whether Agent or key exist; the audit record does."""
    async with planted(database_url, tmp_path) as org:
        key, lane = await org.add_agent("worker"), SessionLane(org)
        other = await org.add_agent("other")
        ended = await org.add_agent("ended", valid_until=now(-1))
        async with serving(database_url, nats_url, org, lane) as authority:
            replies = []
            for member, value in (
                ("agentId", other.principal.id),
                ("keyId", other.key_id),
                ("clientNonce", base64url_text(bytes(32))),
                ("serverNonce", base64url_text(bytes(32))),
                ("challenge", base64url_text(b"{}")),
                ("challengeSignature", base64url_text(bytes(64))),
                ("challengeSignature", "AB"),
            ):
                caller = Caller(authority.nc, org.id, key)
                replies.append(await caller.ask(caller.proof(await caller.challenge(), **{member: value})))
            for stranger in (signing_key("nobody"), ended, org.organization.keys.operator):
                caller = Caller(authority.nc, org.id, stranger)
                replies.append(await caller.ask(caller.proof(await caller.challenge())))
            # Another Agent's name over one's own valid key.
            caller = Caller(authority.nc, org.id, key)
            caller.identity["agentId"] = other.principal.id
            replies.append(await caller.ask(caller.proof(await caller.challenge())))
            stages = [stage for stage, _ in await org.failures()]
    assert all(refused(reply) for reply in replies)
    assert lane.opened == []
    assert stages == [*["challenge"] * 5, *["signature"] * 2, *["key-resolution"] * 4]


async def test_a_challenge_ends_with_its_seconds(database_url: str, nats_url: str, tmp_path: Path) -> None:
    """RULE-29: after 30 s on the database clock the proof comes too late, and the row is cleared away."""
    async with planted(database_url, tmp_path) as org:
        key, lane = await org.add_agent("worker"), SessionLane(org)
        async with serving(database_url, nats_url, org, lane) as authority:
            caller = Caller(authority.nc, org.id, key)
            challenge, forgotten = await caller.challenge(), await caller.challenge()
            await org.connection.execute(
                "CREATE OR REPLACE FUNCTION weavehold_clock() RETURNS timestamptz LANGUAGE sql VOLATILE AS "
                f"$$ SELECT clock_timestamp() + interval '{challenge_seconds} s' $$"
            )
            late = await caller.ask(caller.proof(challenge))
            assert forgotten
            assert await open_challenges(org) == 1
            await caller.challenge()
            assert await open_challenges(org) == 1
            reasons = await org.failures()
    assert refused(late)
    assert lane.opened == []
    assert [stage for stage, _ in reasons] == ["challenge"]


async def test_what_is_no_handshake_is_refused_by_name(
    database_url: str, nats_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """RULE-29, ERR-1: size, strictness, shape and version have their codes; open challenges are bounded."""
    monkeypatch.setattr(serve_session, "open_challenges_max", 2)
    async with planted(database_url, tmp_path) as org, serving(database_url, nats_url, org) as authority:
        caller = Caller(authority.nc, org.id, signing_key("worker"))
        init = caller.identity | {"supportedVersions": ["0.1"]}
        asked: list[Any] = [
            b" " * (handshake_bytes_max + 1),
            b'{"clientInit":{},"clientInit":{}}',
            {},
            {"clientInit": init, "clientProof": {}},
            {"clientInit": init | {"extra": 1}},
            {"clientInit": init | {"supportedVersions": ["9.9"]}},
        ]
        codes = [code_of(await caller.ask(request)) for request in asked]
        await caller.challenge()
        await caller.challenge()
        full = await caller.ask({"clientInit": init})
    assert codes == [
        *["PROTOCOL_VIOLATION"] * 2,
        *["SCHEMA_VALIDATION_FAILED"] * 3,
        "UNSUPPORTED_VERSION",
    ]
    assert (code_of(full), full["error"]["retryable"]) == ("BACKPRESSURE", True)


async def test_a_lane_that_refuses_is_heard(database_url: str, nats_url: str, tmp_path: Path) -> None:
    """RULE-29, ERR-1: after a good proof the lane's refusal reaches the caller as it is."""
    async with planted(database_url, tmp_path) as org:
        key, lane = await org.add_agent("worker"), SessionLane(org)
        lane.refusal = reject(Code.BACKPRESSURE, "no process holds shard 0", retryable=True, retry_after_ms=250)
        async with serving(database_url, nats_url, org, lane) as authority:
            caller = Caller(authority.nc, org.id, key)
            reply = await caller.ask(caller.proof(await caller.challenge()))
    assert (code_of(reply), reply["error"]["retryAfterMs"]) == ("BACKPRESSURE", 250)


async def test_a_session_ends_with_its_key(database_url: str, nats_url: str, tmp_path: Path) -> None:
    """TRU-2, RULE-29: a session is not promised beyond the validity of the key that opened it."""
    async with planted(database_url, tmp_path) as org:
        end = now(3_600)
        key = await org.add_agent("worker", valid_until=end)
        async with serving(database_url, nats_url, org) as authority:
            caller = Caller(authority.nc, org.id, key)
            reply = await caller.ask(caller.proof(await caller.challenge()))
    assert reply["serverAccept"]["expiresAt"] == end


async def test_a_key_of_another_organization_opens_nothing(database_url: str, nats_url: str, tmp_path: Path) -> None:
    """RULE-32: the same Agent in two Organizations: keys and challenges of one are worth nothing in the other."""
    async with planted(database_url, tmp_path, "one") as one, planted(database_url, tmp_path, "two") as two:
        key, lane = await two.add_agent("worker"), SessionLane(one)
        await one.connection.execute(
            "INSERT INTO agent (organization_id, agent_id, card_version, card) VALUES (%s, %s, 1, '')",
            (one.id, key.principal.id),
        )
        async with serving(database_url, nats_url, one, lane) as first, serving(database_url, nats_url, two) as second:
            caller, other = Caller(first.nc, one.id, key), Caller(second.nc, two.id, key)
            foreign_key = await caller.ask(caller.proof(await caller.challenge()))
            caller.identity = other.identity
            foreign_challenge = await caller.ask(caller.proof(await other.challenge()))
    assert refused(foreign_key)
    assert refused(foreign_challenge)
    assert lane.opened == []
