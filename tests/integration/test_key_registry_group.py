"""The registry's own Group, and registries of several Organizations and of earlier databases (TRU-2, RULE-32)."""

import json
from collections.abc import AsyncIterator

import psycopg
import pytest

from contracts.command import key_revoke
from contracts.documents.common import Actor
from contracts.identifiers import GroupSequence
from contracts.payloads.requests import GroupPage, GroupReplay
from contracts.rejection import Code, Rejection
from ops.bench.workload import signed_command
from ops.group_report import read_group
from ops.init import Organization, initialize
from ops.migrate import MigrationFault, migrate, roll_back
from services.authority.serve_replay import serve_group_replay
from services.process.database import connect
from tests.authority_rig import (
    InProcessAuthority,
    authority_on,
    coordinator,
    creation,
    refusal_of,
    verified,
    with_groups,
)
from tests.keys_rig import (
    authority_with_groups,
    post_with,
    registration,
    revocation,
    second_key,
    to_registry,
)


@pytest.fixture
async def authority(database_url: str, organization: Organization) -> AsyncIterator[InProcessAuthority]:
    """An authority with two Groups."""
    async with authority_with_groups(database_url, organization) as one:
        yield one


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


@pytest.mark.parametrize("fact", ["binding", "end"])
def test_there_is_no_way_back_once_events_state_keys(empty_database_url: str, fact: str) -> None:
    """TRU-2, OPS-2: which Event states a key or its end is never forgotten; the refusal changes nothing."""
    migrate(empty_database_url)
    with psycopg.connect(empty_database_url, autocommit=True) as connection:
        connection.execute("INSERT INTO organization VALUES ('urn:org', 'org', 1)")
        connection.execute(
            "INSERT INTO signing_key (organization_id, key_id, principal_type, principal_id, public_key, valid_from, "
            "event_id) VALUES ('urn:org', 'a', 'human', 'urn:ada', %s, '2020-01-01T00:00:00Z', %s)",
            (bytes(32), "urn:event:1" if fact == "binding" else None),
        )
        connection.execute(
            "INSERT INTO key_validity VALUES ('urn:org', 'a', 1, now(), '2030-01-01T00:00:00Z', NULL, %s)",
            ("urn:event:2" if fact == "end" else None,),
        )
        with pytest.raises(MigrationFault, match=r"no way back: . keys were bound and . ends of keys stated by Events"):
            roll_back_statements(empty_database_url)
        stated = connection.execute("SELECT key_id, valid_until FROM registered_key").fetchall()
        assert stated == [("a", "2030-01-01T00:00:00Z")]
