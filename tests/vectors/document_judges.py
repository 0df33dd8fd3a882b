"""Three judges of one document: our Struct, the protocol's schema, and the schema written from the Struct.

A subject is a document kind, or a part of `common.schema.json` as `common/<part>`. Schemas are judged twice over: by
functions compiled from them once, which are fast enough for every instance, and by jsonschema, which is slow and has
the last word on whether the compiled ones are right.
"""

from functools import cache
from typing import Any, Final, Literal

from contracts.documents.json_schema import json_schema
from contracts.documents.reading import read
from contracts.documents.schemas import common, common_parts, read_document, schema_names
from ops.conformance.schema_judge import SchemaJudge
from tests.vectors.compiled_schemas import Accepts, compiled
from tests.vectors.protocol_schemas import schema

Origin = Literal["given", "written"]
"""Which schema: the protocol's, or ours."""

subjects: Final = {
    **{name: (name,) for name in sorted(schema_names)},
    common: tuple(f"{common}/{part}" for part in common_parts),
}
"""Every schema with what is judged by it."""


def read_subject(subject: str, value: Any) -> Any:
    """`value` as our type reads it. Raises msgspec.ValidationError."""
    _, _, part = subject.partition("/")
    return read(value, common_parts[part]) if part else read_document(subject, value)


@cache
def schema_of(subject: str, origin: Origin) -> dict[str, Any]:
    """The schema of a subject with every reference replaced by its target."""
    name, _, part = subject.partition("/")
    files = {each: schema(each) for each in (*schema_names, common)} if origin == "given" else {name: json_schema(name)}
    placed: dict[str, Any] = _in_place(files, name, files[name]["$defs"][part] if part else files[name])
    return placed


def _in_place(files: dict[str, dict[str, Any]], name: str, part: Any) -> Any:
    """A sub-schema of the file `name` with the targets of its references where they are referred to."""
    if isinstance(part, list):
        return [_in_place(files, name, item) for item in part]
    if not isinstance(part, dict):
        return part
    inner = {
        key: _in_place(files, name, value)
        for key, value in part.items()
        if key not in {"$ref", "$defs", "$id", "$schema", "$comment"}
    }
    if "$ref" not in part:
        return inner
    target, _, pointer = part["$ref"].partition("#")
    file = target.removesuffix(".schema.json") or name
    found: Any = files[file]
    for step in pointer.split("/")[1:]:
        found = found[step]
    placed = _in_place(files, file, found)
    return {"allOf": [placed], **inner} if inner else placed


@cache
def fast_judge(subject: str, origin: Origin) -> Accepts:
    """Whether a schema accepts a value, compiled."""
    return compiled(schema_of(subject, origin))


@cache
def slow_judge(subject: str, origin: Origin) -> Any:
    """The same by jsonschema: its validator for the schema."""
    return SchemaJudge({subject: schema_of(subject, origin)}).validator(subject)
