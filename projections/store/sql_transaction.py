"""What every SQL store does inside a transaction: one wording of each statement, in the dialect that it is given."""

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from types import MappingProxyType
from typing import Any

import msgspec
from msgspec import Struct

from contracts.chain import ChainHash
from contracts.cursor import Cursor
from contracts.identifiers import GroupSequence, ShardId, ShardPosition
from projections.consumer import Consumer, Row, Statement, Value, text
from projections.store import (
    AppliedEvent,
    CursorMoved,
    Decision,
    EditionReplaced,
    Fork,
    ForkAcknowledgement,
    Held,
    Quarantined,
    RecordedFork,
    StatementRefused,
    Stop,
    StreamPosition,
    Verb,
    forks_kept_max,
    remembered_pairs_max,
)
from services.process.statements import StatementFault


class Dialect(Struct, frozen=True):
    """Statements as one kind of database takes them, by name, and which of its faults refuse one for good.

    `table_of` gives the table of each of the consumer's statements that names only one; one without keeps its place.
    """

    store: Mapping[str, str]
    consumer: Mapping[str, str]
    refuses: Callable[[Exception], bool]
    table_of: Mapping[str, str] = MappingProxyType({})


class SqlTransaction:
    """`projections.store.Transaction` on one connection of the Python database interface (PEP 249)."""

    def __init__(self, connection: Any, consumer: Consumer, dialect: Dialect) -> None:
        """Speak for `consumer` on a connection whose transaction has begun."""
        self._connection = connection
        self._consumer = consumer
        self._dialect = dialect
        self._store = dialect.store

    def _execute(self, sql: str, parameters: Mapping[str, Any]) -> Any:
        return self._connection.execute(sql, parameters)

    def _all(self, name: str, **parameters: Value) -> list[Any]:
        return list(self._execute(self._store[name], parameters).fetchall())

    def _one(self, name: str, **parameters: Value) -> Any:
        return self._execute(self._store[name], parameters).fetchone()

    def _change(self, statement: str, /, **parameters: Any) -> int:
        changed: int = self._execute(self._store[statement], parameters).rowcount
        return changed

    def hold_edition(self, expected: str) -> None:
        """Keep the rows from being exchanged until the transaction ends. Raises EditionReplaced when they were."""
        row = self._one("hold_edition")
        if row != (expected,):
            raise EditionReplaced(f"the rows of {self._consumer.name} were exchanged for rebuilt ones, or discarded")

    def run(self, statements: Iterable[Statement]) -> None:
        """Execute statements, those of one table in order, so that neighbours of one name go together."""
        runs: dict[str, list[tuple[str, list[Mapping[str, Value]]]]] = {}
        growing: dict[str, list[Mapping[str, Value]]] = {}
        for statement in statements:
            name, parameters = statement.name, statement.parameters
            batch = growing.get(name)
            if batch is not None:
                batch.append(parameters)
                continue
            table = self._dialect.table_of.get(name)
            if table is None:
                self._run_all(runs)
                growing.clear()
                self._run_batch(name, [parameters])
                continue
            of_table = runs.setdefault(table, [])
            if of_table:
                del growing[of_table[-1][0]]
            growing[name] = [parameters]
            of_table.append((name, growing[name]))
        self._run_all(runs)

    def _run_all(self, runs: dict[str, list[tuple[str, list[Mapping[str, Value]]]]]) -> None:
        for of_table in runs.values():
            for name, batch in of_table:
                self._run_batch(name, batch)
        runs.clear()

    def _run_batch(self, name: str, batch: Sequence[Mapping[str, Value]]) -> None:
        try:
            statement = self._dialect.consumer[name]
        except (KeyError, StatementFault) as fault:
            raise StatementRefused(f"{self._consumer.name} has no statement {name}") from fault
        try:
            self._connection.cursor().executemany(statement, batch)
        except Exception as fault:
            if not self._dialect.refuses(fault):
                raise
            raise StatementRefused(f"{self._consumer.name}: statement {name} was refused: {fault}") from fault

    def query(self, name: str, parameters: Mapping[str, Value]) -> list[Row]:
        """All rows of a reading statement of the consumer."""
        return list(self._execute(self._dialect.consumer[name], parameters).fetchall())

    def rows(self, table: str, group_id: str) -> tuple[tuple[str, ...], list[Row]]:
        """The column names and rows of one Group in one table of the consumer."""
        if table not in self._consumer.tables:
            raise ValueError(f"{table} is no table of {self._consumer.name}")
        found = self._execute(self._store["read_rows"].format(table=table), {"group_id": group_id})
        return tuple(column[0] for column in found.description), found.fetchall()

    def cursor(self, group_id: str) -> Cursor | None:
        """The Cursor of a Group."""
        return self._read_cursor(self._store["read_cursor"], group_id)

    def _read_cursor(self, sql: str, group_id: str) -> Cursor | None:
        row = self._execute(sql, {"group_id": group_id}).fetchone()
        return None if row is None else Cursor(*row)

    def cursors(self) -> list[Cursor]:
        """All Cursors."""
        return [Cursor(*row) for row in self._all("read_cursors")]

    def move_cursor(self, before: Cursor | None, after: Cursor) -> None:
        """Compare and set."""
        place = msgspec.structs.asdict(after)
        if before is None:
            changed = self._change("insert_cursor", **place)
        else:
            expected = {"sequence_before": before.sequence, "chain_hash_before": before.chain_hash}
            changed = self._change("update_cursor", **place, **expected)
        if changed != 1:
            raise CursorMoved(f"{self._consumer.name}: the Cursor of {after.group_id} moved under this transaction")

    def remember(self, group_id: str, applied: Sequence[AppliedEvent]) -> None:
        """Write the newest into the ring."""
        self._connection.cursor().executemany(
            self._store["remember"],
            [
                {
                    "group_id": group_id,
                    "slot": event.sequence % remembered_pairs_max,
                    "sequence": event.sequence,
                    "chain_hash": event.chain_hash,
                    "event_id": event.event_id,
                }
                for event in applied[-remembered_pairs_max:]
            ],
        )

    def remembered(self, group_id: str, sequence: GroupSequence) -> ChainHash | None:
        """The chain hash applied at a sequence, if the ring still holds it."""
        slot = sequence % remembered_pairs_max
        row = self._one("read_remembered", group_id=group_id, slot=slot, sequence=sequence)
        return None if row is None else ChainHash(row[0])

    def all_remembered(self, group_id: str) -> list[AppliedEvent]:
        """The ring of a Group in sequence."""
        return [AppliedEvent(*row) for row in self._all("read_all_remembered", group_id=group_id)]

    def note_head(self, group_id: str, sequence: GroupSequence) -> None:
        """Raise what is known of a Group's head."""
        self._change("note_head", group_id=group_id, sequence=sequence)

    def settle_head(self, group_id: str, sequence: GroupSequence) -> None:
        """Set what is known of a Group's head, and lower how far it is silent."""
        self._change("settle_head", group_id=group_id, sequence=sequence)
        self._change("lower_silence", group_id=group_id, sequence=sequence)

    def keep_silent(self, group_id: str, until: GroupSequence) -> None:
        """Set how far a Group is silent."""
        self._change("write_silence", group_id=group_id, sequence=until)

    def silences(self) -> dict[str, GroupSequence]:
        """How far each silent Group is silent."""
        return dict(self._all("read_silences"))

    def end_silence(self, group_id: str) -> None:
        """Forget that a Group was silent."""
        self._change("delete_silence", group_id=group_id)

    def heads_ahead(self) -> list[tuple[str, GroupSequence]]:
        """Groups known to reach beyond their Cursor."""
        return self._all("read_heads_ahead")

    def stop(self, stop: Stop, at: str) -> None:
        """Quarantine a Group, or count one more attempt."""
        whose = {"owner": text(self._consumer.owner), "version": self._consumer.version}
        told = msgspec.structs.asdict(stop) | {"reason": text(stop.reason)}
        self._change("write_quarantine", **told, **whose, at=at)

    def stops(self) -> list[Stop]:
        """The Events before which Groups stand now."""
        return [each.stop for each in self.quarantined() if each.tried_at is None]

    def quarantined(self) -> list[Quarantined]:
        """All quarantined Groups, those too that are being tried again."""
        return [_quarantined(row) for row in self._all("read_quarantine")]

    def quarantined_of(self, group_id: str) -> Quarantined | None:
        """One of them."""
        row = self._one("read_quarantine_of", group_id=group_id)
        return None if row is None else _quarantined(row)

    def held(self) -> list[Held]:
        """The same Groups in short."""
        return [Held(*row) for row in self._all("read_held")]

    def held_of(self, group_ids: Collection[str]) -> dict[str, Held]:
        """Those among these Groups: hardly ever is any Group quarantined, and then thousands may be."""
        if not self._all("find_quarantine"):
            return {}
        rows = (self._one("read_held_of", group_id=group_id) for group_id in group_ids)
        return {row[0]: Held(*row) for row in rows if row is not None}

    def held_in_hand(self, group_ids: Collection[str]) -> list[Held]:
        """Those that are being tried again and those among these Groups."""
        tried = {row[0]: Held(*row) for row in self._all("read_tried")}
        return list((tried | self.held_of(group_ids)).values())

    def count_standing(self) -> int:
        """How many of them stand."""
        standing: int = self._one("count_standing")[0]
        return standing

    def stand_again(self, found: Held) -> None:
        """Compare and set."""
        self._change("stand_again", group_id=found.group_id, chain_hash=found.chain_hash, tried_at=found.tried_at)

    def try_again(self, found: Held, at: str, attempts: int) -> bool:
        """Compare and set."""
        expected = {"chain_hash": found.chain_hash, "attempts_before": found.attempts}
        return self._change("try_again", group_id=found.group_id, at=at, attempts=attempts, **expected) == 1

    def end_quarantine(self, group_id: str) -> None:
        """Forget that a Group was quarantined."""
        self._change("delete_quarantine", group_id=group_id)

    def decide(self, decision: Decision) -> None:
        """Put a decision on record."""
        self._change("record_decision", **msgspec.structs.asdict(decision) | {"verb": decision.verb.value})

    def decisions(self) -> list[Decision]:
        """All decisions on record, oldest first."""
        return [_decision(row) for row in self._all("read_decisions")]

    def decisions_of(self, group_id: str) -> list[Decision]:
        """Those about one Group."""
        return [_decision(row) for row in self._all("read_decisions_of", group_id=group_id)]

    def count_skips(self) -> int:
        """How many pass an Event over."""
        counted: int = self._one("count_decisions", verb=Verb.SKIP.value)[0]
        return counted

    def skips(self) -> list[Decision]:
        """Those that pass an Event over."""
        return [_decision(row) for row in self._all("read_skips", verb=Verb.SKIP.value)]

    def skipped(self) -> list[tuple[str, GroupSequence, ChainHash]]:
        """The Events that they pass over."""
        return self._all("read_skipped", verb=Verb.SKIP.value)

    def take_skips(self, skips: Sequence[Decision]) -> None:
        """Replace all skips."""
        self._change("delete_decisions", verb=Verb.SKIP.value)
        for skip in skips:
            self.decide(skip)

    def reset_group(self, group_id: str) -> None:
        """Remove all of a Group except its intents, forks, decisions and silence."""
        rebuilt = [table for table in self._consumer.tables if table not in self._consumer.intent_tables]
        per_group = ("projection_cursor", "projection_applied", "projection_known_head", "projection_quarantine")
        for table in (*rebuilt, *per_group):
            self._execute(self._store["delete_rows"].format(table=table), {"group_id": group_id})

    def record_fork(self, fork: Fork) -> None:
        """Keep a fork; the oldest of the Group gives way beyond the bound."""
        self._change(
            "record_fork",
            group_id=fork.group_id,
            seen_incarnation=fork.seen.incarnation,
            seen_sequence=fork.seen.sequence,
            seen_chain_hash=fork.seen.chain_hash,
            found_incarnation=fork.found.incarnation,
            found_sequence=fork.found.sequence,
            found_chain_hash=fork.found.chain_hash,
            lost_events=msgspec.json.encode(fork.lost).decode(),
            shared_sequence=fork.shared,
            noticed_at=fork.noticed_at,
        )
        self._change("delete_old_forks", group_id=fork.group_id, kept=forks_kept_max)

    def forks(self) -> list[Fork]:
        """All recorded forks, oldest first."""
        return [recorded.fork for recorded in self.recorded_forks()]

    def recorded_forks(self) -> list[RecordedFork]:
        """All recorded forks with their numbers, oldest first, and who acknowledged them."""
        return [_recorded_fork(row) for row in self._all("read_forks")]

    def acknowledge_fork(self, number: int, acknowledgement: ForkAcknowledgement) -> bool:
        """Keep that somebody has dealt with a fork; whether it was the first time. The first stays on record."""
        told = msgspec.structs.asdict(acknowledgement)
        return self._change("acknowledge_fork", number=number, **told) == 1

    def count(self, name: str, amount: int) -> None:
        """Add to a durable counter."""
        self._change("count", name=name, amount=amount)

    def counts(self) -> dict[str, int]:
        """All durable counters."""
        return dict(self._all("read_counts"))

    def position(self, shard_id: ShardId) -> StreamPosition | None:
        """How far an unfiltered delivery is processed."""
        row = self._one("read_position", shard_id=shard_id)
        return None if row is None else StreamPosition(ShardId(row[0]), row[1], ShardPosition(row[2]))

    def move_position(self, position: StreamPosition) -> None:
        """Keep how far an unfiltered delivery is processed."""
        self._change("write_position", **msgspec.structs.asdict(position))


def _recorded_fork(row: Any) -> RecordedFork:
    number, group_id, *places, lost, shared, noticed_at, who, why, at = row
    fork = Fork(
        group_id,
        Cursor(places[0], group_id, places[1], places[2]),
        Cursor(places[3], group_id, places[4], places[5]),
        msgspec.json.decode(lost, type=tuple[AppliedEvent, ...]),
        shared,
        noticed_at,
    )
    return RecordedFork(number, fork, None if at is None else ForkAcknowledgement(who, why, at))


def _quarantined(row: Any) -> Quarantined:
    group_id, sequence, event_id, chain_hash, kind, reason, *rest = row
    return Quarantined(Stop(group_id, sequence, event_id, ChainHash(chain_hash), kind, reason), *rest)


def _decision(row: Any) -> Decision:
    verb, group_id, sequence, event_id, chain_hash, *rest = row
    return Decision(Verb(verb), group_id, sequence, event_id, ChainHash(chain_hash), *rest)
