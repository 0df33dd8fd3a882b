"""Every process works as a login that has only its own role, and the server refuses the rest (RULE-08)."""

import asyncio
import secrets
from collections.abc import Iterator
from contextlib import asynccontextmanager, closing
from pathlib import Path
from urllib.parse import urlsplit

import psycopg
import pytest
from psycopg import errors, sql

from contracts import subjects
from contracts.payloads.work import WorkStart
from ops.command_fault import CommandFault, UsageFault
from ops.embedded.postgres_server import PostgresServer
from ops.init import Organization
from ops.keys.read_failures import read_failures
from ops.provision.database_login import Role, create_login, create_login_sql, parameters_of
from ops.verify.run import verify_all
from services.agent.sign_command import Intent
from services.process.database import connect
from tests.agent_rig import PlantedMission, running_stack, small_mission
from tests.relay_rig import Shard, eventually, open_shard, relay_process

unreadable = {"session_challenge", "authentication_failure", "schema_migrations"}
"""What a reader is not shown."""


class Logins:
    """One login for each role on one server, for one database."""

    def __init__(self, database_url: str) -> None:
        mark = secrets.token_hex(4)
        self.names = {role: f"test_{role}_{mark}" for role in Role}
        self._database_url = database_url

    def make(self) -> None:
        for role, name in self.names.items():
            assert create_login(self._database_url, name, role).created

    def url(self, role: Role) -> str:
        parts = urlsplit(self._database_url)
        host = parts.netloc.rpartition("@")[2]
        return parts._replace(netloc=f"{self.names[role]}@{host}").geturl()


@pytest.fixture
def logins(postgres_server: PostgresServer, database_url: str) -> Iterator[Logins]:
    postgres_server.data.parent.joinpath("socket").chmod(0o711)
    made = Logins(database_url)
    made.make()
    yield made
    with closing(psycopg.connect(postgres_server.url(), autocommit=True)) as connection:
        for name in made.names.values():
            connection.execute(sql.SQL("DROP ROLE {}").format(sql.Identifier(name)))


@asynccontextmanager
async def opened(url: str):
    connection = await connect(url, name="test")
    try:
        yield connection
    finally:
        await connection.close()


async def test_a_relay_relays_as_its_own_login(
    database_url: str, nats_url: str, organization: Organization, tmp_path: Path, logins: Logins
) -> None:
    """OBX-1, RULE-08: leases, pages, pointers and lag, then an end in good order, all with the relay's role alone."""
    async with open_shard(database_url, nats_url, organization) as shard:
        async with relay_process(logins.url(Role.RELAY), nats_url, organization, tmp_path) as relay:
            await shard.append(300)
            await shard.append(1, size=1_100_000)
            await eventually(lambda: ends_at(shard, 301), 60, "the pointer to be published")
            assert relay.end() == 0, relay.log.read_text()
        async with opened(logins.url(Role.RELAY)) as connection:
            rows = await (await connection.execute("SELECT count(*) FROM relay_position")).fetchone()
            assert rows == (3,)


async def ends_at(shard: Shard, position: int) -> bool:
    state = await shard.state()
    return state is not None and state["last_seq"] == position


async def test_a_mission_is_worked_through_with_narrow_logins(
    database_url: str, nats_url: str, organization: Organization, tmp_path: Path, logins: Logins
) -> None:
    """RULE-08: sessions, Missions, work, acknowledgements, audited failures and a restart of the authority; a reader
    verifies all of it, an auditor is shown the failure."""
    url = logins.url(Role.AUTHORITY)
    async with running_stack(organization, url, nats_url, tmp_path, relay=False) as stack:
        stack.process("outbox_relay.main", "relay", WEAVEHOLD_DATABASE_URL=logins.url(Role.RELAY)).start()
        await stack.register("editor", "ada")
        coordinator = await stack.client("editor")
        await coordinator.open_session()
        mission = PlantedMission(stack, coordinator, small_mission(tmp_path), "roles")
        await mission.create()
        await mission.invite("ada")
        async with stack.working("ada"):
            first, second = mission.file.work
            await mission.until(await mission.offer(first), "submitted")
            authority = stack.processes[0]
            await asyncio.to_thread(authority.kill)
            authority.start()
            await mission.until(await mission.offer(second), "submitted")
            await stack.owner.connection.request(
                subjects.command_ingress(organization.organization_id), forged(stack.owner, mission), timeout=60
            )
            await acknowledged(database_url)
            await until_failure(logins.url(Role.AUDITOR), organization)
        code = await asyncio.to_thread(authority.end)
        assert code == 0, authority.log.read_text()[-3000:]
        for log in tmp_path.glob("*.log"):
            assert "permission denied" not in log.read_text(), log.name
        report = await verify_all(logins.url(Role.READER), organization.organization_id, nats_url=nats_url)
        assert report.ok, report.findings


