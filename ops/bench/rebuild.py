"""Rebuilding a SQLite projection from replay pages against bare SQLite statements of the same rows: [rebuild].

The rebuild gets pages as the replay service sends them and does all its work: decode, parse each Event once, recompute
every hash, verify one signature per batch, evolve, write rows, remember Events, move the Cursor. The baseline executes
the very rows that the rebuild writes (the projection's, the remembered Events, the Cursors), prepared and sorted in
memory, in transactions of the same size. Both write a new file each time, `synchronous = FULL`, in turns, in one
process.
"""

import sqlite3
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Final

import msgspec
from msgspec.structs import replace

from contracts.bounds import replay_page_bytes_max
from contracts.cursor import Cursor
from contracts.identifiers import GroupSequence
from contracts.payloads.requests import GroupHead, GroupPage, ReplayedEvent
from contracts.service_principals import authority
from contracts.signature import SigningKey
from contracts.verification import RegisteredKey
from ops.bench.history import bench_organization, sign_history
from ops.bench.measurement import Measurement, measured
from projections import store
from projections.arrival import Arrival, read_arrival
from projections.consumer import Consumer, Value
from projections.fill_gap import replay_batch_events
from projections.mission_board.consumer import MissionBoard
from projections.projection import Projection
from projections.proof import KnownKeys, SignatureProof
from projections.rebuild import rebuild
from projections.store import remembered_pairs_max
from projections.store.sqlite import SqliteStore
from services.process.statements import load

groups: Final = 4
events_per_group: Final = 6_000
rounds: Final = 5
"""Interleaved pairs of rebuild and baseline, after one that is not counted."""
_store_sql: Final = load(store.__name__, "sqlite")
target: Final = 0.2
per_core_target: Final = 25_000
"""Events per second of processor time."""


class PagedHistory:
    """Pages of histories in memory, as reply bytes, decoded when asked for. A HistorySource."""

    def __init__(self, histories: Sequence[Sequence[bytes]]) -> None:
        """Cut each history into pages."""
        self._pages: dict[tuple[str, int], bytes] = {}
        self._heads: dict[str, GroupHead] = {}
        for raws in histories:
            self._cut([read_arrival(raw) for raw in raws])
        self._decode = msgspec.json.Decoder(GroupPage).decode

    @property
    def group_ids(self) -> list[str]:
        """The Groups there are."""
        return list(self._heads)

    def _cut(self, arrivals: Sequence[Arrival]) -> None:
        last = arrivals[-1].mark
        head = _head(Cursor(last.incarnation, last.group_id, last.sequence, last.chain_hash))
        self._heads[last.group_id] = head
        after = 0
        while after < len(arrivals):
            reached, size = after, 0
            while reached < len(arrivals) and size + arrivals[reached].size <= replay_page_bytes_max:
                size += arrivals[reached].size
                reached += 1
            page = GroupPage(
                events=tuple(_replayed(arrival) for arrival in arrivals[after:reached]),
                next=reached if reached < len(arrivals) else None,
                head=head,
            )
            self._pages[last.group_id, after] = msgspec.json.encode(page)
            after = reached

    async def page(self, group_id: str, after: GroupSequence, limit: int) -> GroupPage:
        """The page that begins there; `limit` is that of the service."""
        del limit
        return self._decode(self._pages[group_id, after])

    shows_all: Final = True

    async def incarnation(self) -> str:
        """That of all histories."""
        return next(iter(self._heads.values())).incarnation

    async def heads(self, group_ids: Sequence[str]) -> Sequence[GroupHead]:
        """The last places."""
        return [self._heads[group_id] for group_id in group_ids if group_id in self._heads]


def _replayed(arrival: Arrival) -> ReplayedEvent:
    return ReplayedEvent(event=msgspec.Raw(arrival.raw), chain_hash=arrival.mark.chain_hash.hex())


def _head(place: Cursor) -> GroupHead:
    return GroupHead(
        incarnation=place.incarnation,
        group_id=place.group_id,
        sequence=place.sequence,
        chain_hash=place.chain_hash.hex(),
    )


class OneKey:
    """The registry of a bench: one key. A KeyResolver."""

    def __init__(self, key: SigningKey) -> None:
        """Register the key."""
        self._registered = RegisteredKey(
            key_id=key.key_id, principal=key.principal, public_key=key.public_key, valid_from="2026-01-01T00:00:00Z"
        )

    def resolve(self, key_id: str) -> RegisteredKey | None:
        """The key, if it is this one."""
        return self._registered if key_id == self._registered.key_id else None


