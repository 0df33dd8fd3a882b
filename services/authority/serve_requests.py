"""Everything that is asked and not a Command: replay, acknowledgements, heads, Memberships, and the session handshake.

Each subject has its own bound on what is in flight, so a flood of one kind never starves another; beyond it the answer
is BACKPRESSURE at once. What fails inside gets an answer too: transient faults a retryable one, the rest
INTERNAL_ERROR and a log line.
"""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any, Final

import msgspec
from msgspec import Struct
from nats.aio.client import Client
from nats.aio.msg import Msg
from nats.aio.subscription import Subscription
from nats.errors import Error as BrokerError
from psycopg import AsyncConnection

from contracts import subjects
from contracts.identifiers import SessionEpoch
from contracts.payloads.requests import (
    Acknowledge,
    GroupReplay,
    Heads,
    Keys,
    Memberships,
    ShardReplay,
    acknowledge_request,
    heads_request,
    keys_request,
    memberships_request,
    replay_request,
)
from contracts.rejection import Code, Rejection, reject
from contracts.signature import SigningKey
from services.authority.encode_answer import encode_rejection
from services.authority.history_standing import HistoryDoubted
from services.authority.provision_delivery import retire_deliveries
from services.authority.read_request import ReadRequest, ReadTrust, read_request, registry_not_trusted
from services.authority.serve_acknowledgement import serve_acknowledgement
from services.authority.serve_heads import serve_heads
from services.authority.serve_keys import serve_keys
from services.authority.serve_memberships import serve_memberships
from services.authority.serve_replay import serve_group_replay, serve_shard_replay
from services.authority.serve_session import OpenSession, SessionOpened, serve_session
from services.process.database import Connections, FaultKind, classify
from services.process.logs import get_log
from services.process.metrics import Metrics

queue_group: Final = "authority"
replays_in_flight_max: Final = 32
"""Replay requests between arrival and reply; each may hold one page."""
acknowledgements_in_flight_max: Final = 128
"""Acknowledgements between arrival and reply."""
queries_in_flight_max: Final = 32
"""Requests for heads, Memberships or keys between arrival and reply."""
handshakes_in_flight_max: Final = 64
"""Handshake steps between arrival and reply."""
request_seconds_max: Final = 20.0
"""Seconds after which a request is answered as overloaded, whatever it waits for."""
retire_seconds_max: Final = 2.0
"""Seconds that a new session waits for the deliveries of earlier ones to be deleted."""
retry_after_ms: Final = 250
"""Milliseconds that a client is told to wait after BACKPRESSURE."""

log = get_log(__name__)

Handler = Callable[[bytes], Awaitable[Struct | Rejection]]


class _Counter:
    """Counts answers by what was asked and how it ended."""

    def __init__(self, metrics: Metrics) -> None:
        outcomes = ("answered", *(code.value for code in Code))
        self._counter = metrics.counter(
            "requests_answered",
            "Signed reads and handshake steps answered",
            labels={"request": ("replay", "acknowledgement", "query", "session"), "outcome": outcomes},
        )

    def add(self, request: str, answer: Struct | Rejection) -> None:
        """One more answer."""
        self._counter.add(request=request, outcome=answer.code.value if isinstance(answer, Rejection) else "answered")


