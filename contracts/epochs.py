"""Epochs across incarnations: no fencing number of a lost history can ever pass as current (RULE-17).

Within an incarnation an epoch rises by one at each grant. A new incarnation lifts all of them above `epoch_floor` of
its base. The base is a number of seconds, so it lies above whatever a lost history can have granted from an earlier
base: that would take 2^20 grants in every second between.
"""

from collections.abc import Iterable
from datetime import UTC, datetime
from typing import Final

from contracts.bounds import safe_integer_max

counter_bits: Final = 20
"""Bits of an epoch that count grants; what stands above them is the base."""
ahead_seconds_max: Final = 366 * 86_400
"""How far a base may be ahead of the clock: a name that says more was not made by an authority."""
_name_digits: Final = 32
_base_digits: Final = 10
base_epoch: Final = datetime(2024, 1, 1, tzinfo=UTC)
"""The moment that bases count seconds from."""


def epoch_base(now: datetime, previous: int, abandoned: Iterable[str] = ()) -> int:
    """The base of an incarnation that opens `now`: seconds since 2024, above `previous` and all that are `abandoned`.

    Those are names of incarnations that the database knows nothing of: each says its own base.
    """
    seconds = int((now - base_epoch).total_seconds())
    known = (base_of(name) for name in abandoned)
    return max(seconds, previous + 1, *(base + 1 for base in known if base <= seconds + ahead_seconds_max))


def incarnation_name(base: int, chance: str) -> str:
    """The name of an incarnation: its base, so that whoever meets the name knows it, then hexadecimal chance."""
    digits = f"{base:0{_base_digits}x}"
    if len(digits) > _base_digits or len(chance) < _name_digits:
        raise ValueError(f"base {base} or the {len(chance)} digits of chance do not fit into a name")
    return digits + chance[-(_name_digits - _base_digits) :]


def base_of(name: str) -> int:
    """The base that an incarnation's name says."""
    return int(name[:_base_digits], 16)


def epoch_floor(base: int) -> int:
    """What every epoch is at least in an incarnation with this base; the first incarnation has base 0."""
    return base << counter_bits


def next_epoch(current: int, base: int) -> int:
    """The epoch of the next grant after `current` (0 for none). Raises OverflowError beyond 2^53 − 1."""
    following = max(current, epoch_floor(base)) + 1
    if following > safe_integer_max:
        raise OverflowError(f"epoch {following} is beyond {safe_integer_max}")
    return following
