"""Commands that are signed rightly and deceive all the same, on a real PostgreSQL (TRU-2, TRU-4, TRU-6, RULE-06).

What a refusal leaves behind is looked at each time: no Event, no Receipt, no admission, no name taken.
"""

import asyncio
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import msgspec
import pytest

from contracts import subjects
from contracts.bounds import freshness_future_seconds, freshness_past_seconds
from contracts.documents.common import ActorType
from contracts.payloads.requests import heads_request
from contracts.rejection import Code
from contracts.signature import SigningKey
from contracts.timestamps import format_timestamp
from ops.bench.workload import register_agent
from ops.init import Organization
from services.authority.admit import admit_one
from services.authority.admitted import Accepted, Refused
from services.authority.key_cache import SynchronousKeyResolver
from services.process.database import connect
from tests.authority_rig import (
    InProcessAuthority,
    authority_on,
    post,
    receipt_of,
    refusal_of,
    rows,
    run_sql,
    with_groups,
)
from tests.builders import principal, revoke_key, signing_key
from tests.reads_rig import Asker, code_of, planted, serving

frozen_clock = """CREATE OR REPLACE FUNCTION weavehold_clock() RETURNS timestamptz LANGUAGE sql VOLATILE AS
$$ SELECT timestamptz '{}' $$"""
group = "urn:weavehold:group:alpha"


async def durable(url: str) -> tuple[int, ...]:
    """How much is kept: Events, Receipts, admissions, names, entities."""
    [counts] = await rows(
        url,
        "SELECT (SELECT count(*) FROM event_log), (SELECT count(*) FROM receipt), (SELECT count(*) FROM admission),"
        " (SELECT count(*) FROM identifier), (SELECT count(*) FROM entity)",
    )
    return counts


def borders(now: datetime) -> tuple[list[str], list[str]]:
    """Times at or inside the borders of freshness around `now`, and times a little outside, in many digits."""
    earliest = format_timestamp(now - timedelta(seconds=freshness_past_seconds)).removesuffix("Z")
    latest = format_timestamp(now + timedelta(seconds=freshness_future_seconds)).removesuffix("Z")
    before = format_timestamp(now - timedelta(seconds=freshness_past_seconds, microseconds=1)).removesuffix("Z")
    fresh = [earliest, earliest + "0" * 994, earliest + "0" * 40 + "1", latest, latest + "0" * 994]
    stale = [before, before + "999", before + "9" * 994, latest + "001", latest + "0" * 993 + "1"]
    return [each + "Z" for each in fresh], [each + "Z" for each in stale]


async def test_freshness_ends_exactly_at_its_borders(database_url: str, organization: Organization) -> None:
    """TRU-6, TRU-3: 5 min back and 1 min ahead belong to it, a nanosecond and 10^-1000 s beyond do not."""
    now = datetime.now(UTC).replace(microsecond=123_456)
    fresh, stale = borders(now)
    async with authority_on(database_url, organization) as authority:
        await with_groups(authority, 0)
        await run_sql(database_url, frozen_clock.format(now.isoformat()))
        before = await durable(database_url)
        refused = await authority.commit(*(post(organization, issuedAt=each) for each in stale))
        assert {refusal_of(answer).code for answer in refused.answers} == {Code.AUTH_INVALID_SIGNATURE}
        assert [failure.stage for failure in refused.failures] == ["freshness"] * len(stale)
        assert await durable(database_url) == before
        accepted = await authority.commit(*(post(organization, issuedAt=each) for each in fresh))
        assert all(isinstance(answer, Accepted) for answer in accepted.answers), accepted.answers
        assert accepted.failures == ()


async def test_a_read_is_fresh_up_to_the_same_borders(database_url: str, nats_url: str, tmp_path: Path) -> None:
    """TRU-6: signed reads are judged like Commands, to the last digit."""
    now = datetime.now(UTC).replace(microsecond=123_456)
    fresh, stale = borders(now)
    async with planted(database_url, tmp_path) as org, serving(database_url, nats_url, org) as authority:
        asker = Asker(authority.nc, org.id, await org.add_agent("worker"))
        await org.connection.execute(frozen_clock.format(now.isoformat()))

        async def code(issued_at: str) -> str | None:
            asked = (subjects.query(org.id), heads_request, {"groupIds": [group]})
            return code_of(await asker.ask(*asked, issued_at=issued_at))

        assert [await code(each) for each in fresh] == [None] * len(fresh)
        assert [await code(each) for each in stale] == ["AUTH_INVALID_SIGNATURE"] * len(stale)
        assert {stage for stage, _ in await org.failures()} == {"freshness"}


