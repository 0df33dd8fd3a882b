"""The tables that every store makes beside those of its consumer, and whose rows they are."""

import re
from collections.abc import Iterable, Sequence
from typing import Any, Final

from msgspec import Struct

from projections.consumer import Consumer, Value

store_version: Final = 2
"""Version of the tables that the stores make, apart from those of the consumer."""
creations: Final = (
    "create_projection_meta",
    "create_projection_edition",
    "create_projection_cursor",
    "create_projection_applied",
    "create_projection_known_head",
    "create_projection_quarantine",
    "create_projection_decision",
    "create_projection_silence",
    "create_projection_position",
    "create_projection_fork",
    "create_projection_counter",
)
"""The statements that create them, each if its table is missing."""
decision_table: Final = "projection_decision"
lasting_tables: Final = ("projection_fork", "projection_counter", decision_table)
"""What stays when the consumer's version changes: reports of what no longer exists, and what somebody decided."""
retired_tables: Final = ("projection_stop",)
"""What stores of an earlier form hold and nothing reads any more: a Group that had stopped is simply tried again."""

_words: Final = re.compile(r"\w+")


class Identity(Struct, frozen=True):
    """What the rows of a store must have been made by."""

    consumer: Consumer
    organization_id: str

    def row(self) -> dict[str, Value]:
        """The row of `projection_meta`, its members in the order in which `read_meta` gives them."""
        return {
            "store_version": store_version,
            "consumer": self.consumer.name,
            "version": self.consumer.version,
            "variant": self.consumer.variant,
            "organization_id": self.organization_id,
        }

    def made(self, found: Sequence[Any] | None) -> bool:
        """Whether the row of `read_meta` says that this consumer, version and Organization made the store."""
        return found is not None and tuple(found) == tuple(self.row().values())

    def outdated(self, found: Sequence[Any] | None, present: Iterable[str]) -> list[str]:
        """The tables among those `present` that something else made; `found` is the row of `read_meta`, if any.

        Tables that belong to neither a consumer nor a store (a Worker's own) are never among them. Forks and counters
        stay as long as this version of the store can read them and the Organization is the same.
        """
        expected = tuple(self.row().values())
        if self.made(found):
            return []
        prefixes = {f"{self.consumer.name}_", "projection_"}
        kept: tuple[str, ...] = ()
        if found is not None:
            prefixes.add(f"{found[1]}_")
            if (found[0], found[4]) == (expected[0], expected[4]):
                # What was decided was decided about this consumer alone.
                same = (found[1], found[3]) == (expected[1], expected[3])
                kept = tuple(table for table in lasting_tables if same or table != decision_table)
        return [name for name in present if name.startswith(tuple(prefixes)) and name not in kept]


def check_names(consumer: Consumer) -> None:
    """Raises ValueError for a table that could be taken for another consumer's."""
    strangers = [table for table in consumer.tables if not table.startswith(f"{consumer.name}_")]
    if strangers:
        raise ValueError(f"tables of {consumer.name} must begin with {consumer.name}_: {strangers}")


def tables_of(consumer: Consumer) -> dict[str, str]:
    """The table of each statement that names exactly one of the consumer's tables."""
    tables: dict[str, str] = {}
    for name, sql in consumer.statements.items():
        named = set(_words.findall(sql)) & consumer.tables.keys()
        if len(named) == 1:
            tables[name] = named.pop()
    return tables
