"""The key registry in the accepting transaction: bound, ended and never anything else (TRU-2, RULE-06)."""

import asyncio
import json
from collections.abc import AsyncIterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import psycopg
import pytest

from contracts.command import agent_card_register, key_register, key_retire, key_revoke
from contracts.documents.common import Actor, ActorType
from contracts.identifiers import GroupSequence
from contracts.payloads.requests import GroupPage, GroupReplay, heads_request
from contracts.rejection import Code, Rejection
from contracts.signature import SigningKey, base64url_text, sign_document
from contracts.timestamps import format_timestamp, instant
from ops.bench.workload import register_agent, signed_command
from ops.group_report import read_group
from ops.init import Organization, initialize, key_file
from ops.keys.audit_registry import audit_registry
from ops.migrate import migrate, roll_back
from ops.verify.finding import Report
from ops.verify.verify_keys import verify_keys
from ops.verify.verify_log import LogVerifier
from services.authority import audit_registry as audit_module
from services.authority.admission_pool import AdmissionPool
from services.authority.admitted import Admitted, Refused
from services.authority.audit_registry import RegistryAuditor
from services.authority.follow_signing_key import SigningKeyFollower
from services.authority.freshness import Freshness
from services.authority.judge_batch import SigningKeyRefused
from services.authority.key_cache import KeyRegistryCache
from services.authority.read_request import ReadRequest, ReadTrust, read_request
from services.authority.serve_replay import serve_group_replay
from services.process.database import connect
from services.process.health import READY, State
from tests.authority_rig import (
    InProcessAuthority,
    authority_on,
    coordinator,
    creation,
    moved_clock,
    post,
    receipt_of,
    refusal_of,
    rows,
    run_sql,
    verified,
    with_groups,
)
from tests.relay_rig import eventually

operator_two = SigningKey.generate(Actor(type=ActorType.SERVICE, id="urn:weavehold:service:operator"))


def binding(key: SigningKey, **members: Any) -> dict[str, Any]:
    """The payload that binds a key."""
    return {
        "keyId": key.key_id,
        "principal": {"type": key.principal.type.value, "id": key.principal.id},
        "algorithm": "Ed25519",
        "publicKey": base64url_text(key.public_key),
        **members,
    }


def to_registry(
    organization: Organization, kind: str, payload: dict[str, Any], signer: SigningKey | None = None, **members: Any
) -> bytes:
    """A Command of the registry, signed by the operator unless told otherwise."""
    key = signer or organization.keys.operator
    return signed_command(key, kind, organization.organization_id, payload, **members)


def registration(organization: Organization, key: SigningKey, **members: Any) -> bytes:
    """Bind a key."""
    return to_registry(organization, key_register, binding(key, **members))


def revocation(organization: Organization, key: SigningKey, signer: SigningKey | None = None) -> bytes:
    """Revoke a key."""
    return to_registry(organization, key_revoke, {"keyId": key.key_id, "reason": "stolen"}, signer)


def retirement(organization: Organization, key: SigningKey, seconds: float) -> bytes:
    """Plan a key's end."""
    until = format_timestamp(datetime.now(UTC) + timedelta(seconds=seconds))
    return to_registry(organization, key_retire, {"keyId": key.key_id, "validUntil": until})


def second_key(organization: Organization) -> SigningKey:
    """Another key of the owner."""
    return SigningKey.generate(organization.keys.mission_owner.principal)


def post_with(key: SigningKey, number: int = 0) -> bytes:
    """`message.post` by the owner, signed with this key."""
    return post(_Signer(key), number)  # type: ignore[arg-type]


class _Signer:
    """As much of an Organization as `post` reads."""

    def __init__(self, key: SigningKey) -> None:
        self.keys = self
        self.mission_owner = key


async def standing(url: str, key: SigningKey) -> tuple[str | None, str | None]:
    """`valid_until` and `revoked_at` of a key."""
    [(until, revoked)] = await rows(
        url, "SELECT valid_until, revoked_at FROM registered_key WHERE key_id = %s", key.key_id
    )
    return until, revoked


