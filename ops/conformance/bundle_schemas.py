"""The schemas of a bundle as judges of its documents and fixtures."""

from collections.abc import Callable, Iterator
from functools import cache
from typing import Any

from ops.conformance.read_bundle import Bundle, BundleFault, json_of
from ops.conformance.schema_judge import SchemaFault, SchemaJudge


class BundleSchemas:
    """Schemas by their path in the bundle. One that is missing or altered judges nothing, nor do those that need it."""

    def __init__(self, bundle: Bundle, read: Callable[[str], bytes]) -> None:
        """`read` gives a file's bytes and raises BundleFault for one that must not be used."""
        self._schemas: dict[str, Any] = {}
        self._faults: dict[str, BundleFault] = {}
        for path in bundle.schema_files():
            try:
                self._schemas[path] = _object_of(path, read(path))
            except BundleFault as fault:
                self._faults[path] = fault
        self._judge = SchemaJudge(self._schemas)
        self._needed = cache(self._closure)

    def accepts(self, path: str, value: Any) -> bool:
        """Whether the schema at `path` accepts `value`, JSON as `parse_strict` gives it. Raises BundleFault."""
        for file in self._needed(path):
            if file not in self._schemas:
                raise self._faults.get(file) or BundleFault(file, "is missing or no schema of this bundle")
        try:
            return self._judge.accepts(path, value)
        except SchemaFault as fault:
            raise BundleFault(path, f"judges nothing: {fault}") from fault

    def require(self, path: str, value: Any, named: str) -> None:
        """Raise BundleFault when the fixture `named` is refused by the schema at `path`."""
        if not self.accepts(path, value):
            raise BundleFault(named, f"is refused by {path}")

    def _closure(self, path: str) -> tuple[str, ...]:
        """The schema and every file that it refers to, directly or not."""
        folder, _, _ = path.rpartition("/")
        found = [path]
        for file in found:
            for reference in _references(self._schemas.get(file)):
                target = f"{folder}/{reference.partition('#')[0]}"
                if not reference.startswith("#") and target not in found:
                    found.append(target)
        return tuple(found)


def _object_of(path: str, raw: bytes) -> dict[str, Any]:
    schema = json_of(path, raw)
    if isinstance(schema, dict):
        return schema
    raise BundleFault(path, "is no schema: it is not an object")


def _references(part: Any) -> Iterator[str]:
    if isinstance(part, dict):
        for name, value in part.items():
            if name == "$ref" and isinstance(value, str):
                yield value
            else:
                yield from _references(value)
    elif isinstance(part, list):
        for value in part:
            yield from _references(value)
