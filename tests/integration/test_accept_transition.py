"""The accepting transaction on a real PostgreSQL: all or nothing, once, in order, whatever happens around it."""

import asyncio
import json
from datetime import UTC, datetime, timedelta
from typing import Any
from urllib.parse import urlsplit

import pytest

from contracts.identifiers import ShardId
from contracts.rejection import Code
from contracts.timestamps import format_timestamp
from ops.bench.workload import group_name, signed_command
from ops.init import Organization, initialize
from services.authority import accept_transition as accept_transition_module
from services.authority.accept_transition import RaceLost, ShardsLost
from services.authority.admitted import Accepted
from services.authority.encode_answer import encode_answer
from services.authority.open_session import SessionOpener
from services.authority.route import root_shard
from services.authority.serve_session import SessionOpened
from services.process.database import connect
from services.process.unique import uuid7_urn
from tests.authority_rig import (
    authority_on,
    coordinator,
    moved_clock,
    post,
    receipt_of,
    refusal_of,
    rows,
    run_sql,
    verified,
    with_groups,
)
from tests.builders import revoke_key
from tests.fault_proxy import FaultProxy


async def test_one_transition_is_visible_whole(database_url: str, organization: Organization) -> None:
    """MWP-EVT-005, RULE-02: Event, state, identifiers, admission and Receipt of a Command stand together."""
    async with authority_on(database_url, organization) as authority:
        await with_groups(authority, 0)
        receipt = await authority.receipt(post(organization))
    assert [event.sequence for event in receipt.events] == [2]
    assert receipt.events[0].group_id == group_name(0)
    [(event_id, command_hash)] = await rows(
        database_url,
        "SELECT event_id, encode(r.command_hash, 'hex') FROM event_log e JOIN receipt r ON r.shard_id = e.shard_id "
        "AND r.first_position = e.position WHERE e.kind = 'message.posted'",
    )
    assert (event_id, f"sha256:{command_hash}") == (receipt.events[0].event_id, receipt.command_hash)
    [(admitted,)] = await rows(
        database_url, "SELECT count(*) FROM admission WHERE encode(signing_hash, 'hex') = %s", command_hash
    )
    assert admitted == 1
    report = await verified(database_url, organization)
    found = {"log": 3, "signature": 3, "receipts": 3, "admissions": 3, "state": 2, "incarnations": 1, "keys": 5}
    assert report.examined == found


async def test_events_cannot_be_changed(database_url: str, organization: Organization) -> None:
    """MWP-EVT-005: the database itself refuses to change or remove an Event."""
    async with authority_on(database_url, organization) as authority:
        await with_groups(authority, 0)
    for change in ("UPDATE event_log SET kind = 'x'", "DELETE FROM event_log"):
        with pytest.raises(Exception, match="immutable"):
            await run_sql(database_url, change)


async def test_twenty_senders_of_one_command_get_one_receipt(database_url: str, organization: Organization) -> None:
    """MWP-EVT-003, RULE-04: the same Command from 20 senders at once, in one batch and on two processes: one Event."""
    async with (
        authority_on(database_url, organization, "one") as one,
        authority_on(database_url, organization, "two") as two,
    ):
        await with_groups(one, 0)
        raw = post(organization)
        async with one.lane() as first, one.lane() as second:
            answers = await asyncio.gather(*(one.through(lane, raw) for lane in [first, second] * 10))
        assert len({answer.receipt for answer in answers if isinstance(answer, Accepted)}) == 1
        assert all(isinstance(answer, Accepted) for answer in answers)
        await two.seize()
        assert await two.receipt(raw) == receipt_of(answers[0])
    [(events,)] = await rows(database_url, "SELECT count(*) FROM event_log WHERE kind = 'message.posted'")
    assert events == 1


async def test_a_receipt_outlives_freshness(database_url: str, organization: Organization) -> None:
    """MWP-EVT-003, TRU-6: a week later the same bytes get the same Receipt; a new Command of that age is refused."""
    async with authority_on(database_url, organization) as authority:
        await with_groups(authority, 0)
        raw, never_sent = post(organization), post(organization)
        first = await authority.receipt(raw)
        await run_sql(database_url, moved_clock.format("7 days"))
        assert await authority.receipt(raw) == first
        committed = await authority.commit(never_sent)
    assert refusal_of(committed.answers[0]).code is Code.AUTH_INVALID_SIGNATURE
    assert [failure.stage for failure in committed.failures] == ["freshness"]


