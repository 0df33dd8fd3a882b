"""When a Worker must renew an execution lease, and when it must stop (LSE-1).

Only the authority's clock decides expiry. The Worker never compares its wall clock with a lease: it counts from the
moment *before* it sent the request, which is earlier than the moment the authority started to count, so it stops
before the authority would call the lease expired whatever either wall clock says. The clock counts through suspend.
"""

import time
from typing import Final

from msgspec import Struct

clock_drift_max: Final = 0.005
"""Greatest assumed difference in rate between this clock and the authority's, as a fraction."""

margin_seconds_max: Final = 0.5
margin_fraction_max: Final = 0.1
"""Safety margin before the deadline: the smaller of a fixed time and a fraction of the lease."""


class LeaseDeadline(Struct, frozen=True):
    """Readings of `lease_clock()`: renew from `renew_at` on, do nothing under the lease from `stop_at` on."""

    renew_at: float
    stop_at: float


def lease_clock() -> float:
    """Seconds on a clock that never steps back and counts while the machine is suspended."""
    return time.clock_gettime(time.CLOCK_BOOTTIME)


def lease_deadline(sent_at: float, lease_seconds: float) -> LeaseDeadline:
    """Deadlines of a lease of this length that was asked for at `sent_at` (a reading of `lease_clock`)."""
    margin = min(margin_seconds_max, lease_seconds * margin_fraction_max)
    return LeaseDeadline(
        renew_at=sent_at + lease_seconds / 3,
        stop_at=sent_at + lease_seconds * (1 - clock_drift_max) - margin,
    )
