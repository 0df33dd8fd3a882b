"""Signed reads of registered keys: who is answered, with what, and by whose signature (TRU-2, RULE-30)."""

import asyncio
from pathlib import Path

import pytest

from contracts import subjects
from contracts.identifiers import organization_shard, registry_group
from contracts.key_registry import KeyRegistry
from contracts.payloads.requests import Keys, keys_asked_max, keys_request
from contracts.rejection import Code
from contracts.signature import SigningKey
from contracts.timestamps import format_timestamp, parse_timestamp
from ops.init import Organization
from services.agent.connect import Client
from services.agent.read_history import AnsweredKeys
from services.agent.send_command import Refusal, RetryPolicy
from services.authority.batch_facts import sql
from services.authority.serve_keys import serve_keys
from services.feed.trust_anchors import load_anchors
from services.feed.trust_chain import NotBelieved, TrustChain
from services.process.database import connect
from tests.authority_rig import authority_on
from tests.builders import build_event, end_key, insert_history, revoke_key, signing_key
from tests.keys_rig import registration, second_key
from tests.reads_rig import Asker, code_of, now, planted, serving
from tests.relay_rig import eventually
from tests.trust_rig import authority_key, binding

impatient = RetryPolicy(deadline_seconds=5.0)


async def test_any_principal_is_told_keys_and_can_prove_them(database_url: str, nats_url: str, tmp_path: Path) -> None:
    """TRU-2, RULE-30: bindings with all statements of their ends; unknown keys are absent; signed for this request."""
    async with planted(database_url, tmp_path) as org, serving(database_url, nats_url, org) as authority:
        worker, late = await org.add_agent("worker"), now(3_600)
        await end_key(org.connection, worker.key_id, valid_until=late)
        await end_key(org.connection, worker.key_id, revoked_at=now())
        reader = await org.add_agent("reader")
        evidence = load_anchors(tmp_path / "test" / "anchors.json").of(org.id)
        assert evidence is not None
        keys = org.organization.keys
        for key in (reader, keys.operator, keys.mission_owner):
            client = Client(authority.nc, org.id, key, policy=impatient)
            if key is reader:
                refused = await client.history.keys([worker.key_id])
                assert isinstance(refused, Refusal)
                assert refused.code is not Code.AUTH_INVALID_SIGNATURE
                asker = Asker(authority.nc, org.id, key)
                asked = {"keyIds": [worker.key_id, "urn:test:key:none"]}
                document = await asker.ask(subjects.query(org.id), keys_request, asked, action_id="urn:test:read")
                answered = AnsweredKeys(document=document, action_id="urn:test:read")
            else:
                told = await client.history.keys([worker.key_id, "urn:test:key:none"])
                assert isinstance(told, AnsweredKeys)
                answered = told
            found = TrustChain(evidence).judge(answered.document, answered.action_id)
            assert isinstance(found, dict)
            assert found.keys() == {worker.key_id}
            [stated] = answered.document["registry"]["bindings"]
            assert [entry["sequence"] for entry in stated["validityHistory"]] == [1, 2]
            assert found[worker.key_id].valid_until == late
            assert found[worker.key_id].public_key == worker.public_key
            with pytest.raises(NotBelieved):
                TrustChain(evidence).judge(answered.document, "urn:test:other")


async def test_a_later_key_of_the_authority_comes_with_the_event_that_bound_it(
    database_url: str, nats_url: str, tmp_path: Path
) -> None:
    """TRU-2: who knows only the pinned key learns the next one from the registry's own history."""
    async with planted(database_url, tmp_path) as org, serving(database_url, nats_url, org) as authority:
        following, pinned = authority_key(2), org.organization.keys.authority
        standing = {name: value for name, value in binding(following).items() if name != "validityHistory"}
        built = build_event(
            "ext.weavehold.registry.key_registered",
            {"key": standing},
            pinned,
            organization_id=org.id,
            group_id=registry_group(org.id),
            incarnation=org.incarnation,
            occurred_at=now(),
        )
        await insert_history(org.connection, organization_shard, [built])
        await org.connection.execute(
            "INSERT INTO signing_key (organization_id, key_id, principal_type, principal_id, public_key, valid_from, "
            "event_id) VALUES (%s, %s, 'service', %s, %s, %s, %s)",
            (
                *(org.id, following.key_id, following.principal.id, following.public_key),
                *(standing["validFrom"], built.event.event_id),
            ),
        )
        client = Client(authority.nc, org.id, org.organization.keys.operator, policy=impatient)
        answered = await client.history.keys([pinned.key_id, following.key_id])
        assert isinstance(answered, AnsweredKeys)
    assert [event["eventId"] for event in answered.document["boundBy"]] == [built.event.event_id]
    evidence = load_anchors(tmp_path / "test" / "anchors.json").of(org.id)
    assert evidence is not None
    assert KeyRegistry(evidence).resolve(pinned.key_id) is not None
    chain = TrustChain(evidence)
    found = chain.judge(answered.document, answered.action_id)
    assert isinstance(found, dict)
    assert set(chain.key_ids) == {pinned.key_id, following.key_id}


