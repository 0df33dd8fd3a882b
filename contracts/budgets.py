"""Exact arithmetic of budgets in their six dimensions (BUD-1): decimals of the written numbers, never binary sums."""

from decimal import Context, Decimal
from typing import Final

from msgspec import UNSET, UnsetType

from contracts.documents.common import Budget

_exact: Final = Context(prec=1_000)
"""Digits that hold any sum of binary64 numbers exactly: they span 10^-324 to 10^308, and their count adds few."""

Allocation = tuple[Decimal, Decimal, Decimal, Decimal, Decimal, Decimal]
"""An amount in each of `dimensions`, in their order."""

dimensions: Final = (
    "financialLimit",
    "modelTokenLimit",
    "toolCallLimit",
    "computeSecondsLimit",
    "wallClockSecondsLimit",
    "externalSideEffectLimit",
)
nothing: Final[Allocation] = (Decimal(0),) * 6


def allocation(budget: Budget) -> Allocation:
    """The limits of a budget. An absent limit allocates nothing, and so does money without its currency."""
    return (
        _decimal(UNSET if budget.currency is UNSET else budget.financial_limit),
        _decimal(budget.model_token_limit),
        _decimal(budget.tool_call_limit),
        _decimal(budget.compute_seconds_limit),
        _decimal(budget.wall_clock_seconds_limit),
        _decimal(budget.external_side_effect_limit),
    )


def plus(one: Allocation, other: Allocation) -> Allocation:
    """The sum, exactly."""
    a, b, c, d, e, f = map(_exact.add, one, other)
    return a, b, c, d, e, f


def minus(one: Allocation, other: Allocation) -> Allocation:
    """The difference, exactly."""
    a, b, c, d, e, f = map(_exact.subtract, one, other)
    return a, b, c, d, e, f


def first_excess(amount: Allocation, limit: Allocation) -> str | None:
    """The name of the first dimension in which `amount` is above `limit`, or None."""
    return next((name for name, a, b in zip(dimensions, amount, limit, strict=True) if a > b), None)


def _decimal(limit: float | UnsetType) -> Decimal:
    return Decimal(0) if limit is UNSET else Decimal(repr(limit))
