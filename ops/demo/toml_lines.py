"""Where each key of a TOML text stands, so that a fault can name its line.

The parser of the standard library checks the text but forgets positions; this reads the positions of a text that it
has already accepted. Paths are keys and list indices from the root, as in `("work", 0, "job", "steps")`.
"""

import re
from collections import Counter
from typing import Final

KeyPath = tuple[str | int, ...]

_KEY: Final = re.compile(r"""\s*(?:"(?P<basic>(?:[^"\\]|\\.)*)"|'(?P<literal>[^']*)'|(?P<bare>[A-Za-z0-9_-]+))\s*""")
_STRING: Final = re.compile(r'"""(?:[^\\]|\\.)*?"{3,5}|\'\'\'.*?\'{3,5}|"(?:[^"\\]|\\.)*"|\'[^\']*\'', re.DOTALL)
_SPACE: Final = re.compile(r"(?:\s|#[^\n]*)*")
_PLAIN: Final = re.compile(r"[^,\]}\n#]*")


def key_lines(text: str) -> dict[KeyPath, int]:
    """Line numbers from 1 of every key and list item of a valid TOML text."""
    return _Positions(text).read()


class _Positions:
    """One pass over the text."""

    def __init__(self, text: str) -> None:
        self._text = text
        self._at = 0
        self._lines: dict[KeyPath, int] = {}
        self._tables: Counter[KeyPath] = Counter()

    def read(self) -> dict[KeyPath, int]:
        """Statement by statement."""
        table: KeyPath = ()
        self._skip(_SPACE)
        while self._at < len(self._text):
            if self._text[self._at] == "[":
                table = self._header()
            else:
                self._entry(table)
            self._skip(_SPACE)
        return self._lines

    def _skip(self, pattern: re.Pattern[str]) -> None:
        match = pattern.match(self._text, self._at)
        if match:
            self._at = match.end()

    def _note(self, path: KeyPath) -> None:
        self._lines.setdefault(path, self._text.count("\n", 0, self._at) + 1)

    def _keys(self) -> tuple[str, ...]:
        """A dotted key."""
        parts: list[str] = []
        while match := _KEY.match(self._text, self._at):
            parts.append(next(part for part in match.groups() if part is not None))
            self._at = match.end()
            if self._text[self._at : self._at + 1] != ".":
                break
            self._at += 1
        return tuple(parts)

    def _header(self) -> KeyPath:
        """`[table]` or `[[list of tables]]`; the path gets the index of each list that it goes through."""
        start, listed = self._at, self._text.startswith("[[", self._at)
        self._at += 2 if listed else 1
        path: KeyPath = ()
        keys = self._keys()
        for number, key in enumerate(keys, start=1):
            path = (*path, key)
            if listed and number == len(keys):
                self._tables[path] += 1
            if self._tables[path]:
                path = (*path, self._tables[path] - 1)
        self._at, end = start, self._at + (2 if listed else 1)
        for length in range(1, len(path) + 1):
            self._note(path[:length])
        self._at = end
        return path

    def _entry(self, table: KeyPath) -> None:
        """`key = value`."""
        start = self._at
        path = (*table, *self._keys())
        self._at, end = start, self._at
        self._note(path)
        self._at = end + 1
        self._value(path)

    def _value(self, path: KeyPath) -> None:
        """Skip a value, noting what is inside lists and inline tables."""
        self._skip(_SPACE)
        opening = self._text[self._at : self._at + 1]
        if opening == "[":
            self._members("]", path, listed=True)
        elif opening == "{":
            self._members("}", path, listed=False)
        elif opening in {'"', "'"}:
            self._skip(_STRING)
        else:
            self._skip(_PLAIN)

    def _members(self, closing: str, path: KeyPath, *, listed: bool) -> None:
        self._at += 1
        index = 0
        self._skip(_SPACE)
        while self._text[self._at] != closing:
            if listed:
                self._note((*path, index))
                self._value((*path, index))
                index += 1
            else:
                self._entry(path)
            self._skip(_SPACE)
            if self._text[self._at] == ",":
                self._at += 1
                self._skip(_SPACE)
        self._at += 1
