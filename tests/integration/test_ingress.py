"""The door of the authority over a real broker: what comes in damaged, too large or too much, and what is answered."""

import asyncio
import json
import os
import signal
from collections import deque
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

import nats
import pytest
import pytest_asyncio

from contracts import subjects
from contracts.receipt import Receipt
from contracts.rejection import Code, Rejection
from contracts.reply import decode_reply
from ops.embedded.postgres_server import PostgresServer
from ops.init import Organization
from services.authority import ingress as ingress_module
from services.authority.admission_pool import AdmissionPool
from services.authority.admitted import AuthenticationFailure
from services.authority.ingress import Ingress
from services.process.metrics import Metrics
from tests.agent_rig import shared_organization_of
from tests.authority_rig import InProcessAuthority, authority_on, post, rows, with_groups


class Door:
    """A running ingress over one lane, and a client of it."""

    def __init__(self, client: nats.NATS, subject: str, failures: deque[AuthenticationFailure], pool: AdmissionPool):
        self._client = client
        self._subject = subject
        self.failures = failures
        self.admission = pool

    async def send(self, raw: bytes) -> Receipt | Rejection:
        return decode_reply((await self._client.request(self._subject, raw, timeout=60)).data)


@asynccontextmanager
async def door(authority: InProcessAuthority, nats_url: str) -> AsyncIterator[Door]:
    organization_id = authority.organization.organization_id
    metrics = Metrics("test")
    server, client = await nats.connect(nats_url), await nats.connect(nats_url)
    pool = AdmissionPool(authority.url, organization_id, 1)
    failures: deque[AuthenticationFailure] = deque(maxlen=100)
    async with authority.lane() as lane:
        ingress = Ingress(
            server,
            organization_id,
            pool=pool,
            finder=authority.finder,
            lanes=dict.fromkeys(authority.held, lane),
            holders=lambda _shard: None,
            registry_version=lambda: 1,
            answered=metrics.counter("answered", "Answers", labels={"outcome": 64}),
            on_failures=failures.extend,
        )
        subject = subjects.command_ingress(organization_id)
        await server.subscribe(subject, queue="authority", cb=ingress.on_command)
        # nats-py writes a PING past what is still buffered: only the second one is sure to follow the SUB.
        await server.flush()
        await server.flush()
        task = asyncio.create_task(ingress.admit_batches(lambda: None))
        try:
            yield Door(client, subject, failures, pool)
        finally:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)
            await client.close()
            await server.close()
            await pool.close()
            metrics.close()


class SharedDoor:
    """One door for all tests whose Commands leave nothing behind that another one could meet."""

    def __init__(self, door: Door, organization: Organization, database_url: str) -> None:
        self.door = door
        self.organization = organization
        self._database_url = database_url

    async def posted(self) -> int:
        """How many Messages the log holds."""
        [(events,)] = await rows(self._database_url, "SELECT count(*) FROM event_log WHERE kind = 'message.posted'")
        return int(events)


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def shared(
    postgres_server: PostgresServer, tmp_path_factory: pytest.TempPathFactory
) -> AsyncIterator[SharedDoor]:
    folder = tmp_path_factory.mktemp("shared")
    async with (
        shared_organization_of(postgres_server, folder) as (organization, database_url, nats_url),
        authority_on(database_url, organization) as authority,
    ):
        await with_groups(authority, 0)
        async with door(authority, nats_url) as opened:
            yield SharedDoor(opened, organization, database_url)


def replaced(old: bytes, new: bytes) -> Callable[[bytes], bytes]:
    """Damage: one text for another; the signature no longer matters where an earlier stage refuses."""

    def damage(raw: bytes) -> bytes:
        assert old in raw
        return raw.replace(old, new, 1)

    return damage


hello = b'"text":"Hello"'
damages: dict[str, tuple[Callable[[bytes], bytes], Code]] = {
    "byte order mark": (lambda raw: b"\xef\xbb\xbf" + raw, Code.PROTOCOL_VIOLATION),
    "trailing data": (lambda raw: raw + b"{}", Code.PROTOCOL_VIOLATION),
    "not JSON": (lambda raw: raw[:-1], Code.PROTOCOL_VIOLATION),
    "empty": (lambda _raw: b"", Code.PROTOCOL_VIOLATION),
    "duplicate by escape": (
        replaced(b'"kind":', b'"k\\u0069nd":"message.post","kind":'),
        Code.PROTOCOL_VIOLATION,
    ),
    "lone surrogate": (replaced(hello, b'"text":"\\ud800"'), Code.PROTOCOL_VIOLATION),
    "beyond binary64": (replaced(hello, b'"text":1e400'), Code.PROTOCOL_VIOLATION),
    "overlong UTF-8": (replaced(b"Hello", b"\xc0\xafllo"), Code.PROTOCOL_VIOLATION),
    "10,000 deep": (replaced(hello, b'"text":' + b"[" * 10_000 + b"]" * 10_000), Code.PROTOCOL_VIOLATION),
    "over the limit": (replaced(b"Hello", b"x" * 300_000), Code.PROTOCOL_VIOLATION),
    "unknown member": (replaced(b'"kind":', b'"kinds":1,"kind":'), Code.SCHEMA_VALIDATION_FAILED),
    "tampered": (replaced(b"Hello", b"Hullo"), Code.AUTH_INVALID_SIGNATURE),
}


