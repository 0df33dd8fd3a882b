"""Epochs across incarnations: no fencing number of a lost history can ever pass as current (RULE-17).

Within an incarnation an epoch rises by one at each grant. A new incarnation lifts all of them above `epoch_floor` of
its base. The base is a number of seconds, so it lies above whatever a lost history can have granted from an earlier
base: that would take 2^20 grants in every second between.
"""

from datetime import UTC, datetime
from typing import Final

from contracts.bounds import safe_integer_max

counter_bits: Final = 20
"""Bits of an epoch that count grants; what stands above them is the base."""
abandoned_seconds: Final = 86_400
"""How far the clock that opened a forgotten incarnation may have been ahead of ours."""
base_epoch: Final = datetime(2024, 1, 1, tzinfo=UTC)
"""The moment that bases count seconds from."""


def epoch_base(now: datetime, previous: int, abandoned: int = 0) -> int:
    """The base of an incarnation that opens `now`: seconds since 2024, and always above the `previous` one.

    Incarnations that are `abandoned` unseen took their bases from a clock that is not known: a day above for each.
    """
    return max(int((now - base_epoch).total_seconds()), previous + 1) + abandoned * abandoned_seconds


def epoch_floor(base: int) -> int:
    """What every epoch is at least in an incarnation with this base; the first incarnation has base 0."""
    return base << counter_bits


def next_epoch(current: int, base: int) -> int:
    """The epoch of the next grant after `current` (0 for none). Raises OverflowError beyond 2^53 − 1."""
    following = max(current, epoch_floor(base)) + 1
    if following > safe_integer_max:
        raise OverflowError(f"epoch {following} is beyond {safe_integer_max}")
    return following
