"""What must be true when the storm is over and the processes were left alone for a while."""

import asyncio
import json
import os
import subprocess
import sys
import time
import urllib.request
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest
from psycopg import AsyncConnection

from ops.demo.mission_documents import agent_id
from ops.demo.observe_stack import Observatory
from ops.projection_file import NotAProjection
from ops.projection_place import ProjectionPlace, open_place, projection_places
from services.process import broker, database
from tests.chaos.load import Load, worker_name
from tests.chaos.storm import Storm

settled_seconds_max = 180.0
"""Seconds after the storm until everything must have found its way; it takes a few."""
look_seconds = 0.5

find_events = "SELECT event_id, group_id, sequence FROM event_log WHERE event_id = ANY (%s)"
find_messages = """
SELECT convert_from(event, 'UTF8')::jsonb #>> '{payload,message,messageId}' FROM event_log
WHERE kind = 'message.posted' AND group_id = ANY (%s)
"""
find_receipts = "SELECT action_id, count(*) FROM receipt WHERE action_id = ANY (%s) GROUP BY action_id"
read_heads = "SELECT group_id, max(sequence) FROM event_log WHERE group_id <> '' GROUP BY group_id"


class Outcome:
    """Looks at the stack from outside, without a proxy."""

    def __init__(self, storm: Storm, load: Load, connection: AsyncConnection, observatory: Observatory) -> None:
        self._storm = storm
        self._load = load
        self.connection = connection
        self._observatory = observatory

    async def settled(self) -> None:
        """Everything accepted is published, applied and acknowledged, without anybody's help."""
        ends = time.monotonic() + settled_seconds_max
        while missing := await self._missing():
            assert time.monotonic() < ends, missing
            await asyncio.sleep(look_seconds)

    async def _missing(self) -> dict[str, object]:
        """What is not where it belongs yet."""
        heads = dict(await self._rows(read_heads))
        worked = [*self._load.group_ids, *(mission.mark.group_id for mission in self._load.missions)]
        acknowledged = await self._observatory.applied(worked)
        ada = agent_id(worker_name)
        missing: dict[str, object] = {
            "unready": await self._storm.stack.unready(),
            "unpublished": await self._observatory.unpublished(),
            "unapplied": await asyncio.to_thread(self._unapplied, heads),
            "unacknowledged": {
                group_id: (acknowledged.get((group_id, ada), 0), heads[group_id])
                for group_id in worked
                if acknowledged.get((group_id, ada), 0) != heads[group_id]
            },
            "lag": await asyncio.to_thread(self._relay_lag),
        }
        return {what: found for what, found in missing.items() if found}

    def _unapplied(self, heads: dict[str, int]) -> dict[str, object]:
        """Projections with a Group whose Cursor is not at its head. A Worker follows its own Groups only."""
        found: dict[str, object] = {}
        for place in self._places():
            try:
                with open_place(place) as opened:
                    cursors = {cursor.group_id: cursor.sequence for cursor in opened.snapshot.cursors()}
                    ahead, stops = opened.snapshot.heads_ahead(), opened.snapshot.stops()
                    forks = opened.snapshot.forks()
                    own = bool(opened.consumer.variant)
            except NotAProjection as fault:
                found[place.name] = str(fault)
                continue
            expected = {group_id: head for group_id, head in heads.items() if not own or group_id in cursors}
            assert forks == [], (place.name, forks)
            if cursors != expected or ahead or stops:
                late = {
                    group: (cursors.get(group), head) for group, head in expected.items() if cursors.get(group) != head
                }
                found[place.name] = {"late": late, "ahead": ahead, "stops": stops}
        return found

    def _places(self) -> list[ProjectionPlace]:
        """All projections: those of the projector, in their database, and the Worker's file."""
        with pytest.MonkeyPatch.context() as environment:
            for name, value in self._storm.projection_variables.items():
                environment.setenv(name, value)
            return projection_places(self._storm.stack.directory.path)

    def _relay_lag(self) -> float:
        """The relay's own measure: age of the oldest row that is not published, in seconds."""
        port = self._storm.stack.service("relay-1").health_port
        text = urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=5).read().decode()
        lags = [line.split()[-1] for line in text.splitlines() if line.startswith("weavehold_relay_lag_seconds")]
        return sum(float(lag) for lag in lags)

    async def assert_nothing_lost_or_doubled(self) -> None:
        """Every Receipt names Events that are in the log where it says; every Message is there once."""
        told = {
            (event.event_id, event.group_id, event.sequence)
            for receipt in self._load.receipts
            for event in receipt.events
        }
        assert set(await self._rows(find_events, [event_id for event_id, _, _ in told])) == told
        posted = Counter(message_id for (message_id,) in await self._rows(find_messages, self._load.group_ids))
        assert posted == Counter(self._load.sent)
        names = [receipt.action_id for receipt in self._load.receipts]
        assert dict(await self._rows(find_receipts, names)) == dict.fromkeys(names, 1)

    async def assert_verified(self) -> None:
        """`weavehold verify --json` finds nothing: log, chain, Receipts, state, keys, streams, projections agree."""
        command = [
            sys.executable,
            "-m",
            "ops.cli",
            "verify",
            "--json",
            "--directory",
            str(self._storm.stack.directory.path),
        ]
        variables = os.environ | self._storm.projection_variables
        ended = await asyncio.to_thread(
            subprocess.run, command, env=variables, capture_output=True, text=True, timeout=300, check=False
        )
        assert ended.returncode == 0, ended.stdout[-3000:] + ended.stderr[-3000:]
        report = json.loads(ended.stdout)
        assert (report["ok"], report["found"]) == (True, 0), report["findings"]
        assert report["examined"]["projections"] > 0

    async def _rows(self, statement: str, *asked: object):
        return await (await self.connection.execute(statement, asked)).fetchall()


@asynccontextmanager
async def outcome_of(storm: Storm, load: Load) -> AsyncIterator[Outcome]:
    """Connections of its own for looking."""
    stack = storm.stack
    async with await database.connect(stack.database_url, name="outcome") as connection:
        watching = await broker.connect(stack.nats_url, name="outcome", token=stack.nats_token)
        try:
            yield Outcome(storm, load, connection, Observatory(stack, connection, watching))
        finally:
            await watching.close()
