"""What the relay's tests share: a log to relay, a stream to look at, and relays as objects or as real processes."""

import asyncio
import json
import os
import re
import secrets
import signal
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from nats.aio.client import Client
from psycopg import AsyncConnection

from contracts import subjects
from contracts.delivery import MessageMark, read_mark
from contracts.identifiers import ShardId
from ops.init import Organization
from outbox_relay.held_shards import HeldShards
from outbox_relay.relay_shard import RelayState
from outbox_relay.stream import StreamLimits
from services.process import broker
from services.process.database import connect, open_pool
from services.process.metrics import Metrics
from services.process.unique import holder_name

root = Path(__file__).parents[1]
patience_seconds = 60.0
"""How long anything that must come may take on a machine that does much else."""

append_rows = """
INSERT INTO event_log (organization_id, shard_id, position, incarnation, group_id, sequence, event_id, kind,
                       aggregate_revision, accepted_at, signing_hash, chain_hash, event)
SELECT %(organization_id)s, %(shard_id)s, position, %(incarnation)s, 'urn:test:group:' || grp,
       row_number() OVER (PARTITION BY grp ORDER BY position)
           + (SELECT count(*) FROM event_log WHERE organization_id = %(organization_id)s
                 AND group_id = 'urn:test:group:' || grp),
       'urn:uuid:' || gen_random_uuid(), 'message.posted', 1, weavehold_clock(),
       sha256(position::text::bytea), sha256(('chain' || position)::bytea),
       convert_to('{"position":' || position || ',"text":"' || repeat('x', %(bytes)s) || '"}', 'UTF8')
FROM (
    SELECT head + number AS position, %(shard_id)s || '-' || number %% 3 AS grp
    FROM generate_series(1, %(count)s) number,
         (SELECT coalesce(max(position), 0) AS head FROM event_log
          WHERE organization_id = %(organization_id)s AND shard_id = %(shard_id)s) log
) numbered
"""
read_log = """
SELECT position, subject, event_id, event FROM outbox
WHERE organization_id = %(organization_id)s AND shard_id = %(shard_id)s ORDER BY position
"""


@dataclass(frozen=True)
class Stored:
    """One message of a stream."""

    sequence: int
    subject: str
    headers: dict[str, str]
    data: bytes

    @property
    def mark(self) -> MessageMark:
        mark = read_mark(self.headers)
        assert mark is not None, f"message {self.sequence} on {self.subject} has no mark"
        return mark


