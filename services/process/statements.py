"""SQL lives in `.sql` files beside its caller: `sql/<name>.sql` in the package, one statement per file.

What one kind of database says in its own way lies in a folder below, as `sql/<kind>/<name>.sql`.
"""

from collections.abc import Iterator, Mapping
from functools import cache
from importlib.resources import files
from importlib.resources.abc import Traversable
from typing import LiteralString


class StatementFault(Exception):
    """A package has no statements, or not the one asked for."""


class Statements(Mapping[str, LiteralString]):
    """The statements of one package by file name, as `statements["lock_shard"]` or `statements.lock_shard`."""

    def __init__(self, package: str, texts: Mapping[str, LiteralString]) -> None:
        """Hold the texts of `package`."""
        self._package = package
        self._texts = dict(texts)

    def __getitem__(self, name: str) -> LiteralString:
        """The statement of `sql/<name>.sql`. Raises `StatementFault` for an unknown name."""
        try:
            return self._texts[name]
        except KeyError:
            raise StatementFault(f"{self._package} has no sql/{name}.sql") from None

    def __getattr__(self, name: str) -> LiteralString:
        """The statement of `sql/<name>.sql`."""
        if name.startswith("_"):
            raise AttributeError(name)
        return self[name]

    def __iter__(self) -> Iterator[str]:
        """The names."""
        return iter(self._texts)

    def __len__(self) -> int:
        """How many statements the package has."""
        return len(self._texts)


@cache
def load(package: str | None, kind: str | None = None) -> Statements:
    """All statements of a package, called as `load(__package__)`, with those in `sql/<kind>/` for a kind.

    Raises `StatementFault` when a folder is not there or holds no statement.
    """
    folder = files(package or "") / "sql"
    texts = _texts(package, folder)
    if kind is not None:
        texts |= _texts(package, folder / kind)
    return Statements(package or "", texts)


def _texts(package: str | None, folder: Traversable) -> dict[str, LiteralString]:
    texts: dict[str, LiteralString] = (
        {
            entry.name.removesuffix(".sql"): entry.read_text(encoding="utf-8").strip().removesuffix(";")
            for entry in folder.iterdir()
            if entry.name.endswith(".sql")
        }
        if folder.is_dir()
        else {}
    )
    if not texts:
        raise StatementFault(f"{package} has no folder {folder.name}/ with .sql files")
    return texts