async def test_a_command_from_the_future_is_refused(database_url: str, organization: Organization) -> None:
    """TRU-6: one minute ahead of the database clock is too far."""
    async with authority_on(database_url, organization) as authority:
        await with_groups(authority, 0)
        ahead = format_timestamp(datetime.now(UTC) + timedelta(hours=1))
        assert (
            refusal_of(await authority.answer(post(organization, issuedAt=ahead))).code is Code.AUTH_INVALID_SIGNATURE
        )


async def test_two_contents_under_one_action_id_in_one_batch(database_url: str, organization: Organization) -> None:
    """MWP-EVT-003, RULE-04: the first wins, the second collides, their neighbours do not notice."""
    async with authority_on(database_url, organization) as authority:
        await with_groups(authority, 0)
        name = uuid7_urn()
        batch = [post(organization, actionId=name, text=text) for text in ("one", "two")]
        committed = await authority.commit(post(organization), *batch, post(organization))
    assert refusal_of(committed.answers[2]).code is Code.ACTION_ID_COLLISION
    assert [receipt_of(committed.answers[place]).events[0].sequence for place in (0, 1, 3)] == [2, 3, 4]
    await verified(database_url, organization)


async def test_two_contents_under_one_action_id_race_across_shards(
    database_url: str, organization: Organization
) -> None:
    """MWP-EVT-003, RULE-03: two shards commit at once under one Action ID: one wins, the other cannot commit."""
    apart = [0, next(n for n in range(1, 99) if _shard(n, organization) != _shard(0, organization))]
    async with authority_on(database_url, organization) as authority:
        await with_groups(authority, *apart)
        for _ in range(5):
            name = uuid7_urn()
            raws = [post(organization, number, actionId=name, text=str(number)) for number in apart]
            async with authority.lane() as first, authority.lane() as second:
                answers = await asyncio.gather(authority.through(first, raws[0]), authority.through(second, raws[1]))
            assert sum(isinstance(answer, Accepted) for answer in answers) == 1
            [loser] = [answer for answer in answers if not isinstance(answer, Accepted)]
            assert refusal_of(loser).code is Code.ACTION_ID_COLLISION
    await verified(database_url, organization)


async def test_a_lost_race_rolls_the_whole_batch_back(database_url: str, organization: Organization) -> None:
    """RULE-03: a Receipt that appears after the reads makes the batch fail before anything of it is visible."""
    async with authority_on(database_url, organization) as authority:
        await with_groups(authority, 0)
        name = uuid7_urn()
        owner = organization.keys.mission_owner.principal.id
        await run_sql(
            database_url,
            "CREATE FUNCTION race() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN INSERT INTO receipt SELECT "
            f"'{organization.organization_id}', '{owner}', '{name}', sha256('x'), 1, 1, 1, '', ''; "
            "RETURN NULL; END $$",
            "CREATE TRIGGER race AFTER INSERT ON event_log EXECUTE FUNCTION race()",
        )
        with pytest.raises(RaceLost):
            await authority.commit(post(organization), post(organization, actionId=name))
    [(events,)] = await rows(database_url, "SELECT count(*) FROM event_log WHERE kind = 'message.posted'")
    assert events == 0


async def test_one_command_of_fifty_that_the_database_refuses(database_url: str, organization: Organization) -> None:
    """RULE-05: only that one is refused; its 49 neighbours commit."""
    async with authority_on(database_url, organization) as authority:
        await with_groups(authority, 0)
        raws = [post(organization) for _ in range(50)]
        bad = json.loads(raws[23])["actionId"]
        await run_sql(
            database_url,
            "CREATE FUNCTION refuse() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN RAISE EXCEPTION 'no'; END $$",
            f"CREATE TRIGGER refuse BEFORE INSERT ON receipt FOR EACH ROW WHEN (new.action_id = '{bad}') "
            "EXECUTE FUNCTION refuse()",
        )
        async with authority.lane() as lane:
            answers = await asyncio.gather(*(authority.through(lane, raw) for raw in raws))
    assert [place for place, answer in enumerate(answers) if not isinstance(answer, Accepted)] == [23]
    assert refusal_of(answers[23]).code is Code.INTERNAL_ERROR
    report = await verified(database_url, organization)
    assert report.examined["receipts"] == 2 + 49


