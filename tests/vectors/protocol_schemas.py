"""The protocol's JSON Schemas in tests: an independent judge of what our Structs accept and refuse."""

import json
from functools import cache
from pathlib import Path
from typing import Any, Final

import pytest

from ops.conformance.schema_judge import SchemaJudge, ecma, is_date_time, is_uri

__all__ = ["accepts", "bundle", "ecma", "is_date_time", "is_uri", "needs_bundle", "schema", "schema_files", "validator"]

bundle: Final = Path(__file__).parents[3] / "shared" / "protocol"
needs_bundle: Final = pytest.mark.skipif(
    not bundle.is_dir(), reason=f"the protocol's schemas and vectors are not at {bundle}"
)


@cache
def schema(name: str) -> dict[str, Any]:
    """The schema document `<name>.schema.json`."""
    loaded: dict[str, Any] = json.loads((bundle / "schemas" / f"{name}.schema.json").read_text())
    return loaded


@cache
def schema_files() -> frozenset[str]:
    """Names of all schemas in the bundle."""
    return frozenset(path.name.removesuffix(".schema.json") for path in (bundle / "schemas").glob("*.schema.json"))


@cache
def _judge() -> SchemaJudge:
    return SchemaJudge({name: schema(name) for name in schema_files()})


def validator(name: str) -> Any:
    """The judge for one schema."""
    return _judge().validator(name)


def accepts(name: str, value: Any) -> bool:
    """Whether the schema accepts `value`."""
    return _judge().accepts(name, value)
