"""Read the usage report: what every Mission may spend, what is reserved of it, and the totals of the Organization.

Sums are exact: money by decimal arithmetic, told as decimal text; everything else in integers (BUD-1).
"""

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping
from decimal import Context, Decimal
from typing import Final

from msgspec import Struct

from contracts.documents.work_item import WorkItemState
from projections.consumer import Row, Value
from projections.store import Transaction

money_dimension: Final = "money"
counted_dimensions: Final = (
    "modelTokens",
    "toolCalls",
    "computeSeconds",
    "wallClockSeconds",
    "externalSideEffects",
)
"""The dimensions of a budget that are integers, in the order of their columns."""

_exact: Final = Context(prec=1_000)
"""Digits that hold any sum of signed numbers exactly."""
_unreserving: Final = frozenset({WorkItemState.FAILED.value, WorkItemState.CANCELLED.value})
"""States in which a WorkItem has given back what it reserved."""


class MoneyLine(Struct, frozen=True, kw_only=True):
    """Money of one currency as decimal text; `limit` and `remaining` are None where no budget names it."""

    currency: str
    limit: str | None
    reserved: str
    remaining: str | None


class CountLine(Struct, frozen=True, kw_only=True):
    """One of `counted_dimensions`; `limit` and `remaining` are None where no budget names it."""

    dimension: str
    limit: int | None
    reserved: int
    remaining: int | None


class Budget(Struct, frozen=True, kw_only=True):
    """What may be spent, what is reserved, what is left: money by currency, and each other dimension."""

    money: tuple[MoneyLine, ...]
    counted: tuple[CountLine, ...]


class Outcomes(Struct, frozen=True, kw_only=True, rename="camel"):
    """WorkItems by state, and how many Messages, checkpoints and late results there were."""

    work_items: dict[str, int]
    messages: int
    checkpoints: int
    late_results: int


class MissionUsage(Struct, frozen=True, kw_only=True, rename="camel"):
    """One Mission. What lies before a late start of its history is None."""

    group_id: str
    mission_id: str | None
    title: str | None
    state: str | None
    budget: Budget
    outcomes: Outcomes


class Usage(Struct, frozen=True, kw_only=True):
    """The Missions in the order of their Group IDs, and their totals. A limit that one Mission has not counts as 0."""

    missions: tuple[MissionUsage, ...]
    budget: Budget
    outcomes: Outcomes


class _Amounts:
    """Sums in all dimensions; a dimension that nothing named is missing."""

    def __init__(self) -> None:
        self.money: dict[str, Decimal] = {}
        self.counted: Counter[str] = Counter()

    def add(self, columns: Row, times: int = 1) -> None:
        """Add so many budgets of these columns: currency, money, and the counted dimensions."""
        currency, money, *counted = columns
        if money is not None:
            self._add_money(str(currency), _exact.multiply(Decimal(str(money)), Decimal(times)))
        for dimension, amount in zip(counted_dimensions, counted, strict=True):
            if amount is not None:
                self.counted[dimension] += _whole(amount) * times

    def plus(self, other: "_Amounts") -> None:
        """Add another sum."""
        for currency, money in other.money.items():
            self._add_money(currency, money)
        for dimension, amount in other.counted.items():
            self.counted[dimension] += amount

    def _add_money(self, currency: str, money: Decimal) -> None:
        self.money[currency] = _exact.add(self.money.get(currency, Decimal(0)), money)


class _Ledger:
    """Limits, reservations and outcomes of one Mission, or of all."""

    def __init__(self) -> None:
        self.limits = _Amounts()
        self.reserved = _Amounts()
        self.work_items: Counter[str] = Counter()
        self.counts: Counter[str] = Counter()

    def plus(self, other: "_Ledger") -> None:
        """Add another ledger."""
        self.limits.plus(other.limits)
        self.reserved.plus(other.reserved)
        self.work_items.update(other.work_items)
        self.counts.update(other.counts)

    def budget(self) -> Budget:
        """What is left of each limit."""
        currencies = sorted(self.limits.money.keys() | self.reserved.money.keys())
        return Budget(
            money=tuple(self._money(currency) for currency in currencies),
            counted=tuple(self._count(dimension) for dimension in counted_dimensions),
        )

    def outcomes(self) -> Outcomes:
        """The counts."""
        return Outcomes(
            work_items=dict(sorted(self.work_items.items())),
            messages=self.counts["messages"],
            checkpoints=self.counts["checkpoints"],
            late_results=self.counts["lateResults"],
        )

    def _money(self, currency: str) -> MoneyLine:
        limit, reserved = self.limits.money.get(currency), self.reserved.money.get(currency, Decimal(0))
        remaining = None if limit is None else _text(_exact.subtract(limit, reserved))
        stated = None if limit is None else _text(limit)
        return MoneyLine(currency=currency, limit=stated, reserved=_text(reserved), remaining=remaining)

    def _count(self, dimension: str) -> CountLine:
        limit, reserved = self.limits.counted.get(dimension), self.reserved.counted[dimension]
        remaining = None if limit is None else limit - reserved
        return CountLine(dimension=dimension, limit=limit, reserved=reserved, remaining=remaining)


def read_usage(transaction: Transaction, group_id: str | None = None) -> Usage:
    """The usage of one Group or of all, with the totals over those that are shown."""
    asked: dict[str, Value] = {"group_id": group_id or ""}
    ledgers: defaultdict[str, _Ledger] = defaultdict(_Ledger)
    _add_work_items(ledgers, transaction.query("read_work_items", asked))
    named: dict[str, tuple[str | None, ...]] = {}
    for group, mission_id, title, state, messages, checkpoints, late_results, *limits in transaction.query(
        "read_missions", asked
    ):
        ledger = ledgers[str(group)]
        ledger.limits.add(tuple(limits))
        ledger.counts.update(
            messages=_whole(messages), checkpoints=_whole(checkpoints), lateResults=_whole(late_results)
        )
        named[str(group)] = tuple(None if value is None else str(value) for value in (mission_id, title, state))
    total = _Ledger()
    missions: list[MissionUsage] = []
    for group, ledger in sorted(ledgers.items()):
        total.plus(ledger)
        mission_id, title, state = named.get(group, (None, None, None))
        missions.append(
            MissionUsage(
                group_id=group,
                mission_id=mission_id,
                title=title,
                state=state,
                budget=ledger.budget(),
                outcomes=ledger.outcomes(),
            )
        )
    return Usage(missions=tuple(missions), budget=total.budget(), outcomes=total.outcomes())


def _add_work_items(ledgers: Mapping[str, _Ledger], rows: Iterable[Row]) -> None:
    for group, state, count, *budget in rows:
        ledger = ledgers[str(group)]
        ledger.work_items[str(state)] += _whole(count)
        if state not in _unreserving:
            ledger.reserved.add(tuple(budget), _whole(count))


def _whole(value: Value) -> int:
    if not isinstance(value, int):
        raise TypeError(f"{value!r} is no whole number")
    return value


def _text(amount: Decimal) -> str:
    """Decimal text without an exponent and without zeros that say nothing."""
    return f"{amount.normalize(_exact):f}"
