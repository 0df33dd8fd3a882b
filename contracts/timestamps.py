"""RFC 3339 timestamps: text kept as received, compared exactly at any precision."""

from typing import Annotated, Final

from msgspec import Meta

_YEAR: Final = r"(?!0000)[0-9]{4}"
_LEAP: Final = r"(?:[0-9]{2}(?:0[48]|[2468][048]|[13579][26])|(?:[02468][048]|[13579][26])00)"
_DATE: Final = (
    rf"(?:{_YEAR}-(?:(?:0[13578]|1[02])-(?:0[1-9]|[12][0-9]|3[01])|(?:0[469]|11)-(?:0[1-9]|[12][0-9]|30)"
    rf"|02-(?:0[1-9]|1[0-9]|2[0-8]))|(?!0000){_LEAP}-02-29)"
)
timestamp_pattern: Final = (
    rf"\A{_DATE}[Tt](?:[01][0-9]|2[0-3]):[0-5][0-9]:[0-5][0-9](?:\.[0-9]+)?"
    r"(?:[Zz]|(?!-00:00)[+-](?:[01][0-9]|2[0-3]):[0-5][0-9])\Z"
)
"""RFC 3339 date-time of the years 0001–9999: real days only, no leap second, no unknown local offset `-00:00`."""

Timestamp = Annotated[str, Meta(pattern=timestamp_pattern)]
