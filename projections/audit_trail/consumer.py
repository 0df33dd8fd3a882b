"""The audit trail as a consumer: all Groups, every kind, a row for each Event."""

from collections.abc import Iterable, Mapping
from types import MappingProxyType
from typing import Final

from msgspec import UNSET, UnsetType

from projections.arrival import LoggedEvent
from projections.audit_trail.free_text import free_text
from projections.consumer import Statement, Value, default_owner, text
from services.process.statements import load


class AuditTrail:
    """Who did what, when, to which WorkItem, because of which Command; and the words of it, to search them.

    The whole payload stays in the log: `weavehold group events` shows it.
    """

    name: Final = "audit_trail"
    owner: Final = default_owner
    version: Final = 1
    variant: Final = ""
    kinds: Final = None
    intent_tables: Final[frozenset[str]] = frozenset()
    tables: Final[Mapping[str, str]] = MappingProxyType({"audit_trail_event": "create_audit_trail_event"})
    statements: Final[Mapping[str, str]] = load(__package__)

    def evolve(self, event: LoggedEvent) -> Iterable[Statement]:
        """The row of this Event."""
        row: dict[str, Value] = {
            "group_id": event.group_id,
            "sequence": event.sequence,
            "event_id": event.event_id,
            "kind": event.kind,
            "actor_type": event.actor.type.value,
            "actor_id": event.actor.id,
            "occurred_at": event.occurred_at,
            "work_item_id": _given(event.work_item_id),
            "conversation_id": _given(event.conversation_id),
            "cause_type": event.cause.type,
            "cause_id": event.cause.id,
            "aggregate_revision": event.aggregate_revision,
            "words": text(free_text(event.payload)),
        }
        return (Statement("put_event", row),)

    def intents(self, event: LoggedEvent) -> Iterable[Statement]:
        """None: the trail is only read."""
        del event
        return ()


def _given(identifier: str | UnsetType) -> str | None:
    return None if identifier is UNSET else identifier
