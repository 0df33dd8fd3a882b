"""Timestamps: exact order at any precision, text kept, the calendar checked."""

from datetime import UTC, datetime, timedelta, timezone

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from contracts.timestamps import Timestamp, format_timestamp, instant, order_text_in_utc, parse_timestamp

quick = settings(max_examples=200, deadline=None)


@pytest.mark.parametrize(
    "text",
    [
        "2026-07-15T08:00:00Z",
        "2026-07-15t08:00:00z",
        "2026-07-15T08:00:00.123456789012Z",
        "2026-07-15T23:59:59.9+23:59",
        "2026-07-15T00:00:00-23:59",
        "2026-07-15T08:00:00+00:00",
        "2024-02-29T00:00:00Z",
        "2000-02-29T00:00:00Z",
        "0001-01-01T00:00:00Z",
        "0001-01-01T00:00:00+23:59",
        "9999-12-31T23:59:59.999999999Z",
        "9999-12-31T23:59:59-23:59",
    ],
)
def test_a_timestamp_is_taken_as_it_is(text: str) -> None:
    """TRU-3: the years 0001 to 9999, any number of fraction digits, the text as received."""
    assert msgspec.convert(text, Timestamp) == text
    instant(text)


@pytest.mark.parametrize(
    "text",
    [
        "0000-01-01T00:00:00Z",
        "0000-02-29T00:00:00Z",
        "10000-01-01T00:00:00Z",
        "2026-07-15T08:00:60Z",
        "2026-06-30T23:59:60Z",
        "2026-07-15T24:00:00Z",
        "2026-07-15T08:60:00Z",
        "2026-07-15T08:00:00-00:00",
        "2026-07-15T08:00:00+24:00",
        "2026-07-15T08:00:00+08:60",
        "2026-07-15T08:00:00+0800",
        "2026-07-15T08:00:00",
        "2026-07-15T08:00:00.Z",
        "2026-07-15T08:00Z",
        "2026-07-15 08:00:00Z",
        "2026-7-15T08:00:00Z",
        "2026-02-29T00:00:00Z",
        "1900-02-29T00:00:00Z",
        "2026-04-31T00:00:00Z",
        "2026-13-01T00:00:00Z",
        "2026-00-01T00:00:00Z",
        "2026-01-00T00:00:00Z",
        "2026-W29-3T08:00:00Z",
        "2026-07-15T08:00:00Z\n",
        " 2026-07-15T08:00:00Z",
        "2026-07-15T08:00:00,5Z",
        "٢٠٢٦-07-15T08:00:00Z",
        "2026-07-15T08:00:00.١Z",
        "",
    ],
)
def test_what_is_no_timestamp_is_refused(text: str) -> None:
    """TRU-3: year 0000, second 60, -00:00, days that no calendar has."""
    with pytest.raises(msgspec.ValidationError):
        msgspec.convert(text, Timestamp)
    with pytest.raises(ValueError, match="RFC 3339"):
        instant(text)


@pytest.mark.parametrize(
    ("earlier", "later"),
    [
        ("2026-07-15T00:00:00.1234560000000000001Z", "2026-07-15T00:00:00.1234560000000000002Z"),
        ("2026-07-15T00:00:00.1Z", "2026-07-15T00:00:00.12Z"),
        ("2026-07-15T00:00:00.09Z", "2026-07-15T00:00:00.1Z"),
        ("2026-07-15T00:00:00Z", "2026-07-15T00:00:00.000000000000000000000001Z"),
        ("2026-07-15T00:00:00.999999999999Z", "2026-07-15T00:00:01Z"),
        ("0001-01-01T00:00:00+23:59", "0001-01-01T00:00:00Z"),
        ("9999-12-31T23:59:59Z", "9999-12-31T23:59:59-00:01"),
        ("2026-07-15T08:00:00+08:01", "2026-07-15T00:00:00Z"),
    ],
)
def test_order_is_exact(earlier: str, later: str) -> None:
    """TRU-3, TRU-2: compared exactly, also beyond microseconds and at the edges of the calendar."""
    assert instant(earlier) < instant(later)
    assert instant(earlier) != instant(later)


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("2026-07-15T08:00:00+08:00", "2026-07-15T00:00:00Z"),
        ("2026-07-15T00:00:00.500Z", "2026-07-15t00:00:00.5z"),
        ("2026-07-15T00:00:00.000Z", "2026-07-15T00:00:00Z"),
        ("2026-07-14T00:01:00-23:59", "2026-07-15T00:00:00Z"),
    ],
)
def test_one_instant_has_many_texts(one: str, other: str) -> None:
    """TRU-3."""
    assert instant(one) == instant(other)
    assert hash(instant(one)) == hash(instant(other))


