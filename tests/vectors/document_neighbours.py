"""The neighbours of an instance: the same with one place changed, on both sides of every border of its schema.

`variants` are instances that differ in a deciding member, one on which a conditional rule turns, and were mended to
fit. `changes` drop, add and misspell members, and try other choices, bounds ±1, repeats, other types and texts. Any
verdict is possible; the judges of `document_judges` give it.
"""

import copy
import random
from collections.abc import Iterator
from functools import cache
from typing import Any, Final, NamedTuple

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
from tests.vectors.document_judges import schema_of


class Change(NamedTuple):
    """One place of an instance with another value. `kind` and `what` say in words how it changes."""

    place: Place
    kind: str
    what: str
    value: Any

    @property
    def spot(self) -> tuple[str, ...]:
        """What is changed and how, with all items of an array as one."""
        steps = ("*" if isinstance(step, int) else step for step in self.place)
        return *steps, self.kind, self.what

    def __str__(self) -> str:
        return f"/{'/'.join(str(step) for step in self.place)[:200]} {self.kind} {self.what[:80]}".strip()

    def applied(self, instance: Any) -> Any:
        """The instance with the change."""
        return replaced(instance, self.place, self.value)


Other = tuple[str, str, Any]
"""Kind of change, what changes in words, and the other value."""

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
    "2026-07-15T00:00:00,5Z",
    "2026-06-30T23:59:60.5+00:00",
    "10000-01-01T00:00:00Z",
    "1900-02-29T00:00:00Z",
    "2026-07-15T00:00:00Z\n",
)
no_uris: Final = (
    "no scheme",
    "1a:b",
    "urn:a b",
    "urn:a%zz",
    "urn:é",
    "https://例え.jp/",
    "urn:x:\ud800",
    "urn:x:y\n",
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
other_types: Final[tuple[Any, ...]] = (
    None, True, False, 0, 1, 1.0, 0.5, -1, 2**53, 10**30, "", "x", [], ["x"], [None], {}, {"x": 1},
)  # fmt: skip
place_depth_max: Final = 10
"""Steps to the deepest place that is changed; the schemas themselves go eight deep."""
unknown_names: Final = ("unknown", "", "\ud800", "work_item_id")


def variants(subject: str, instance: Any) -> list[Any]:
    """The instance itself and one mended instance for every other value of every deciding member."""
    found = [instance]
    for place in deciding_places(subject, instance):
        options = _other_options(subject, instance, place)
        found += [mended(subject, replaced(instance, place, option)) for option in options]
    return found


def some_variant(subject: str, instance: Any, chance: random.Random) -> Any:
    """One of the variants, the instance itself when no member decides anything."""
    places = deciding_places(subject, instance)
    if not places:
        return instance
    place = chance.choice(places)
    options = _other_options(subject, instance, place)
    return mended(subject, replaced(instance, place, chance.choice(options))) if options else instance


def deciding_places(subject: str, instance: Any) -> list[Place]:
    """Where the members stand on which conditional rules turn."""
    return [place for place in places(instance) if place and place[-1] in _deciding_members(subject)]


def _other_options(subject: str, instance: Any, place: Place) -> list[Any]:
    located = schema_at(subject, instance, place)
    if located[1].get("type") == "integer":
        return [located[1]["minimum"], located[1]["minimum"] + 1]
    value = value_at(instance, place)
    return [option for option in _options(located) if option != value]


def changes(subject: str, instance: Any) -> Iterator[Change]:
    """Every change of every place."""
    for place in places(instance):
        yield from changes_at(subject, instance, place)


def changes_at(subject: str, instance: Any, place: Place) -> Iterator[Change]:
    """Every change of one place."""
    value = value_at(instance, place)
    for kind, what, new in _other_values(schema_at(subject, instance, place), value):
        yield Change(place, kind, what, new)


def value_at(instance: Any, place: Place) -> Any:
    """The value that stands in a place."""
    for step in place:
        instance = instance[step]
    return instance


@cache
def _deciding_members(subject: str) -> frozenset[str]:
    """Names of members that the conditions of a schema and of the schemas inside it ask for."""
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

    visit(schema_of(subject, "given"), inside=False)
    return frozenset(found)


def _options(located: Located) -> list[Any]:
    """The choices of an enumeration, also of one inside a choice."""
    file, part = resolved(located)
    if "enum" in part:
        return list(part["enum"])
    if part.get("const") in principal_types:
        return list(principal_types)
    return [option for inner in part.get("anyOf", ()) for option in _options((file, inner))]


def _other_values(located: Located, value: Any) -> Iterator[Other]:
    _, part = located
    for other in other_types:
        yield "becomes another type", repr(other), other
    for option in _options(located):
        yield "becomes another choice", repr(option), option
    if isinstance(value, dict):
        yield from _other_objects(located, value)
    elif isinstance(value, list):
        yield from _other_arrays(value)
    elif isinstance(value, str):
        yield from _other_texts(part, value)
    elif isinstance(value, int | float) and not isinstance(value, bool):
        bounds = [bound for bound in (part.get("minimum"), part.get("maximum")) if bound is not None]
        for number in [near for bound in bounds for near in (bound - 1, bound, bound + 1, bound + 0.5, -bound)]:
            yield "goes to a bound", repr(number), number


def _other_objects(located: Located, value: dict[str, Any]) -> Iterator[Other]:
    file, part = located
    for name in value:
        yield "loses", name, {other: member for other, member in value.items() if other != name}
    for name, sub in part.get("properties", {}).items():
        if name not in value:
            yield "gains", name, {**value, name: plain_value((file, sub))}
    for name in unknown_names:
        yield "gains an unknown member", repr(name), {**value, name: 1}
    yield "is reversed", "", dict(reversed(value.items()))


def _other_arrays(value: list[Any]) -> Iterator[Other]:
    if value:
        yield "repeats its first item", "in another spelling", [*value, _respelled(value[0])]
        yield "repeats its last item", "", [*value, value[-1]]
        yield "loses its first item", "", value[1:]
        yield "loses all items", "", []
        yield "is reversed", "", value[::-1]


def _respelled(value: Any) -> Any:
    """An equal JSON value, spelled differently: members the other way round, 1 as 1.0."""
    if isinstance(value, dict):
        return {name: _respelled(member) for name, member in reversed(value.items())}
    if isinstance(value, list):
        return [_respelled(item) for item in value]
    if isinstance(value, int) and not isinstance(value, bool) and abs(value) < 2**53:
        return float(value)
    return copy.copy(value)


def _other_texts(part: dict[str, Any], value: str) -> Iterator[Other]:
    yield "ends in a line feed", "", value + "\n"
    yield "begins with a space", "", " " + value
    yield "holds a lone surrogate", "", value[:1] + "\ud800" + value[2:]
    yield "holds another letter", "", value[:1] + "é" + value[2:]
    yield "is in capitals", "", value.upper()
    for length in (part.get("minLength"), part.get("maxLength")):
        if length is not None:
            for near in (length - 1, length, length + 1):
                fitting = (value * (near // max(len(value), 1) + 1))[: max(near, 0)]
                yield "changes its length", str(len(fitting)), fitting
    if "pattern" in part:
        for at in range(min(len(value), 12)):
            yield "is cut", str(at), value[:at]
    if part.get("format") == "date-time":
        yield from (("becomes a time", repr(text), text) for text in (*times, *no_times))
    if part.get("format") == "uri":
        yield from (("becomes a URI", repr(text), text) for text in (*uris, *no_uris))


def places(value: Any, place: Place = ()) -> Iterator[Place]:
    """Every place in a value, the whole one first; what lies deep in free JSON is left alone."""
    yield place
    if len(place) >= place_depth_max:
        return
    if isinstance(value, dict):
        for name, member in value.items():
            yield from places(member, (*place, name))
    elif isinstance(value, list):
        for index, item in enumerate(value):
            yield from places(item, (*place, index))
