"""One consumer at work on its store: Events go in, what is out of order waits, and what became of them is counted."""

from collections.abc import Callable, Mapping, Sequence

from msgspec import Struct
from msgspec.structs import replace

from contracts.cursor import Cursor
from contracts.identifiers import GroupSequence
from projections.apply_event import Applied, DeliveryNote, KeysUnknown, apply_events, no_note
from projections.arrival import Arrival
from projections.gap_buffer import GapBuffer
from projections.group_run import ApplyRules
from projections.proof import SignatureProof
from projections.quarantine import Clock, wall_clock
from projections.store import Held, ProjectionStore


class Progress(Struct):
    """What a projection did since its process started; each only grows."""

    applied: int = 0
    duplicates: int = 0
    gaps_filled: int = 0
    forks: int = 0
    unproven: int = 0
    stops: int = 0


class Projection:
    """A consumer, its store, and the Events that wait for a gap to close."""

    def __init__(
        self,
        store: ProjectionStore,
        proof: SignatureProof | None = None,
        on_applied: Callable[[Applied], None] | None = None,
        on_quarantined: Callable[[int, int], None] | None = None,
        clock: Clock = wall_clock,
    ) -> None:
        """With `proof` the newest Event of each run must carry a valid signature of the authority.

        `on_applied` is called after each commit, before anything is acknowledged to the broker; `on_quarantined` from
        time to time with how many Groups stand, and how many are tried again since it was called last.
        """
        self.store = store
        self.clock = clock
        self.proof = proof
        self._on_applied = on_applied
        self._on_quarantined = on_quarantined
        self.buffer = GapBuffer()
        self.progress = Progress()
        self.visible_after: Mapping[str, GroupSequence] = {}

    @property
    def name(self) -> str:
        """The consumer's name."""
        return self.store.consumer.name

    async def receive(self, arrivals: Sequence[Arrival], note: DeliveryNote = no_note) -> Applied:
        """Apply what was delivered, and what waited for it; hold what is beyond a gap."""
        applied = await self.apply(arrivals, note)
        self.buffer.hold(applied.ahead)
        for cursor in list(applied.cursors):
            applied.add(await self.apply_held(cursor.group_id, cursor.sequence))
        return applied

    async def apply_held(self, group_id: str, reached: GroupSequence) -> Applied:
        """Apply the held Events that follow `reached`. When they do not join the chain, none of the Group is kept."""
        joining = self.buffer.take_joining(group_id, reached)
        if not joining:
            return Applied()
        applied = await self.apply(joining)
        if applied.applied < len(joining):
            self.buffer.discard(group_id)
        return applied

    async def apply(
        self, arrivals: Sequence[Arrival], note: DeliveryNote = no_note, *, keep_intents: bool = True
    ) -> Applied:
        """Apply Events in one transaction and count what became of them.

        Keys that are not known yet are asked for first; Events whose keys remain unknown are not proven for now.
        """
        rules = ApplyRules(self.visible_after, self.proof, keep_intents, asks_first=True, clock=self.clock)
        try:
            return await self._apply(arrivals, rules, note)
        except KeysUnknown as unknown:
            if self.proof is not None:
                await self.proof.learn(unknown.key_ids)
        return await self._apply(arrivals, replace(rules, asks_first=False), note)

    async def _apply(self, arrivals: Sequence[Arrival], rules: ApplyRules, note: DeliveryNote) -> Applied:
        applied = await apply_events(self.store, arrivals, rules, note)
        self.progress.applied += applied.applied
        self.progress.duplicates += applied.duplicates
        self.progress.unproven += len(applied.unproven)
        self.progress.stops += len(applied.stops)
        if self._on_applied is not None:
            self._on_applied(applied)
        return applied

    def note_quarantined(self, standing: int, tried: int) -> None:
        """Tell how many Groups stand, and how many more are tried again."""
        if self._on_quarantined is not None:
            self._on_quarantined(standing, tried)

    async def reopen(self) -> None:
        """Go on with the rows that the store holds now: what waited for a gap in others comes again."""
        await self.store.reopen()
        self.buffer = GapBuffer()

    async def cursor(self, group_id: str) -> Cursor | None:
        """The Cursor of a Group; None before its first Event."""
        return await self.store.read(lambda transaction: transaction.cursor(group_id))

    async def cursors(self) -> list[Cursor]:
        """All Cursors."""
        return await self.store.read(lambda transaction: transaction.cursors())

    async def heads_ahead(self) -> dict[str, GroupSequence]:
        """Groups that are known to reach beyond their Cursor."""
        return await self.store.read(lambda transaction: dict(transaction.heads_ahead()))

    async def is_stopped(self, group_id: str) -> bool:
        """Whether a Group cannot go on."""
        held = await self.held(group_id)
        return held is not None and held.tried_at is None

    async def held(self, group_id: str) -> Held | None:
        """What keeps a Group quarantined, or did until it was tried again; None for nothing."""
        return await self.store.read(lambda transaction: transaction.held_of({group_id}).get(group_id))
