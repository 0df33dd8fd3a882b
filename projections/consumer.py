"""What a projection is: named tables, and a pure function from an Event to the rows it changes.

A consumer neither commits nor acknowledges nor moves a Cursor; `apply_event` does, in one transaction. Every row
belongs to one Group (column `group_id`), so that one Group can be reset alone; a total over Groups is summed when it
is read (RULE-24). Rows hold only what Events say, never when or how often they arrived: the digest of a rebuilt
projection must equal that of the live one (MWP-WRK-008), in whichever store either lies.

Statements are written once, in what SQLite and PostgreSQL have in common: columns are `TEXT`, `BIGINT` or `BLOB`,
parameters `:name`, upserts `ON CONFLICT … DO UPDATE SET … excluded.…`. A column that is also read from the old row in
an upsert is named with its table.
"""

from collections.abc import Iterable, Mapping
from typing import Final, Protocol

from msgspec import Struct

from projections.arrival import LoggedEvent

type Value = str | int | bytes | None
"""What a column of a projection holds; the same in every store."""
type Row = tuple[Value, ...]

default_owner: Final = "operator"
"""Who answers for a consumer whose author names nobody else."""


def text(value: str) -> str:
    """Free text as every store can keep it: PostgreSQL has no NUL in texts, a title may have."""
    return value.replace("\0", "\ufffd")


class Statement(Struct, frozen=True, gc=False):
    """One change of rows: the name of an SQL statement of the consumer and its named parameters (`:name`).

    A replay makes many thousand at once; like the Events they come from, the collector of cycles passes them over.
    """

    name: str
    parameters: Mapping[str, Value]


class Consumer(Protocol):
    """One projection at one version. A change of `version` discards what is stored and replays it (PRJ-4)."""

    @property
    def name(self) -> str:
        """Lower-case words joined by `_`; every table's name begins with it."""
        ...

    @property
    def owner(self) -> str:
        """Who is asked when one of its Groups is quarantined (DUR-5): a team, a person, a role; free text, one line."""
        ...

    @property
    def version(self) -> int:
        """From 1, raised whenever the tables or the meaning of their rows change."""
        ...

    @property
    def variant(self) -> str:
        """What else the rows depend on, such as the Agent whose queue this is; "" for none. Counts like the version."""
        ...

    @property
    def tables(self) -> Mapping[str, str]:
        """Its tables, each with a column `group_id`, and for each the statement that creates it if it is missing."""
        ...

    @property
    def intent_tables(self) -> frozenset[str]:
        """Those of its tables that hold intents: no rebuild makes, compares or replaces their rows (RULE-22)."""
        ...

    @property
    def statements(self) -> Mapping[str, str]:
        """SQL by name: those that create the tables and those that `evolve` names."""
        ...

    @property
    def kinds(self) -> frozenset[str] | None:
        """The Event kinds that change rows; None for every kind. Others still move the Cursor."""
        ...

    def evolve(self, event: LoggedEvent) -> Iterable[Statement]:
        """The changes that an Event of one of `kinds` makes. Pure: no clock, no randomness, no reading.

        Their order counts within a table; statements that name different tables may change places.

        Raises ValueError for an Event that cannot be understood; its Group is then quarantined there, and no other.
        So it is for whatever else is raised, except what may pass by itself (`projections.quarantine.may_pass`).
        """
        ...

    def intents(self, event: LoggedEvent) -> Iterable[Statement]:
        """What the process must do outside because of the Event, kept in the same transaction as the rows.

        A rebuild and a replay after a fork keep none (RULE-22).
        """
        ...
