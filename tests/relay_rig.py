"""What the relay's tests share: a log to relay, a stream to look at, and relays as objects or as real processes."""

import asyncio
import json
import secrets
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any

from nats.aio.client import Client
from psycopg import AsyncConnection

from contracts import subjects
from contracts.delivery import MessageMark, read_mark
from contracts.identifiers import ShardId
from ops.init import Organization
from outbox_relay.held_shards import HeldShards
from outbox_relay.stream import StreamLimits
from services.process.database import open_pool
from services.process.metrics import Metrics

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
        self, connection: AsyncConnection[Any], client: Client, organization: Organization, shard_id: int
    ) -> None:
        self.connection = connection
        self.client = client
        self.organization = organization
        self.shard_id = ShardId(shard_id)
        self.stream = subjects.stream_name(organization.organization_id, self.shard_id, organization.incarnation)

    async def append(self, count: int, *, size: int = 20, wake: bool = True, incarnation: str | None = None) -> None:
        """Commit Events of about `size` bytes, and say so as the authority does."""
        asked = {
            "organization_id": self.organization.organization_id,
            "shard_id": self.shard_id,
            "incarnation": incarnation or self.organization.incarnation,
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
            f"$JS.API.DIRECT.GET.{self.stream}", json.dumps({"seq": sequence}).encode(), timeout=20
        )
        headers = {str(key): value for key, value in (answer.headers or {}).items()}
        if headers.get("Status"):
            return None
        return Stored(sequence, headers["Nats-Subject"], headers, answer.data)

    async def relayed(self, seconds: float = 15) -> None:
        """Wait until the stream ends where the log ends, then compare them message by message (OBX-1)."""
        head = len(await self.log())

        async def level() -> bool:
            state = await self.state()
            return state is not None and state["last_seq"] == head

        await eventually(level, seconds, f"{self.stream} to end at {head}")
        await self.compare()

    async def compare(self, first: int = 1) -> None:
        """Stream and log hold the same from `first` on: nothing lost, doubled, skipped or out of order."""
        messages = [(m.sequence, m.subject, m.mark.event_id, m.data) for m in await self.messages()]
        assert messages == [tuple(row) for row in await self.log()][first - 1 :]


async def api(client: Client, call: str, asked: dict[str, Any] | None = None) -> dict[str, Any]:
    """A call of the broker's API, as raw JSON."""
    answer = await client.request(f"$JS.API.{call}", json.dumps(asked).encode() if asked else b"", timeout=20)
    return json.loads(answer.data)


async def eventually(condition: Callable[[], Awaitable[bool]], seconds: float, what: str) -> None:
    """Wait until a condition holds; it may fail with an error meanwhile."""
    deadline = time.monotonic() + seconds
    last: Exception | None = None
    while time.monotonic() < deadline:
        try:
            if await condition():
                return
        except Exception as error:
            last = error
        await asyncio.sleep(0.05)
    raise AssertionError(f"waited {seconds} s in vain for {what} ({last!r})")


@asynccontextmanager
async def relaying(
    database_url: str, client: Client, organization: Organization, *, limits: StreamLimits | None = None, name: str = ""
) -> AsyncIterator[HeldShards]:
    """A relay inside this process, beating until the block ends."""
    pool = await open_pool(database_url, name="relay-test", maximum=4)
    stopping = asyncio.Event()
    shards = HeldShards(
        pool=pool,
        client=client,
        organization_id=organization.organization_id,
        holder=name or f"relay-{secrets.token_hex(4)}",
        limits=limits or StreamLimits(),
        metrics=(metrics := Metrics("relay")),
    )
    task = asyncio.create_task(shards.run(stopping, lambda: None))
    try:
        yield shards
    finally:
        stopping.set()
        try:
            await task
        finally:
            metrics.close()
            await pool.close()
