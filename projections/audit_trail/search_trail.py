"""Search the audit trail: bounded pages in the order of time, each continued where the one before ended."""

from string import ascii_lowercase, ascii_uppercase
from typing import Final, NamedTuple

from msgspec import Struct

from projections.consumer import Value
from projections.store import Transaction

events_in_page_max: Final = 1_000
"""Events of one page."""

_separator: Final = "/"
_escape: Final = "!"
_ascii_lower: Final = str.maketrans(ascii_uppercase, ascii_lowercase)


class TrailPlace(NamedTuple):
    """The place of an Event in the order of the trail; the first page begins after `trail_start`."""

    occurred_at: str
    sequence: int
    group_id: str

    def __str__(self) -> str:
        return f"{self.occurred_at}{_separator}{self.sequence}{_separator}{self.group_id}"

    @classmethod
    def read(cls, text: str) -> "TrailPlace":
        """The place that `str` wrote. Raises ValueError for another text."""
        occurred_at, sequence, group_id = text.split(_separator, maxsplit=2)
        return cls(occurred_at, int(sequence), group_id)


trail_start: Final = TrailPlace("", 0, "")


class TrailQuestion(Struct, frozen=True, kw_only=True):
    """What is looked for; "" asks for nothing.

    `since` (included) and `until` (not included) are times as the authority writes them (`format_timestamp`): it writes
    all of them alike, so that texts order as times do. `kind` may have `*` for any characters. `text` is a part of the
    words; the case of ASCII letters does not matter.
    """

    text: str = ""
    actor_id: str = ""
    kind: str = "*"
    group_id: str = ""
    work_item_id: str = ""
    since: str = ""
    until: str = ""


class TrailEvent(Struct, frozen=True, rename="camel"):
    """One Event; `cause_id` is the action of a Command, else the ID of an Event, a timer or a policy."""

    group_id: str
    sequence: int
    event_id: str
    kind: str
    actor_type: str
    actor_id: str
    occurred_at: str
    work_item_id: str | None
    conversation_id: str | None
    cause_type: str
    cause_id: str
    aggregate_revision: int
    words: str

    @property
    def place(self) -> TrailPlace:
        """Where the following page begins when this is the last one of a page."""
        return TrailPlace(self.occurred_at, self.sequence, self.group_id)


class TrailPage(Struct, frozen=True):
    """Events in the order of time, and the place after which there are more; None at the end."""

    events: tuple[TrailEvent, ...]
    next: TrailPlace | None


def search_trail(
    transaction: Transaction, question: TrailQuestion, after: TrailPlace = trail_start, limit: int = events_in_page_max
) -> TrailPage:
    """Up to `limit` Events (at most `events_in_page_max`) that answer the question, after a place."""
    limit = min(limit, events_in_page_max)
    asked: dict[str, Value] = {
        "since": question.since,
        "until": question.until,
        "group_id": question.group_id,
        "actor_id": question.actor_id,
        "work_item_id": question.work_item_id,
        # Lowered here, since databases differ in what they lower in a parameter.
        "kind_pattern": _escaped(question.kind).lower().replace("*", "%"),
        "words_pattern": f"%{_escaped(question.text)}%".translate(_ascii_lower),
        "after_at": after.occurred_at,
        "after_group_id": after.group_id,
        "after_sequence": after.sequence,
        # One more than shown tells whether there are more.
        "rows_max": limit + 1,
    }
    rows = [TrailEvent(*row) for row in transaction.query("search_events", asked)]  # type: ignore[arg-type]
    events = tuple(rows[:limit])
    return TrailPage(events, events[-1].place if len(rows) > limit else None)


def _escaped(text: str) -> str:
    """A text in which nothing is a pattern."""
    for special in (_escape, "%", "_"):
        text = text.replace(special, _escape + special)
    return text