async def plant_admission(authority: InProcessAuthority, raw: bytes, **others: str) -> None:
    """An admission record of this Command as if it had been written before, with other terms."""
    [routed] = await authority.route([raw])
    fact = routed.admitted.fact
    terms = {
        "document_kind": fact.kind,
        "key_id": fact.key_id,
        "principal_type": fact.principal.type.value,
        "principal_id": fact.principal.id,
        "trusted_accepted_at": format_timestamp(datetime.now(UTC)),
        "accepted_by": authority.office.key.principal.id,
    } | others
    await rows(
        authority.url,
        f"INSERT INTO admission (organization_id, signing_hash, admission_record_id, {', '.join(terms)}) "
        f"VALUES (%s, %s, 'urn:uuid:planted', {', '.join(['%s'] * len(terms))}) RETURNING 1",
        authority.office.organization_id,
        fact.signing_hash,
        *terms.values(),
    )


other_terms = {
    "kind": {"document_kind": "event"},
    "key": {"key_id": "urn:weavehold:key:another"},
    "principal": {"principal_id": "urn:weavehold:human:another"},
    "type": {"principal_type": "service"},
    "accepting-service": {"accepted_by": "urn:weavehold:service:another"},
    "time-before-the-key": {"trusted_accepted_at": "2001-01-01T00:00:00Z"},
}


@pytest.mark.parametrize("name", other_terms)
async def test_content_that_was_admitted_under_other_terms_is_refused(
    name: str, database_url: str, organization: Organization
) -> None:
    """TRU-4: the same unsigned content under another kind, key, Principal, service or time is not this document."""
    async with authority_on(database_url, organization) as authority:
        await with_groups(authority, 0)
        raw = post(organization)
        await plant_admission(authority, raw, **other_terms[name])
        before = await durable(database_url)
        committed = await authority.commit(post(organization), raw, post(organization))
        refusal = refusal_of(committed.answers[1])
        assert (refusal.code, refusal.message) == (Code.AUTH_INVALID_SIGNATURE, "signed document rejected")
        assert [failure.stage for failure in committed.failures] == ["admission"]
        receipt_of(committed.answers[0])
        receipt_of(committed.answers[2])
        # Its two neighbours in the batch, and nothing of it.
        assert (await durable(database_url))[:4] == tuple(count + 2 for count in before[:4])


async def test_a_record_of_the_very_same_terms_is_kept(database_url: str, organization: Organization) -> None:
    """TRU-4: append or return the existing: the first record stays, the Command is accepted under it."""
    async with authority_on(database_url, organization) as authority:
        await with_groups(authority, 0)
        raw = post(organization)
        await plant_admission(authority, raw)
        receipt_of(await authority.answer(raw))
    assert await rows(
        database_url, "SELECT count(*) FROM admission WHERE admission_record_id = 'urn:uuid:planted'"
    ) == [(1,)]


async def test_two_writers_admit_one_command_once(database_url: str, organization: Organization) -> None:
    """TRU-4, MWP-EVT-003: two processes that both believe to hold the shard, each with its own connection, race."""
    async with (
        authority_on(database_url, organization) as one,
        authority_on(database_url, organization) as two,
    ):
        await with_groups(one, 0)
        assert one.held == two.held
        await two.receipt(post(organization))
        before = await durable(database_url)
        for _ in range(10):
            raw = post(organization)
            first, second = await asyncio.gather(one.commit(raw), two.commit(raw))
            assert receipt_of(first.answers[0]) == receipt_of(second.answers[0])
            assert len(first.events) + len(second.events) == 1
    after = await durable(database_url)
    # Ten Events, Receipts and admissions; the entity of each Message and its name.
    assert after[:3] == tuple(count + 10 for count in before[:3])


