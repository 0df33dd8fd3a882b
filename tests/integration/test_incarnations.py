"""A history that goes on in a new incarnation: the decision, the fences, and the doubt before it (RULE-16, RULE-17)."""

import asyncio
import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import psycopg
import pytest

from contracts import subjects
from contracts.command import history_resume
from contracts.epochs import counter_bits, epoch_floor
from contracts.event import history_resumed
from contracts.identifiers import ShardId
from contracts.rejection import Code
from ops.bench.workload import group_name, signed_command
from ops.embedded.operating_user import operating_user
from ops.embedded.postgres_server import PostgresServer
from ops.init import Organization, initialize
from ops.verify.finding import Report
from ops.verify.verify_incarnations import verify_incarnations
from ops.verify.verify_log import LogVerifier
from services.authority.accept_transition import resume_groups
from services.authority.broker_consumers import BrokerConsumers
from services.authority.examine_history import examine_history
from services.authority.history_standing import ServerLife
from services.authority.judge_batch import SigningKeyRefused
from services.process.broker import connect as connect_broker
from services.process.database import connect
from tests.authority_rig import InProcessAuthority, authority_on, creation, post, refusal_of, rows, run_sql, verified
from tests.conftest import PrivatePostgres
from tests.keys_rig import authority_with_groups, to_registry


@pytest.fixture
async def authority(database_url: str, organization: Organization) -> AsyncIterator[InProcessAuthority]:
    """An authority with two Groups."""
    async with authority_with_groups(database_url, organization) as one:
        yield one


def resumption(organization: Organization, incarnation: str, **payload: Any) -> bytes:
    """The operator's decision to go on after `incarnation`."""
    return to_registry(organization, history_resume, {"incarnation": incarnation, "reason": "restored"} | payload)


async def incarnations(url: str) -> list[tuple[Any, ...]]:
    return await rows(url, "SELECT incarnation, parent, epoch_base, event_id FROM incarnation ORDER BY ordinal")


async def kinds(url: str, group_id: str) -> list[tuple[str, str]]:
    """(kind, incarnation) of a Group's Events."""
    statement = "SELECT kind, incarnation FROM event_log WHERE group_id = %s ORDER BY sequence"
    return await rows(url, statement, group_id)


async def test_a_new_incarnation_fences_what_came_before(
    authority: InProcessAuthority, organization: Organization, database_url: str
) -> None:
    """RULE-16, RULE-17: forks are recorded, sessions rise, each Group's next Event says that its history goes on."""
    await run_sql(database_url, "UPDATE agent SET session_epoch = 7")
    before = await rows(database_url, "SELECT shard_id, max(position) FROM event_log GROUP BY 1 ORDER BY 1")
    await authority.receipt(resumption(organization, organization.incarnation))
    [_, (opened, parent, base, event_id)] = await incarnations(database_url)
    assert parent == organization.incarnation
    assert base > 60 * 60 * 24 * 365  # seconds since 2024
    forks = dict(await rows(database_url, "SELECT shard_id, position FROM incarnation_fork WHERE ordinal = 2"))
    assert {shard: forks[shard] for shard, _ in before} == dict(before)
    assert await rows(database_url, "SELECT session_epoch, session_event_id FROM agent") == [
        (epoch_floor(base), event_id)
    ]
    assert await kinds(database_url, organization.organization_id) == [(history_resumed, opened)]
    # What was meant for the earlier history meets its raised epoch; what is meant for this one is accepted.
    stale = refusal_of(await authority.answer(post(organization)))
    assert (stale.code, stale.details) == (
        Code.MEMBERSHIP_STALE,
        {"expected": epoch_floor(base), "received": 1},
    )
    assert (await kinds(database_url, group_name(0)))[-1] == (history_resumed, opened)
    await authority.receipt(post(organization, membershipEpoch=epoch_floor(base)))
    assert [kind for kind, _ in await kinds(database_url, group_name(0))][-2:] == [history_resumed, "message.posted"]
    await undo_forced_sessions(database_url, base)
    await verified(database_url, organization)