@pytest.fixture
async def authority(database_url: str, organization: Organization) -> AsyncIterator[InProcessAuthority]:
    """An authority with two Groups."""
    async with authority_on(database_url, organization) as one:
        await with_groups(one, 0, 1)
        yield one


# --- bound, and refused from the revocation on ----------------------------------------------------------------------


async def test_a_bound_key_signs_and_a_revoked_one_does_not(
    authority: InProcessAuthority, organization: Organization, database_url: str
) -> None:
    """TRU-2, RULE-06: the Principal's further key counts from its binding to its revocation; the record says why."""
    key = second_key(organization)
    receipt = await authority.receipt(registration(organization, key))
    assert (receipt.group_id, receipt.events[0].sequence) == (organization.organization_id, 1)
    accepted = await authority.receipt(post_with(key))
    revoked = await authority.receipt(revocation(organization, key))
    committed = await authority.commit(post_with(key), post(organization))
    assert refusal_of(committed.answers[0]).code is Code.AUTH_INVALID_SIGNATURE
    assert refusal_of(committed.answers[0]).message == "signed document rejected"
    receipt_of(committed.answers[1])
    [failure] = committed.failures
    assert (failure.stage, failure.key_id) == ("key-resolution", key.key_id)
    assert accepted.accepted_at < revoked.accepted_at
    assert await standing(database_url, key) == (None, revoked.accepted_at)
    await verified(database_url, organization)


async def test_what_was_accepted_is_answered_and_verified_after_the_revocation(
    authority: InProcessAuthority, organization: Organization, database_url: str
) -> None:
    """TRU-2, TRU-4, MWP-EVT-003: a revocation takes nothing back: Receipt, signature and admission stand."""
    key = second_key(organization)
    await authority.receipt(registration(organization, key))
    raw = post_with(key)
    first = await authority.receipt(raw)
    await authority.receipt(revocation(organization, key))
    assert await authority.receipt(raw) == first
    await verified(database_url, organization)


async def test_every_process_refuses_a_revoked_key_at_once(
    authority: InProcessAuthority, organization: Organization, database_url: str
) -> None:
    """RULE-06: what another process remembers admits the Command; its accepting transaction refuses it."""
    key = second_key(organization)
    await authority.receipt(registration(organization, key))
    async with authority_on(database_url, organization, "two") as other:
        await other.seize()
        await other.receipt(post_with(key))
        await authority.seize()
        await authority.receipt(revocation(organization, key))
        await other.seize()
        raw = post_with(key)
        remembered = other.keys.resolve(key.key_id)
        assert remembered is not None
        assert remembered.revoked_at is None
        assert refusal_of(await other.answer(raw)).code is Code.AUTH_INVALID_SIGNATURE
        other.keys.at_least(2)
        known = other.keys.resolve(key.key_id)
        assert known is not None
        assert known.revoked_at is not None


async def test_an_admission_process_forgets_at_a_newer_registry(
    authority: InProcessAuthority, organization: Organization, database_url: str
) -> None:
    """RULE-06: told of the change, admission itself refuses; not yet told, it admits what acceptance will refuse."""
    key = second_key(organization)
    await authority.receipt(registration(organization, key))
    pool = AdmissionPool(database_url, organization.organization_id, 1)
    try:
        [before] = await pool.admit([post_with(key)], 1)
        await authority.receipt(revocation(organization, key))
        raw = post_with(key)
        [unaware] = await pool.admit([raw], 1)
        [told] = await pool.admit([raw], 2)
    finally:
        await pool.close()
    assert isinstance(before, Admitted)
    assert isinstance(unaware, Admitted)
    assert isinstance(told, Refused)
    assert told.failure is not None
    assert told.failure.stage == "key-resolution"


