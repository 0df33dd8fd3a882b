"""Moments that people name on the command line: a time, or how long ago."""

from datetime import UTC, datetime, timedelta

from contracts.timestamps import format_timestamp, parse_timestamp
from ops.command_fault import UsageFault
from ops.keys.read_failures import duration_seconds_max, seconds_back


def moment_called(option: str, text: str) -> str:
    """A moment as the authority writes times: of RFC 3339, or a span such as `90s`, `15m`, `2h`, `7d` before now.

    Raises UsageFault, which names the option.
    """
    back = seconds_back(text)
    try:
        if back is None:
            return format_timestamp(parse_timestamp(text))
        if back <= duration_seconds_max:
            return format_timestamp(datetime.now(UTC) - timedelta(seconds=back))
    except (ValueError, OverflowError) as fault:
        raise UsageFault(
            f"{option} is {text!r}; write a time such as 2026-07-01T12:00:00Z, or a span such as 2h"
        ) from (fault)
    raise UsageFault(f"{option} is {text!r}; a span is at most {duration_seconds_max // 86_400}d")
