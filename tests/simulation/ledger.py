"""The simplest consumer: one row per Event, in the order of application. What it must hold follows from the log alone.

Nothing in its tables hinders a wrong row: an Event applied twice, out of order or of another history stands there. Each
Event is also to be told outside, once: an intent.
"""

import hashlib
from collections.abc import Iterable, Mapping
from typing import Final

from projections.arrival import LoggedEvent
from projections.consumer import Statement, default_owner

append_entry: Final = "append_entry"
append_intent: Final = "append_intent"


class Ledger:
    """A projection that only counts up. Each process has one of its own name, as each has its own consumers."""

    owner: Final = default_owner
    version: Final = 1
    variant: Final = ""
    kinds: Final = None

    def __init__(self, owner: str) -> None:
        self.name = f"ledger_{owner}"
        self.table = f"{self.name}_entry"
        self.intent_table = f"{self.name}_intent"
        self.tables: Mapping[str, str] = {self.table: "create_entry", self.intent_table: "create_intent"}
        self.intent_tables = frozenset({self.intent_table})
        self.statements: Mapping[str, str] = {
            "create_entry": (
                f"CREATE TABLE IF NOT EXISTS {self.table} (group_id TEXT NOT NULL, sequence BIGINT NOT NULL, "
                "event_id TEXT NOT NULL, payload_hash TEXT NOT NULL)"
            ),
            append_entry: (
                f"INSERT INTO {self.table} (group_id, sequence, event_id, payload_hash) "
                "VALUES (:group_id, :sequence, :event_id, :payload_hash)"
            ),
            "create_intent": (
                f"CREATE TABLE IF NOT EXISTS {self.intent_table} "
                "(group_id TEXT NOT NULL, sequence BIGINT NOT NULL, event_id TEXT NOT NULL)"
            ),
            append_intent: (
                f"INSERT INTO {self.intent_table} (group_id, sequence, event_id) "
                "VALUES (:group_id, :sequence, :event_id)"
            ),
        }

    def evolve(self, event: LoggedEvent) -> Iterable[Statement]:
        """One row."""
        payload_hash = hashlib.sha256(bytes(event.payload)).hexdigest()
        row = {
            "group_id": event.group_id,
            "sequence": event.sequence,
            "event_id": event.event_id,
            "payload_hash": payload_hash,
        }
        yield Statement(append_entry, row)

    def intents(self, event: LoggedEvent) -> Iterable[Statement]:
        """One."""
        told = {"group_id": event.group_id, "sequence": event.sequence, "event_id": event.event_id}
        yield Statement(append_intent, told)