async def test_a_revoked_key_reads_nothing(
    authority: InProcessAuthority, organization: Organization, database_url: str
) -> None:
    """RULE-06, RULE-30: the gate of reads looks the key up again, whatever is remembered."""
    key = second_key(organization)
    await authority.receipt(registration(organization, key))
    organization_id = organization.organization_id
    keys = KeyRegistryCache(authority.pool, organization_id)
    trust = ReadTrust(
        organization_id=organization_id, keys=keys, freshness=Freshness(), registry_fault=lambda: None
    )

    async def ask() -> ReadRequest | Rejection:
        raw = signed_command(key, heads_request, organization_id, {"groupIds": [organization_id]}, 1)
        return await read_request(authority.pool, trust, raw, (heads_request,))

    assert isinstance(await ask(), ReadRequest)
    await authority.receipt(revocation(organization, key))
    assert keys.resolve(key.key_id) is not None
    refused = await ask()
    assert isinstance(refused, Rejection)
    assert refused.code is Code.AUTH_INVALID_SIGNATURE


# --- nothing passes a revocation -------------------------------------------------------------------------------------


async def test_no_command_of_a_key_passes_its_revocation(
    authority: InProcessAuthority, organization: Organization, database_url: str
) -> None:
    """RULE-06: many writers against one revocation: each is accepted before it or refused, in every shard."""
    key = second_key(organization)
    await authority.receipt(registration(organization, key))
    async with authority.lane() as lane, authority.lane() as registry:
        posts: list[asyncio.Task[Any]] = []

        async def write() -> None:
            for place in range(120):
                posts.append(asyncio.create_task(authority.through(lane, post_with(key, place % 2))))
                await asyncio.sleep(0.001)

        writing = asyncio.create_task(write())
        await asyncio.sleep(0.05)
        revoked = receipt_of(await authority.through(registry, revocation(organization, key)))
        late = await authority.through(lane, post_with(key))
        await writing
        answers = await asyncio.gather(*posts)
    accepted = [receipt_of(answer) for answer in answers if not isinstance(answer, Rejection)]
    refused = [answer for answer in answers if isinstance(answer, Rejection)]
    assert accepted
    assert refused
    assert {refusal.code for refusal in refused} == {Code.AUTH_INVALID_SIGNATURE}
    assert refusal_of(late).code is Code.AUTH_INVALID_SIGNATURE
    assert max(receipt.accepted_at for receipt in accepted) < revoked.accepted_at
    await verified(database_url, organization)


async def test_a_revocation_shares_its_moment_with_nothing_that_the_key_signed(
    authority: InProcessAuthority, organization: Organization, database_url: str
) -> None:
    """RULE-06: in the registry's own shard too, a Command of the key stands before the revocation and is older."""
    await authority.receipt(registration(organization, operator_two))
    keys = [second_key(organization) for _ in range(4)]
    by_two = [to_registry(organization, key_register, binding(key), operator_two) for key in keys]
    crowded = await authority.commit(by_two[0], revocation(organization, operator_two))
    assert (refusal_of(crowded.answers[1]).code, refusal_of(crowded.answers[1]).retryable) == (Code.BACKPRESSURE, True)
    async with authority.lane() as lane:
        batch = [*by_two[1:3], revocation(organization, operator_two), by_two[3]]
        answers = await asyncio.gather(*(authority.through(lane, raw) for raw in batch))
    before = [receipt_of(crowded.answers[0]), *(receipt_of(answer) for answer in answers[:2])]
    revoked = receipt_of(answers[2])
    assert max(receipt.accepted_at for receipt in before) < revoked.accepted_at
    assert max(receipt.events[0].sequence for receipt in before) < revoked.events[0].sequence
    assert refusal_of(answers[3]).code is Code.AUTH_INVALID_SIGNATURE
    await verified(database_url, organization)


async def test_a_revocation_holds_though_the_clock_steps_back(
    authority: InProcessAuthority, organization: Organization, database_url: str
) -> None:
    """RULE-06, RULE-03: with the clock before the revocation's time, the key is refused by acceptance and by reads."""
    key = second_key(organization)
    await authority.receipt(registration(organization, key))
    await run_sql(database_url, moved_clock.format("50 seconds"))
    revoked = await authority.receipt(revocation(organization, key))
    await run_sql(database_url, moved_clock.format("0 seconds"))
    assert instant(revoked.accepted_at) > instant(format_timestamp(datetime.now(UTC)))
    assert refusal_of(await authority.answer(post_with(key))).code is Code.AUTH_INVALID_SIGNATURE
    await authority.receipt(post(organization))
    organization_id = organization.organization_id
    trust = ReadTrust(
        organization_id=organization_id,
        keys=KeyRegistryCache(authority.pool, organization_id),
        freshness=Freshness(),
        registry_fault=lambda: None,
    )
    raw = signed_command(key, heads_request, organization_id, {"groupIds": [organization_id]}, 1)
    assert isinstance(await read_request(authority.pool, trust, raw, (heads_request,)), Rejection)