async def measure() -> Measurement:
    """In a temporary directory, without any server."""
    return await compare(groups, events_per_group)


async def compare(group_count: int, event_count: int) -> Measurement:
    """Compare on `group_count` histories of `event_count` Events each."""
    key = SigningKey.generate(authority)
    histories = [sign_history(f"urn:weavehold:bench:group:{number}", event_count, key) for number in range(group_count)]
    source, proof = PagedHistory(histories), SignatureProof(KnownKeys(OneKey(key)))
    consumer = MissionBoard()
    batches = _batches(consumer, histories)
    events = group_count * event_count
    pairs: list[tuple[float, float]] = []
    processor: list[float] = []
    with tempfile.TemporaryDirectory(prefix="weavehold-bench-") as folder:
        for number in range(rounds + 1):
            started, started_processor = time.perf_counter(), time.process_time()
            await _rebuild(Path(folder, f"{number}.db"), consumer, source, proof)
            seconds, processor_seconds = time.perf_counter() - started, time.process_time() - started_processor
            bare = _seconds(partial(_execute, Path(folder, f"{number}-bare.db"), consumer, batches))
            pairs.append((events / seconds, events / bare))
            processor.append(events / processor_seconds)
    per_core = sorted(processor[1:])[rounds // 2]
    notes = {
        "events": float(events),
        "eventBytes": sum(len(raw) for raw in histories[0]) / event_count,
        "statements": float(sum(len(rows) for batch in batches for rows in batch.values())),
        "perCore": round(per_core, 1),
        "perCoreTarget": float(per_core_target),
    }
    result = measured("rebuild", "events/s", pairs[1:], target, notes)
    return replace(result, met=result.met and per_core >= per_core_target)


async def _rebuild(path: Path, consumer: Consumer, source: PagedHistory, proof: SignatureProof) -> None:
    opened = await SqliteStore.open(path, consumer, bench_organization)
    try:
        await rebuild(Projection(opened, proof), source, source.group_ids)
    finally:
        await opened.close()


type Batch = dict[str, list[Mapping[str, Value]]]
"""The rows of one transaction by the text of their statement."""


def _batches(consumer: Consumer, histories: Sequence[Sequence[bytes]]) -> list[Batch]:
    """The rows that a rebuild writes: the projection's, the remembered Events and the Cursor."""
    return [
        _batch(consumer, [read_arrival(raw) for raw in raws[start : start + replay_batch_events]])
        for raws in histories
        for start in range(0, len(raws), replay_batch_events)
    ]


def _batch(consumer: Consumer, arrivals: Sequence[Arrival]) -> Batch:
    batch: Batch = {}
    for arrival in arrivals:
        for statement in consumer.evolve(arrival.event):
            batch.setdefault(consumer.statements[statement.name], []).append(statement.parameters)
    batch[_store_sql.remember] = [
        {
            "group_id": arrival.mark.group_id,
            "slot": arrival.mark.sequence % remembered_pairs_max,
            "sequence": arrival.mark.sequence,
            "chain_hash": arrival.mark.chain_hash,
            "event_id": arrival.event.event_id,
        }
        for arrival in arrivals[-remembered_pairs_max:]
    ]
    last = arrivals[-1].mark
    batch[_store_sql.insert_cursor] = [
        {
            "group_id": last.group_id,
            "incarnation": last.incarnation,
            "sequence": last.sequence,
            "chain_hash": last.chain_hash,
        }
    ]
    return batch


def _execute(path: Path, consumer: Consumer, batches: Sequence[Batch]) -> None:
    """The rows and nothing else."""
    tables = [consumer.statements[creation] for creation in consumer.tables.values()]
    connection = sqlite3.connect(path, isolation_level="IMMEDIATE")
    try:
        for pragma in (_store_sql.set_journal, _store_sql.set_synchronous):
            connection.execute(pragma)
        for creation in (*tables, _store_sql.create_projection_applied, _store_sql.create_projection_cursor):
            connection.execute(creation)
        for batch in batches:
            with connection:
                for statement, rows in batch.items():
                    connection.executemany(statement, rows)
    finally:
        connection.close()


def _seconds(work: Callable[[], None]) -> float:
    started = time.perf_counter()
    work()
    return time.perf_counter() - started