@pytest.mark.asyncio(loop_scope="module")
@pytest.mark.parametrize("name", damages)
async def test_damaged_commands_get_the_right_answer_and_change_nothing(name: str, shared: SharedDoor) -> None:
    """ACC-5, ACC-1, ERR-1, RULE-09: the right code at the door, before any write; the door stays open."""
    damage, code = damages[name]
    before = await shared.posted()
    shared.door.failures.clear()
    refusal = await shared.door.send(damage(post(shared.organization)))
    assert isinstance(refusal, Rejection)
    assert (refusal.code, refusal.retryable) == (code, False)
    assert bool(shared.door.failures) == (code is Code.AUTH_INVALID_SIGNATURE)
    assert await shared.posted() == before
    assert isinstance(await shared.door.send(post(shared.organization)), Receipt)
    assert await shared.posted() == before + 1


@pytest.mark.asyncio(loop_scope="module")
@pytest.mark.parametrize(
    ("issued_at", "code"),
    [
        ("0000-01-01T00:00:00Z", Code.SCHEMA_VALIDATION_FAILED),
        ("2026-02-30T00:00:00Z", Code.SCHEMA_VALIDATION_FAILED),
        ("2026-01-01T00:00:60Z", Code.SCHEMA_VALIDATION_FAILED),
        ("2026-01-01T00:00:00-00:00", Code.SCHEMA_VALIDATION_FAILED),
        ("2026-01-01T00:00:00+01:00", Code.AUTH_INVALID_SIGNATURE),
        ("2026-01-01T00:00:00.123456789012Z", Code.AUTH_INVALID_SIGNATURE),
    ],
)
async def test_odd_times_get_the_right_answer(issued_at: str, code: Code, shared: SharedDoor) -> None:
    """TRU-3, ACC-5: what is no timestamp fails the schema; one that is not UTC or not fresh fails like any other."""
    refusal = await shared.door.send(post(shared.organization, issuedAt=issued_at))
    assert isinstance(refusal, Rejection)
    assert refusal.code is code


async def test_twelve_fraction_digits_survive(database_url: str, organization: Organization, nats_url: str) -> None:
    """TRU-3: a timestamp's text is kept as received, whatever its precision."""
    async with authority_on(database_url, organization) as authority:
        await with_groups(authority, 0)
        raw = post(organization)
        precise = json.loads(raw)["issuedAt"].replace("Z", "999999Z")
        async with door(authority, nats_url) as opened:
            assert isinstance(await opened.send(post(organization, issuedAt=precise)), Receipt)
    [(kept,)] = await rows(database_url, "SELECT command FROM receipt ORDER BY first_position DESC LIMIT 1")
    assert precise.encode() in bytes(kept)


async def test_too_many_commands_in_flight_are_told_to_come_back(
    database_url: str, organization: Organization, nats_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """ERR-1, RULE-01: overload is an answer, never silence, and nothing accepted is dropped."""
    monkeypatch.setattr(ingress_module, "in_flight_max", 5)
    async with authority_on(database_url, organization) as authority:
        await with_groups(authority, 0)
        async with door(authority, nats_url) as opened:
            answers = await asyncio.gather(*(opened.send(post(organization)) for _ in range(60)))
    accepted = [answer for answer in answers if isinstance(answer, Receipt)]
    refused = [answer for answer in answers if isinstance(answer, Rejection)]
    assert {(refusal.code, refusal.retryable) for refusal in refused} == {(Code.BACKPRESSURE, True)}
    [(events,)] = await rows(database_url, "SELECT count(*) FROM event_log WHERE kind = 'message.posted'")
    assert events == len(accepted) > 0


async def test_an_exhausted_pool_is_a_retryable_answer(
    database_url: str, organization: Organization, nats_url: str
) -> None:
    """ACC-2, DUR-3: no connection for the look-up of a Group's shard: BACKPRESSURE, and accepted on the next try."""
    async with authority_on(database_url, organization) as authority:
        await with_groups(authority, 0)
        patience = authority.pool.timeout
        raw = post(organization)
        async with door(authority, nats_url) as opened:
            held = [await authority.pool.getconn() for _ in range(authority.pool.max_size)]
            authority.pool.timeout = 0.3
            refusal = await opened.send(raw)
            authority.pool.timeout = patience
            for connection in held:
                await authority.pool.putconn(connection)
            assert isinstance(refusal, Rejection)
            assert (refusal.code, refusal.retryable) == (Code.BACKPRESSURE, True)
            assert isinstance(await opened.send(raw), Receipt)


async def test_a_killed_admission_process_is_replaced(
    database_url: str, organization: Organization, nats_url: str
) -> None:
    """ACC-2, OPS-1: an admission process killed with -9 costs a moment, not a Command."""
    async with authority_on(database_url, organization) as authority:
        await with_groups(authority, 0)
        async with door(authority, nats_url) as opened:
            assert isinstance(await opened.send(post(organization)), Receipt)
            [pid] = opened.admission.pids
            os.kill(pid, signal.SIGKILL)
            assert isinstance(await opened.send(post(organization)), Receipt)