class Shard:
    """One shard of an Organization: its log in the database and its stream at the broker."""

    def __init__(
        self,
        connection: AsyncConnection[Any],
        client: Client,
        organization: Organization,
        database_url: str,
        shard_id: int = 1,
        incarnation: str | None = None,
    ) -> None:
        self.connection = connection
        self.client = client
        self.organization = organization
        self.database_url = database_url
        self.shard_id = ShardId(shard_id)
        self.incarnation = incarnation or organization.incarnation
        self.stream = subjects.stream_name(organization.organization_id, self.shard_id, self.incarnation)

    def other(self, shard_id: int) -> "Shard":
        """Another shard of the same Organization."""
        return Shard(self.connection, self.client, self.organization, self.database_url, shard_id)

    def later(self, incarnation: str) -> "Shard":
        """The same shard in a later incarnation."""
        return Shard(self.connection, self.client, self.organization, self.database_url, self.shard_id, incarnation)

    def relaying(
        self, *, client: Client | None = None, database_url: str = "", limits: StreamLimits | None = None
    ) -> "AbstractAsyncContextManager[Relay]":
        """A relay of the Organization inside this process."""
        return relaying(database_url or self.database_url, client or self.client, self.organization, limits)

    async def append(self, count: int, *, size: int = 20, wake: bool = True) -> None:
        """Commit Events of about `size` bytes, and say so as the authority does."""
        asked = {
            "organization_id": self.organization.organization_id,
            "shard_id": self.shard_id,
            "incarnation": self.incarnation,
            "count": count,
            "bytes": size,
        }
        await self.connection.execute(append_rows, asked)
        if wake:
            await self.client.publish(subjects.log_grown(self.organization.organization_id, self.shard_id))

    async def log(self) -> list[tuple[Any, ...]]:
        """(position, subject, Event ID, bytes) of every row."""
        asked = {"organization_id": self.organization.organization_id, "shard_id": self.shard_id}
        cursor = await self.connection.execute(read_log, asked, binary=True)
        return await cursor.fetchall()

    async def state(self) -> dict[str, Any] | None:
        """The stream's state, None when there is no stream."""
        answer = await api(self.client, f"STREAM.INFO.{self.stream}")
        return None if "error" in answer else answer["state"]

    async def messages(self) -> list[Stored]:
        """All messages of the stream, one by one by their sequence."""
        state = await self.state()
        assert state is not None, f"{self.stream} does not exist"
        if not state["messages"]:
            return []
        found = await asyncio.gather(
            *(self._message(sequence) for sequence in range(state["first_seq"], state["last_seq"] + 1))
        )
        return [stored for stored in found if stored is not None]

    async def _message(self, sequence: int) -> Stored | None:
        answer = await self.client.request(
            f"$JS.API.DIRECT.GET.{self.stream}", json.dumps({"seq": sequence}).encode(), timeout=patience_seconds
        )
        headers = {str(key): value for key, value in (answer.headers or {}).items()}
        if headers.get("Status"):
            return None
        return Stored(sequence, headers["Nats-Subject"], headers, answer.data)

    async def relayed(self, seconds: float = patience_seconds) -> None:
        """Wait until the stream ends where the log ends, then compare them message by message (OBX-1)."""
        head = len(await self.log())

        async def level() -> bool:
            state = await self.state()
            return state is not None and state["last_seq"] == head

        await eventually(level, seconds, f"{self.stream} to end at {head}")
        await self.compare()

    async def compare(self, first: int = 1, last: int | None = None) -> None:
        """Stream and log hold the same from `first` to `last`: nothing lost, doubled, skipped or out of order."""
        messages = [(m.sequence, m.subject, m.mark.event_id, m.data) for m in await self.messages()]
        assert messages == [tuple(row) for row in await self.log()][first - 1 : last]


async def api(client: Client, call: str, asked: dict[str, Any] | None = None) -> dict[str, Any]:
    """A call of the broker's API, as raw JSON."""
    body = json.dumps(asked).encode() if asked else b""
    answer = await client.request(f"$JS.API.{call}", body, timeout=patience_seconds)
    return json.loads(answer.data)


async def eventually(condition: Callable[[], Awaitable[bool]], seconds: float, what: str) -> None:
    """Wait until a condition holds; it may fail with an error meanwhile."""
    deadline = time.monotonic() + seconds
    last: Exception | None = None
    while time.monotonic() < deadline:
        try:
            if await condition():
                return
        except Exception as error:  # noqa: BLE001 - whatever is not yet there
            last = error
        await asyncio.sleep(0.05)
    raise AssertionError(f"waited {seconds} s in vain for {what} ({last!r})")


@asynccontextmanager
async def open_shard(database_url: str, nats_url: str, organization: Organization) -> AsyncIterator[Shard]:
    """Shard 1 of an Organization, with connections of its own."""
    connection = await connect(database_url, name="test")
    client = await broker.connect(nats_url, name="test")
    try:
        yield Shard(connection, client, organization, database_url)
    finally:
        await client.close()
        await connection.close()


@dataclass(frozen=True)
class Relay:
    """A relay inside the test's process."""

    shards: HeldShards
    metrics: Metrics

    def metric(self, name: str) -> float:
        """The sum over all series of a metric, 0 when there is none yet."""
        text = self.metrics.exposition()[0].decode()
        return sum(float(value) for value in re.findall(rf"^weavehold_{name}(?:{{.*}})? (\S+)$", text, re.MULTILINE))

    def state(self, shard_id: int) -> RelayState | None:
        """What a shard's relay is doing; None when it is not held."""
        held = self.shards._held.get(ShardId(shard_id))
        return None if held is None else held.relay.state

    async def reaches(self, shard_id: int, state: RelayState, seconds: float = patience_seconds) -> str:
        """Wait for a state, and return its detail."""

        async def reached() -> bool:
            return self.state(shard_id) is state

        await eventually(reached, seconds, f"shard {shard_id} to be {state.value}")
        return self.shards._held[ShardId(shard_id)].relay.detail


