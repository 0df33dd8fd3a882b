"""Numbers of a running stack: what is accepted, published and applied, each from where it is true."""

import asyncio
import os
import urllib.request
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any, Final

from nats.aio.client import Client as BrokerClient
from nats.errors import Error as BrokerError
from prometheus_client.parser import text_string_to_metric_families

from contracts import subjects
from contracts.identifiers import ShardId
from ops.embedded.supervisor import Supervisor
from ops.projection_file import NotAProjection
from ops.projection_place import ProjectionPlace, open_place, place_of_consumer
from projections.mission_board.consumer import MissionBoard
from services.process.database import Connection, connect
from services.process.statements import load

metrics_seconds_max: Final = 3.0
"""Seconds for one look at a process's metrics."""
broker_seconds_max: Final = 2.0
"""Seconds for one question to the broker."""

_sql: Final = load(__package__)


class Observatory:
    """Reads the database, the broker, the mission board and the processes' metrics of one stack."""

    def __init__(self, stack: Supervisor, database: Connection, broker: BrokerClient) -> None:
        self._stack = stack
        self._database = database
        self._broker = broker
        self._organization_id = stack.organization.organization_id

    async def reconnect(self) -> None:
        """Look at the database by a new connection: the server behind the old one is gone."""
        await self._database.close()
        self._database = await connect(self._stack.database_url, name="weavehold-demo")

    async def close(self) -> None:
        """Give the database's connection up."""
        await self._database.close()

    async def _rows(self, statement: str, **parameters: Any) -> list[tuple[Any, ...]]:
        asked = {"organization_id": self._organization_id, **parameters}
        return await (await self._database.execute(_sql[statement], asked)).fetchall()

    async def commands_accepted(self) -> int:
        """Commands with a Receipt."""
        [(count,)] = await self._rows("count_commands")
        return int(count)

    async def log_heads(self) -> dict[ShardId, int]:
        """Position of the last Event of each shard's log."""
        return {ShardId(shard): int(head) for shard, head in await self._rows("read_log_heads")}

    async def group_ends(self, group_ids: Sequence[str]) -> dict[str, int]:
        """Sequence of the last Event of each of these Groups."""
        return {group: int(end) for group, end in await self._rows("read_group_ends", group_ids=list(group_ids))}

    async def position_of(self, event_id: str) -> tuple[ShardId, int] | None:
        """Where an Event stands in the log."""
        rows = await self._rows("find_position", event_id=event_id)
        return (ShardId(rows[0][0]), int(rows[0][1])) if rows else None

    async def applied(self, group_ids: Sequence[str]) -> dict[tuple[str, str], int]:
        """(Group, Principal) → the sequence that this member acknowledged as durably applied."""
        rows = await self._rows("read_acknowledged", group_ids=list(group_ids))
        return {(group, principal): int(sequence) for group, principal, sequence in rows}

    async def projected(self) -> Mapping[str, int]:
        """Group → the sequence up to which the mission board shows it; empty while there is no board."""
        place = place_of_consumer(MissionBoard(), self._stack.directory.path, {**os.environ, **self._stack.variables()})
        return await asyncio.to_thread(_read_cursors, place)

    async def published(self, shard_id: ShardId) -> int:
        """Last position in a shard's stream; 0 while there is no stream or no answer."""
        if not self._broker.is_connected:
            return 0
        [(incarnation,)] = await self._rows("read_incarnation")
        stream = subjects.stream_name(self._organization_id, shard_id, incarnation)
        try:
            jetstream = self._broker.jetstream(timeout=broker_seconds_max)
            return (await jetstream.stream_info(stream)).state.last_seq
        except (BrokerError, TimeoutError):
            return 0

    async def unpublished(self) -> dict[ShardId, int]:
        """Events of each shard that its stream lacks; empty when every stream is at its head."""
        heads = await self.log_heads()
        return {
            shard: head - reached for shard, head in heads.items() if (reached := await self.published(shard)) < head
        }

    async def counters_of(self, service: str) -> Mapping[str, int]:
        """Counters of a Worker or of the projector since its start, summed by name; empty when it does not answer."""
        port = self._stack.service(service).health_port
        if port is None:
            return {}
        try:
            text = await asyncio.to_thread(_fetch, f"http://127.0.0.1:{port}/metrics")
        except OSError:
            return {}
        counters: Counter[str] = Counter()
        for family in text_string_to_metric_families(text):
            for sample in family.samples:
                if sample.name.endswith("_total"):
                    counters[sample.name.removeprefix("weavehold_").removesuffix("_total")] += int(sample.value)
        return counters


def _read_cursors(place: ProjectionPlace) -> Mapping[str, int]:
    try:
        with open_place(place) as board:
            return {cursor.group_id: cursor.sequence for cursor in board.snapshot.cursors()}
    except NotAProjection:
        return {}


def _fetch(url: str) -> str:
    with urllib.request.urlopen(url, timeout=metrics_seconds_max) as answer:  # noqa: S310 - our own loopback URL
        content: bytes = answer.read()
    return content.decode()
