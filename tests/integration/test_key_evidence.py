"""The key registry as evidence: valid as a whole or nothing counts, and row for row what its history says (TRU-2)."""

import asyncio
import json
from collections.abc import AsyncIterator

import psycopg
import pytest

from contracts.command import agent_card_register
from contracts.documents.common import Actor, ActorType
from contracts.rejection import Code
from contracts.signature import SigningKey, sign_document
from ops.bench.workload import register_agent, signed_command
from ops.init import Organization
from ops.verify.finding import Report
from ops.verify.verify_keys import verify_keys
from ops.verify.verify_log import LogVerifier
from services.authority import audit_registry as audit_module
from services.authority.audit_registry import RegistryAuditor
from services.authority.judge_batch import SigningKeyRefused
from services.authority.key_cache import KeyRegistryCache
from services.process.database import connect
from services.process.health import READY, State
from tests.authority_rig import (
    InProcessAuthority,
    post,
    refusal_of,
    rows,
    run_sql,
    verified,
)
from tests.builders import revoke_key
from tests.keys_rig import (
    authority_with_groups,
    registration,
    retirement,
    revocation,
    second_key,
    standing,
)
from tests.relay_rig import eventually


@pytest.fixture
async def authority(database_url: str, organization: Organization) -> AsyncIterator[InProcessAuthority]:
    """An authority with two Groups."""
    async with authority_with_groups(database_url, organization) as one:
        yield one


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
    "no calendar": "UPDATE key_validity SET recorded_at = 'infinity' WHERE key_id = '{key}'",
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
    assert ending.key_id in finding.detail or damage in {"no time", "no calendar"}
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
        await eventually(trusted, 60, "the first examination")
        await run_sql(database_url, *untriggered, untrusted["weak key"].format(key=ending.key_id))
        await eventually(distrusted, 60, "the next examination")
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


hidden_revocation = "DELETE FROM key_validity WHERE key_id = '{key}'"
eventless = {
    "a revocation's row gone": hidden_revocation,
    "its Event's name gone": "UPDATE key_validity SET event_id = NULL WHERE key_id = '{key}'",
    "the name gone, and moved": "UPDATE key_validity SET event_id = NULL, revoked_at = '2039-01-01T00:00:00Z' "
    "WHERE key_id = '{key}'",
}


@pytest.mark.parametrize("damage", eventless)
async def test_a_revocation_of_a_first_key_cannot_be_hidden(
    damage: str, authority: InProcessAuthority, organization: Organization, database_url: str
) -> None:
    """TRU-2: a key of `weavehold init` has no Event that binds it, but what ended it is an Event and has its row."""
    key = organization.keys.mission_owner
    revoked = await authority.receipt(revocation(organization, key))
    assert await standing(database_url, key) == (None, revoked.accepted_at)
    assert (await keys_report(database_url, organization)).ok
    await run_sql(database_url, *untriggered, eventless[damage].format(key=key.key_id))
    [found] = (await keys_report(database_url, organization)).findings
    assert f"statement 1 of key {key.key_id}" in found.message
    assert found.message.count(revoked.events[0].event_id) == 1
    if damage == "a revocation's row gone":
        # The hidden key acts again, and it is the comparison with history that tells.
        await authority.receipt(post(organization))
        assert not (await keys_report(database_url, organization)).ok


@pytest.mark.parametrize("place", [1, 2])
async def test_an_end_of_a_first_key_that_no_event_states_is_found(
    place: int, authority: InProcessAuthority, organization: Organization, database_url: str
) -> None:
    """TRU-2: who can write rows can end a key, but not without being named."""
    key = organization.keys.mission_owner
    if place == 2:
        await authority.receipt(retirement(organization, key, 3_600))
    assert (await keys_report(database_url, organization)).ok
    async with await connect(database_url, name="force") as connection:
        await revoke_key(connection, key.key_id, "2038-01-01T00:00:00Z")
    [found] = (await keys_report(database_url, organization)).findings
    assert f"statement {place} of key {key.key_id} is in the registry, but no Event makes it" in found.message


