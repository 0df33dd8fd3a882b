"""Where a projection lives: rows of one consumer, with Cursors that prove what they were made of.

A store is not the authority's database, even where both are PostgreSQL (PRJ-2). It holds one consumer at one
version; what it finds of another version is discarded and replayed (PRJ-4). Everything is done inside one
transaction at a time, as a function that a store runs: it commits when the function returns and rolls back when it
raises. The function is synchronous and runs outside the event loop, so that one transaction costs one hop. It may be
run anew after a fault, so it changes nothing but the store.

`sqlite.py` is a Worker's own store and needs no server; `postgres.py` keeps read models of the server's side.
"""

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from enum import Enum
from typing import Final, Protocol

from msgspec import Struct

from contracts.chain import ChainHash
from contracts.cursor import Cursor
from contracts.identifiers import GroupSequence, ShardId, ShardPosition
from projections.consumer import Consumer, Row, Statement, Value

remembered_pairs_max: Final = 256
"""Applied Events per Group whose (sequence, chain hash) stay known, to tell a duplicate from a fork without asking."""
forks_kept_max: Final = 64
"""Forks per Group that stay on record; older ones give way."""


class StatementRefused(Exception):
    """The store refused a consumer's statement (violated constraint, wrong type): the Event at fault is isolated."""


class CursorMoved(Exception):
    """The Cursor is not where this transaction read it: somebody else writes this store. Nothing was changed."""


class StoreReplaced(Exception):
    """Somebody else wrote this store, another version took it over, or an older state of it came back."""


class EditionReplaced(Exception):
    """The rows were exchanged for rebuilt ones since this store was opened: nothing was written. `reopen` it."""


class AppliedEvent(Struct, frozen=True, gc=False):
    """One applied Event, as remembered: enough to recognise it and to name it once it no longer exists."""

    sequence: GroupSequence
    chain_hash: ChainHash
    event_id: str


class Stop(Struct, frozen=True):
    """An Event that this version of the consumer cannot apply, and why: its Group cannot go on before it."""

    group_id: str
    sequence: GroupSequence
    event_id: str
    chain_hash: ChainHash
    kind: str
    reason: str


class Held(Struct, frozen=True, gc=False):
    """Of a quarantined Group what a transaction has to know: thousands may be, and others must flow all the same.

    `attempts` counts how often the Event at `sequence` failed since the Group was released last, or at all. `tried_at`
    is when the Group was let go on, until it is known what came of it; None while it stands.
    """

    group_id: str
    sequence: GroupSequence
    chain_hash: ChainHash
    last_failed_at: str
    attempts: int
    tried_at: str | None


class Quarantined(Struct, frozen=True):
    """All that is known of a quarantined Group (DUR-5), and who answers for the consumer. Times are timestamps."""

    stop: Stop
    owner: str
    version: int
    first_failed_at: str
    last_failed_at: str
    attempts: int
    tried_at: str | None

    @property
    def held(self) -> Held:
        """What a transaction has to know of it."""
        stop = self.stop
        place = (stop.group_id, stop.sequence, stop.chain_hash)
        return Held(*place, self.last_failed_at, self.attempts, self.tried_at)


class Verb(Enum):
    """What somebody decided about a quarantined Group."""

    RETRY = "retry"
    """Try the Event again."""
    RELEASE = "release"
    """The cause is gone: try it again, and count attempts anew."""
    SKIP = "skip"
    """Pass this one Event over, for good."""


class Decision(Struct, frozen=True):
    """One decision about one Event of the history that `chain_hash` names: by whom, why, and when (a timestamp).

    `version` is that of the consumer, `attempts` how often the Event had failed in it.
    """

    verb: Verb
    group_id: str
    sequence: GroupSequence
    event_id: str
    chain_hash: ChainHash
    kind: str
    version: int
    attempts: int
    who: str
    why: str
    at: str


class Fork(Struct, frozen=True):
    """A history that was consumed and no longer exists (PRJ-3).

    `seen` is the Cursor that was held, `found` the authority's head when the fork was proven (sequence 0 when it has
    no such Group any more), `lost` those of the remembered Events that the authority's history does not contain.
    `shared` is the last sequence up to which both histories are the same; None when no remembered Event is in both, so
    that older ones may be lost too. `noticed_at` is a timestamp by the clock of who noticed it.
    """

    group_id: str
    seen: Cursor
    found: Cursor
    lost: tuple[AppliedEvent, ...]
    shared: GroupSequence | None
    noticed_at: str


class ForkAcknowledgement(Struct, frozen=True):
    """Who says that the loss of what a fork names has been dealt with, why, and when (a timestamp)."""

    who: str
    why: str
    at: str


class RecordedFork(Struct, frozen=True):
    """A fork as it stands in the store, under its number there; nobody may have acknowledged it yet."""

    number: int
    fork: Fork
    acknowledged: ForkAcknowledgement | None


class StreamPosition(Struct, frozen=True):
    """How far an unfiltered delivery of one shard is durably processed."""

    shard_id: ShardId
    incarnation: str
    position: ShardPosition


