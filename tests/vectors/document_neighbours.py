"""The neighbours of an instance: the same with one place changed, on both sides of every border of its schema.

`variants` are instances that differ in a deciding member, one on which a conditional rule turns, and were mended to
fit. `neighbours` drop, add and misspell members, and try other choices, bounds ±1, repeats, other types and texts.
Any verdict is possible; the judge of `protocol_schemas` gives it.
"""

import copy
from collections.abc import Iterator
from functools import cache
from typing import Any, Final

from tests.vectors.document_instances import (
    Located,
    Place,
    mended,
    plain_value,
    replaced,
    resolved,
    schema_at,
    times,
    uris,
)
from tests.vectors.protocol_schemas import schema

Changed = tuple[str, Any]
"""What was changed, in words, and the changed instance."""

no_times: Final = (
    "2026-07-15T00:00:00",
    "2026-07-15 00:00:00Z",
    "2026-02-29T00:00:00Z",
    "2026-07-15T23:59:60Z",
    "2026-07-15T24:00:00Z",
    "2026-07-15T00:00:00-00:00",
    "0000-01-01T00:00:00Z",
    "2026-07-15T00:00:00.Z",
    "2026-07-15T00:00:00+24:00",
    "\u0662026-07-15T00:00:00Z",
)
no_uris: Final = (
    "no scheme",
    "1a:b",
    "urn:a b",
    "urn:a%zz",
    "urn:é",
    "https://[::1",
    "https://[:::]/",
    "https://h:8a/",
    "https://a@b@c/",
    "urn:a#b#c",
    "wss:example.org",
    "https://example.org/",
    "urn:" + "a" * 508,
    "urn:" + "a" * 509,
)
principal_types: Final = ("agent", "human", "service")
"""What a Principal could be where the schema allows only one of them."""
other_types: Final[tuple[Any, ...]] = (None, True, 0, 1.0, 0.5, -1, "", "x", [], ["x"], {}, {"x": 1})
unknown_names: Final = ("unknown", "", "\ud800", "work_item_id")


def variants(name: str, instance: Any) -> list[Any]:
    """The instance itself and one mended instance for every other value of every deciding member."""
    found = [instance]
    for place, value in _places(instance):
        if not place or place[-1] not in _deciding_members(name):
            continue
        _, part = schema_at(name, instance, place)
        options = [option for option in _options((name, part)) if option != value]
        if part.get("type") == "integer":
            options = [part["minimum"], part["minimum"] + 1]
        found += [mended(name, replaced(instance, place, option)) for option in options]
    return found


def neighbours(name: str, instance: Any) -> Iterator[Changed]:
    """Every instance with one place changed."""
    for place, value in _places(instance):
        located = schema_at(name, instance, place)
        for what, new in _other_values(located, value):
            where = "/".join(str(step) for step in place)
            yield f"/{where[:200]} {what}", replaced(instance, place, new)


@cache
def _deciding_members(name: str) -> frozenset[str]:
    """Names of members that the conditions of a schema ask for."""
    found: set[str] = set()

    def visit(part: Any, *, inside: bool) -> None:
        if isinstance(part, dict):
            for key, inner in part.items():
                if inside and key == "properties":
                    found.update(inner)
                visit(inner, inside=inside or key == "if")
        elif isinstance(part, list):
            for inner in part:
                visit(inner, inside=inside)

    visit(schema(name), inside=False)
    return frozenset(found)


def _options(located: Located) -> list[Any]:
    """The choices of an enumeration, also of one inside a choice."""
    file, part = resolved(located)
    if "enum" in part:
        return list(part["enum"])
    if part.get("const") in principal_types:
        return list(principal_types)
    return [option for inner in part.get("anyOf", ()) for option in _options((file, inner))]


def _other_values(located: Located, value: Any) -> Iterator[Changed]:
    _, part = located
    for other in other_types:
        yield f"becomes {other!r}", other
    for option in _options(located):
        yield f"becomes {option!r}", option
    if isinstance(value, dict):
        yield from _other_objects(located, value)
    elif isinstance(value, list):
        yield from _other_arrays(value)
    elif isinstance(value, str):
        yield from _other_texts(part, value)
    elif isinstance(value, int | float) and not isinstance(value, bool):
        bounds = [bound for bound in (part.get("minimum"), part.get("maximum")) if bound is not None]
        for number in [near for bound in bounds for near in (bound - 1, bound, bound + 1, bound + 0.5)]:
            yield f"becomes {number}", number


def _other_objects(located: Located, value: dict[str, Any]) -> Iterator[Changed]:
    file, part = located
    for name in value:
        yield f"loses {name!r}", {other: member for other, member in value.items() if other != name}
    for name, sub in part.get("properties", {}).items():
        if name not in value:
            yield f"gains {name!r}", {**value, name: plain_value((file, sub))}
    for name in unknown_names:
        yield f"gains unknown {name!r}", {**value, name: 1}
    yield "is reversed", dict(reversed(value.items()))


def _other_arrays(value: list[Any]) -> Iterator[Changed]:
    if not value:
        return
    yield "repeats its first item in another spelling", [*value, _respelled(value[0])]
    yield "loses its first item", value[1:]


def _respelled(value: Any) -> Any:
    """An equal JSON value, spelled differently: members the other way round, 1 as 1.0."""
    if isinstance(value, dict):
        return {name: _respelled(member) for name, member in reversed(value.items())}
    if isinstance(value, list):
        return [_respelled(item) for item in value]
    if isinstance(value, int) and not isinstance(value, bool):
        return float(value)
    return copy.copy(value)


def _other_texts(part: dict[str, Any], value: str) -> Iterator[Changed]:
    yield "ends in a line feed", value + "\n"
    yield "begins with a space", " " + value
    yield "holds a lone surrogate", value[:1] + "\ud800" + value[2:]
    for length in (part.get("minLength"), part.get("maxLength")):
        if length is not None:
            for near in (length - 1, length, length + 1):
                fitting = (value * (near // max(len(value), 1) + 1))[:near]
                yield f"has {len(fitting)} characters", fitting
    if "pattern" in part:
        for at in range(min(len(value), 12)):
            yield f"is cut to {at} characters", value[:at]
    if part.get("format") == "date-time":
        yield from ((f"becomes {text!r}", text) for text in (*times, *no_times))
    if part.get("format") == "uri":
        yield from ((f"becomes {text!r}", text) for text in (*uris, *no_uris))


def _places(value: Any, place: Place = ()) -> Iterator[tuple[Place, Any]]:
    yield place, value
    if isinstance(value, dict):
        for name, member in value.items():
            yield from _places(member, (*place, name))
    elif isinstance(value, list):
        for index, item in enumerate(value):
            yield from _places(item, (*place, index))