moments = st.datetimes(datetime(1, 1, 2), datetime(9999, 12, 30))  # noqa: DTZ001 - hypothesis adds the zone
zones = st.integers(-23 * 60 - 59, 23 * 60 + 59).map(lambda minutes: timezone(timedelta(minutes=minutes)))


written = st.from_regex(
    r"(?:0001-01-01|0001-01-02|2026-07-15|9999-12-31)[Tt](?:00|23):[05]9:5[09](?:\.[09]{1,3}|\.000001)?"
    r"(?:[Zz]|[+-](?:00|01|23):[0-5]9)",
    fullmatch=True,
)


@quick
@given(written, written)
def test_order_texts_order_as_the_instants_do(one: str, other: str) -> None:
    """TRU-2, TRU-3: the short cut of key validity is exact, also where an offset leads out of the calendar."""
    first, second = instant(one), instant(other)
    assert (first.order_text < second.order_text) == (first < second)
    assert (first.order_text == second.order_text) == (first == second)
    for text in (one, other):
        if text[-1] in "Zz":
            assert order_text_in_utc(text) == instant(text).order_text


@quick
@given(moments, moments, zones)
def test_order_is_that_of_the_moments(first: datetime, second: datetime, zone: timezone) -> None:
    """TRU-3: whatever the offset in which a moment is written."""
    one = first.replace(tzinfo=UTC)
    other = second.replace(tzinfo=UTC)
    shifted = other.astimezone(zone).isoformat()
    written = shifted.replace("-00:00", "Z") if shifted.endswith("-00:00") else shifted
    assert (instant(format_timestamp(one)) < instant(written)) == (one < other)
    assert (instant(format_timestamp(one)) == instant(written)) == (one == other)


@quick
@given(moments, zones)
def test_formatting_round_trips(moment: datetime, zone: timezone) -> None:
    """TRU-3: our own spelling has six fraction digits and an uppercase Z."""
    aware = moment.replace(tzinfo=UTC).astimezone(zone)
    text = format_timestamp(aware)
    assert len(text) == len("2026-07-15T08:00:00.000000Z")
    assert text.endswith("Z")
    assert parse_timestamp(text) == aware


def test_more_than_microseconds_are_cut_not_rounded() -> None:
    """TRU-3: a `datetime` is never later than the text that it stands for."""
    assert parse_timestamp("2026-07-15T08:00:00.9999999Z") == datetime(2026, 7, 15, 8, 0, 0, 999_999, tzinfo=UTC)
    assert parse_timestamp("2026-07-15T08:00:00.5+08:00") == datetime(2026, 7, 15, 0, 0, 0, 500_000, tzinfo=UTC)


def test_a_naive_datetime_has_no_timestamp() -> None:
    """TRU-3."""
    with pytest.raises(ValueError, match="no time zone"):
        format_timestamp(datetime(2026, 7, 15))  # noqa: DTZ001 - the point of the test


def test_moments_outside_the_calendar_have_no_datetime() -> None:
    """TRU-3: they are instants all the same."""
    with pytest.raises(OverflowError):
        parse_timestamp("0001-01-01T00:00:00+00:01")