class Transaction(Protocol):
    """What may be read and changed inside one transaction of a store."""

    def run(self, statements: Iterable[Statement]) -> None:
        """Execute statements of the consumer in order. Raises StatementRefused."""
        ...

    def query(self, name: str, parameters: Mapping[str, Value]) -> list[Row]:
        """All rows of a reading statement of the consumer."""
        ...

    def rows(self, table: str, group_id: str) -> tuple[tuple[str, ...], list[Row]]:
        """The column names and all rows of one Group in one table of the consumer, in any order."""
        ...

    def cursor(self, group_id: str) -> Cursor | None:
        """The Cursor of a Group; None before its first Event."""
        ...

    def cursors(self) -> list[Cursor]:
        """All Cursors."""
        ...

    def move_cursor(self, before: Cursor | None, after: Cursor) -> None:
        """Replace a Cursor if it still is `before`. Raises CursorMoved. Called by `advance_cursor` only."""
        ...

    def remember(self, group_id: str, applied: Sequence[AppliedEvent]) -> None:
        """Remember applied Events, the newest `remembered_pairs_max` per Group."""
        ...

    def remembered(self, group_id: str, sequence: GroupSequence) -> ChainHash | None:
        """The chain hash applied at a sequence, if it is still known."""
        ...

    def all_remembered(self, group_id: str) -> list[AppliedEvent]:
        """The remembered Events of a Group in sequence."""
        ...

    def note_head(self, group_id: str, sequence: GroupSequence) -> None:
        """Keep that a Group's history reaches at least `sequence` (RULE-20)."""
        ...

    def settle_head(self, group_id: str, sequence: GroupSequence) -> None:
        """Replace what is kept of a Group's head by what the authority says; it is silent no further than that."""
        ...

    def keep_silent(self, group_id: str, until: GroupSequence) -> None:
        """Keep that Events of a Group up to a sequence bring no intents (RULE-22), in place of what was kept before."""
        ...

    def silences(self) -> dict[str, GroupSequence]:
        """The Groups that are silent, each up to which sequence."""
        ...

    def end_silence(self, group_id: str) -> None:
        """The Group is applied as far as it was silent."""
        ...

    def heads_ahead(self) -> list[tuple[str, GroupSequence]]:
        """Groups known to reach beyond their Cursor, with the sequence that is known to exist."""
        ...

    def stop(self, stop: Stop, at: str) -> None:
        """Quarantine a Group; when the same Event failed before, that is one more attempt."""
        ...

    def stops(self) -> list[Stop]:
        """The Events before which Groups stand now."""
        ...

    def quarantined(self) -> list[Quarantined]:
        """All quarantined Groups, those too that are being tried again."""
        ...

    def quarantined_of(self, group_id: str) -> Quarantined | None:
        """One of them; None when the Group is not quarantined."""
        ...

    def held(self) -> list[Held]:
        """The same Groups in short."""
        ...

    def held_of(self, group_ids: Collection[str]) -> dict[str, Held]:
        """Those among these Groups."""
        ...

    def held_in_hand(self, group_ids: Collection[str]) -> list[Held]:
        """Those that are being tried again and those among these Groups."""
        ...

    def count_standing(self) -> int:
        """How many of them stand."""
        ...

    def stand_again(self, found: Held) -> None:
        """Let a Group stand that was let go on and came to nothing, unless something came of it just now."""
        ...

    def try_again(self, found: Held, at: str, attempts: int) -> bool:
        """Let a Group that stands go on, its attempts counted from `attempts`; False when it is not as `found`."""
        ...

    def end_quarantine(self, group_id: str) -> None:
        """Forget that a Group was quarantined."""
        ...

    def decide(self, decision: Decision) -> None:
        """Put a decision on record for good, also when the projection is discarded later."""
        ...

    def decisions(self) -> list[Decision]:
        """All decisions on record, oldest first."""
        ...

    def decisions_of(self, group_id: str) -> list[Decision]:
        """Those about one Group."""
        ...

    def count_skips(self) -> int:
        """How many pass an Event over, of whatever histories."""
        ...

    def skips(self) -> list[Decision]:
        """Those that pass an Event over, oldest first."""
        ...

    def skipped(self) -> list[tuple[str, GroupSequence, ChainHash]]:
        """The Events that they pass over: Group, sequence, and the chain hash there."""
        ...

    def take_skips(self, skips: Sequence[Decision]) -> None:
        """Replace all skips by those of another store of the same consumer."""
        ...

    def reset_group(self, group_id: str) -> None:
        """Remove a Group's rows, Cursor, remembered Events, known head and quarantine.

        Its intents and the decisions about it stay (RULE-22).
        """
        ...

    def record_fork(self, fork: Fork) -> None:
        """Keep a fork for good, also when the projection is discarded later."""
        ...

    def forks(self) -> list[Fork]:
        """All recorded forks, oldest first."""
        ...

    def count(self, name: str, amount: int) -> None:
        """Add to a durable counter."""
        ...

    def counts(self) -> dict[str, int]:
        """All durable counters."""
        ...

    def position(self, shard_id: ShardId) -> StreamPosition | None:
        """How far an unfiltered delivery is processed; None when it never was."""
        ...

    def move_position(self, position: StreamPosition) -> None:
        """Keep how far an unfiltered delivery is processed."""
        ...


class ProjectionStore(Protocol):
    """The storage of one consumer of one Organization."""

    @property
    def consumer(self) -> Consumer:
        """The consumer whose rows these are."""
        ...

    @property
    def organization_id(self) -> str:
        """The Organization whose history these rows are made of."""
        ...

    async def transaction[T](self, work: Callable[[Transaction], T]) -> T:
        """Run `work` in one durable transaction: committed when it returns, rolled back when it raises.

        Raises EditionReplaced, without running it, when the rows are no longer those that were opened (RULE-22).
        """
        ...

    async def read[T](self, work: Callable[[Transaction], T]) -> T:
        """Run `work` on one consistent snapshot beside the writer; writing raises the store's own error."""
        ...

    async def reopen(self) -> None:
        """Go on with the rows that are there now. Raises StoreReplaced when another consumer or version made them."""
        ...

    async def close(self) -> None:
        """Let the transaction in progress end, then release everything."""
        ...
