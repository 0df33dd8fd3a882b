"""The delivery log at the broker against the log in PostgreSQL, position by position (OBX-1)."""

import asyncio
import time
from typing import Any, Final

from nats.aio.client import Client
from nats.aio.msg import Msg
from nats.errors import TimeoutError as BrokerTimeoutError
from nats.js.api import AckPolicy, ConsumerConfig, DeliverPolicy, StreamState
from nats.js.client import JetStreamContext
from nats.js.errors import NotFoundError
from psycopg import AsyncConnection

from contracts import subjects
from contracts.delivery import stub_header
from contracts.identifiers import ShardId
from ops.verify.finding import Finding, Report
from ops.verify.verify_log import sql

messages_in_fetch_max: Final = 500
"""Messages asked of the broker at once."""
fetch_seconds_max: Final = 5.0
"""Seconds to wait for one fetch."""
rest_seconds_max: Final = 3.0
"""Seconds for which a stream that ends before the log is looked at again, in case its leader is catching up."""
look_seconds: Final = 0.25
reader_idle_seconds: Final = 60.0
"""Seconds after which the broker forgets the reader that verification made."""


async def verify_streams(
    connection: AsyncConnection[Any], broker: Client, organization_id: str, report: Report
) -> None:
    """Each shard's stream holds exactly the outbox of its positions, up to the head of the log."""
    asked = {"organization_id": organization_id}
    row = await (await connection.execute(sql.read_incarnation, asked)).fetchone()
    incarnation = "" if row is None else row[0]
    for (shard_id,) in await (await connection.execute(sql.read_shards, asked)).fetchall():
        await _verify_stream(
            connection, broker, organization_id, ShardId(shard_id), incarnation=incarnation, report=report
        )


async def _verify_stream(
    connection: AsyncConnection[Any],
    broker: Client,
    organization_id: str,
    shard_id: ShardId,
    *,
    incarnation: str,
    report: Report,
) -> None:
    asked: dict[str, Any] = {"organization_id": organization_id, "shard_id": shard_id}
    [(head,)] = await (await connection.execute(sql.read_shard_head, asked)).fetchall()
    name = subjects.stream_name(organization_id, shard_id, incarnation)
    stream = broker.jetstream()
    try:
        state = await _state_at_rest(stream, name, head)
    except NotFoundError:
        if head:
            message = f"shard {shard_id} has {head} Events but no stream {name}; start a relay"
            report.add(Finding(check="stream", message=message, shard_id=shard_id))
        return
    if state.last_seq != head:
        message = f"stream {name} ends at {state.last_seq}, the log at {head}"
        report.add(Finding(check="stream", message=message, shard_id=shard_id, position=min(head, state.last_seq) + 1))
    reader = await stream.pull_subscribe(
        "",
        stream=name,
        config=ConsumerConfig(
            ack_policy=AckPolicy.NONE,
            deliver_policy=DeliverPolicy.ALL,
            mem_storage=True,
            inactive_threshold=reader_idle_seconds,
        ),
    )
    try:
        position = state.first_seq
        while position <= min(state.last_seq, head):
            try:
                fetched = await reader.fetch(messages_in_fetch_max, timeout=fetch_seconds_max)
            except BrokerTimeoutError:
                message = f"stream {name} delivers nothing from {position} on"
                report.add(Finding(check="stream", message=message, shard_id=shard_id, position=position))
                return
            found = {message.metadata.sequence.stream: message for message in fetched}
            last = min(max(found), head)
            cursor = await connection.execute(
                sql.read_outbox_range, asked | {"first": position, "last": last}, binary=True
            )
            for expected, subject, raw in await cursor.fetchall():
                report.count("stream")
                if (problem := _difference(found.get(expected), subject, raw)) is not None:
                    report.add(Finding(check="stream", message=problem, shard_id=shard_id, position=expected))
            position = last + 1
    finally:
        await reader.unsubscribe()


async def _state_at_rest(stream: JetStreamContext, name: str, head: int) -> StreamState:
    """The stream's state, looked at again for a while if it ends early.

    A replica that has just begun to lead tells how far it has come itself, though the others have more.
    """
    ends = time.monotonic() + rest_seconds_max
    while True:
        state = (await stream.stream_info(name)).state
        if state.last_seq >= head or time.monotonic() >= ends:
            return state
        await asyncio.sleep(look_seconds)


def _difference(message: Msg | None, subject: str, raw: bytes) -> str | None:
    """How a message differs from the outbox row of its position. A stub stands for an Event the broker refused."""
    if message is None:
        return "the stream has no message at this position"
    if message.subject != subject:
        return f"the message is on {message.subject}, not on {subject}"
    if message.data != raw and stub_header not in (message.headers or {}):
        return "the message is not the stored Event"
    return None
