"""RFC 3339 timestamps: text kept as received, compared exactly at any precision.

A timestamp stays the text that was signed. `instant` turns it into an exactly comparable point of time however many
fraction digits it has; `datetime` values are for what needs no more than microseconds.
"""

import re
from datetime import UTC, datetime, timedelta
from typing import Annotated, Final, NamedTuple

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

_timestamp: Final = re.compile(timestamp_pattern, re.ASCII)
_date_end: Final = len("0000-00-00")
_seconds_end: Final = len("0000-00-00T00:00:00")
_offset_length: Final = len("+00:00")
_epoch: Final = datetime(1970, 1, 1, tzinfo=UTC)
_day_seconds: Final = 86_400
_first_second: Final = (datetime(1, 1, 1, tzinfo=UTC) - _epoch) // timedelta(seconds=1)
_last_second: Final = (datetime(9999, 12, 31, 23, 59, 59, tzinfo=UTC) - _epoch) // timedelta(seconds=1)


class Instant(NamedTuple):
    """A point of time: whole seconds since 1970-01-01T00:00:00Z and the fraction's digits without trailing zeros.

    Instants compare and hash exactly: fraction digits compare as text, which is their numeric order.
    """

    seconds: int
    fraction: str

    def to_datetime(self) -> datetime:
        """In UTC, cut (never rounded up) to microseconds. Raises OverflowError outside the years 1 to 9999 in UTC."""
        return _epoch + timedelta(seconds=self.seconds, microseconds=int(self.fraction[:6].ljust(6, "0")))

    @property
    def order_text(self) -> str:
        """Text that orders exactly as the instant does: its second in UTC as RFC 3339 writes it, then the fraction.

        Only an offset leads out of the years 1 to 9999, by less than a day: `-` and `~` come before and after digits.
        """
        if self.seconds < _first_second:
            return f"-{self.seconds - _first_second + _day_seconds:05}{self.fraction}"
        if self.seconds > _last_second:
            return f"~{self.seconds - _last_second:05}{self.fraction}"
        return (_epoch + timedelta(seconds=self.seconds)).isoformat()[:_seconds_end] + self.fraction


def instant(text: str) -> Instant:
    """The exact point of time of a timestamp. Raises ValueError when the text is none."""
    if not _timestamp.match(text):
        raise ValueError(f"{text[:80]!r} is not an RFC 3339 timestamp of the years 0001 to 9999")
    since_epoch = datetime.fromisoformat(text[:_seconds_end] + "+00:00") - _epoch
    seconds = since_epoch.days * _day_seconds + since_epoch.seconds
    if text[-1] in "Zz":
        return Instant(seconds, text[_seconds_end + 1 : -1].rstrip("0"))
    offset = int(text[-5:-3]) * 3_600 + int(text[-2:]) * 60
    seconds += offset if text[-_offset_length] == "-" else -offset
    return Instant(seconds, text[_seconds_end + 1 : -_offset_length].rstrip("0"))


def order_text_in_utc(text: str) -> str:
    """`instant(text).order_text` of what is known to be a timestamp that ends in `Z` or `z`; else it means nothing."""
    return text[:_date_end] + "T" + text[_date_end + 1 : _seconds_end] + text[_seconds_end + 1 : -1].rstrip("0")


def format_timestamp(moment: datetime) -> str:
    """Our own spelling, `YYYY-MM-DDTHH:MM:SS.ffffffZ`, of an aware datetime. Raises ValueError for a naive one."""
    if moment.tzinfo is None:
        raise ValueError(f"{moment.isoformat()} has no time zone")
    return moment.astimezone(UTC).replace(tzinfo=None).isoformat(timespec="microseconds") + "Z"


def parse_timestamp(text: str) -> datetime:
    """A timestamp in UTC, cut to microseconds. Raises ValueError when the text is none, OverflowError at the edges."""
    return instant(text).to_datetime()