@pytest.mark.parametrize("table", ["signing_key", "key_validity", "admission"])
@pytest.mark.parametrize("verb", ["UPDATE {} SET organization_id = organization_id", "DELETE FROM {}"])
async def test_the_database_refuses_to_change_what_is_for_good(
    table: str, verb: str, authority: InProcessAuthority, database_url: str, ending: SigningKey
) -> None:
    """TRU-2, TRU-4: bindings, statements and first admissions are append-only."""
    with pytest.raises(psycopg.errors.RestrictViolation, match=f"{table} rows are immutable"):
        await run_sql(database_url, verb.format(table))


async def agent_with_an_end(authority: InProcessAuthority, organization: Organization) -> SigningKey:
    """An Agent whose card binds its key and plans the key's end."""
    agent = SigningKey.generate(Actor(type=ActorType.AGENT, id="urn:weavehold:agent:ada"))
    keys = organization.keys
    card = json.loads(register_agent(keys.operator, keys.registry, agent, organization.organization_id))["payload"][
        "card"
    ]
    del card["signature"]
    card["publicKeys"][0]["validUntil"] = "2040-01-01T00:00:00Z"
    signed = json.loads(sign_document(card, keys.registry, card["issuedAt"]))
    await authority.receipt(signed_command(keys.operator, agent_card_register, None, {"card": signed}))
    return agent


async def test_a_card_binds_and_the_registry_ends(
    authority: InProcessAuthority, organization: Organization, database_url: str
) -> None:
    """TRU-2: an Agent's key comes with its card and ends by the registry, also in the statement's own shard."""
    agent = await agent_with_an_end(authority, organization)
    assert await standing(database_url, agent) == ("2040-01-01T00:00:00Z", None)
    await verified(database_url, organization)
    assert refusal_of(await authority.answer(registration(organization, agent))).code is Code.INVALID_COMMAND
    revoked = await authority.receipt(revocation(organization, agent))
    assert await standing(database_url, agent) == ("2040-01-01T00:00:00Z", revoked.accepted_at)
    await verified(database_url, organization)


as_migrated = (
    "UPDATE signing_key SET event_id = NULL WHERE key_id = '{key}'; "
    "UPDATE key_validity v SET event_id = NULL, recorded_at = k.registered_at FROM signing_key k "
    "WHERE k.key_id = v.key_id AND v.key_id = '{key}' AND v.sequence = 1"
)
migrated_damage = {
    "the end of the card gone": "DELETE FROM key_validity WHERE key_id = '{key}' AND sequence = 1",
    "the end of the card moved": "UPDATE key_validity SET valid_until = '2041-01-01T00:00:00Z' "
    "WHERE key_id = '{key}' AND sequence = 1",
    "its time moved": "UPDATE key_validity SET recorded_at = recorded_at - interval '1 s' "
    "WHERE key_id = '{key}' AND sequence = 1",
    "the revocation gone": "DELETE FROM key_validity WHERE key_id = '{key}' AND sequence = 2",
    "the revocation without its Event": "UPDATE key_validity SET event_id = NULL "
    "WHERE key_id = '{key}' AND sequence = 2",
}


@pytest.mark.parametrize("damage", migrated_damage)
async def test_a_key_from_before_bindings_named_their_event_is_explained_by_its_card(
    damage: str, authority: InProcessAuthority, organization: Organization, database_url: str
) -> None:
    """TRU-2: its card accounts for the binding and for the end that it came with, an Event for every later end."""
    agent = await agent_with_an_end(authority, organization)
    await authority.receipt(revocation(organization, agent))
    await run_sql(database_url, *untriggered, *as_migrated.format(key=agent.key_id).split("; "))
    report = await keys_report(database_url, organization)
    assert report.ok, report.findings
    await run_sql(database_url, migrated_damage[damage].format(key=agent.key_id))
    report = await keys_report(database_url, organization)
    assert any(f"of key {agent.key_id}" in found.message for found in report.findings), report.findings