async def undo_forced_sessions(url: str, base: int) -> None:
    """The sessions that the test forced have no Events."""
    await run_sql(url, f"UPDATE agent SET session_epoch = 0 WHERE session_epoch = {base << counter_bits}")


async def test_new_groups_and_grants_stand_above_the_base(
    authority: InProcessAuthority, organization: Organization, database_url: str
) -> None:
    """RULE-17: a Mission created again under the name of a lost one shares no epoch with it."""
    await authority.receipt(resumption(organization, organization.incarnation))
    [_, (_, _, base, _)] = await incarnations(database_url)
    await authority.receipt(creation(organization, 5))
    [(body,)] = await rows(
        database_url, "SELECT body FROM entity WHERE kind = 'mission' AND group_id = %s", group_name(5)
    )
    assert json.loads(body)["mission"]["coordinator"]["coordinatorEpoch"] == epoch_floor(base) + 1
    assert [kind for kind, _ in await kinds(database_url, group_name(5))] == ["mission.created"]
    await verified(database_url, organization)


async def test_idle_groups_hear_of_it_in_bounded_steps(
    authority: InProcessAuthority, organization: Organization, database_url: str
) -> None:
    """RULE-17: a sweep resumes what nobody speaks in, once; doing it again appends nothing."""
    await authority.receipt(resumption(organization, organization.incarnation))
    groups = await rows(database_url, "SELECT shard_id, group_id FROM mission_group WHERE shard_id > 0")
    connection = await authority.connected()
    try:
        for _ in range(2):
            for shard, group_id in groups:
                await resume_groups(connection, ShardId(shard), [group_id], authority.office, authority.held)
    finally:
        await connection.close()
    for _, group_id in groups:
        assert [kind for kind, _ in await kinds(database_url, group_id)] == ["mission.created", history_resumed]
    await verified(database_url, organization)


async def test_two_operators_open_one(
    authority: InProcessAuthority, organization: Organization, database_url: str
) -> None:
    """RULE-16: whoever looked at the same state decides once; the second hears which incarnation is current."""
    first, second = (resumption(organization, organization.incarnation) for _ in range(2))
    async with authority_on(database_url, organization, "two") as other:
        await authority.seize()
        other.held = dict(authority.held)
        other.office.holder = authority.office.holder
        answers = await asyncio.gather(authority.answer(first), other.answer(second))
    refused = [answer for answer in answers if hasattr(answer, "code")]
    assert len(await incarnations(database_url)) == 2
    [refusal] = refused
    assert refusal.code is Code.REVISION_CONFLICT
    again = refusal_of(await authority.answer(resumption(organization, organization.incarnation)))
    assert again.code is Code.REVISION_CONFLICT
    assert again.details == {"current": (await incarnations(database_url))[-1][0]}


async def test_a_restore_to_before_the_key_was_rotated(
    authority: InProcessAuthority, organization: Organization, database_url: str
) -> None:
    """RULE-16, TRU-2: the database does not know the key that signs now; init binds it, then the decision passes."""
    key = organization.keys.authority
    await run_sql(
        database_url,
        "SET session_replication_role = replica",
        f"DELETE FROM signing_key WHERE key_id = '{key.key_id}'",
    )
    decision = resumption(organization, organization.incarnation)
    with pytest.raises(SigningKeyRefused):
        await authority.answer(decision)
    async with await connect(database_url, name="init") as connection:
        again = await initialize(connection, name=organization.name, keys_directory=organization.keys_directory)
    assert [made for made in again.created if key.key_id in made]
    await authority.receipt(resumption(organization, organization.incarnation))
    assert len(await incarnations(database_url)) == 2


async def test_who_may_decide(authority: InProcessAuthority, organization: Organization, database_url: str) -> None:
    """RULE-16: the operator; nobody else, in no other Group, and not with nonsense."""
    payload = {"incarnation": organization.incarnation, "reason": "restored"}
    keys = organization.keys
    for signer, code in ((keys.mission_owner, Code.AUTH_FORBIDDEN), (keys.registry, Code.AUTH_FORBIDDEN)):
        epoch = 1 if signer is keys.mission_owner else None
        raw = signed_command(signer, history_resume, organization.organization_id, payload, epoch)
        assert refusal_of(await authority.answer(raw)).code is code
    elsewhere = signed_command(keys.operator, history_resume, group_name(0), payload)
    assert refusal_of(await authority.answer(elsewhere)).code is not None
    abandoned = resumption(organization, organization.incarnation, abandoned=[organization.incarnation])
    assert refusal_of(await authority.answer(abandoned)).code is Code.INVALID_COMMAND
    assert len(await incarnations(database_url)) == 1


