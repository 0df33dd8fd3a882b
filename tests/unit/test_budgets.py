"""BUD-1: exact arithmetic of the six dimensions."""

from decimal import Decimal
from typing import Any

from hypothesis import given
from hypothesis import strategies as st
from msgspec import convert

from contracts.budgets import allocation, dimensions, first_excess, minus, nothing, plus
from contracts.documents.common import Budget


def money(amount: float, **members: Any) -> Budget:
    """A budget of money."""
    return convert({"currency": "USD", "financialLimit": amount} | members, Budget)


def test_money_is_the_written_number() -> None:
    """BUD-1: 0.1 is a tenth, not the nearest binary fraction; money without a currency is none."""
    assert allocation(money(0.1))[0] == Decimal("0.1")
    assert allocation(convert({"financialLimit": 5, "modelTokenLimit": 1}, Budget))[0] == 0
    assert allocation(money(2**53 - 1, toolCallLimit=3))[:3] == (Decimal(2**53 - 1), Decimal(0), Decimal(3))


def test_the_first_excess_is_named() -> None:
    """BUD-1: each dimension is compared for itself."""
    full = convert(
        {
            "currency": "USD",
            "financialLimit": 1,
            "modelTokenLimit": 1,
            "toolCallLimit": 1,
            "computeSecondsLimit": 1,
            "wallClockSecondsLimit": 1,
            "externalSideEffectLimit": 1,
        },
        Budget,
    )
    limit = allocation(full)
    assert first_excess(limit, limit) is None
    for place, name in enumerate(dimensions):
        less = tuple(amount - (place == other) for other, amount in enumerate(limit))
        assert first_excess(limit, less) == name  # type: ignore[arg-type]


amounts = st.floats(min_value=0, allow_nan=False, allow_infinity=False) | st.integers(0, 2**53 - 1)


@given(st.lists(amounts, max_size=12))
def test_sums_are_exact_in_any_order(numbers: list[float]) -> None:
    """BUD-1: adding and taking back the same amounts ends at exactly nothing, at any magnitude."""
    total = nothing
    for number in numbers:
        total = plus(total, allocation(money(number)))
    for number in reversed(numbers):
        total = minus(total, allocation(money(number)))
    assert total == nothing
