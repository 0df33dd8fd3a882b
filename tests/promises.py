"""Reads `tests/PROMISES.md`: the catalogue of what Weavehold keeps, and which tests prove it.

python -m tests.promises          print the table
"""

import ast
import re
import sys
from pathlib import Path

from msgspec import Struct

root = Path(__file__).parents[1]
catalogue = root / "tests" / "PROMISES.md"
_row = re.compile(r"^\| (?P<ids>[A-Z0-9-, …]+?) \| (?P<status>kept|partly|open) \| (?P<text>.+?) \|(?P<tests>.*)\|$")
_test = re.compile(r"`(tests/[\w/]+\.py)::(\w+)`")


class Promise(Struct, frozen=True):
    """One promise: row IDs, status (`kept`, `partly` or `open`), our words, and (file, function) of its tests."""

    ids: tuple[str, ...]
    status: str
    text: str
    tests: tuple[tuple[str, str], ...]


def read_promises() -> list[Promise]:
    """All promises of the catalogue, in order."""
    promises = []
    for line in catalogue.read_text().splitlines():
        if found := _row.match(line):
            ids = tuple(part.strip() for part in found["ids"].split(","))
            promises.append(Promise(ids, found["status"], found["text"], tuple(_test.findall(found["tests"]))))
    return promises


def docstring_of(file: str, function: str) -> str | None:
    """Name and docstring of a test function, with those of its class and module; None when there is no such test."""
    path = root / file
    if not path.exists():
        return None
    tree = ast.parse(path.read_text())
    around = ast.get_docstring(tree) or ""
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and node.name == function:
            return f"{function} {ast.get_docstring(node) or ''} {around}"
    return None


def main() -> None:
    """Print the catalogue as a table."""
    promises = read_promises()
    for promise in promises:
        sys.stdout.write(f"{promise.status:7} {', '.join(promise.ids):32} {promise.text}\n")
        for file, function in promise.tests:
            sys.stdout.write(f"{'':40} · {file}::{function}\n")
    kept = sum(promise.status == "kept" for promise in promises)
    sys.stdout.write(f"\n{kept} kept, {len(promises) - kept} not yet or only in part\n")


if __name__ == "__main__":
    main()