async def test_in_doubt_nothing_but_the_decision_is_accepted(
    authority: InProcessAuthority, organization: Organization, database_url: str
) -> None:
    """RULE-16: a Command waits, retryable; a Receipt is still told; the decision ends the doubt."""
    accepted = post(organization)
    await authority.receipt(accepted)
    [life] = await rows(database_url, "SELECT cluster, timeline, started_at FROM server_life")
    authority.office.history.examined = ServerLife(*life)
    authority.office.history.fault = "the database lost commits"
    waiting = refusal_of(await authority.answer(post(organization)))
    assert (waiting.code, waiting.retryable) == (Code.BACKPRESSURE, True)
    await authority.receipt(accepted)
    await authority.receipt(resumption(organization, organization.incarnation))
    assert len(await incarnations(database_url)) == 2


async def test_what_speaks_against_a_database(
    authority: InProcessAuthority, organization: Organization, database_url: str, nats_url: str
) -> None:
    """RULE-16: another cluster, another timeline, a stream beyond the log, a forgotten incarnation: each is named."""
    broker = await connect_broker(nats_url, name="test-examine")
    connection = await connect(database_url, name="test-examine")
    consumers = BrokerConsumers(broker)
    identity = organization.organization_id
    try:
        sound = await examine_history(connection, consumers, identity)
        assert (sound.identity_fault, sound.stream_fault) == (None, None)
        await make_stream(broker, identity, ShardId(1), organization.incarnation, first=50)
        ahead = await examine_history(connection, consumers, identity)
        assert "stream of shard 1 ends at 49" in str(ahead.stream_fault)
        await make_stream(broker, identity, ShardId(2), "f" * 32, first=1)
        assert (await examine_history(connection, consumers, identity)).forgotten == ("f" * 32,)
        await run_sql(
            database_url,
            "CREATE OR REPLACE FUNCTION weavehold_timeline() RETURNS integer LANGUAGE sql AS 'SELECT 9'",
        )
        promoted = await examine_history(connection, consumers, identity)
        assert promoted.was_promoted
        assert "timeline 9" in str(promoted.identity_fault)
    finally:
        await connection.close()
        await broker.close()


async def make_stream(broker: Any, organization_id: str, shard_id: ShardId, incarnation: str, first: int) -> None:
    """A stream as a relay makes it, beginning at `first`."""
    name = subjects.stream_name(organization_id, shard_id, incarnation)
    config = {"name": name, "subjects": [subjects.shard_events(organization_id, shard_id)], "first_seq": first}
    answer = await broker.request(f"$JS.API.STREAM.CREATE.{name}", json.dumps(config | {"storage": "file"}).encode())
    assert "error" not in json.loads(answer.data)


async def test_incarnations_are_immutable(database_url: str, organization: Organization) -> None:
    """RULE-16: what an incarnation was founded on is never rewritten."""
    del organization
    with pytest.raises(psycopg.errors.RestrictViolation):
        await run_sql(database_url, "UPDATE incarnation SET timeline = 9")


async def test_an_earlier_schema_does_not_forget_an_incarnation(
    authority: InProcessAuthority, organization: Organization, database_url: str
) -> None:
    """RULE-17: without its base, epochs that were granted in it would be granted again; so there is no way back."""
    await authority.receipt(resumption(organization, organization.incarnation))
    down = Path("ops/migrations/0007_server_life.sql").read_text().split("-- migrate:down\n")[1]
    with pytest.raises(psycopg.errors.RaiseException, match="resumed in a new incarnation"):
        await run_sql(database_url, down)
    assert len(await incarnations(database_url)) == 2