def resolver_of(url: str, organization: Organization) -> SynchronousKeyResolver:
    """The keys as an admission process finds them now."""
    return SynchronousKeyResolver(url, organization.organization_id)


async def revoke(url: str, key: SigningKey, at: str) -> None:
    connection = await connect(url, name="revoking")
    try:
        await revoke_key(connection, key.key_id, at)
    finally:
        await connection.close()


async def admission_of(url: str, organization: Organization, raw: bytes) -> Any:
    """What an admission process without any memory says."""
    resolver = resolver_of(url, organization)
    try:
        return await asyncio.to_thread(admit_one, raw, resolver)
    finally:
        resolver.close()


async def test_a_key_that_was_revoked_when_it_signed_is_refused_at_the_door(
    database_url: str, organization: Organization
) -> None:
    """TRU-2, RULE-06: a revocation at or before `issuedAt` fails the fourth stage; half-open at the very moment."""
    now = datetime.now(UTC)
    moment = format_timestamp(now)
    just_before = format_timestamp(now - timedelta(microseconds=1))
    signed_at, signed_before = post(organization, issuedAt=moment), post(organization, issuedAt=just_before)
    await revoke(database_url, organization.keys.mission_owner, moment)
    at, before = [await admission_of(database_url, organization, raw) for raw in (signed_at, signed_before)]
    assert isinstance(at, Refused)
    assert at.rejection.code is Code.AUTH_INVALID_SIGNATURE
    assert at.failure is not None
    assert at.failure.stage == "key-resolution"
    # Signed in time it passes the stages; the accepting transaction refuses it: see the next test.
    assert not isinstance(before, Refused)


async def test_a_revocation_between_signing_and_acceptance_counts(
    database_url: str, organization: Organization
) -> None:
    """TRU-2, RULE-06: what was signed before the revocation and arrives after it is not accepted; what was, stays."""
    owner = organization.keys.mission_owner
    async with authority_on(database_url, organization) as authority:
        await with_groups(authority, 0)
        early, late = post(organization), post(organization)
        receipt = await authority.receipt(early)
        await revoke(database_url, owner, format_timestamp(datetime.now(UTC)))
        before = await durable(database_url)
        committed = await authority.commit(late)
        assert refusal_of(committed.answers[0]).code is Code.AUTH_INVALID_SIGNATURE
        assert [failure.stage for failure in committed.failures] == ["key-resolution"]
        assert await durable(database_url) == before
        assert await authority.receipt(early) == receipt


async def test_a_revocation_under_way_is_waited_for(database_url: str, organization: Organization) -> None:
    """RULE-06: acceptance that begins while a key is being revoked sees the revocation: revoked means revoked."""
    owner, operator = organization.keys.mission_owner, await connect(database_url, name="revoking", autocommit=False)
    async with authority_on(database_url, organization) as authority:
        await with_groups(authority, 0)
        before = await durable(database_url)
        routed = await authority.route([post(organization)])
        assert len(routed) == 1
        await operator.execute(
            "SELECT pg_advisory_xact_lock(hashtextextended('weavehold/keys/' || %s, 0))",
            (organization.organization_id,),
        )
        await revoke_key(operator, owner.key_id, format_timestamp(datetime.now(UTC)))
        accepting = asyncio.create_task(authority.commit(routed[0].admitted.raw))
        await asyncio.sleep(0.3)
        assert not accepting.done()
        await operator.commit()
        committed = await accepting
        await operator.close()
        assert refusal_of(committed.answers[0]).code is Code.AUTH_INVALID_SIGNATURE
        assert [failure.stage for failure in committed.failures] == ["key-resolution"]
        assert await durable(database_url) == before