@pytest.mark.parametrize("state", ["40001", "40P01", "57P01"])
async def test_transient_faults_run_the_batch_again(state: str, database_url: str, organization: Organization) -> None:
    """ACC-2, DUR-3, RULE-05: serialization failures, deadlocks, shutdowns end in one Event after bounded retries."""
    async with authority_on(database_url, organization) as authority:
        await with_groups(authority, 0)
        await run_sql(
            database_url,
            "CREATE SEQUENCE strikes",
            "CREATE FUNCTION strike() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN IF nextval('strikes') <= 3 THEN "
            f"RAISE EXCEPTION 'struck' USING ERRCODE = '{state}'; END IF; RETURN NULL; END $$",
            "CREATE TRIGGER strike AFTER INSERT ON receipt EXECUTE FUNCTION strike()",
        )
        async with authority.lane() as lane:
            receipt_of(await authority.through(lane, post(organization)))
    [(strikes,)] = await rows(database_url, "SELECT last_value FROM strikes")
    assert strikes == 4
    await verified(database_url, organization)


async def test_a_read_only_database_gives_a_retryable_answer(database_url: str, organization: Organization) -> None:
    """ACC-2, RULE-05: a primary that lost its writability is waited for, then answered with BACKPRESSURE."""
    name = urlsplit(database_url).path[1:]
    async with authority_on(database_url, organization) as authority:
        await with_groups(authority, 0)
        raw = post(organization)
        await run_sql(database_url, f"ALTER DATABASE {name} SET default_transaction_read_only = on")
        async with authority.lane() as lane:
            answer = refusal_of(await authority.through(lane, raw))
        assert (answer.code, answer.retryable) == (Code.BACKPRESSURE, True)
        await run_sql(database_url, "SET default_transaction_read_only = off", f"ALTER DATABASE {name} RESET ALL")
        async with authority.lane() as lane:
            receipt_of(await authority.through(lane, raw))


async def test_a_lost_commit_acknowledgement_is_settled_by_the_receipt(
    database_url: str, organization: Organization
) -> None:
    """ACC-2, MWP-EVT-003: the connection is cut after COMMIT was sent; the lane runs again and finds the Receipt."""
    async with authority_on(database_url, organization) as authority, FaultProxy.to_database(database_url) as proxy:
        await with_groups(authority, 0)
        async with authority.lane(proxy.database_url(database_url)) as lane:
            receipt_of(await authority.through(lane, post(organization)))
            proxy.cut_when_client_sends(lambda chunk: b"COMMIT" in chunk)
            receipt = receipt_of(await authority.through(lane, post(organization)))
    assert receipt.events[0].sequence == 3
    [(events,)] = await rows(database_url, "SELECT count(*) FROM event_log WHERE kind = 'message.posted'")
    assert events == 2
    await verified(database_url, organization)


async def test_a_connection_cut_before_the_commit_leaves_nothing(database_url: str, organization: Organization) -> None:
    """ACC-2: cut while the reads are on their way; one run later the Command is accepted once."""
    async with authority_on(database_url, organization) as authority, FaultProxy.to_database(database_url) as proxy:
        await with_groups(authority, 0)
        async with authority.lane(proxy.database_url(database_url)) as lane:
            receipt_of(await authority.through(lane, post(organization)))
            proxy.cut_when_client_sends(lambda chunk: b"BEGIN" in chunk)
            assert receipt_of(await authority.through(lane, post(organization))).events[0].sequence == 3
    await verified(database_url, organization)


async def test_a_zombie_cannot_commit(database_url: str, organization: Organization) -> None:
    """ACC-2, RULE-03: a process that slept through the loss of its lease writes nothing when it wakes."""
    async with authority_on(database_url, organization, "old") as old:
        await with_groups(old, 0)
        async with authority_on(database_url, organization, "new") as new:
            await new.seize()
            with pytest.raises(ShardsLost):
                await old.commit(post(organization))
            async with old.lane() as lane:
                answer = refusal_of(await old.through(lane, post(organization)))
            assert (answer.code, answer.retryable) == (Code.BACKPRESSURE, True)
            assert (await new.receipt(post(organization))).events[0].sequence == 2
    await verified(database_url, organization)