async def test_a_real_recovery_is_another_timeline(
    private_postgres: PrivatePostgres, nats_url: str, tmp_path: Path
) -> None:
    """RULE-16: a server that was recovered says so itself, before its first checkpoint too."""
    url = private_postgres.database_url
    connection = await connect(url, name="test-recovery")
    organization = await initialize(connection, name="recovered", keys_directory=tmp_path / "keys", shard_count=1)
    await connection.close()
    await asyncio.to_thread(private_postgres.server.stop)
    recovering = PostgresServer(
        private_postgres.server.directory,
        parameters={"restore_command": "false", "recovery_target_timeline": "latest"},
    )
    (recovering.data / "recovery.signal").touch()
    operating_user().own(recovering.data / "recovery.signal")
    await asyncio.to_thread(recovering.start)
    broker = await connect_broker(nats_url, name="test-recovery")
    try:
        async with asyncio.timeout(60):
            while (await rows(url, "SELECT pg_is_in_recovery()"))[0][0]:
                await asyncio.sleep(0.1)
        connection = await connect(url, name="test-recovery")
        evidence = await examine_history(connection, BrokerConsumers(broker), organization.organization_id)
        await connection.close()
        assert (evidence.founded_on[0], evidence.founded_on[1], evidence.stands_on[1]) == (evidence.stands_on[0], 1, 2)
        assert evidence.was_promoted
    finally:
        await broker.close()
        await asyncio.to_thread(recovering.stop)


@pytest.mark.parametrize(
    ("change", "found"),
    [
        ("UPDATE incarnation SET epoch_base = epoch_base + 1 WHERE ordinal = 2", "what the signed Event says"),
        ("UPDATE incarnation SET reason = 'nothing' WHERE ordinal = 2", "what the signed Event says"),
        ("UPDATE incarnation SET event_id = 'urn:uuid:none' WHERE ordinal = 2", "is not in the log"),
        (
            "UPDATE incarnation SET event_id = (SELECT min(event_id) FROM event_log) WHERE ordinal = 2",
            "cannot be read",
        ),
        ("UPDATE incarnation SET parent = 'x' WHERE ordinal = 2", "the one before it is"),
        ("UPDATE incarnation SET epoch_base = 5 WHERE ordinal = 1", "it is the first one"),
        ("UPDATE incarnation_fork SET position = position + 1 WHERE shard_id = 1", "its log says"),
        ("DELETE FROM incarnation_fork WHERE shard_id = 1", "of every shard"),
        ("UPDATE incarnation SET abandoned = ARRAY['x'] WHERE ordinal = 2", "gave up other incarnations"),
    ],
)
async def test_verification_compares_incarnations_with_their_events(
    authority: InProcessAuthority, organization: Organization, database_url: str, change: str, found: str
) -> None:
    """RULE-17, NEW-5: base, parent, reason and forks stand in a signed Event or follow from the log."""
    await authority.receipt(resumption(organization, organization.incarnation))
    await authority.receipt(creation(organization, 5))
    await verified(database_url, organization)
    await run_sql(database_url, "SET session_replication_role = replica", change)
    report = Report()
    async with await connect(database_url, name="verify") as connection:
        log = LogVerifier(connection, organization.organization_id, report)
        await log.verify()
        await verify_incarnations(connection, organization.organization_id, log.ends, report)
    assert {finding.check for finding in report.findings} == {"incarnations"}
    assert found in report.findings[0].message


async def test_verification_sees_a_history_that_changes_silently(
    authority: InProcessAuthority, organization: Organization, database_url: str
) -> None:
    """RULE-17, NEW-5: an Event in another incarnation whose Group does not say so first."""
    await authority.receipt(post(organization))
    await verified(database_url, organization)
    await run_sql(
        database_url,
        "ALTER TABLE incarnation DISABLE TRIGGER ALL",
        f"UPDATE incarnation SET incarnation = '{'e' * 32}'",
    )
    report = Report()
    connection = await connect(database_url, name="verify")
    try:
        await LogVerifier(connection, organization.organization_id, report).verify()
    finally:
        await connection.close()
    assert {finding.check for finding in report.findings} == {"incarnations"}
    assert f"incarnation {organization.incarnation} was never opened" in report.findings[0].message
