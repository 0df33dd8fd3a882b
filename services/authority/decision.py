"""What a decision is given and what it gives: values only, so that `decide` can be replayed exactly (RULE-15)."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from msgspec import UNSET, Struct, UnsetType

from contracts.documents.agent_card import AgentCard
from contracts.documents.common import Actor
from contracts.epochs import next_epoch
from contracts.event import Cause
from contracts.rejection import Rejection
from contracts.timestamps import Instant, format_timestamp, instant
from services.authority.incarnation import Incarnation
from services.authority.key_book import KeyBook


class AgentFacts(Struct, frozen=True):
    """An Agent as the Organization shard last wrote it. Session Epoch 0 and None stand for "no session yet"."""

    session_epoch: int
    session_event_id: str | None
    card: AgentCard | None


@dataclass(frozen=True, kw_only=True)
class DecisionContext:
    """Everything that a decision takes from outside its Group.

    `now` is the acceptance time in UTC with microseconds; `agents` holds at least `agents_consulted`;
    `taken_identifiers` are those of `identifiers_claimed` that already name something in the Organization;
    `new_id` makes `urn:uuid:` identifiers for leases, offers and Memberships; `keys` holds at least `keys_consulted`
    and moves on with the batch; `signing_key_id` names the key that signs the Events of this decision;
    a key must be valid at each of `key_moments` to count; `incarnation` is the current one.
    """

    organization_id: str
    now: datetime
    agents: Mapping[str, AgentFacts]
    taken_identifiers: frozenset[str]
    new_id: Callable[[], str]
    keys: KeyBook = field(default_factory=KeyBook)
    signing_key_id: str = ""
    incarnation: Incarnation = field(default_factory=lambda: Incarnation(name=""))
    key_moments: Sequence[Instant] = ()
    now_text: str = field(init=False)
    now_instant: Instant = field(init=False)

    def __post_init__(self) -> None:
        """The same moment as text, the way Events carry it, and as an exactly comparable point."""
        object.__setattr__(self, "now_text", format_timestamp(self.now))
        object.__setattr__(self, "now_instant", instant(self.now_text))

    def next_epoch(self, current: int) -> int:
        """The epoch of the next grant after `current`, 0 for none, in this incarnation (RULE-17)."""
        return next_epoch(current, self.incarnation.epoch_base)


class EventDraft(Struct, frozen=True, kw_only=True):
    """An Event before it has a place in the history. `payload` is plain JSON in camelCase."""

    kind: str
    payload: dict[str, Any]
    aggregate_revision: int
    actor: Actor
    cause: Cause
    conversation_id: str | UnsetType = UNSET
    work_item_id: str | UnsetType = UNSET


class LateResult(Struct, frozen=True):
    """A fenced owner's result: `draft` keeps it as Evidence, `rejection` is what the sender hears (RULE-02).

    The Event's ID belongs into the rejection's details as `eventId` once it has one.
    """

    draft: EventDraft
    rejection: Rejection


Decision = tuple[EventDraft, ...] | LateResult | Rejection
