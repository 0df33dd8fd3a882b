"""Inside the exchanging transaction: the live rows, writable, and those of the green version beside them to read."""

from typing import Any, Final

from contracts.chain import ChainHash
from contracts.cursor import Cursor
from contracts.identifiers import GroupSequence
from projections.consumer import Consumer
from projections.store import Verb, remembered_pairs_max
from projections.store.sql_transaction import Dialect, SqlTransaction

exchanged_tables: Final = ("projection_cursor", "projection_applied", "projection_quarantine")
"""What comes with a Group's rows. Known heads, positions, forks, decisions and counters are the live version's own."""


class ExchangeTransaction(SqlTransaction):
    """`SqlTransaction` on the live version, for which the green one is another schema of the same connection."""

    def __init__(self, connection: Any, consumer: Consumer, dialect: Dialect, green: str) -> None:
        """`green` qualifies the tables of the green version, as SQL writes it."""
        super().__init__(connection, consumer, dialect)
        self._green = green

    @property
    def keeps_intents(self) -> bool:
        """Whether something has to be done outside because of Events, which only the live version keeps."""
        return bool(self._consumer.intent_tables)

    def green_cursor(self, group_id: str) -> Cursor | None:
        """Where the green version stands in a Group."""
        return self._read_cursor(self._store["read_green_cursor"].format(green=self._green), group_id)

    def green_remembered(self, group_id: str, sequence: GroupSequence) -> ChainHash | None:
        """The chain hash that the green version applied at a sequence, if it is still known."""
        asked = {"group_id": group_id, "slot": sequence % remembered_pairs_max, "sequence": sequence}
        found = self._execute(self._store["read_green_remembered"].format(green=self._green), asked).fetchone()
        return None if found is None else ChainHash(found[0])

    def skips_differ(self, group_id: str) -> bool:
        """Whether the green version passed other Events of a Group over than the live one has to."""
        asked = {"verb": Verb.SKIP.value, "group_id": group_id}
        found = self._execute(self._store["read_green_skips"].format(green=self._green), asked).fetchall()
        live = {(each.sequence, each.chain_hash) for each in self.decisions_of(group_id) if each.verb is Verb.SKIP}
        return live != {(sequence, ChainHash(chain_hash)) for sequence, chain_hash in found}

    def take_group(self, group_id: str) -> None:
        """Put a Group's green rows, Cursor, remembered Events and quarantine in the place of the live ones.

        Tables of intents stay as they are (RULE-22). An Event that failed in both failed first when it did in the live
        version, and as often as in both together.
        """
        before = self.quarantined_of(group_id)
        asked = {"group_id": group_id}
        rebuilt = (table for table in self._consumer.tables if table not in self._consumer.intent_tables)
        for table in (*rebuilt, *exchanged_tables):
            self._execute(self._store["delete_rows"].format(table=table), asked)
            self._execute(self._store["copy_rows"].format(table=table, green=self._green), asked)
        if before is not None:
            earlier = {"first_failed_at": before.first_failed_at, "attempts": before.attempts}
            self._change("add_attempts", group_id=group_id, chain_hash=before.stop.chain_hash, **earlier)

    def replace_edition(self, edition: str) -> None:
        """Fence every writer that opened an earlier edition, and wait for the one at work. Called first."""
        self._change("begin_edition", edition=edition)
        self._change("replace_edition", edition=edition)
