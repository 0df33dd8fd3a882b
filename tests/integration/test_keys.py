"""The key registry in the accepting transaction: bound, ended and never anything else (TRU-2, RULE-06)."""

import asyncio
import json
from collections.abc import AsyncIterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from contracts.command import key_register
from contracts.documents.common import Actor, ActorType
from contracts.payloads.requests import heads_request
from contracts.rejection import Code, Rejection
from contracts.signature import SigningKey
from contracts.timestamps import format_timestamp, instant
from ops.bench.workload import signed_command
from ops.init import Organization, initialize, key_file
from ops.keys.audit_registry import audit_registry
from services.authority.admission_pool import AdmissionPool
from services.authority.admitted import Admitted, Refused
from services.authority.follow_signing_key import SigningKeyFollower
from services.authority.freshness import Freshness
from services.authority.judge_batch import SigningKeyRefused
from services.authority.key_cache import KeyRegistryCache
from services.authority.read_request import ReadRequest, ReadTrust, read_request
from services.process.database import connect
from services.process.health import READY, State
from tests.authority_rig import (
    InProcessAuthority,
    authority_on,
    moved_clock,
    post,
    receipt_of,
    refusal_of,
    rows,
    run_sql,
    verified,
)
from tests.keys_rig import (
    authority_with_groups,
    binding,
    post_with,
    registration,
    retirement,
    revocation,
    second_key,
    standing,
    to_registry,
)
from tests.relay_rig import eventually

operator_two = SigningKey.generate(Actor(type=ActorType.SERVICE, id="urn:weavehold:service:operator"))


@pytest.fixture
async def authority(database_url: str, organization: Organization) -> AsyncIterator[InProcessAuthority]:
    """An authority with two Groups."""
    async with authority_with_groups(database_url, organization) as one:
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
    trust = ReadTrust(organization_id=organization_id, keys=keys, freshness=Freshness(), registry_fault=lambda: None)

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


async def one_done(tasks: list[asyncio.Task[Any]]) -> bool:
    """Whether any of them has ended."""
    return any(task.done() for task in tasks)


async def test_no_command_of_a_key_passes_its_revocation(
    authority: InProcessAuthority, organization: Organization, database_url: str
) -> None:
    """RULE-06: many writers against one revocation: each is accepted before it or refused, in every shard."""
    key = second_key(organization)
    await authority.receipt(registration(organization, key))
    async with authority.lane() as lane, authority.lane() as registry:
        posts: list[asyncio.Task[Any]] = []
        over = asyncio.Event()

        async def write() -> None:
            while not over.is_set():
                posts.append(asyncio.create_task(authority.through(lane, post_with(key, len(posts) % 2))))
                await asyncio.sleep(0.001)

        writing = asyncio.create_task(write())
        await eventually(lambda: one_done(posts), 60, "the first to be accepted")
        revoked = receipt_of(await authority.through(registry, revocation(organization, key)))
        late = await authority.through(lane, post_with(key))
        posts.append(asyncio.create_task(authority.through(lane, post_with(key))))
        over.set()
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
    organization_id = organization.organization_id
    trust = ReadTrust(
        organization_id=organization_id,
        keys=KeyRegistryCache(authority.pool, organization_id),
        freshness=Freshness(),
        registry_fault=lambda: None,
    )

    async def ask() -> ReadRequest | Rejection:
        raw = signed_command(key, heads_request, organization_id, {"groupIds": [organization_id]}, 1)
        return await read_request(authority.pool, trust, raw, (heads_request,))

    assert isinstance(await ask(), ReadRequest)
    await run_sql(database_url, moved_clock.format("50 seconds"))
    assert isinstance(await ask(), ReadRequest)
    revoked = await authority.receipt(revocation(organization, key))
    await run_sql(database_url, moved_clock.format("0 seconds"))
    assert instant(revoked.accepted_at) > instant(format_timestamp(datetime.now(UTC)))
    assert refusal_of(await authority.answer(post_with(key))).code is Code.AUTH_INVALID_SIGNATURE
    await authority.receipt(post(organization))
    refused = await ask()
    assert isinstance(refused, Rejection)
    assert refused.code is Code.AUTH_INVALID_SIGNATURE


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
