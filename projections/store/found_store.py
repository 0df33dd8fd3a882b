"""A store as who only looks at it finds it, though its process has not opened it in the present form yet."""

from typing import Any, Final

from projections.consumer import Consumer, Value
from projections.store.sql_transaction import Dialect, SqlTransaction

later_tables: Final = ("projection_quarantine", "projection_decision")
"""What stores of an earlier form do not have: nothing was quarantined or decided there."""


class FoundStore(SqlTransaction):
    """`SqlTransaction` on a snapshot that is only read; a later table that is missing is an empty one."""

    def __init__(self, connection: Any, consumer: Consumer, dialect: Dialect) -> None:
        """Look at `consumer`'s tables on a connection whose transaction has begun."""
        super().__init__(connection, consumer, dialect)
        present = {name for (name,) in super()._all("list_tables")}
        self._missing = [table for table in later_tables if table not in present]

    def _all(self, name: str, **parameters: Value) -> list[Any]:
        return [] if self._is_missing(name) else super()._all(name, **parameters)

    def _one(self, name: str, **parameters: Value) -> Any:
        return None if self._is_missing(name) else super()._one(name, **parameters)

    def _is_missing(self, statement: str) -> bool:
        return any(table in self._store[statement] for table in self._missing)