async def test_cached_state_is_only_a_guess(database_url: str, organization: Organization) -> None:
    """ACC-2: two processes that take turns on one Group never build on a state that the other has moved on from."""
    async with (
        authority_on(database_url, organization, "one") as one,
        authority_on(database_url, organization, "two") as two,
    ):
        await with_groups(one, 0)
        for _ in range(4):
            for authority in (one, two):
                await authority.seize()
                await authority.receipt(post(organization))
    sequences = await rows(database_url, "SELECT sequence FROM event_log WHERE group_id <> '' ORDER BY sequence")
    assert [sequence for (sequence,) in sequences] == list(range(1, 10))
    await verified(database_url, organization)


async def test_a_key_revoked_after_admission_is_not_accepted(database_url: str, organization: Organization) -> None:
    """RULE-06: admission found the key valid; the accepting transaction looks again."""
    async with authority_on(database_url, organization) as authority:
        await with_groups(authority, 0)
        raw = post(organization)
        await authority.route([raw])
        now = format_timestamp(datetime.now(UTC))
        await revoke_key(authority.connection, organization.keys.mission_owner.key_id, now)
        await authority.connection.commit()
        committed = await authority.commit(raw)
    assert refusal_of(committed.answers[0]).code is Code.AUTH_INVALID_SIGNATURE
    assert committed.failures[0].stage == "key-resolution"


async def test_identifiers_are_unique_in_the_whole_organization(database_url: str, organization: Organization) -> None:
    """RULE-03: one Message ID in two Groups of different shards: the second Command is refused and names it."""
    apart = [0, next(n for n in range(1, 99) if _shard(n, organization) != _shard(0, organization))]
    async with authority_on(database_url, organization) as authority:
        await with_groups(authority, *apart)
        name = uuid7_urn()
        await authority.receipt(post(organization, apart[0], message_id=name))
        answer = refusal_of(await authority.answer(post(organization, apart[1], message_id=name)))
    assert answer.code is Code.INVALID_STATE_TRANSITION
    assert name in answer.message


async def test_organizations_with_the_same_identifiers_do_not_meet(
    database_url: str, organization: Organization, tmp_path
) -> None:
    """RULE-32: two Organizations hold Groups, Agents and Action IDs of the same names, each its own."""
    connection = await connect(database_url, name="fixture")
    other = await initialize(connection, name="other", keys_directory=tmp_path / "other", shard_count=2)
    await connection.close()
    action = uuid7_urn()
    for each in (organization, other):
        async with authority_on(database_url, each) as authority:
            await with_groups(authority, 0)
            receipt = await authority.receipt(post(each, actionId=action, text=each.name))
            assert receipt.events[0].sequence == 2
        await verified(database_url, each)


async def test_several_groups_in_one_batch_keep_their_own_order(database_url: str, organization: Organization) -> None:
    """ACC-3, MWP-EVT-005: a batch over Groups and shards gives each Group its contiguous sequence."""
    async with authority_on(database_url, organization) as authority:
        await with_groups(authority, *range(6))
        committed = await authority.commit(*(post(organization, place % 6) for place in range(60)))
    assert all(isinstance(answer, Accepted) for answer in committed.answers)
    for number in range(6):
        own = [e.mark.sequence for e in committed.events if e.mark.group_id == group_name(number)]
        assert own == list(range(2, 12))
    await verified(database_url, organization)


async def test_the_clock_may_step_back(database_url: str, organization: Organization) -> None:
    """RULE-03: the log's time never goes back, even when the database's clock does."""
    async with authority_on(database_url, organization) as authority:
        await with_groups(authority, 0)
        first = await authority.receipt(post(organization))
        await run_sql(database_url, moved_clock.format("-30 seconds"))
        second = await authority.receipt(post(organization))
    assert second.accepted_at >= first.accepted_at


