"""The incarnation in which the authority accepts: which history its Events continue, and what epochs stand above."""

from typing import Any

from msgspec import Struct


class Incarnation(Struct, frozen=True, kw_only=True):
    """The current incarnation as its row says.

    `epoch_base` is the number of `contracts.epochs`; `reason` the operator's words; `event_id` the Event that opened
    it, None for the first.
    """

    name: str
    epoch_base: int = 0
    reason: str = ""
    event_id: str | None = None


class OpenedIncarnation(Struct, frozen=True, kw_only=True):
    """A new incarnation as one transaction writes it; `abandoned` are those that the database knew nothing of."""

    incarnation: Incarnation
    abandoned: tuple[str, ...]


def incarnation_of(row: tuple[Any, ...]) -> Incarnation:
    """From the first columns of a row of `read_founded_incarnation`."""
    name, epoch_base, reason, event_id = row[:4]
    return Incarnation(name=name, epoch_base=epoch_base, reason=reason, event_id=event_id)
