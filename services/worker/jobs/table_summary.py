"""Summarise one number column of a CSV table by the values of another column."""

import csv
import io
import json
from collections.abc import Sequence
from decimal import Decimal, InvalidOperation
from typing import Any, ClassVar, Self

from services.worker.jobs.job import Pace, Result, State, json_document, part


class TableSummary(Pace, frozen=True, kw_only=True, tag_field="type", tag="table-summary"):
    """Count, sum, least and greatest of `column` for each value of `by`. Sums are decimal, never binary."""

    result_schema: ClassVar[dict[str, Any]] = {
        "type": "object",
        "required": ["column", "by", "rows", "groups"],
        "properties": {"rows": {"type": "integer"}, "groups": {"type": "object"}},
    }

    input: str
    column: str
    by: str

    def __post_init__(self) -> None:
        """Refuse a table that the steps could not read."""
        super().__post_init__()
        for number, row in enumerate(_rows(self.input), start=1):
            if self.column not in row or self.by not in row:
                raise ValueError(f"row {number} lacks column {self.column!r} or {self.by!r}")
            try:
                finite = Decimal(row[self.column]).is_finite()
            except InvalidOperation:
                finite = False
            if not finite:
                raise ValueError(f"row {number}: {self.column} is {row[self.column]!r}, not a number")

    def bind(self, _inputs: Sequence[bytes], /) -> Self:
        """The input lies in the contract itself."""
        return self

    def begin(self) -> State:
        """No row read yet."""
        return {"groups": {}}

    def advance(self, state: State, step: int) -> State:
        """Read this step's part of the rows."""
        rows = _rows(self.input)
        groups = dict(state["groups"])
        for row in rows[part(len(rows), step, self.steps)]:
            value = Decimal(row[self.column])
            known = groups.get(row[self.by])
            groups[row[self.by]] = {
                "count": known["count"] + 1 if known else 1,
                "sum": str(Decimal(known["sum"]) + value if known else value),
                "least": str(min(Decimal(known["least"]), value) if known else value),
                "greatest": str(max(Decimal(known["greatest"]), value) if known else value),
            }
        return {"groups": groups}

    def finish(self, state: State) -> Result:
        """`{"column", "by", "rows", "groups": {value: {count, sum, least, greatest}}}`."""
        rows = sum(group["count"] for group in state["groups"].values())
        body = {"column": self.column, "by": self.by, "rows": rows, "groups": state["groups"]}
        return Result(
            content=json_document(body),
            media_type="application/json",
            summary=f"{self.column} of {rows} rows in {len(state['groups'])} groups by {self.by}",
        )

    def confirm(self, result: Result) -> bool:
        """Sum each group anew, column-wise."""
        groups = json.loads(result.content)["groups"]
        values: dict[str, list[Decimal]] = {}
        for row in _rows(self.input):
            values.setdefault(row[self.by], []).append(Decimal(row[self.column]))
        return groups.keys() == values.keys() and all(
            (groups[name]["count"], Decimal(groups[name]["sum"])) == (len(column), sum(column))
            and (Decimal(groups[name]["least"]), Decimal(groups[name]["greatest"])) == (min(column), max(column))
            for name, column in values.items()
        )


def _rows(table: str) -> list[dict[str, str]]:
    return list(csv.DictReader(io.StringIO(table.strip())))
