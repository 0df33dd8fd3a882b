"""At which moments trust is judged, and who may move them (TRU-2, TRU-4, RULE-06)."""

import json
from collections.abc import AsyncIterator
from datetime import UTC, datetime, timedelta

import pytest

from contracts.command import agent_card_register, key_register, key_revoke, session_open
from contracts.payloads.requests import heads_request
from contracts.rejection import Code, Rejection
from contracts.signature import SigningKey, base64url_text
from contracts.timestamps import format_timestamp, instant
from ops.bench.workload import register_agent, signed_command
from ops.init import Organization
from services.authority.audit_failure import forget_old_failures
from services.authority.freshness import Freshness
from services.authority.judge_batch import SigningKeyRefused
from services.authority.key_cache import KeyRegistryCache
from services.authority.read_request import ReadRequest, ReadTrust, read_request
from services.process.database import connect
from tests.authority_rig import (
    InProcessAuthority,
    authority_on,
    coordinator,
    moved_clock,
    post,
    refusal_of,
    rows,
    run_sql,
    verified,
    with_groups,
)


@pytest.fixture
async def authority(database_url: str, organization: Organization) -> AsyncIterator[InProcessAuthority]:
    async with authority_on(database_url, organization) as one:
        await with_groups(one, 0)
        yield one


def binding(organization: Organization, key: SigningKey) -> bytes:
    payload = {
        "keyId": key.key_id,
        "principal": {"type": key.principal.type.value, "id": key.principal.id},
        "algorithm": "Ed25519",
        "publicKey": base64url_text(key.public_key),
    }
    return signed_command(organization.keys.operator, key_register, organization.organization_id, payload)


def revocation(organization: Organization, key: SigningKey, signer: SigningKey) -> bytes:
    payload = {"keyId": key.key_id, "reason": "stolen"}
    return signed_command(signer, key_revoke, organization.organization_id, payload)


async def test_a_key_does_not_begin_before_its_binding_though_the_clock_steps_back(
    authority: InProcessAuthority, organization: Organization, database_url: str
) -> None:
    """TRU-4, RULE-03: what is signed bears a time at which its key was valid, or is not signed."""
    successor = SigningKey.generate(organization.keys.authority.principal)
    owners = SigningKey.generate(organization.keys.mission_owner.principal)
    await run_sql(database_url, moved_clock.format("50 seconds"))
    for key in (successor, owners):
        await authority.receipt(binding(organization, key))
    await run_sql(database_url, moved_clock.format("0 seconds"))
    soon = format_timestamp(datetime.now(UTC) + timedelta(seconds=55))
    by_owner = signed_command(owners, "message.post", *_message(organization), issuedAt=soon)
    assert refusal_of(await authority.answer(by_owner)).code is Code.AUTH_INVALID_SIGNATURE
    before, authority.office.key = authority.office.key, successor
    with pytest.raises(SigningKeyRefused, match="not valid"):
        await authority.answer(post(organization))
    authority.office.key = before
    await authority.receipt(post(organization))
    await verified(database_url, organization)


def _message(organization: Organization) -> tuple[str, dict[str, object], int]:
    command = json.loads(post(organization))
    return command["groupId"], command["payload"], command["membershipEpoch"]


async def test_whoever_keeps_no_registry_moves_no_time_and_holds_up_nobody(
    authority: InProcessAuthority, organization: Organization, database_url: str
) -> None:
    """RULE-06: a revocation by somebody without the right is refused, and its neighbours are accepted at their time."""
    await run_sql(database_url, moved_clock.format("50 seconds"))
    ahead = await authority.receipt(binding(organization, SigningKey.generate(organization.keys.operator.principal)))
    await run_sql(database_url, moved_clock.format("0 seconds"))
    owner = organization.keys.mission_owner
    group_id, _, epoch = _message(organization)
    payload = {"keyId": organization.keys.registry.key_id, "reason": "mine"}
    asked = signed_command(owner, key_revoke, group_id, payload, epoch)
    committed = await authority.commit(post(organization), asked)
    assert refusal_of(committed.answers[1]).code is Code.INVALID_COMMAND
    [event] = committed.events
    assert instant(event.accepted_at.isoformat()) < instant(ahead.accepted_at)