@asynccontextmanager
async def relaying(
    database_url: str, client: Client, organization: Organization, limits: StreamLimits | None = None
) -> AsyncIterator[Relay]:
    """A relay inside this process, beating until the block ends."""
    pool = await open_pool(database_url, name="relay-test", maximum=4)
    stopping, metrics = asyncio.Event(), Metrics("relay")
    shards = HeldShards(
        pool=pool,
        client=client,
        organization_id=organization.organization_id,
        holder=holder_name(f"relay{secrets.token_hex(4)}"),
        limits=limits or StreamLimits(),
        metrics=metrics,
    )
    task = asyncio.create_task(shards.run(stopping, lambda: None))
    try:
        yield Relay(shards, metrics)
    finally:
        stopping.set()
        try:
            await task
        finally:
            metrics.close()
            await pool.close()


@asynccontextmanager
async def growing(shard: Shard) -> AsyncIterator[None]:
    """Events committed all the time, in ones and in hundreds."""
    stopping = asyncio.Event()

    async def grow() -> None:
        turn = 0
        while not stopping.is_set():
            turn += 1
            await shard.append(400 if turn % 10 == 0 else 3, size=500, wake=shard.client.is_connected)
            await asyncio.sleep(0.02)

    task = asyncio.create_task(grow())
    try:
        yield
    finally:
        stopping.set()
        await task


class RelayProcess:
    """`weavehold relay` as a process of its own."""

    def __init__(
        self,
        database_url: str,
        nats_url: str,
        organization: Organization,
        directory: Path,
        instance: str = "",
        **further: str,
    ) -> None:
        """`further` are variables of its own."""
        self._directory = directory / f"relay-{secrets.token_hex(4)}"
        self._directory.mkdir()
        self._port_file = self._directory / "port"
        variables = {
            "WEAVEHOLD_DATABASE_URL": database_url,
            "WEAVEHOLD_NATS_URL": nats_url,
            "WEAVEHOLD_ORGANIZATION": organization.organization_id,
            "WEAVEHOLD_HEALTH_PORT_FILE": str(self._port_file),
            "WEAVEHOLD_INSTANCE": instance or self._directory.name.replace("-", ""),
            **further,
        }
        self.log = self._directory / "log"
        with self.log.open("wb") as log:
            self._child = subprocess.Popen(
                [sys.executable, "-m", "outbox_relay.main"],
                env=os.environ | variables,
                stdout=log,
                stderr=log,
                cwd=root,
            )

    async def ready(self, seconds: float = patience_seconds) -> None:
        """Wait until it is ready."""

        async def is_ready() -> bool:
            assert self._child.poll() is None, self.log.read_text()
            return (await self.get("readyz"))[0] == 200

        await eventually(is_ready, seconds, "the relay process to be ready")

    async def get(self, path: str) -> tuple[int, str]:
        """Status and body of one of its health endpoints."""

        def ask() -> tuple[int, str]:
            try:
                with urllib.request.urlopen(f"http://127.0.0.1:{self._port_file.read_text().strip()}/{path}") as answer:
                    return answer.status, answer.read().decode()
            except urllib.error.HTTPError as error:
                with error:
                    return error.code, error.read().decode()

        return await asyncio.to_thread(ask)

    def send(self, number: signal.Signals) -> None:
        """Send a signal to it."""
        self._child.send_signal(number)

    def end(self, number: signal.Signals = signal.SIGTERM) -> int:
        """End it and return its exit code."""
        if self._child.poll() is None:
            self._child.send_signal(signal.SIGCONT)
            self._child.send_signal(number)
        return self._child.wait(patience_seconds)


@asynccontextmanager
async def relay_process(
    database_url: str, nats_url: str, organization: Organization, directory: Path, **further: str
) -> AsyncIterator[RelayProcess]:
    """A ready relay process that ends with the block; `further` are variables of its own."""
    process = RelayProcess(database_url, nats_url, organization, directory, **further)
    try:
        await process.ready()
        yield process
    finally:
        process.end()