def forged(client, mission: PlantedMission) -> bytes:
    """A Command whose signature is another one's."""
    payload = WorkStart(work_item_id="urn:weavehold:work:none", ownership_epoch=1)
    one, two = (client.sign(Intent(kind="work.start", payload=payload, group_id=mission.group_id)) for _ in range(2))
    return one.raw.replace(one.action_id.encode(), two.action_id.encode())


async def acknowledged(url: str) -> None:
    async with opened(url) as connection:

        async def some() -> bool:
            return await (await connection.execute("SELECT count(*) FROM acknowledgement")).fetchone() != (0,)

        await eventually(some, 60, "an acknowledgement")


async def until_failure(url: str, organization: Organization) -> None:
    async with opened(url) as connection:

        async def some() -> bool:
            found = await read_failures(connection, organization.organization_id, "2020-01-01T00:00:00Z", 10)
            return [failure.stage for failure in found.failures] == ["signature"]

        await eventually(some, 60, "the failure to be audited")


refused = [
    *(
        (Role.AUTHORITY, statement)
        for table in ("event_log", "signing_key", "key_validity", "admission", "receipt", "identifier", "mission_group")
        for statement in (f"DELETE FROM {table}", f"UPDATE {table} SET organization_id = 'urn:x'", f"TRUNCATE {table}")
    ),
    *(
        (role, f"TRUNCATE {table}")
        for role in Role
        for table in ("entity", "agent", "relay_position", "acknowledgement", "shard_lease", "authority_process")
    ),
    (Role.AUTHORITY, "DELETE FROM entity"),
    (Role.AUTHORITY, "DELETE FROM agent"),
    (Role.AUTHORITY, "UPDATE entity SET group_id = 'urn:x'"),
    (Role.AUTHORITY, "DELETE FROM acknowledgement"),
    (Role.AUTHORITY, "INSERT INTO organization VALUES ('urn:x', 'x', 1)"),
    (Role.AUTHORITY, "INSERT INTO shard SELECT organization_id, 99 FROM organization"),
    (Role.AUTHORITY, "UPDATE organization SET shard_count = 1"),
    (Role.AUTHORITY, "SELECT * FROM relay_position"),
    (Role.AUTHORITY, "UPDATE relay_position SET position = 0"),
    (Role.AUTHORITY, "ALTER TABLE event_log DISABLE TRIGGER event_log_is_immutable"),
    (Role.AUTHORITY, "DROP TABLE event_log"),
    (Role.AUTHORITY, "CREATE TABLE mine (x int)"),
    (
        Role.AUTHORITY,
        "CREATE OR REPLACE FUNCTION weavehold_clock() RETURNS timestamptz LANGUAGE sql AS 'SELECT now()'",
    ),
    *(
        (Role.RELAY, f"SELECT * FROM {table}")
        for table in ("event_log", "entity", "receipt", "agent", "signing_key", "shard", "incarnation", "admission")
    ),
    (Role.RELAY, "INSERT INTO event_log SELECT * FROM event_log"),
    (Role.RELAY, "UPDATE entity SET body = ''"),
    (Role.RELAY, "UPDATE shard_lease SET epoch = 99"),
    (Role.RELAY, "DELETE FROM relay_position"),
    (Role.RELAY, "UPDATE outbox SET position = 1"),
    *(
        (role, statement)
        for role in (Role.READER, Role.AUDITOR)
        for statement in (
            "UPDATE entity SET body = ''",
            "DELETE FROM relay_process",
            "SELECT * FROM session_challenge",
            "UPDATE relay_position SET epoch = 99",
            "INSERT INTO identifier VALUES ('urn:o', 'urn:i', 'x', 'urn:g')",
        )
    ),
    (Role.READER, "SELECT * FROM authentication_failure"),
]


