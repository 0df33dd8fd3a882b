"""The independent checker: what each commit of a consumer may change, and what must stand in its store at the end.

It imports nothing of the code under test. It holds its own copy of what every store must contain, made from the
recorded commits, and judges each of them by the log alone:

- a row is an Event that the log once had, with the log's payload, right after the row before it in its Group by
  sequence and by chain hash: so nothing is applied over a gap, twice, out of order, or mixed from two histories;
- a Cursor moves from where it stood to exactly the last row of the same commit, and rows never come without it;
- rows vanish only in a commit that records a fork, of a Cursor that the history does not contain, and that names
  exactly those of the remembered Events that the history lacks; nothing of the Group is remembered afterwards;
- an intent comes with its row, for every Event above the head that was found with the latest fork, and for no other;
  no fork takes one away;
- what a commit calls duplicates are Events that are applied at that sequence with that hash, or came twice in the
  batch;
- what is known of a Group's head is kept until it is reached or the authority says otherwise;
- a stored position passes over nothing that is neither applied nor known to be missing;
- an acknowledgement to the broker covers only messages that are applied or known to be missing in the committed store;
- a Cursor that is reported to the authority was committed.
"""

from collections.abc import Callable, Iterable
from typing import Any, Protocol

from msgspec import Struct, field

remembered_lag_seconds = 20.0
"""An answer may be so old: for so long after a restore a consumer may judge by the history before it, or by both."""


class Event(Protocol):
    """What the checker knows of one Event of the log."""

    @property
    def group_id(self) -> str: ...
    @property
    def sequence(self) -> int: ...
    @property
    def event_id(self) -> str: ...
    @property
    def previous(self) -> bytes: ...
    @property
    def chain(self) -> bytes: ...
    @property
    def payload_hash(self) -> str: ...


class Log(Protocol):
    """The truth, as far as the checker asks."""

    logs: dict[Any, list[Any]]
    groups: dict[str, list[Any]]
    facts: dict[str, Any]
    lineage: list[str]
    silently_cut: set[Any]

    def has(self, group_id: str, sequence: int, chain: bytes) -> bool: ...
    def histories(self, group_id: str, since: float) -> list[list[Any]]: ...


class Mirror(Struct):
    """What one store must hold."""

    rows: dict[str, list[Any]] = field(default_factory=dict)
    cursors: dict[str, tuple[int, bytes]] = field(default_factory=dict)
    heads: dict[str, int] = field(default_factory=dict)
    positions: dict[int, tuple[str, int]] = field(default_factory=dict)
    passed: dict[int, int] = field(default_factory=dict)
    """Shard → position up to which the log was found accounted for."""
    silent: dict[str, int] = field(default_factory=dict)
    """Group → sequence up to which its Events bring no intents."""
    intents: list[tuple[str, int, str]] = field(default_factory=list)

    def copy(self) -> "Mirror":
        return Mirror(
            {group_id: list(events) for group_id, events in self.rows.items()},
            dict(self.cursors),
            dict(self.heads),
            dict(self.positions),
            dict(self.passed),
            dict(self.silent),
            list(self.intents),
        )

    def reached(self, group_id: str) -> int:
        return self.cursors.get(group_id, (0, b""))[0]


