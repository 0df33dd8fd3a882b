"""One Group inside one batch: which of its Events continue the Cursor, in order, and what the others are."""

from collections.abc import Mapping
from types import MappingProxyType

from msgspec import Struct

from contracts.chain import ChainHash
from contracts.cursor import Contact, Cursor, EventMark, advance, classify, cursor_start
from contracts.event_contracts import event_contracts
from contracts.identifiers import GroupSequence
from contracts.upcasting import EventContracts
from projections.arrival import Arrival
from projections.proof import SignatureProof
from projections.quarantine import Clock, Skipped, nothing_skipped, wall_clock
from projections.store import Held, Transaction


class ApplyRules(Struct, frozen=True):
    """What applying needs to know beside Events and store.

    `visible_after` gives, for a late member, the sequence that its history begins after (RULE-23); 0 where absent.
    Without `proof` Events are trusted as the source or broker gave them. `keep_intents` is off in a rebuild. With
    `asks_first` nothing is applied while a key by which a run is judged has to be learned. `contracts` are the Event
    kinds that are known, each at the version in which its payloads are read (PRJ-5). `clock` says when a Group failed.
    """

    visible_after: Mapping[str, GroupSequence] = MappingProxyType({})
    proof: SignatureProof | None = None
    keep_intents: bool = True
    asks_first: bool = False
    contracts: EventContracts = event_contracts
    clock: Clock = wall_clock


class Question(Struct, frozen=True):
    """An Event or head that only the authority can judge: FORK, or UNKNOWN below what is remembered."""

    contact: Contact
    place: EventMark | Cursor

    @property
    def group_id(self) -> str:
        """The Group that it is about."""
        return self.place.group_id


class GroupRun:
    """Events of one Group as they are met. `before` is the stored Cursor, `cursor` the one after `next`."""

    def __init__(
        self, group_id: str, before: Cursor | None, visible_after: GroupSequence, quarantined: Held | None
    ) -> None:
        """Begin at the stored Cursor; a `quarantined` Group that stands goes on only if its Event is gone."""
        self.group_id = group_id
        self.before = before
        self.cursor = before
        self.next: list[Arrival] = []
        self.ahead: list[Arrival] = []
        self.questions: list[Question] = []
        self.duplicates = 0
        self.reaches = GroupSequence(0)
        self.silent_until: GroupSequence | None = None
        """Up to here its Events bring no intents (RULE-22)."""
        self.quarantined = quarantined
        self.skipped: Skipped = nothing_skipped
        """Its Events that are passed over (DUR-5)."""
        self._visible_after = visible_after
        self._stands_before = quarantined.chain_hash if quarantined and quarantined.tried_at is None else None
        """The Event that keeps the Group standing. It need not be part of the history any more (PRJ-3)."""
        self._held = False

    def meet(self, transaction: Transaction, arrival: Arrival, organization_id: str) -> None:
        """Classify the next Event of this Group."""
        mark = arrival.mark
        self.reaches = max(self.reaches, mark.sequence)
        if self._held:
            return
        if self.cursor is None:
            if mark.sequence <= self._visible_after:
                self.duplicates += 1
                return
            self.cursor = self._begin(arrival, organization_id)
            if self.cursor is None:
                self.ahead.append(arrival)
                return
        known = self._remembered(transaction, mark.sequence) if mark.sequence < self.cursor.sequence else None
        match contact := classify(self.cursor, mark, known):
            case Contact.NEXT if mark.chain_hash == self._stands_before:
                self._held = True
            case Contact.NEXT:
                self._stands_before = None
                self.cursor = advance(self.cursor, mark)
                self.next.append(arrival)
            case Contact.DUPLICATE:
                self.duplicates += 1
            case Contact.GAP if self._stands_before is None:
                self.ahead.append(arrival)
            case Contact.GAP:
                pass
            case Contact.FORK | Contact.UNKNOWN:
                # What continues our own chain is still the same history; after a FORK nothing is taken until asked.
                self.questions.append(Question(contact, mark))
                self._held = contact is Contact.FORK

    def _begin(self, arrival: Arrival, organization_id: str) -> Cursor | None:
        """The Cursor before the first visible Event. A late member takes its hash from that Event, which is signed."""
        mark = arrival.mark
        if self._visible_after == 0:
            return cursor_start(organization_id, self.group_id, mark.incarnation)
        if mark.sequence == self._visible_after + 1:
            return Cursor(mark.incarnation, self.group_id, self._visible_after, mark.previous_hash)
        return None

    def _remembered(self, transaction: Transaction, sequence: GroupSequence) -> ChainHash | None:
        """The hash applied at a sequence below the Cursor, in this batch or before it."""
        first = self.reached - len(self.next) + 1
        if sequence >= first:
            return self.next[sequence - first].mark.chain_hash
        return transaction.remembered(self.group_id, sequence)

    def skips(self, arrival: Arrival) -> bool:
        """Whether an Event is passed over: it is the very one that somebody decided on, of the same history."""
        return bool(self.skipped) and (arrival.mark.sequence, arrival.mark.chain_hash) in self.skipped

    def drop_next(self) -> None:
        """Take nothing of what came next."""
        self.next, self.cursor = [], self.before

    def cut_next(self, sequence: GroupSequence) -> None:
        """Take only what came next below a sequence."""
        self.next = self.next[: sequence - self.next[0].mark.sequence]

    @property
    def reached(self) -> GroupSequence:
        """How far the Group is applied once `next` is. What is hidden from a late member is nothing to apply."""
        if self.next:
            return self.next[-1].mark.sequence
        return self.before.sequence if self.before else self._visible_after