async def test_the_key_of_a_document_inside_is_judged_under_the_locks_too(
    database_url: str, organization: Organization
) -> None:
    """RULE-06, TRU-2: a card signed by a key that is revoked after admission registers no Agent and no key."""
    keys = organization.keys
    agent = signing_key("newcomer")
    async with authority_on(database_url, organization) as authority:
        await with_groups(authority, 0)
        raw = register_agent(keys.operator, keys.registry, agent, organization.organization_id)
        assert not isinstance(await admission_of(database_url, organization, raw), Refused)
        await revoke(database_url, keys.registry, format_timestamp(datetime.now(UTC)))
        before = await durable(database_url)
        committed = await authority.commit(raw)
        assert refusal_of(committed.answers[0]).code is Code.AUTH_INVALID_SIGNATURE
        assert [failure.stage for failure in committed.failures] == ["key-resolution"]
        assert await durable(database_url) == before
    assert await rows(database_url, "SELECT 1 FROM signing_key WHERE key_id = %s", agent.key_id) == []


async def test_a_card_signed_by_anyone_but_a_service_registers_nothing(
    database_url: str, organization: Organization
) -> None:
    """TRU-2: a person's valid signature over an Agent Card, inside a service's valid Command."""
    keys = organization.keys
    agent = signing_key("newcomer")
    raw = register_agent(keys.operator, keys.mission_owner, agent, organization.organization_id)
    before = await durable(database_url)
    refused = await admission_of(database_url, organization, raw)
    assert isinstance(refused, Refused)
    assert refused.failure is not None
    assert refused.failure.stage == "key-resolution"
    assert await durable(database_url) == before


async def test_a_key_of_another_organization_is_worth_nothing_here(
    database_url: str, organization: Organization, tmp_path: Path
) -> None:
    """RULE-32, TRU-2: the same key ID, Principal and Group in two Organizations: each believes its own key alone."""
    async with planted(database_url, tmp_path, "other") as other:
        foreign = other.organization.keys.mission_owner
        namesake = SigningKey(organization.keys.mission_owner.key_id, foreign.principal, bytes([7]) * 32)
        await other.add_key(namesake)
        for key in (foreign, namesake):
            raw = _signed_by(key, organization)
            here = await admission_of(database_url, organization, raw)
            there = await admission_of(database_url, other.organization, raw)
            assert isinstance(here, Refused)
            assert here.rejection.code is Code.AUTH_INVALID_SIGNATURE
            assert here.failure is not None
            assert here.failure.stage == ("signature" if key is namesake else "key-resolution")
            assert not isinstance(there, Refused)


def _signed_by(key: SigningKey, organization: Organization) -> bytes:
    """The owner's Command, signed by another key of a Principal of the same name."""
    assert key.principal == organization.keys.mission_owner.principal
    document = msgspec.json.decode(post(organization))
    unsigned = {name: member for name, member in document.items() if name != "signature"}
    value = key.sign(msgspec.json.encode(unsigned, order="sorted"))
    signature = document["signature"] | {"keyId": key.key_id, "value": value}
    return msgspec.json.encode(document | {"signature": signature})


async def test_an_impostor_of_the_same_name_or_type_is_refused(database_url: str, organization: Organization) -> None:
    """TRU-2, ACC-1: registered keys that sign in the owner's name: of another person, and of an Agent so named."""
    owner = organization.keys.mission_owner
    other_person = SigningKey("urn:weavehold:key:p", principal("mallory", ActorType.HUMAN), bytes([3]) * 32)
    so_named = SigningKey(
        "urn:weavehold:key:a", msgspec.structs.replace(owner.principal, type=ActorType.AGENT), bytes([4]) * 32
    )
    before = await durable(database_url)
    for key in (other_person, so_named):
        await rows(
            database_url,
            "INSERT INTO signing_key (organization_id, key_id, principal_type, principal_id, public_key, valid_from) "
            "VALUES (%s, %s, %s, %s, %s, '2020-01-01T00:00:00Z') RETURNING 1",
            *(organization.organization_id, key.key_id, key.principal.type.value, key.principal.id, key.public_key),
        )
        document = msgspec.json.decode(post(organization))
        unsigned = {name: member for name, member in document.items() if name != "signature"}
        value = key.sign(msgspec.json.encode(unsigned, order="sorted"))
        forged = document | {"signature": document["signature"] | {"keyId": key.key_id, "value": value}}
        refused = await admission_of(database_url, organization, msgspec.json.encode(forged))
        assert isinstance(refused, Refused)
        assert refused.failure is not None
        assert refused.failure.stage == "key-resolution"
    assert await durable(database_url) == before