def _registrars(organization: Organization) -> tuple[SigningKey, SigningKey]:
    return organization.keys.operator, organization.keys.registry


async def test_what_was_admitted_once_is_admitted_though_its_key_has_ended(
    authority: InProcessAuthority, organization: Organization, database_url: str
) -> None:
    """TRU-4: a document with a record is judged by its record; a new one by its key as it stands now."""
    operator, registry = _registrars(organization)
    newer = register_agent(operator, registry, coordinator, organization.organization_id)
    await authority.receipt(revocation(organization, registry, operator))
    assert refusal_of(await authority.answer(newer)).code is Code.AUTH_INVALID_SIGNATURE
    first = json.loads((await rows(database_url, "SELECT convert_from(card, 'UTF8') FROM agent"))[0][0])
    again = signed_command(operator, agent_card_register, None, {"card": first})
    assert refusal_of(await authority.answer(again)).code is Code.REVISION_CONFLICT
    await verified(database_url, organization)


async def test_a_session_is_not_opened_by_a_key_revoked_since_its_proof(
    authority: InProcessAuthority, organization: Organization, database_url: str
) -> None:
    """RULE-06, RULE-07: the Command that opens it is judged under the lock, after the revocation; nothing is fenced."""
    opening = {"agentId": coordinator.principal.id, "keyId": coordinator.key_id}
    proven = signed_command(organization.keys.authority, session_open, None, opening)
    before = await rows(database_url, "SELECT session_epoch FROM agent")
    await authority.receipt(revocation(organization, coordinator, organization.keys.operator))
    refusal = refusal_of(await authority.answer(proven))
    assert (refusal.code, refusal.message) == (Code.AUTH_INVALID_SIGNATURE, "session proof rejected")
    assert await rows(database_url, "SELECT session_epoch FROM agent") == before


async def test_no_read_is_believed_while_the_registry_is_not_valid(
    authority: InProcessAuthority, organization: Organization
) -> None:
    """TRU-2: a registry that cannot be trusted as a whole vouches for nobody, whoever asks."""
    faults: list[str | None] = [None]
    organization_id = organization.organization_id
    keys = KeyRegistryCache(authority.pool, organization_id)
    trust = ReadTrust(
        organization_id=organization_id, keys=keys, freshness=Freshness(), registry_fault=lambda: faults[0]
    )
    raw = signed_command(organization.keys.operator, heads_request, None, {"groupIds": [organization_id]})
    assert isinstance(await read_request(authority.pool, trust, raw, (heads_request,)), ReadRequest)
    faults[0] = "the key registry is not valid"
    refused = await read_request(authority.pool, trust, raw, (heads_request,))
    assert isinstance(refused, Rejection)
    assert (refused.code, refused.retryable) == (Code.BACKPRESSURE, True)


async def test_the_protected_record_is_cleared_in_bounded_steps(
    database_url: str, organization: Organization, monkeypatch: pytest.MonkeyPatch
) -> None:
    """TRU-5, OPS-1: old failures go, a bounded number at a time; young ones stay."""
    monkeypatch.setattr("services.authority.audit_failure.forgotten_in_step_max", 3)
    await run_sql(
        database_url,
        "INSERT INTO authentication_failure (organization_id, failed_at, stage, reason, document_sha256) "
        "SELECT organization_id, weavehold_clock() - make_interval(days => d), 'signature', 'x', '' "
        "FROM organization, generate_series(1, 8) d",
    )
    connection = await connect(database_url, name="forgetting")
    try:
        steps = [await forget_old_failures(connection, organization.organization_id, days_kept=4) for _ in range(2)]
    finally:
        await connection.close()
    assert steps == [True, False]
    assert await rows(database_url, "SELECT count(*) FROM authentication_failure") == [(3,)]