class _Door:
    """One subject: takes requests within its bound, runs the handler, and always answers."""

    def __init__(self, nc: Client, name: str, in_flight_max: int, handler: Handler, counter: _Counter) -> None:
        self._nc = nc
        self._name = name
        self._in_flight_max = in_flight_max
        self._handler = handler
        self._counter = counter
        self._in_flight: set[asyncio.Task[None]] = set()

    async def on_request(self, message: Msg) -> None:
        """Start one request, or turn it away."""
        if len(self._in_flight) >= self._in_flight_max:
            await self._reply(message, _overloaded(f"{self._in_flight_max} requests are in flight"))
            return
        task = asyncio.create_task(self._answer(message), name=f"answer-{self._name}")
        self._in_flight.add(task)
        task.add_done_callback(self._in_flight.discard)

    async def finish(self) -> None:
        """Wait until everything taken is answered."""
        if self._in_flight:
            await asyncio.wait(set(self._in_flight))

    async def _answer(self, message: Msg) -> None:
        try:
            async with asyncio.timeout(request_seconds_max):
                answer = await self._handler(message.data)
        except Exception as fault:  # noqa: BLE001 - whoever asks gets an answer, whatever went wrong here
            answer = _fault_answer(self._name, fault)
        await self._reply(message, answer)

    async def _reply(self, message: Msg, answer: Struct | Rejection) -> None:
        self._counter.add(self._name, answer)
        if not message.reply:
            return
        reply = _encoded(answer)
        if len(reply) > self._nc.max_payload:
            log.error("reply_too_large", request=self._name, bytes=len(reply), max_payload=self._nc.max_payload)
            reply = encode_rejection(_too_large(len(reply), self._nc.max_payload))
        try:
            await self._nc.publish(message.reply, reply)
        except BrokerError as fault:
            # The client asks again; nothing was promised to it.
            log.warning("reply_lost", request=self._name, error=str(fault) or type(fault).__name__)


class ServedRequests:
    """What `serve` started; `close` ends it."""

    def __init__(self, subscriptions: list[Subscription], doors: list[_Door]) -> None:
        self._subscriptions = subscriptions
        self._doors = doors

    async def close(self) -> None:
        """Take nothing new and answer what was taken, each request within `request_seconds_max`."""
        for subscription in self._subscriptions:
            await subscription.unsubscribe()
        await asyncio.gather(*(door.finish() for door in self._doors))


async def serve(
    nc: Client,
    pool: Connections,
    trust: ReadTrust,
    *,
    signing_key: Callable[[], SigningKey],
    open_session: OpenSession,
    metrics: Metrics,
) -> ServedRequests:
    """Answer the Organization's requests together with all other authority processes (one queue group).

    `pool` reaches the primary: a FORK verdict rests on what is answered here (RULE-21). `signing_key` gives the key
    that signs the authority's Events now.
    """
    organization_id = trust.organization_id
    desk = _Desk(nc, pool, trust, signing_key, open_session)
    counter = _Counter(metrics)
    offers: list[tuple[str, Callable[[str], str], int, Handler]] = [
        ("replay", subjects.replay, replays_in_flight_max, desk.replay),
        ("acknowledgement", subjects.acknowledgement, acknowledgements_in_flight_max, desk.acknowledge),
        ("query", subjects.query, queries_in_flight_max, desk.query),
        ("session", subjects.session, handshakes_in_flight_max, desk.session),
    ]
    subscriptions: list[Subscription] = []
    doors: list[_Door] = []
    for name, subject, in_flight_max, handler in offers:
        door = _Door(nc, name, in_flight_max, handler, counter)
        doors.append(door)
        subscriptions.append(await nc.subscribe(subject(organization_id), queue=queue_group, cb=door.on_request))

    async def on_keys_changed(_message: Msg) -> None:
        trust.keys.invalidate()

    subscriptions.append(await nc.subscribe(subjects.keys_changed(organization_id), cb=on_keys_changed))
    return ServedRequests(subscriptions, doors)