class Checker:
    """Judges one consumer. `violate` is called with what is wrong."""

    def __init__(
        self,
        log: Log,
        visible_after: dict[str, int],
        now: Callable[[], float],
        violate: Callable[[str], None],
        remembered_pairs: int,
        *,
        shows_all: bool,
    ):
        self.mirror = Mirror()
        self.forged: set[tuple[str, int]] = set()
        """(incarnation of the stream and shard, position) of what reached the consumer in another form."""
        self.forks = 0
        self.applied = 0
        self._log = log
        self._visible_after = visible_after
        self._now = now
        self._violate = violate
        self._remembered_pairs = remembered_pairs
        self._shows_all = shows_all
        self._judges: dict[str, Callable[..., None]] = {
            "row": self._row,
            "cursor": self._cursor,
            "fork": self._fork,
            "head": self._head,
            "settled": self._settled,
            "stop": self._stop,
        }
        self._committed_cursors: set[tuple[str, int, bytes]] = set()

    # --- commits -----------------------------------------------------------------------------------------------

    def commit(self, changes: Iterable[tuple[Any, ...]], arrivals: list[tuple[str, int, bytes]]) -> None:
        """One committed transaction: what it changed in order, and the places of the Events that it was given."""
        changes = list(changes)
        known = {group_id: len(rows) for group_id, rows in self.mirror.rows.items()}
        forked = {values[0] for kind, *values in changes if kind == "fork"}
        moved = {values[0] for kind, *values in changes if kind in ("row", "cursor")}
        self._intents(changes)
        for kind, *values in changes:
            if kind in self._judges:
                self._judges[kind](*values)
            elif kind == "reset":
                self._reset(*values, forked=values[0] in forked)
        for group_id in sorted(moved):
            rows = self.mirror.rows.get(group_id, [])
            last = (rows[-1].sequence, rows[-1].chain) if rows else None
            if last != self.mirror.cursors.get(group_id):
                self._violate(f"{group_id}: the last row is {_place(last)}, the Cursor {self._shown_cursor(group_id)}")
        for kind, *values in changes:
            if kind == "position":
                self._position(*values)
            elif kind == "count" and values[0] == "duplicates":
                self._duplicates(values[1], known, arrivals)

    def _row(self, group_id: str, sequence: int, event_id: str, payload_hash: str) -> None:
        rows = self.mirror.rows.setdefault(group_id, [])
        fact = self._log.facts.get(event_id)
        if fact is None or (fact.group_id, fact.sequence) != (group_id, sequence):
            return self._violate(f"{group_id}: a row at {sequence} of {event_id}, which the log never had there")
        if fact.payload_hash != payload_hash:
            return self._violate(f"{group_id}: the row at {sequence} has another payload than the log")
        first = self._visible_after.get(group_id, 0) + 1
        expected = rows[-1].sequence + 1 if rows else first
        if sequence != expected:
            return self._violate(f"{group_id}: {sequence} was applied where {expected} comes next")
        if rows and rows[-1].chain != fact.previous:
            return self._violate(f"{group_id}: {sequence} was applied although it does not follow what is applied")
        rows.append(fact)
        self.applied += 1
        return None

    def _cursor(self, group_id: str, before: tuple[int, bytes] | None, after: tuple[int, bytes]) -> None:
        held = self.mirror.cursors.get(group_id)
        if before != held:
            self._violate(f"{group_id}: the Cursor moves from {_place(before)}, yet it stands at {_place(held)}")
        if held is not None and after[0] <= held[0]:
            self._violate(f"{group_id}: the Cursor moves back from {held[0]} to {after[0]}")
        self.mirror.cursors[group_id] = after
        self._committed_cursors.add((group_id, *after))

    def _intents(self, changes: list[tuple[Any, ...]]) -> None:
        told = [tuple(values) for kind, *values in changes if kind == "intent"]
        due = [
            (group_id, sequence, event_id)
            for group_id, sequence, event_id, _ in (values for kind, *values in changes if kind == "row")
            if sequence > self.mirror.silent.get(group_id, 0)
        ]
        if sorted(told) != sorted(due):
            self._violate(f"intents of {_named(told)} were kept where those of {_named(due)} are due")
        self.mirror.intents += told

    def _fork(
        self,
        group_id: str,
        seen: tuple[int, bytes],
        found: int,
        shared: int | None,
        lost: tuple[tuple[int, bytes, str], ...],
    ) -> None:
        self.forks += 1
        if seen != self.mirror.cursors.get(group_id):
            self._violate(f"{group_id}: a fork of {_place(seen)}, yet the Cursor is {self._shown_cursor(group_id)}")
        histories = [
            {(event.sequence, event.chain) for event in history}
            for history in self._log.histories(group_id, self._now() - remembered_lag_seconds)
        ]
        if all(seen in history for history in histories):
            self._violate(f"{group_id}: a fork was recorded although the history contains {_place(seen)}")
        if not any(len(history) >= found > 0 or found == len(history) for history in histories):
            self._violate(f"{group_id}: a fork found a head at {found}, which the history never had")
        if found == 0 and not self._shows_all:
            self._violate(f"{group_id}: taken for lost by one who cannot tell")
        remembered = self.mirror.rows.get(group_id, [])[-self._remembered_pairs :]
        if not set(lost) <= {(row.sequence, row.chain, row.event_id) for row in remembered}:
            self._violate(f"{group_id}: a fork reports Events as lost that are not remembered")
        for row in remembered:
            is_named = (row.sequence, row.chain, row.event_id) in lost
            if is_named and all((row.sequence, row.chain) in history for history in histories):
                self._violate(f"{group_id}: a fork reports {row.sequence} as lost, which the history contains")
            if not is_named and all((row.sequence, row.chain) not in history for history in histories):
                self._violate(f"{group_id}: a fork leaves out that {row.sequence} is lost")
        expected = lost[0][0] - 1 if len(lost) < len(remembered) or lost[0][0] == 1 else None
        if shared != (0 if found == 0 else expected):
            self._violate(f"{group_id}: a fork says that the histories part after {shared}, not after {expected}")
        self.mirror.silent[group_id] = found

    def _reset(self, group_id: str, remembered: int, *, forked: bool) -> None:
        if not forked:
            self._violate(f"{group_id}: rows were removed without a recorded fork")
        if remembered:
            self._violate(f"{group_id}: {remembered} Events are remembered after the reset")
        for kept in (self.mirror.rows, self.mirror.cursors, self.mirror.heads):
            kept.pop(group_id, None)

    def _settled(self, group_id: str, sequence: int) -> None:
        self.mirror.heads[group_id] = sequence
        self.mirror.silent[group_id] = min(sequence, self.mirror.silent.get(group_id, 0))

    def _stop(self, group_id: str, sequence: int, reason: str) -> None:
        self._violate(f"{group_id} stopped at {sequence} although nothing in it is unknown: {reason}")

    def _head(self, group_id: str, sequence: int, kept: int) -> None:
        self.mirror.heads[group_id] = max(sequence, self.mirror.heads.get(group_id, 0))
        if kept < sequence and sequence > self.mirror.reached(group_id):
            self._violate(f"{group_id}: that it reaches {sequence} was noted and is not kept")

    def _duplicates(self, reported: int, known: dict[str, int], arrivals: list[tuple[str, int, bytes]]) -> None:
        true, met = 0, set()
        for group_id, sequence, chain in arrivals:
            first = self._visible_after.get(group_id, 0) + 1
            index = sequence - first
            rows = self.mirror.rows.get(group_id, [])
            applied = 0 <= index < known.get(group_id, 0) and rows[index].chain == chain
            true += sequence < first or applied or (group_id, sequence, chain) in met
            met.add((group_id, sequence, chain))
        if reported > true:
            self._violate(f"{reported} Events were dropped as duplicates, of which {reported - true} are none")

    def _position(self, shard: int, incarnation: str, position: int) -> None:
        before = self.mirror.positions.get(shard)
        self.mirror.positions[shard] = (incarnation, position)
        if shard in self._log.silently_cut or incarnation != self._log.lineage[-1]:
            return
        if before is not None and before[0] != incarnation:
            # Positions of two incarnations do not compare: the Cursors decide about what lies below.
            self.mirror.passed[shard] = position
            return
        for at in range(self.mirror.passed.get(shard, 0) + 1, position + 1):
            log = self._log.logs[shard]
            if at > len(log) or (f"{incarnation}/{shard}", at) in self.forged:
                continue
            if not self._is_accounted_for(log[at - 1]):
                event = log[at - 1]
                self._violate(
                    f"shard {shard}: the position moved to {position} past {at}, which is {event.group_id} "
                    f"{event.sequence}, neither applied nor known to be missing"
                )
        self.mirror.passed[shard] = max(position, self.mirror.passed.get(shard, 0))

    def _is_accounted_for(self, event: Event) -> bool:
        """Whether the store has the Event or knows that its Group reaches that far."""
        known = max(self.mirror.reached(event.group_id), self.mirror.heads.get(event.group_id, 0))
        return event.sequence <= max(known, self._visible_after.get(event.group_id, 0))

    # --- what leaves the process -------------------------------------------------------------------------------

    def acknowledged(self, events: Iterable[Any]) -> None:
        """Messages with these Events are acknowledged to the broker."""
        for event in events:
            gone = not self._log.has(event.group_id, event.sequence, event.chain)
            if not gone and not self._is_accounted_for(event):
                self._violate(
                    f"{event.group_id} {event.sequence} is acknowledged, neither applied nor known to be missing"
                )

    def reported(self, group_id: str, sequence: int, chain: bytes) -> None:
        """A Cursor is reported to the authority."""
        if (group_id, sequence, chain) not in self._committed_cursors:
            self._violate(f"{group_id}: {sequence} is reported to the authority and was never committed")

    # --- what stands in the store ------------------------------------------------------------------------------

    def stored(
        self,
        rows: Iterable[tuple[Any, ...]],
        intents: list[tuple[str, int, str]],
        cursors: Iterable[tuple[str, int, bytes]],
        heads: Iterable[tuple[str, int]],
    ) -> None:
        """What the store holds must be what its commits made of it.

        `rows` are (Group, sequence, Event ID, payload hash) in the order they were written, `heads` the Groups that are
        known to reach beyond their Cursors.
        """
        found: dict[str, list[tuple[Any, ...]]] = {}
        for group_id, *row in rows:
            found.setdefault(group_id, []).append(tuple(row))
        expected = {
            group_id: [(fact.sequence, fact.event_id, fact.payload_hash) for fact in facts]
            for group_id, facts in self.mirror.rows.items()
            if facts
        }
        if found != expected:
            self._violate(f"the store holds {_lengths(found)}, its commits made {_lengths(expected)}")
        if intents != self.mirror.intents:
            self._violate(
                f"the store holds intents of {_named(intents)}, its commits kept {_named(self.mirror.intents)}"
            )
        held = {group_id: (sequence, chain) for group_id, sequence, chain in cursors}
        if held != self.mirror.cursors:
            self._violate(
                f"the store's Cursors are {_sequences(held)}, its commits made {_sequences(self.mirror.cursors)}"
            )

        ahead = {group_id: head for group_id, head in self.mirror.heads.items() if head > self.mirror.reached(group_id)}
        if (known := dict(heads)) != ahead:
            self._violate(f"the store knows Groups to reach {known}, its commits made {ahead}")

    def missing(self, group_ids: Iterable[str]) -> list[str]:
        """How the store differs from the log; nothing once it has caught up.

        Who cannot tell a Group that was lost from one that is hidden keeps its rows.
        """
        differences = []
        for group_id in group_ids:
            if not self._log.groups[group_id] and not self._shows_all:
                continue
            expected = self._log.groups[group_id][self._visible_after.get(group_id, 0) :]
            rows = self.mirror.rows.get(group_id, [])
            if [row.event_id for row in rows] != [fact.event_id for fact in expected]:
                common = next((n for n, (a, b) in enumerate(zip(rows, expected, strict=False)) if a != b), None)
                same = "" if common is None else f", another history from its row {common + 1} on"
                differences.append(f"{group_id}: {len(rows)} Events of {len(expected)}{same}")
        return differences

    def strange(self, group_ids: Iterable[str]) -> list[str]:
        """Groups that have rows and are not this consumer's."""
        return sorted({group_id for group_id, rows in self.mirror.rows.items() if rows} - set(group_ids))

    def _shown_cursor(self, group_id: str) -> str:
        return _place(self.mirror.cursors.get(group_id))


def _place(place: tuple[int, bytes] | None) -> str:
    return "nowhere" if place is None else f"{place[0]} ({place[1].hex()[:8]})"


def _named(intents: Iterable[tuple[str, int, str]]) -> str:
    return ", ".join(f"{group_id} {sequence}" for group_id, sequence, _ in intents) or "none"


def _lengths(rows: dict[str, list[Any]]) -> dict[str, int]:
    return {group_id: len(events) for group_id, events in sorted(rows.items())}


def _sequences(cursors: dict[str, tuple[int, bytes]]) -> dict[str, int]:
    return {group_id: place[0] for group_id, place in sorted(cursors.items())}