@pytest.mark.parametrize("end", ["revoked", "retired"])
async def test_a_key_ends_after_all_that_it_vouched_for(
    end: str, authority: InProcessAuthority, organization: Organization, database_url: str
) -> None:
    """TRU-2, TRU-4, RULE-06: a shard whose clock was ahead accepted something "later"; it stays verifiable."""
    key = second_key(organization)
    await authority.receipt(registration(organization, key))
    await run_sql(database_url, moved_clock.format("50 seconds"))
    ahead = await authority.receipt(post_with(key))
    await run_sql(database_url, moved_clock.format("0 seconds"))
    if end == "retired":
        refused = refusal_of(await authority.answer(retirement(organization, key, 30)))
        assert refused.code is Code.INVALID_COMMAND
        await authority.receipt(retirement(organization, key, 90))
    else:
        await authority.receipt(revocation(organization, key))
    until, revoked = await standing(database_url, key)
    ended = until or revoked
    assert ended is not None
    assert instant(ahead.accepted_at) < instant(ended)
    await verified(database_url, organization)


# --- the authority's own key -----------------------------------------------------------------------------------------


async def test_the_signing_key_changes_between_two_batches(
    authority: InProcessAuthority, organization: Organization, database_url: str, tmp_path: Path
) -> None:
    """TRU-2: the file's new key signs once the registry has it; the old one goes on until then, then may be revoked."""
    successor = SigningKey.generate(organization.keys.authority.principal)
    file = tmp_path / "authority.json"
    file.write_bytes(successor.key_file())
    follower = SigningKeyFollower(authority.office, file, authority.pool)
    await follower.look()
    assert authority.office.key.key_id == organization.keys.authority.key_id
    in_use = refusal_of(await authority.answer(revocation(organization, organization.keys.authority)))
    assert in_use.code is Code.INVALID_STATE_TRANSITION
    await authority.receipt(registration(organization, successor))
    await follower.look()
    assert authority.office.key.key_id == successor.key_id
    await authority.receipt(revocation(organization, organization.keys.authority))
    await authority.receipt(post(organization))
    signed = await rows(database_url, "SELECT event FROM event_log ORDER BY accepted_at, position")
    keys = [json.loads(bytes(raw))["signature"]["keyId"] for (raw,) in signed]
    assert set(keys) == {organization.keys.authority.key_id, successor.key_id}
    assert keys == sorted(keys, key=[organization.keys.authority.key_id, successor.key_id].index)
    await verified(database_url, organization)


@pytest.mark.parametrize("why", ["revoked", "never bound", "another's"])
async def test_an_authority_without_a_valid_key_accepts_nothing(
    why: str, authority: InProcessAuthority, organization: Organization, database_url: str, tmp_path: Path
) -> None:
    """TRU-2, RULE-06: nothing is written, senders are told to try again, readiness says why; a valid key ends it."""
    office, first = authority.office, organization.keys.authority
    valid = SigningKey.generate(first.principal)
    await authority.receipt(registration(organization, valid))
    if why == "revoked":
        office.key = valid
        await authority.receipt(revocation(organization, first))
        office.key = first
    elif why == "never bound":
        office.key = SigningKey.generate(first.principal)
    else:
        office.key = SigningKey.from_key_file(
            json.dumps({**json.loads(first.key_file()), "keyId": organization.keys.operator.key_id}).encode()
        )
    file = tmp_path / "authority.json"
    file.write_bytes(office.key.key_file())
    follower = SigningKeyFollower(office, file, authority.pool)
    await follower.look()
    [(before,)] = await rows(database_url, "SELECT count(*) FROM event_log")
    assert (await follower.check()).state is State.FAILED
    with pytest.raises(SigningKeyRefused):
        await authority.commit(post(organization))
    async with authority.lane() as lane:
        refused = refusal_of(await authority.through(lane, raw := post(organization)))
        assert (refused.code, refused.retryable) == (Code.BACKPRESSURE, True)
        assert [(before,)] == await rows(database_url, "SELECT count(*) FROM event_log")
        file.write_bytes(valid.key_file())
        await follower.look()
        receipt_of(await authority.through(lane, raw))
    assert await follower.check() == READY
    await verified(database_url, organization)