class _Desk:
    """Gate and verb of each subject."""

    def __init__(
        self,
        nc: Client,
        pool: Connections,
        trust: ReadTrust,
        signing_key: Callable[[], SigningKey],
        open_session: OpenSession,
    ) -> None:
        self._nc = nc
        self._pool = pool
        self._organization_id = trust.organization_id
        self._trust = trust
        self._signing_key = signing_key
        self._open_session = open_session

    async def replay(self, raw: bytes) -> Struct | Rejection:
        """A page of a Group or of a shard."""
        request = await self._gate(raw, (replay_request,))
        if isinstance(request, Rejection):
            return request
        async with self._pool.connection() as connection:
            return await self._replay(connection, request)

    async def _replay(self, connection: AsyncConnection[Any], request: ReadRequest) -> Struct | Rejection:
        actor = request.reader.actor
        match request.payload:
            case GroupReplay() as asked:
                return await serve_group_replay(connection, self._organization_id, actor, asked)
            case ShardReplay() as asked:
                return await serve_shard_replay(connection, self._organization_id, actor, asked)
            case _:
                raise AssertionError(f"{type(request.payload).__name__} passed the gate of replay")

    async def acknowledge(self, raw: bytes) -> Struct | Rejection:
        """A durable Cursor reported."""
        request = await self._gate(raw, (acknowledge_request,))
        if isinstance(request, Rejection):
            return request
        assert isinstance(request.payload, Acknowledge)  # noqa: S101 - the gate let this kind alone through
        async with self._pool.connection() as connection:
            return await serve_acknowledgement(connection, self._organization_id, request.reader.actor, request.payload)

    async def query(self, raw: bytes) -> Struct | Rejection:
        """Heads, Memberships or keys."""
        request = await self._gate(raw, (heads_request, memberships_request, keys_request))
        if isinstance(request, Rejection):
            return request
        match request.payload:
            case Heads() as asked:
                async with self._pool.connection() as connection:
                    return await serve_heads(connection, self._organization_id, request.reader.actor, asked)
            case Memberships() as asked:
                return await serve_memberships(self._nc, self._pool, self._organization_id, request.reader, asked)
            case Keys() as asked:
                async with self._pool.connection() as connection:
                    return await serve_keys(
                        connection, self._organization_id, self._signing_key(), request.action_id, asked
                    )
            case _:
                raise AssertionError(f"{type(request.payload).__name__} passed the gate of queries")

    async def session(self, raw: bytes) -> Struct | Rejection:
        """One step of the handshake; a new session ends the delivery of those before it."""
        if self._trust.registry_fault() is not None:
            return registry_not_trusted()
        return await serve_session(self._pool, self._organization_id, raw, self._open_and_retire)

    async def _open_and_retire(self, agent_id: str, key_id: str) -> SessionOpened | Rejection:
        opened = await self._open_session(agent_id, key_id)
        if not isinstance(opened, Rejection):
            await self._retire(agent_id, opened.session_epoch)
        return opened

    async def _retire(self, agent_id: str, session_epoch: SessionEpoch) -> None:
        """Delete what earlier sessions were delivered by; the next provisioning does it if this fails."""
        try:
            async with asyncio.timeout(retire_seconds_max):
                await retire_deliveries(self._nc, self._pool, self._organization_id, agent_id, session_epoch)
        except (BrokerError, TimeoutError) as fault:
            log.warning("deliveries_not_retired", agent_id=agent_id, error=str(fault) or type(fault).__name__)

    async def _gate(self, raw: bytes, kinds: tuple[str, ...]) -> ReadRequest | Rejection:
        return await read_request(self._pool, self._trust, raw, kinds)


def _encoded(answer: Struct | Rejection) -> bytes:
    return encode_rejection(answer) if isinstance(answer, Rejection) else msgspec.json.encode(answer)


def _fault_answer(name: str, fault: Exception) -> Rejection:
    if isinstance(fault, HistoryDoubted):
        # What a restored log lacks would be taken for the truth (RULE-16).
        return _overloaded("the history is in doubt, so nothing of it is told now")
    if isinstance(fault, TimeoutError) or classify(fault) is FaultKind.TRANSIENT:
        log.warning("request_not_served", request=name, error=str(fault) or type(fault).__name__)
        return _overloaded("the database does not answer in time")
    log.error("request_failed", request=name, exc_info=fault)
    return reject(Code.INTERNAL_ERROR, f"the {name} request could not be served; nothing was changed")


def _too_large(size: int, max_payload: int) -> Rejection:
    message = f"the answer has {size} bytes, the broker takes {max_payload}: raise its max_payload or ask for less"
    return reject(Code.INTERNAL_ERROR, message)


def _overloaded(why: str) -> Rejection:
    return reject(Code.BACKPRESSURE, f"{why}; ask again", retryable=True, retry_after_ms=retry_after_ms)