async def test_what_is_not_granted_is_refused(organization: Organization, logins: Logins) -> None:
    """RULE-08: nobody rewrites or empties history, a relay writes no state, a reader writes nothing."""
    for role in Role:
        async with opened(logins.url(role)) as connection:
            for statement in (statement for granted, statement in refused if granted is role):
                with pytest.raises(errors.InsufficientPrivilege):
                    await connection.execute(statement)


async def test_a_locked_shard_stays_as_it_is(organization: Organization, logins: Logins) -> None:
    """RULE-03: the right to lock a shard's row is not the right to change it."""
    async with opened(logins.url(Role.AUTHORITY)) as connection:
        assert len(await (await connection.execute("SELECT 1 FROM shard FOR UPDATE")).fetchall()) == 3
        with pytest.raises(errors.RestrictViolation):
            await connection.execute("UPDATE shard SET shard_id = shard_id + 100")


async def test_the_grants_are_these_and_no_others(database_url: str) -> None:
    """RULE-08: nobody truncates; a reader reads all but what is listed here; a new table must say who may read it."""
    held = (
        "SELECT grantee, table_name, privilege_type FROM information_schema.table_privileges "
        "WHERE table_schema = 'public' AND (grantee LIKE 'weavehold\\_%' OR grantee = 'PUBLIC')"
    )
    async with opened(database_url) as connection:
        rows = await (await connection.execute(held)).fetchall()
        named = await connection.execute(
            "SELECT table_name FROM information_schema.tables WHERE table_schema = 'public'"
        )
        tables = {name for (name,) in await named.fetchall()}
    granted = {(role, kind): {t for r, t, k in rows if (r, k) == (role, kind)} for role, _, kind in rows}
    assert {kind for _, kind in granted} == {"SELECT", "INSERT", "DELETE"}
    assert granted["weavehold_reader", "SELECT"] == tables - unreadable
    assert granted["weavehold_auditor", "SELECT"] == tables - unreadable | {"authentication_failure"}
    assert granted["weavehold_relay", "SELECT"] == {"outbox", "outbox_shard", "relay_position", "relay_process"}
    deleting = {role: granted[role, kind] for role, kind in granted if kind == "DELETE"}
    assert deleting == {
        "weavehold_authority": {"authority_process", "session_challenge", "authentication_failure"},
        "weavehold_relay": {"relay_process"},
    }


async def test_a_login_carries_its_timeouts_itself(database_url: str, logins: Logins) -> None:
    """RULE-08: also where a pooler loses what the connection asks for, waits are bounded."""
    for role in Role:
        async with await psycopg.AsyncConnection.connect(logins.url(role)) as connection:
            [stored] = await (
                await connection.execute("SELECT rolconfig FROM pg_roles WHERE rolname = current_user")
            ).fetchone()
            assert dict(entry.split("=", 1) for entry in stored) == parameters_of(role)
            [lock, idle] = await (
                await connection.execute(
                    "SELECT current_setting('lock_timeout'), current_setting('idle_in_transaction_session_timeout')"
                )
            ).fetchone()
            assert (lock, idle) == ("5s", "15s")