async def test_init_gives_an_authority_without_a_key_another_one(
    authority: InProcessAuthority, organization: Organization, database_url: str
) -> None:
    """RULE-29, TRU-2: nothing can be accepted, so the database's owner binds the next key; the audit mentions it."""
    first, other = organization.keys.authority, SigningKey.generate(organization.keys.authority.principal)
    await authority.receipt(registration(organization, other))
    authority.office.key = other
    await authority.receipt(revocation(organization, first))
    await authority.receipt(registration(organization, second_key(organization)))
    key_file(organization.keys_directory, "authority").unlink()
    async with await connect(database_url, name="init") as connection:
        again = await initialize(connection, name="test", keys_directory=organization.keys_directory)
        authority.office.key = again.keys.authority
        await authority.receipt(revocation(organization, other))
        await authority.receipt(post(organization))
        audit = await audit_registry(connection, organization.organization_id)
    assert audit.report.ok, audit.report.findings
    assert audit.notes == ()
    await verified(database_url, organization)


# --- the evidence as a whole -----------------------------------------------------------------------------------------

untriggered = tuple(f"ALTER TABLE {table} DISABLE TRIGGER ALL" for table in ("signing_key", "key_validity"))
weak = "decode(repeat('00', 32), 'hex')"
later = (
    "INSERT INTO key_validity SELECT organization_id, key_id, sequence + 1, recorded_at + interval '1 s', {} "
    "FROM key_validity"
)
untrusted = {
    "weak key": f"UPDATE signing_key SET public_key = {weak} WHERE key_id = '{{key}}'",
    "later end": later.format("'2999-01-01T00:00:00Z', revoked_at, event_id") + " WHERE key_id = '{key}'",
    "hole": "UPDATE key_validity SET sequence = 2 WHERE key_id = '{key}'",
    "back in time": later.format("valid_until, revoked_at, event_id").replace("+ interval", "- interval")
    + " WHERE key_id = '{key}'",
    "alias": "INSERT INTO signing_key SELECT organization_id, 'urn:weavehold:key:alias', principal_type, principal_id, "
    "public_key, valid_from FROM signing_key WHERE key_id = '{key}'",
    "no time": "UPDATE signing_key SET valid_from = 'yesterday' WHERE key_id = '{key}'",
}
contradicting = {
    "another Principal": "UPDATE signing_key SET principal_id = 'urn:weavehold:human:mallory' WHERE key_id = '{key}'",
    "another beginning": "UPDATE signing_key SET valid_from = '2001-01-01T00:00:00Z' WHERE key_id = '{key}'",
    "no Event": "UPDATE signing_key SET event_id = NULL WHERE key_id = '{key}'",
    "another Event": "UPDATE signing_key SET event_id = 'urn:uuid:other' WHERE key_id = '{key}'",
    "a statement gone": "DELETE FROM key_validity WHERE key_id = '{key}'",
    "a statement moved": "UPDATE key_validity SET valid_until = '2031-01-01T00:00:00Z' WHERE key_id = '{key}'",
    "a statement of nobody": "INSERT INTO key_validity SELECT organization_id, key_id, 2, recorded_at, valid_until, "
    "'2029-01-01T00:00:00Z', event_id FROM key_validity WHERE key_id = '{key}'",
    "a binding gone": "DELETE FROM key_validity; DELETE FROM signing_key WHERE key_id = '{key}'",
    "a binding of nobody": "INSERT INTO signing_key (organization_id, key_id, principal_type, principal_id, "
    "public_key, valid_from) SELECT organization_id, '{key}:planted', 'human', 'urn:weavehold:human:mallory', "
    "sha256('x'), valid_from FROM signing_key WHERE key_id = '{key}'",
}


