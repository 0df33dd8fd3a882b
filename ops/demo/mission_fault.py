"""Faults of a Mission file, each with its line and its remedy."""

import difflib
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

import msgspec
from msgspec import Struct

from ops.demo.mission_tables import AgentTable, Criterion, MissionFile, MissionTable, WorkTable
from ops.demo.toml_lines import KeyPath


class MissionFileFault(Exception):
    """A Mission file that cannot be used. The text reads `file:line: problem. Remedy`."""

    def __init__(self, path: Path, line: int, problem: str, remedy: str) -> None:
        """Keep the parts for `--json`."""
        super().__init__(f"{path}:{line}: {problem}. {remedy}")
        self.path, self.line, self.problem, self.remedy = path, line, problem, remedy


class Source:
    """Faults of one file, by where the thing stands."""

    def __init__(self, path: Path, lines: Mapping[KeyPath, int]) -> None:
        self.path = path
        self._lines = lines

    def fault(self, where: KeyPath, problem: str, remedy: str) -> MissionFileFault:
        """A fault at the nearest known line of `where`."""
        while where and where not in self._lines:
            where = where[:-1]
        return MissionFileFault(self.path, self._lines.get(where, 1), problem, remedy)

    def shape_fault(self, message: str, tree: Any) -> MissionFileFault:
        """The fault behind a message of the decoder: `… - at `$.work[0].job``."""
        text, _, place = message.partition(" - at `$")
        where = key_path(place.rstrip("`"))
        named = named_key.search(text)
        if named is None:
            value = _value_at(tree, where)
            shown = f"{_spelled(where)} is {value!r}"[:200]
            return self.fault(where, f"{shown}: {text[:1].lower()}{text[1:]}", "Correct the value")
        key, table = named.group(1), _spelled(where) or "the top of the file"
        allowed = _allowed_keys(where)
        if "missing" in text:
            return self.fault(where, f"{table} lacks the key {key!r}", f"Add {key} = …")
        close = difflib.get_close_matches(key, allowed, n=1)
        hint = f"Did you mean {close[0]!r}?" if close else "Remove it."
        return self.fault((*where, key), f"unknown key {key!r} in {table}", f"{hint} Known keys: {', '.join(allowed)}")


named_key: Final = re.compile(r"(?:unknown|missing required) field `([^`]*)`")
_path_part: Final = re.compile(r"\.([^.\[\]]+)|\[(\d+)\]|\[\.\.\.\]")


def key_path(place: str) -> KeyPath:
    """`.work[0].job` as keys."""
    return tuple(
        match.group(1) if match.group(1) is not None else int(match.group(2))
        for match in _path_part.finditer(place)
        if match.group(1) is not None or match.group(2) is not None
    )


def _spelled(where: KeyPath) -> str:
    """A path as a person writes it."""
    parts = [f"[{part}]" if isinstance(part, int) else f".{part}" for part in where]
    return "".join(parts).removeprefix(".")


def _value_at(tree: Any, where: KeyPath) -> Any:
    """The value at a path that the decoder named, or None where a name was left out of it."""
    for part in where:
        try:
            tree = tree[part]
        except (KeyError, IndexError, TypeError):
            return None
    return tree


def _allowed_keys(where: KeyPath) -> list[str]:
    """The keys of the table at this place."""
    tables: dict[tuple[str, ...], type[Struct]] = {
        (): MissionFile,
        ("mission",): MissionTable,
        ("mission", "criterion"): Criterion,
        ("agent",): AgentTable,
        ("work",): WorkTable,
        ("work", "criterion"): Criterion,
    }
    shape = tables[tuple(part for part in where if isinstance(part, str))]
    return [field.encode_name for field in msgspec.structs.fields(shape)]