def test_logins_are_made_once_and_brought_up_to_date(database_url: str, logins: Logins) -> None:
    """OPS-2: making a login again resets what it was set to; names that would collide or need quotes are refused."""
    name = logins.names[Role.RELAY]
    with psycopg.connect(database_url, autocommit=True) as connection:
        login, database = sql.Identifier(name), sql.Identifier(connection.info.dbname)
        connection.execute(sql.SQL("ALTER ROLE {} SET work_mem = '1GB'").format(login))
        connection.execute(sql.SQL("ALTER ROLE {} IN DATABASE {} SET lock_timeout = 0").format(login, database))
    assert not create_login(database_url, name, Role.RELAY).created
    assert settings_of(database_url, name) == [parameters_of(Role.RELAY)]
    for bad in ("", "pg_mine", "weavehold_relay", "x" * 64, "Relay", "1st", "a-b", 'a"b', "é", "a\n", "public", "none"):
        with pytest.raises(UsageFault, match="cannot be used"):
            create_login(database_url, bad, Role.RELAY)


def settings_of(url: str, name: str) -> list[dict[str, str]]:
    """What a login is set to, for itself and in databases."""
    held = "SELECT setconfig FROM pg_db_role_setting WHERE setrole = %s::regrole ORDER BY setdatabase"
    with psycopg.connect(url) as connection:
        return [dict(entry.split("=", 1) for entry in stored) for (stored,) in connection.execute(held, (name,))]


@pytest.mark.parametrize("held", list(Role))
def test_a_login_has_one_role(database_url: str, logins: Logins, held: Role) -> None:
    """RULE-08: no login gathers the rights of two roles, neither by the command nor by its SQL; nothing has changed."""
    name = logins.names[held]
    before = settings_of(database_url, name)
    for wanted in set(Role) - {held}:
        with pytest.raises(CommandFault, match=f"{name} has the role {held.group} already.*REVOKE {held.group} FROM"):
            create_login(database_url, name, wanted)
        with psycopg.connect(database_url) as connection, pytest.raises(errors.RaiseException):
            connection.execute(create_login_sql(name, wanted).encode())
        with psycopg.connect(database_url) as connection:
            assert memberships(connection, name) == [(held.group,)]
    assert settings_of(database_url, name) == before


def memberships(connection: psycopg.Connection, name: str) -> list[tuple[str]]:
    return connection.execute(
        "SELECT roleid::regrole::text FROM pg_auth_members WHERE member = %s::regrole", (name,)
    ).fetchall()


def test_a_role_that_nothing_narrows_is_refused(postgres_server: PostgresServer, database_url: str) -> None:
    """RULE-08: a superuser gets no role, for it would look narrow; a role without login gets none either."""
    with psycopg.connect(database_url) as connection, connection.transaction(force_rollback=True):
        for attributes, told in ((sql.SQL("LOGIN SUPERUSER"), "superuser"), (sql.SQL("NOLOGIN"), "cannot log in")):
            name = f"test_{secrets.token_hex(4)}"
            connection.execute(sql.SQL("CREATE ROLE {} {}").format(sql.Identifier(name), attributes))
            with pytest.raises(errors.RaiseException, match=told), connection.transaction():
                connection.execute(create_login_sql(name, Role.READER).encode())


def test_the_printed_sql_may_be_run_again(database_url: str, organization: Organization) -> None:
    """OPS-2: the script does what the command does, on a new login and on one that is there."""
    name = f"test_{secrets.token_hex(4)}"
    script = create_login_sql(name, Role.RELAY).encode()
    with psycopg.connect(database_url) as connection, connection.transaction(force_rollback=True):
        for _ in range(2):
            connection.execute(script)
            assert memberships(connection, name) == [("weavehold_relay",)]
            [(stored,)] = connection.execute("SELECT rolconfig FROM pg_roles WHERE rolname = %s", (name,)).fetchall()
            assert dict(entry.split("=", 1) for entry in stored) == parameters_of(Role.RELAY)


def test_a_database_without_roles_is_named(postgres_server: PostgresServer, monkeypatch: pytest.MonkeyPatch) -> None:
    """OPS-2: before the migrations the command says what to run."""
    monkeypatch.setattr(Role, "group", property(lambda self: f"weavehold_absent_{self.value}"))
    with pytest.raises(CommandFault, match="weavehold migrate"):
        create_login(postgres_server.url(), "somebody", Role.READER)
