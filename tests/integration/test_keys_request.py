"""Signed reads of registered keys: who is answered, with what, and by whose signature (TRU-2, RULE-30)."""

from pathlib import Path

import pytest

from contracts import subjects
from contracts.identifiers import organization_shard, registry_group
from contracts.key_registry import KeyRegistry
from contracts.payloads.requests import keys_asked_max, keys_request
from contracts.rejection import Code
from services.agent.connect import Client
from services.agent.read_history import AnsweredKeys
from services.agent.send_command import Refusal, RetryPolicy
from services.feed.trust_anchors import load_anchors
from services.feed.trust_chain import NotBelieved, TrustChain
from tests.builders import build_event, end_key, insert_history, signing_key
from tests.reads_rig import Asker, code_of, now, planted, serving
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