@pytest.mark.parametrize(
    "text",
    [
        '"nul \\u0000 inside"',
        "9007199254740993",
        "-0.0",
        "1e21",
        "0.1",
        '"\\ud83d\\ude00 \\ue000"',
        '"' + "x" * 9000 + '"',
    ],
)
async def test_awkward_values_come_back_as_they_were_sent(
    text: str, database_url: str, organization: Organization
) -> None:
    """ACC-5: the Command's bytes are kept as received, and the Event verifies byte for byte."""
    content = [{"type": "data_ref", "schema": "urn:weavehold:schema:any", "data": {"value": json.loads(text)}}]
    async with authority_on(database_url, organization) as authority:
        await with_groups(authority, 0)
        raw = b"  " + post(organization, content=content) + b"\n"
        await authority.receipt(raw)
    [(kept,)] = await rows(database_url, "SELECT command FROM receipt ORDER BY first_position DESC LIMIT 1")
    assert bytes(kept) == raw
    await verified(database_url, organization)


async def test_a_service_may_not_speak_for_a_group_it_is_not_in(database_url: str, organization: Organization) -> None:
    """ACC-1: a validly signed Command of a kind that its actor may not use is refused and leaves nothing behind."""
    async with authority_on(database_url, organization) as authority:
        await with_groups(authority, 0)
        before = await rows(database_url, "SELECT count(*) FROM event_log")
        raw = signed_command(organization.keys.operator, "mission.cancel", group_name(0), {"reason": "x"})
        refusal_of(await authority.answer(raw))
    assert await rows(database_url, "SELECT count(*) FROM event_log") == before
    assert await rows(database_url, "SELECT count(*) FROM receipt") == [(2,)]


def _shard(number: int, organization: Organization) -> int:
    return root_shard(group_name(number), organization.shard_count)


async def test_a_group_stays_in_its_shard(database_url: str, organization: Organization) -> None:
    """MWP-EVT-005, RULE-03: a Command that reached another shard's lane is sent back, never appended to that log."""
    async with authority_on(database_url, organization) as authority:
        await with_groups(authority, 0)
        authority.finder.learn(group_name(0), ShardId(3 - _shard(0, organization)))
        answer = refusal_of(await authority.answer(post(organization)))
        assert (answer.code, answer.retryable) == (Code.BACKPRESSURE, True)
        authority.finder.learn(group_name(0), ShardId(_shard(0, organization)))
        assert (await authority.receipt(post(organization))).events[0].sequence == 2
    await verified(database_url, organization)


async def test_sessions_open_whatever_the_clock_of_the_process_says(
    database_url: str, organization: Organization
) -> None:
    """RULE-29, TRU-6: the authority's own Command carries the database's time, which also judges it."""
    async with authority_on(database_url, organization) as authority:
        await with_groups(authority)
        await run_sql(database_url, moved_clock.format("10 minutes"))

        async def submit(raw: bytes) -> bytes:
            return encode_answer(await authority.answer(raw))

        key = organization.keys.authority
        opener = SessionOpener(submit, authority.pool, organization.organization_id, lambda: key)
        opened = await opener.open(coordinator.principal.id, coordinator.key_id)
    assert isinstance(opened, SessionOpened)
    assert opened.session_epoch == 1


async def test_an_admission_that_came_meanwhile_is_judged(
    database_url: str, organization: Organization, monkeypatch: pytest.MonkeyPatch
) -> None:
    """TRU-4: a record committed between the reading and the insert is read and judged, never kept unread."""
    async with authority_on(database_url, organization) as authority:
        await with_groups(authority, 0)
        raw = post(organization)
        [routed] = await authority.route([raw])
        digest = routed.admitted.fact.signing_hash.hex()
        write = accept_transition_module.write_batch

        async def overtaken(*arguments: Any) -> None:
            monkeypatch.setattr(accept_transition_module, "write_batch", write)
            await run_sql(
                database_url,
                "INSERT INTO admission (organization_id, signing_hash, admission_record_id, document_kind, key_id, "
                "principal_type, principal_id, trusted_accepted_at, accepted_by) "
                f"SELECT organization_id, '\\x{digest}', 'urn:other:record', 'event', key_id, principal_type, "
                "principal_id, trusted_accepted_at, accepted_by FROM admission LIMIT 1",
            )
            await write(*arguments)

        monkeypatch.setattr(accept_transition_module, "write_batch", overtaken)
        async with authority.lane() as lane:
            answer = await authority.through(lane, raw)
    assert refusal_of(answer).code is Code.AUTH_INVALID_SIGNATURE
    assert await rows(database_url, "SELECT count(*) FROM receipt WHERE encode(command_hash, 'hex') = %s", digest) == [
        (0,)
    ]
