"""The protected record of authentication failures: what the wire never tells (TRU-5)."""

import re
from datetime import datetime
from typing import Any, Final

from msgspec import Struct
from psycopg import AsyncConnection

from contracts.timestamps import format_timestamp, parse_timestamp
from services.process.statements import load

seconds_of: Final = {"s": 1, "m": 60, "h": 3_600, "d": 86_400}
"""Units of a duration."""
duration_digits_max: Final = 6
duration_seconds_max: Final = 36_500 * 86_400
"""As long as an authority may be told to keep failures; a calendar reaches no further back than its first year."""

sql = load(__package__)


class FailureLine(Struct, frozen=True, kw_only=True, rename="camel"):
    """One failure; `document_sha256` is the hash of what was received, as hex."""

    failure_id: int
    failed_at: str
    stage: str
    reason: str
    key_id: str | None
    actor_id: str | None
    action_id: str | None
    document_sha256: str


class FailureCount(Struct, frozen=True, kw_only=True, rename="camel"):
    """How often one stage failed for one reason with one key; no key when the stage came before it was known."""

    stage: str
    reason: str
    key_id: str | None
    count: int
    first_at: str
    last_at: str


class FailureReport(Struct, frozen=True, kw_only=True, rename="camel"):
    """Failures since a moment: the most frequent groups and the newest rows, each so many at most."""

    since: str
    counts: tuple[FailureCount, ...]
    failures: tuple[FailureLine, ...]


def seconds_back(text: str) -> int | None:
    """The seconds of a duration such as `90s`, `15m`, `2h` or `7d`; None when the text is none."""
    found = re.fullmatch(rf"([0-9]{{1,{duration_digits_max}}})([smhd])", text)
    return None if found is None else int(found[1]) * seconds_of[found[2]]


async def read_failures(
    connection: AsyncConnection[Any], organization_id: str, since: str, rows_max: int
) -> FailureReport:
    """Failures since a timestamp or for a duration. Raises ValueError for neither, psycopg errors."""
    begin = await _moment(connection, since)
    asked = {"organization_id": organization_id, "since": begin, "rows_max": rows_max}
    counts = await (await connection.execute(sql.count_failures, asked)).fetchall()
    rows = await (await connection.execute(sql.read_failures, asked, binary=True)).fetchall()
    return FailureReport(
        since=format_timestamp(begin),
        counts=tuple(
            FailureCount(
                stage=stage,
                reason=reason,
                key_id=key_id,
                count=count,
                first_at=format_timestamp(first_at),
                last_at=format_timestamp(last_at),
            )
            for stage, reason, key_id, count, first_at, last_at in counts
        ),
        failures=tuple(
            FailureLine(
                failure_id=failure_id,
                failed_at=format_timestamp(failed_at),
                stage=stage,
                reason=reason,
                key_id=key_id,
                actor_id=actor_id,
                action_id=action_id,
                document_sha256=digest.hex(),
            )
            for failure_id, failed_at, stage, reason, key_id, actor_id, action_id, digest in rows
        ),
    )


async def _moment(connection: AsyncConnection[Any], since: str) -> datetime:
    back = seconds_back(since)
    if back is None:
        return parse_timestamp(since)
    [(moment,)] = await (await connection.execute(sql.read_moment, {"seconds_back": back})).fetchall()
    assert isinstance(moment, datetime)  # noqa: S101 - the statement's one column
    return moment
