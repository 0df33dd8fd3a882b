"""The JSON Schemas (Draft 2020-12) of our documents, written from their Structs and the conditions declared there.

A written schema says all that reading a document checks: it accepts and refuses what the Struct does, given a
validator that asserts formats or not, for URIs and times have their whole pattern too. Patterns are ECMAScript's.
"""

import re
from collections.abc import Iterable, Mapping
from enum import Enum
from types import MappingProxyType
from typing import Any, Final, get_args

from msgspec import inspect

from contracts.documents.common import Document
from contracts.documents.conditions import Excludes, Named, SomeOf, Unique, Value, When, Where, schema_name
from contracts.documents.schemas import common, common_parts, document_types, websocket_frame
from contracts.documents.websocket_frame import HelloFrame, PlainFrame
from contracts.identifiers import Uri, uri_pattern
from contracts.timestamps import timestamp_pattern

Schema = dict[str, Any]

dialect: Final = "https://json-schema.org/draft/2020-12/schema"
kinds: Final = (*sorted({*document_types, common, websocket_frame}),)
"""Every kind that has a schema; `common` has the parts that the others share, and no document."""

_named_types: Final[Mapping[str, str]] = MappingProxyType(
    {repr(inspect.type_info(part)): name for name, part in {**common_parts, "uri": Uri}.items()}
)
"""Types that are written once, as a definition of this name."""
_formats: Final = ((timestamp_pattern, "date-time"), (uri_pattern, "uri"))


def json_schema(kind: str) -> Schema:
    """The schema of one of `kinds`, self-contained. Raises KeyError for another name."""
    writer = SchemaWriter()
    if kind == common:
        about: Schema = {"description": "Parts that the documents share."}
        for part in common_parts.values():
            writer.schema_of(inspect.type_info(part))
    elif kind == websocket_frame:
        frames = [inspect.type_info(frame) for union in (HelloFrame, PlainFrame) for frame in get_args(union)]
        about = {"description": "One frame.", "oneOf": [writer.schema_of(frame) for frame in frames]}
    else:
        about = writer.object_of(inspect.type_info(document_types[kind]))
    return _whole(f"Weavehold {kind.replace('-', ' ')}", about, writer)


def struct_schema(title: str, shape: type[Document]) -> Schema:
    """The schema of a Struct that is no kind of document by itself, such as a payload; self-contained."""
    writer = SchemaWriter()
    return _whole(title, writer.object_of(inspect.type_info(shape)), writer)


def _whole(title: str, about: Schema, writer: "SchemaWriter") -> Schema:
    return {"$schema": dialect, "title": title, **about, "$defs": dict(sorted(writer.definitions.items()))}


class SchemaWriter:
    """Writes types as schemas and gathers the definitions that they refer to."""

    def __init__(self) -> None:
        self.definitions: dict[str, Schema] = {}

    def schema_of(self, shape: inspect.Type) -> Schema:
        """A type where it is used: a reference when the type has a name, else the schema itself."""
        if isinstance(shape, inspect.StructType):
            name = shape.cls.__name__[0].lower() + shape.cls.__name__[1:]
        else:
            name = _named_types.get(repr(shape), "")
        if not name:
            return self._written(shape)
        if name not in self.definitions:
            self.definitions[name] = {}
            self.definitions[name] = self._written(shape)
        return {"$ref": f"#/$defs/{name}"}

    def _written(self, shape: inspect.Type) -> Schema:
        match shape:
            case inspect.StructType():
                return self.object_of(shape)
            case inspect.VarTupleType(item_type=item, min_length=least):
                return _present(type="array", items=self.schema_of(item), minItems=least)
            case inspect.DictType(key_type=inspect.StrType(pattern=None), value_type=inspect.AnyType()):
                return {"type": "object"}
            case inspect.DictType(key_type=names, value_type=values):
                of_names, of_values = self.schema_of(names), self.schema_of(values)
                return {"type": "object", "propertyNames": of_names, "additionalProperties": of_values}
            case inspect.UnionType(types=options):
                return self._union(options)
            case _:
                return _scalar(shape)

    def _union(self, options: Iterable[inspect.Type]) -> Schema:
        written = [self.schema_of(option) for option in options]
        # Of an integer and a number with equal bounds the number says everything.
        if [option.get("type") for option in written] == ["integer", "number"]:
            integer, number = written
            if {**integer, "type": "number"} == number:
                return number
        return {"anyOf": written}

    def object_of(self, shape: inspect.Type) -> Schema:
        """A Struct as a closed object with its conditions. Raises TypeError when it checks what it does not declare."""
        if not isinstance(shape, inspect.StructType) or not issubclass(shape.cls, Document):
            raise TypeError(f"{shape} is no document")
        document = shape.cls
        if "__post_init__" in vars(document) and not document.rules:
            raise TypeError(f"{document.__name__} has a __post_init__ of its own; declare its conditions in `rules`")
        members = {field.encode_name: self.schema_of(field.type) for field in shape.fields}
        required = [field.encode_name for field in shape.fields if field.required]
        if shape.tag_field is not None:
            members = {shape.tag_field: {"const": shape.tag}, **members}
            required = [shape.tag_field, *required]
        written: Schema = {
            "description": (document.__doc__ or "").partition("\n")[0],
            "type": "object",
            "additionalProperties": False,
            "required": required,
            "properties": members,
        }
        for rule in document.rules:
            _add(written, rule)
        return written


