"""JSON Schemas compiled to functions: the keywords that document schemas use, and no others.

For the equivalence tests, where jsonschema's milliseconds per document would come to an hour. Formats and patterns are
those of the independent judge; an unknown keyword is an error, so nothing is skipped in silence.
"""

from collections.abc import Callable
from typing import Any, Final

from ops.conformance.schema_judge import ecma, is_date_time, is_uri

Accepts = Callable[[Any], bool]
"""Whether a schema accepts a JSON value."""

_annotations: Final = frozenset({"title", "description"})
_beside: Final = frozenset({"then", "else"})
"""Read together with the keyword that they belong to."""
_formats: Final[dict[str, Accepts]] = {"uri": is_uri, "date-time": is_date_time}


def compiled(schema: dict[str, Any]) -> Accepts:
    """A schema without references as a function. Raises KeyError for a keyword or format that is not known."""
    checks = tuple(
        _keywords[key](value, schema) for key, value in schema.items() if key not in _annotations and key not in _beside
    )
    if len(checks) == 1:
        return checks[0]

    def accepts(value: Any) -> bool:
        for check in checks:  # noqa: SIM110 - the loop is twice as fast
            if not check(value):
                return False
        return True

    return accepts


_truth: Final = object()


def equality(value: Any) -> Any:
    """A key that is the same for equal JSON values: 1 is 1.0 and not true, the order of members says nothing."""
    if isinstance(value, dict):
        return frozenset((name, equality(member)) for name, member in value.items())
    if isinstance(value, list):
        return tuple(equality(item) for item in value)
    return (_truth, value) if isinstance(value, bool) else value


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _is_integer(value: Any) -> bool:
    return _is_number(value) and (isinstance(value, int) or value.is_integer())


_types: Final[dict[str, Accepts]] = {
    "object": lambda value: isinstance(value, dict),
    "array": lambda value: isinstance(value, list),
    "string": lambda value: isinstance(value, str),
    "boolean": lambda value: isinstance(value, bool),
    "number": _is_number,
    "integer": _is_integer,
}


def _one_of(values: list[Any]) -> Accepts:
    keys = [equality(value) for value in values]
    return lambda value: equality(value) in keys


def _properties(members: dict[str, Any], _: Any) -> Accepts:
    checks = {name: compiled(member) for name, member in members.items()}

    def accepts(value: Any) -> bool:
        if not isinstance(value, dict):
            return True
        return all(checks[name](member) for name, member in value.items() if name in checks)

    return accepts


def _additional(rest: Any, schema: dict[str, Any]) -> Accepts:
    known = schema.get("properties", {})
    if rest is False:
        return lambda value: not isinstance(value, dict) or value.keys() <= known.keys()
    check = compiled(rest)
    return lambda value: not isinstance(value, dict) or all(check(value[name]) for name in value if name not in known)


def _names(names: dict[str, Any], _: Any) -> Accepts:
    check = compiled(names)
    return lambda value: not isinstance(value, dict) or all(check(name) for name in value)


def _items(items: dict[str, Any], _: Any) -> Accepts:
    check = compiled(items)
    return lambda value: not isinstance(value, list) or all(check(item) for item in value)


def _unique(wanted: bool, _: Any) -> Accepts:
    def accepts(value: Any) -> bool:
        return not isinstance(value, list) or len({equality(item) for item in value}) == len(value)

    return accepts if wanted else lambda _: True


def _if(condition: dict[str, Any], schema: dict[str, Any]) -> Accepts:
    test, then, other = compiled(condition), compiled(schema.get("then", {})), compiled(schema.get("else", {}))
    return lambda value: then(value) if test(value) else other(value)


def _all_of(parts: list[Any], _: Any) -> Accepts:
    checks = [compiled(part) for part in parts]
    return lambda value: all(check(value) for check in checks)


def _any_of(parts: list[Any], _: Any) -> Accepts:
    checks = [compiled(part) for part in parts]
    return lambda value: any(check(value) for check in checks)


def _exactly_one_of(parts: list[Any], _: Any) -> Accepts:
    checks = [compiled(part) for part in parts]
    return lambda value: sum(check(value) for check in checks) == 1


def _not(part: dict[str, Any], _: Any) -> Accepts:
    check = compiled(part)
    return lambda value: not check(value)


def _pattern(pattern: str, _: Any) -> Accepts:
    search = ecma(pattern).search
    return lambda value: not isinstance(value, str) or search(value) is not None


_keywords: Final[dict[str, Callable[[Any, Any], Accepts]]] = {
    "type": lambda name, _: _types[name],
    "const": lambda value, _: _one_of([value]),
    "enum": lambda values, _: _one_of(values),
    "properties": _properties,
    "required": lambda names, _: lambda value: not isinstance(value, dict) or all(name in value for name in names),
    "additionalProperties": _additional,
    "propertyNames": _names,
    "items": _items,
    "minItems": lambda least, _: lambda value: not isinstance(value, list) or len(value) >= least,
    "uniqueItems": _unique,
    "if": _if,
    "allOf": _all_of,
    "anyOf": _any_of,
    "oneOf": _exactly_one_of,
    "not": _not,
    "pattern": _pattern,
    "format": lambda name, _: _formats[name],
    "minLength": lambda least, _: lambda value: not isinstance(value, str) or len(value) >= least,
    "maxLength": lambda most, _: lambda value: not isinstance(value, str) or len(value) <= most,
    "minimum": lambda least, _: lambda value: not _is_number(value) or value >= least,
    "maximum": lambda most, _: lambda value: not _is_number(value) or value <= most,
}