@pytest.fixture
async def ending(authority: InProcessAuthority, organization: Organization) -> SigningKey:
    """A key with a planned end."""
    key = second_key(organization)
    await authority.receipt(registration(organization, key, validUntil="2030-01-01T00:00:00Z"))
    return key


async def keys_report(url: str, organization: Organization) -> Report:
    """What an audit of the registry finds."""
    report = Report()
    async with await connect(url, name="audit") as connection:
        await verify_keys(connection, organization.organization_id, report)
    return report


@pytest.mark.parametrize("damage", untrusted)
async def test_while_the_evidence_is_not_valid_nothing_is_accepted(
    damage: str, authority: InProcessAuthority, organization: Organization, database_url: str, ending: SigningKey
) -> None:
    """TRU-2: one bad key or history and no key counts: not ready, nothing accepted, named; then repaired."""
    auditor = RegistryAuditor(
        authority.office, KeyRegistryCache(authority.pool, organization.organization_id), authority.pool
    )
    with pytest.raises(SigningKeyRefused, match="not been examined"):
        await authority.commit(post(organization))
    await auditor.examine()
    await authority.receipt(post(organization))
    copies = ("signing_key", "key_validity")
    await run_sql(
        database_url,
        *untriggered,
        "ALTER TABLE signing_key DROP CONSTRAINT signing_key_organization_id_public_key_key",
        *(f"CREATE TABLE kept_{table} AS TABLE {table}" for table in copies),
        untrusted[damage].format(key=ending.key_id),
    )
    await auditor.examine()
    finding = await auditor.check()
    assert finding.state is State.FAILED
    assert ending.key_id in finding.detail or damage == "no time"
    with pytest.raises(SigningKeyRefused, match="not valid"):
        await authority.commit(post(organization))
    report = await keys_report(database_url, organization)
    assert any("nothing is accepted until that is repaired" in found.message for found in report.findings)
    await run_sql(
        database_url,
        *(f"DELETE FROM {table}" for table in reversed(copies)),
        *(f"INSERT INTO {table} TABLE kept_{table}" for table in copies),
    )
    await auditor.examine()
    assert await auditor.check() == READY
    await authority.receipt(post(organization))
    await verified(database_url, organization)


async def test_a_change_that_nobody_announced_is_found(
    monkeypatch: pytest.MonkeyPatch,
    authority: InProcessAuthority,
    organization: Organization,
    database_url: str,
    ending: SigningKey,
) -> None:
    """TRU-2: the registry is examined again after a while, told or not."""
    monkeypatch.setattr(audit_module, "examination_seconds_max", 0.1)
    monkeypatch.setattr(audit_module, "look_seconds", 0.02)
    auditor = RegistryAuditor(
        authority.office, KeyRegistryCache(authority.pool, organization.organization_id), authority.pool
    )
    running = asyncio.create_task(auditor.run(lambda: None))

    async def trusted() -> bool:
        return authority.office.registry_fault is None

    async def distrusted() -> bool:
        return ending.key_id in (authority.office.registry_fault or "")

    try:
        await eventually(trusted, 10, "the first examination")
        await run_sql(database_url, *untriggered, untrusted["weak key"].format(key=ending.key_id))
        await eventually(distrusted, 10, "the next examination")
    finally:
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)


async def test_an_event_signed_outside_its_keys_interval_is_found(
    authority: InProcessAuthority, organization: Organization, database_url: str
) -> None:
    """TRU-2, NEW-5: verification judges each Event's key at the Event's time."""
    [(last,)] = await rows(database_url, "SELECT max(position) FROM event_log WHERE shard_id = 0")
    await run_sql(
        database_url,
        *untriggered,
        "UPDATE signing_key SET valid_from = '2999-01-01T00:00:00Z' "
        "WHERE principal_id = 'urn:weavehold:service:authority'",
    )
    report = Report()
    async with await connect(database_url, name="verify") as connection:
        await LogVerifier(connection, organization.organization_id, report).verify()
    assert {found.check for found in report.findings} == {"signature"}
    assert all("was not valid at" in found.message for found in report.findings)
    assert report.found == report.examined["signature"] > last