def _present(**parts: Any) -> Schema:
    """The parts that there are."""
    return {name: part for name, part in parts.items() if part is not None}


def _scalar(shape: inspect.Type) -> Schema:
    match shape:
        case inspect.StrType(pattern=pattern, min_length=least, max_length=most):
            forms = (name for ours, name in _formats if pattern is not None and pattern.endswith(ours))
            written = None if pattern is None else ecma_pattern(pattern)
            return _present(type="string", format=next(forms, None), pattern=written, minLength=least, maxLength=most)
        case inspect.IntType(ge=least, le=most):
            return _present(type="integer", minimum=least, maximum=most)
        case inspect.FloatType(ge=least, le=most):
            return _present(type="number", minimum=least, maximum=most)
        case inspect.BoolType():
            return {"type": "boolean"}
        case inspect.NoneType():
            return {"type": "null"}
        case inspect.LiteralType(values=values):
            return _one_of(values)
        case inspect.EnumType(cls=choices):
            return {"enum": [choice.value for choice in choices]}
        case inspect.AnyType():
            return {}
        case _:
            raise TypeError(f"no schema is known for {shape}")


# Conditions.


def _add(holder: Schema, condition: Unique | When | Excludes | SomeOf | Named) -> None:
    """Write a condition into the schema of the object that holds to it."""
    match condition:
        case Unique(member=member):
            holder["properties"][schema_name(member)]["uniqueItems"] = True
        case Named(member=member, names=names, pattern=pattern, length_max=most):
            others = {"pattern": ecma_pattern(pattern), "maxLength": most}
            holder["properties"][schema_name(member)]["anyOf"] = [{"enum": sorted(names)}, others]
        case SomeOf(sets=sets):
            holder["anyOf"] = [{"required": [schema_name(member) for member in members]} for members in sets]
        case Excludes(member=member, value=value):
            owed = {"properties": {schema_name(member): {"items": {"not": _one_of([value])}}}}
            holder.setdefault("allOf", []).append(owed)
        case When():
            holder.setdefault("allOf", []).append(_conditional(condition))


def _conditional(condition: When) -> Schema:
    owed = _owed(condition)
    tests = [_test(where) for where in condition.when]
    if not tests:
        return owed
    return {"if": tests[0] if len(tests) == 1 else {"allOf": tests}, "then": owed}


def _test(where: Where) -> Schema:
    if where.values is None:
        there: Schema = {"required": [schema_name(where.member)]}
        return there if where.wanted else {"not": there}
    tested: Schema = {}
    at = tested
    for step in schema_name(where.member).split("."):
        at["required"] = [step]
        at = at.setdefault("properties", {}).setdefault(step, {})
    wanted = _one_of(where.values)
    at.update(wanted if where.wanted else {"not": wanted})
    return tested


def _owed(condition: When) -> Schema:
    owed: Schema = {}
    for member in condition.requires:
        holder, name = _place(owed, member)
        holder.setdefault("required", []).append(name)
    for member in condition.refuses:
        holder, name = _place(owed, member)
        holder.setdefault("not", {"anyOf": []})["anyOf"].append({"required": [name]})
    for member, values in condition.takes.items():
        holder, name = _place(owed, member)
        holder.setdefault("properties", {})[name] = _one_of(values)
    for member in condition.fills:
        holder, name = _place(owed, member)
        holder.setdefault("properties", {})[name] = {"minItems": 1}
    return owed


def _place(owed: Schema, member: str) -> tuple[Schema, str]:
    """The sub-schema of the object that a member stands in, and its name there."""
    *path, name = schema_name(member).split(".")
    for step in path:
        owed = owed.setdefault("properties", {}).setdefault(step, {})
    return owed, name


def _one_of(values: Iterable[Value | None]) -> Schema:
    plain = [value.value if isinstance(value, Enum) else value for value in values]
    return {"const": plain[0]} if len(plain) == 1 else {"enum": sorted(plain, key=str)}


# Patterns.

_class: Final = r"\[(?:\\.|[^\]\\])*\]"
_repeated_run: Final = re.compile(rf"(\(\?:{_class})\+\+(\|[^()]*\)\*)\+")
"""`(?:[…]++|…)*+`, a run of runs: without possession it must be one of single characters, lest it go back for ever."""
_token: Final = re.compile(rf"\\.|{_class}|[*+?}}]\+", re.DOTALL)


def ecma_pattern(pattern: str) -> str:
    r"""A Python pattern of ours as an ECMAScript pattern (flag `u`) for the same texts.

    `\A` and `\Z` become `^` and `$`, which without the flag `m` are the very ends there. ECMAScript has no
    possessive repetition: ours only save going back where that could not succeed, so plain ones take the same texts.
    Raises ValueError for a possessive run that would become slow.
    """
    return _token.sub(_translated, _repeated_run.sub(r"\1\2", pattern))


def _translated(token: re.Match[str]) -> str:
    text = token[0]
    if text in {"++", "?+", "}+"}:
        raise ValueError(f"the possessive {text} has no equal in ECMAScript")
    return {r"\A": "^", r"\Z": "$", "*+": "*"}.get(text, text)