@pytest.mark.parametrize("count", [0, keys_asked_max + 1])
async def test_a_request_names_a_bounded_number_of_keys(
    database_url: str, nats_url: str, tmp_path: Path, count: int
) -> None:
    """RULE-30: from 1 to 100 keys."""
    async with planted(database_url, tmp_path) as org, serving(database_url, nats_url, org) as authority:
        asker = Asker(authority.nc, org.id, await org.add_agent("worker"))
        many = {"keyIds": [f"urn:test:key:{number}" for number in range(count)]}
        refused = await asker.ask(subjects.query(org.id), keys_request, many)
        most = {"keyIds": [f"urn:test:key:{number}" for number in range(keys_asked_max)]}
        answered = await asker.ask(subjects.query(org.id), keys_request, most)
    assert code_of(refused) == "SCHEMA_VALIDATION_FAILED"
    assert answered["registry"]["bindings"] == []


async def test_another_organizations_keys_are_none(database_url: str, nats_url: str, tmp_path: Path) -> None:
    """RULE-32: a key of another Organization is not registered here, whoever asks; and a stranger is not answered."""
    async with (
        planted(database_url, tmp_path) as org,
        planted(database_url, tmp_path, "other") as other,
        serving(database_url, nats_url, org) as authority,
    ):
        foreign = await other.add_agent("foreign")
        asker = Asker(authority.nc, org.id, await org.add_agent("worker"))
        answered = await asker.ask(subjects.query(org.id), keys_request, {"keyIds": [foreign.key_id]})
        stranger = Asker(authority.nc, org.id, signing_key("stranger"))
        refused = await stranger.ask(subjects.query(org.id), keys_request, {"keyIds": [foreign.key_id]})
    assert answered["registry"] == {"organizationId": org.id, "bindings": []}
    assert code_of(refused) == "AUTH_INVALID_SIGNATURE"


async def test_an_answer_waits_for_a_change_of_keys_that_is_under_way(
    database_url: str, organization: Organization
) -> None:
    """TRU-2, RULE-06: a revocation takes its time first and commits later; an answer of after that time has it."""
    key, asked = organization.keys.mission_owner, {"organization_id": organization.organization_id}
    async with (
        authority_on(database_url, organization) as authority,
        authority.pool.connection() as reader,
        await connect(database_url, name="registrar", autocommit=False) as registrar,
        await connect(database_url, name="look") as look,
    ):
        await registrar.execute(sql.lock_keys_exclusive, asked)
        [(revoked_at,)] = await (await registrar.execute(sql.read_clock)).fetchall()
        await revoke_key(registrar, key.key_id, format_timestamp(revoked_at))
        answering = asyncio.create_task(
            serve_keys(
                reader,
                organization.organization_id,
                organization.keys.authority,
                "urn:test:read",
                Keys(key_ids=(key.key_id,)),
            )
        )

        async def waits_or_answered() -> bool:
            cursor = await look.execute("SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND NOT granted")
            return answering.done() or await cursor.fetchone() == (1,)

        await eventually(waits_or_answered, 60, "the answer to meet the change")
        await registrar.commit()
        answer = await answering
    assert parse_timestamp(answer.answered_at) > revoked_at
    [stated] = answer.registry.bindings[0].validity_history
    assert stated.revoked_at == format_timestamp(revoked_at)


async def test_how_other_keys_were_bound_is_not_told(database_url: str, organization: Organization) -> None:
    """TRU-2, RULE-30: the registry's Event comes along for a key of the authority, never for somebody else's."""
    successor = SigningKey.generate(organization.keys.authority.principal)
    others = [second_key(organization), SigningKey.generate(organization.keys.operator.principal)]
    async with authority_on(database_url, organization) as authority, authority.pool.connection() as reader:
        bound = await authority.receipt(registration(organization, successor))
        for key in others:
            await authority.receipt(registration(organization, key))
        asked = Keys(key_ids=tuple(key.key_id for key in (*others, successor)))
        answer = await serve_keys(
            reader, organization.organization_id, organization.keys.authority, "urn:test:read", asked
        )
    assert {binding.key_id for binding in answer.registry.bindings} == set(asked.key_ids)
    assert [event["eventId"] for event in answer.bound_by] == [bound.events[0].event_id]