@pytest.mark.parametrize("damage", contradicting)
async def test_rows_and_history_that_disagree_are_named(
    damage: str, authority: InProcessAuthority, organization: Organization, database_url: str, ending: SigningKey
) -> None:
    """TRU-2: every binding and statement agrees with its Event, every Event has its rows; the key is named."""
    assert (await keys_report(database_url, organization)).ok
    await run_sql(database_url, *untriggered, *contradicting[damage].format(key=ending.key_id).split("; "))
    report = await keys_report(database_url, organization)
    assert report.findings
    assert all(ending.key_id in found.message and found.check == "keys" for found in report.findings), report.findings


@pytest.mark.parametrize("table", ["signing_key", "key_validity", "admission"])
@pytest.mark.parametrize("verb", ["UPDATE {} SET organization_id = organization_id", "DELETE FROM {}"])
async def test_the_database_refuses_to_change_what_is_for_good(
    table: str, verb: str, authority: InProcessAuthority, database_url: str, ending: SigningKey
) -> None:
    """TRU-2, TRU-4: bindings, statements and first admissions are append-only."""
    with pytest.raises(psycopg.errors.RestrictViolation, match=f"{table} rows are immutable"):
        await run_sql(database_url, verb.format(table))


# --- the registry's Group --------------------------------------------------------------------------------------------


async def test_no_mission_takes_the_registrys_group(
    authority: InProcessAuthority, organization: Organization, database_url: str
) -> None:
    """TRU-2: the Organization's own name is the registry's, before and after the registry's first Event."""
    payload = json.loads(creation(organization, 7))["payload"] | {"groupId": organization.organization_id}
    owner = organization.keys.mission_owner

    def mission() -> bytes:
        return signed_command(owner, "mission.create", organization.organization_id, payload)

    before = refusal_of(await authority.answer(mission()))
    await authority.receipt(registration(organization, second_key(organization)))
    after = refusal_of(await authority.answer(mission()))
    assert before.code is after.code is Code.INVALID_STATE_TRANSITION
    assert organization.organization_id in before.message
    await verified(database_url, organization)


async def test_the_registrys_history_is_for_services(
    authority: InProcessAuthority, organization: Organization, database_url: str
) -> None:
    """RULE-30, TRU-2: a service replays it; to everybody else there is no such Group."""
    await authority.receipt(registration(organization, second_key(organization)))
    asked = GroupReplay(group_id=organization.organization_id, after=GroupSequence(0))
    async with await connect(database_url, name="replay") as connection:

        async def replay(actor: Actor) -> GroupPage | Rejection:
            return await serve_group_replay(connection, organization.organization_id, actor, asked)

        page = await replay(organization.keys.registry.principal)
        refused = [await replay(actor) for actor in (organization.keys.mission_owner.principal, coordinator.principal)]
        report = await read_group(connection, organization.organization_id, organization.organization_id)
    assert isinstance(page, GroupPage)
    assert len(page.events) == 1
    assert [answer.code for answer in refused if isinstance(answer, Rejection)] == [Code.GROUP_NOT_FOUND] * 2
    assert report is not None
    assert (report.shard_id, report.mission, report.entities) == (0, None, {"key": 1})


