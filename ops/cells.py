"""Text for people, in tables and lines: what came from outside is shown, never obeyed."""

from datetime import timedelta
from typing import Final

from rich.text import Text

cell_characters_max: Final = 200
"""Characters of one cell; the rest is left to `--json`."""


def cell(value: object) -> Text:
    """A value as a table's cell: as `line`, and bounded. None is an empty cell."""
    text = "" if value is None else str(value)
    return line(text if len(text) <= cell_characters_max else text[: cell_characters_max - 1] + "…")


def line(text: str) -> Text:
    """Plain text without markup and control characters; a narrow terminal folds it and cuts nothing off."""
    return Text("".join(each if each.isprintable() else "\ufffd" for each in text), overflow="fold")


def time_left(seconds: float) -> str:
    """A span for people: `4m 10s left`, or how long ago it ended."""
    span = _span(abs(seconds))
    return f"{span} left" if seconds > 0 else f"ended {span} ago"


def _span(seconds: float) -> str:
    whole = timedelta(seconds=round(seconds))
    hours, rest = divmod(whole.seconds, 3_600)
    minutes, left = divmod(rest, 60)
    parts = [(whole.days, "d"), (hours, "h"), (minutes, "m"), (left, "s")]
    shown = [f"{amount}{unit}" for amount, unit in parts if amount]
    return " ".join(shown[:2]) or "0s"
