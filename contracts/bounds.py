"""Bounds that more than one part relies on, each with its unit. A bound used by one part stands in that part."""

from typing import Final

command_bytes_max: Final = 256 * 1024
"""Bytes of one Command as received; refused at the door before parsing."""

event_bytes_max: Final = 512 * 1024
"""Bytes of one signed Event; below the broker's `max_payload` of 1 MiB."""

request_bytes_max: Final = 64 * 1024
"""Bytes of one signed read request."""

nesting_depth_max: Final = 128
"""Levels of arrays and objects in one document."""

number_digits_max: Final = 320
"""Characters of one integer literal; anything longer is beyond binary64 anyway."""

replay_page_bytes_max: Final = 512 * 1024
"""Event bytes in one replay page (one larger Event still travels alone)."""

replay_page_events_max: Final = 2_000
"""Events in one replay page."""

freshness_past_seconds: Final = 300
"""How old a new Command's `issuedAt` may be on the database clock."""

freshness_future_seconds: Final = 60
"""How far ahead of the database clock a new Command's `issuedAt` may be."""

lease_seconds_max: Final = 31_536_000
"""The longest lease or expiry that a Command may ask for."""

safe_integer_max: Final = 2**53 - 1
"""The largest integer that binary64 holds exactly with all below it."""