async def test_a_card_binds_and_the_registry_ends(
    authority: InProcessAuthority, organization: Organization, database_url: str
) -> None:
    """TRU-2: an Agent's key comes with its card and ends by the registry, also in the statement's own shard."""
    agent = SigningKey.generate(Actor(type=ActorType.AGENT, id="urn:weavehold:agent:ada"))
    keys = organization.keys
    card = json.loads(register_agent(keys.operator, keys.registry, agent, organization.organization_id))["payload"][
        "card"
    ]
    del card["signature"]
    card["publicKeys"][0]["validUntil"] = "2040-01-01T00:00:00Z"
    signed = json.loads(sign_document(card, keys.registry, card["issuedAt"]))
    await authority.receipt(signed_command(keys.operator, agent_card_register, None, {"card": signed}))
    assert await standing(database_url, agent) == ("2040-01-01T00:00:00Z", None)
    await verified(database_url, organization)
    assert refusal_of(await authority.answer(registration(organization, agent))).code is Code.INVALID_COMMAND
    revoked = await authority.receipt(revocation(organization, agent))
    assert await standing(database_url, agent) == ("2040-01-01T00:00:00Z", revoked.accepted_at)
    await verified(database_url, organization)
    # As a database looks that had the key before bindings named their Event.
    await run_sql(database_url, *untriggered, f"UPDATE signing_key SET event_id = NULL WHERE key_id = '{agent.key_id}'")
    assert (await keys_report(database_url, organization)).ok


# --- Organizations and migrations ------------------------------------------------------------------------------------


async def test_organizations_with_the_same_keys_do_not_meet(
    authority: InProcessAuthority, organization: Organization, database_url: str
) -> None:
    """RULE-32: the same key IDs in two Organizations: what one binds or revokes means nothing in the other."""
    async with await connect(database_url, name="other") as connection:
        other = await initialize(connection, name="other", keys_directory=organization.keys_directory, shard_count=2)
    assert [key.key_id for key in other.keys] == [key.key_id for key in organization.keys]
    async with authority_on(database_url, other, "other") as beside:
        await with_groups(beside, 0)
        key = second_key(organization)
        await authority.receipt(registration(organization, key))
        await beside.receipt(registration(other, key))
        raw = post_with(key)
        await authority.receipt(revocation(organization, key))
        assert refusal_of(await authority.answer(raw)).code is Code.AUTH_INVALID_SIGNATURE
        await beside.receipt(post_with(key))
        foreign = to_registry(organization, key_revoke, {"keyId": key.key_id, "reason": "x"})
        assert refusal_of(await beside.answer(foreign)).code is Code.INVALID_COMMAND
        await verified(database_url, other)
    await verified(database_url, organization)


def roll_back_statements(url: str) -> None:
    """Take migrations back until the history of keys' ends is gone."""
    while True:
        roll_back(url)
        with psycopg.connect(url, autocommit=True) as connection:
            if connection.execute("SELECT to_regclass('key_validity')").fetchone() == (None,):
                return


def test_the_migration_keeps_what_ends_meant(empty_database_url: str) -> None:
    """TRU-2, OPS-2: ends that stood in the binding become the first statement of its history; and back again."""
    migrate(empty_database_url)
    roll_back_statements(empty_database_url)
    ends = {
        "a": (None, None),
        "b": ("2030-01-01T00:00:00.123Z", None),
        "c": ("2031-01-01T00:00:00Z", "2026-01-01T00:00:00Z"),
    }
    stated = "SELECT key_id, valid_until, revoked_at FROM {} ORDER BY key_id"
    expected = [(key_id, *boundaries) for key_id, boundaries in sorted(ends.items())]
    with psycopg.connect(empty_database_url, autocommit=True) as connection:
        connection.execute("INSERT INTO organization VALUES ('urn:org', 'org', 1)")
        for number, (key_id, boundaries) in enumerate(ends.items()):
            connection.execute(
                "INSERT INTO signing_key (organization_id, key_id, principal_type, principal_id, public_key, "
                "valid_from, valid_until, revoked_at) "
                "VALUES ('urn:org', %s, 'human', 'urn:ada', %s, '2020-01-01T00:00:00Z', %s, %s)",
                (key_id, bytes([number]) * 32, *boundaries),
            )
        migrate(empty_database_url)
        assert connection.execute(stated.format("registered_key")).fetchall() == expected
        [taken] = connection.execute("SELECT identifier, entity_kind FROM identifier").fetchall()
        assert taken == ("urn:org", "key_registry")
        roll_back_statements(empty_database_url)
        assert connection.execute(stated.format("signing_key")).fetchall() == expected
        migrate(empty_database_url)
        assert connection.execute(stated.format("registered_key")).fetchall() == expected
