"""What a benchmark says: a figure, the baseline measured beside it, and their ratio."""

from collections.abc import Sequence
from statistics import median
from typing import Literal

from msgspec import Struct

Better = Literal["higher", "lower"]
"""Which way a ratio should go: `higher` is met from the target up, `lower` from the target down."""


class Measurement(Struct, frozen=True, kw_only=True):
    """One figure. `value` and `baseline` are medians in `unit`; `ratio` is the median of the pairwise ratios."""

    name: str
    unit: str
    value: float
    baseline: float
    ratio: float
    target: float
    met: bool
    better: Better = "higher"
    notes: dict[str, float] = {}


def measured(
    name: str,
    unit: str,
    pairs: Sequence[tuple[float, float]],
    target: float,
    notes: dict[str, float] | None = None,
    *,
    better: Better = "higher",
) -> Measurement:
    """A Measurement from interleaved (value, baseline) pairs.

    It is met when the ratio is at least `target`, or at most, where `better` is "lower".
    """
    ratio = median(value / baseline for value, baseline in pairs)
    return Measurement(
        name=name,
        unit=unit,
        value=round(median(value for value, _ in pairs), 1),
        baseline=round(median(baseline for _, baseline in pairs), 1),
        ratio=round(ratio, 3),
        target=target,
        met=ratio >= target if better == "higher" else ratio <= target,
        better=better,
        notes=notes or {},
    )
