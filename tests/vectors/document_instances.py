"""Valid instances of the protocol's schemas, read from the schemas themselves.

`instance` chooses every member from its sub-schema and then mends what conditional rules still miss, so nearly all
instances are valid; the judges of `document_judges` have the last word. A subject is what is named there.
"""

import copy
import json
import random
from collections.abc import Iterator, Sequence
from typing import Any, Final, Protocol

from tests.vectors.compiled_schemas import equality
from tests.vectors.document_judges import fast_judge, slow_judge
from tests.vectors.protocol_schemas import schema

Place = tuple[str | int, ...]
"""Where a value stands in an instance."""
Located = tuple[str, dict[str, Any]]
"""A sub-schema with the name of the file that its `$ref`s start from."""

items_max: Final = 3
"""Items in a drawn array."""
mending_rounds_max: Final = 12
"""How often an instance is mended before it is taken as it is."""
forms_drawn: Final = 3
"""Instances that stand for a subject without a choice at its root."""
free_depth_max: Final = 100
"""Levels of the deepest free JSON; the strict parser takes 128 in all."""

times: Final = (
    "2026-07-15T00:00:00Z",
    "2026-07-15t00:00:00.123456789z",
    "0001-01-01T00:00:00+23:59",
    "2024-02-29T23:59:59.000-11:30",
    "9999-12-31T23:59:59.99999999999999999999+00:00",
)
uris: Final = (
    "urn:weavehold:thing:one",
    "example:",
    "https://user:pw@example.org:8080/a/b;c?d=e#f",
    "https://[2001:db8::7]/",
    "file:///x%20y",
    "urn:x:%C3%A9",
    "a://[v1.x:y]:0?#",
    "sha256:" + "a" * 64,
)
texts_of_pattern: Final = {
    r"\S": ("done", " x", "\u0085"),
    r"^(0|[1-9][0-9]*)\.(0|[1-9][0-9]*)\.(0|[1-9][0-9]*)(?:-[0-9A-Za-z.-]+)?(?:\+[0-9A-Za-z.-]+)?$": (
        "1.0.0",
        "0.10.2-rc.1+b-7",
    ),
    r"^P(?!$)(?:[0-9]+D)?(?:T(?=[0-9])(?:[0-9]+H)?(?:[0-9]+M)?(?:[0-9]+(?:\.[0-9]+)?S)?)?$": ("PT5M", "P1DT2H3M4.5S"),
    r"^[A-Z][A-Z0-9_]{1,127}$": ("TRANSIENT_1", "A_"),
    r"^[A-Z]{3}$": ("USD", "EUR"),
    r"^[A-Za-z0-9!#$&^_.+-]+/[A-Za-z0-9!#$&^_.+-]+$": ("text/plain", "a.b+c/d-e"),
    r"^[A-Za-z0-9_-]+$": ("c2lnbmF0dXJl", "-_"),
    r"^[a-z0-9]+(?:[.-][a-z0-9]+)+$": ("acme.review", "a-1.b"),
    r"^[a-zA-Z0-9][a-zA-Z0-9._-]{0,127}$": ("tests-pass", "A"),
    r"^[a-z][a-z0-9._:-]*$": ("read", "write:branch"),
    r"^[a-z][a-z0-9_]*(?:\.[a-z][a-z0-9_]*)+$": ("work.progressed", "a_1.b.c"),
    r"^ext\.[a-z0-9][a-z0-9_-]*(?:\.[a-z0-9][a-z0-9_-]*){2,}$": ("ext.acme.work.done", "ext.0.a-b.c_d"),
    r"^sha256:[0-9a-f]{64}$": ("sha256:" + "0" * 64, "sha256:" + "af" * 32),
    r"^wss://": ("wss://example.org/agent", "wss://"),
}
"""Some texts of every pattern in the schemas; the patterns themselves are compared sign by sign elsewhere."""

odd_scalars: Final[tuple[Any, ...]] = (
    None, True, False, 0, -1, 1.0, 0.5, -0.0, 5e-324, 1e300, 2**53 - 1, 2**53, -(2**53), 10**30, "", "é", "\u0000",
    "\ud800", "\udc00\ud800", "\U0001f600", "\u2028\ufeff", "x" * 300,
)  # fmt: skip
odd_names: Final = ("", "a", "A", "__proto__", "é", "\ud800", "\U0001f600", "\uffff", "1", "$ref", "a b")


class Chooser(Protocol):
    """Who decides between the instances that a schema allows."""

    def pick(self, options: Sequence[Any]) -> Any:
        """One of the options."""

    def size(self, least: int) -> int:
        """Number of items in an array that needs `least`."""

    def free(self) -> Any:
        """Any JSON value."""

    def takes_optional(self) -> bool:
        """Whether to include an optional member."""


class Chance:
    """Decides by chance: the same random numbers make the same instances."""

    def __init__(self, chance: random.Random, optional_share: float = 0.5) -> None:
        self._chance = chance
        self._optional_share = optional_share

    def pick(self, options: Sequence[Any]) -> Any:
        return self._chance.choice(options)

    def size(self, least: int) -> int:
        return self._chance.randint(least, items_max)

    def free(self) -> Any:
        if self._chance.random() < 0.05:
            return nested(self._chance.randrange(free_depth_max), self._chance)
        return free_json(self._chance, 3)

    def takes_optional(self) -> bool:
        return self._chance.random() < self._optional_share


def free_json(chance: random.Random, depth: int) -> Any:
    """Any JSON value of at most `depth` levels."""
    kind = chance.random()
    if depth == 0 or kind < 0.5:
        return chance.choice(odd_scalars)
    if kind < 0.7:
        return [free_json(chance, depth - 1) for _ in range(chance.randrange(4))]
    return {chance.choice(odd_names): free_json(chance, depth - 1) for _ in range(chance.randrange(4))}


def nested(depth: int, chance: random.Random) -> Any:
    """Arrays in objects in arrays, `depth` levels."""
    value: Any = chance.choice(odd_scalars)
    for _ in range(depth):
        value = [value] if chance.random() < 0.5 else {"in": value}
    return value


class Plain:
    """Takes the first and the least of everything."""

    def pick(self, options: Sequence[Any]) -> Any:
        return options[0]

    def size(self, least: int) -> int:
        return least

    def free(self) -> Any:
        return {"free": [1, None]}

    def takes_optional(self) -> bool:
        return False


def instance(subject: str, chooser: Chooser) -> Any:
    """A nearly always valid instance of a subject."""
    return mended(subject, _value(chooser, root(subject)))


def wholes(subject: str, chooser: Chooser) -> list[Any]:
    """An instance of every form of a subject: of each choice at its root, and several where arrays hold choices."""
    file, part = root(subject)
    forms = [(file, form) for form in part.get("oneOf", [part] * forms_drawn)]
    return [mended(subject, _value(chooser, form)) for form in forms]


def root(subject: str) -> Located:
    """The whole schema of a subject."""
    name, _, part = subject.partition("/")
    return name, schema(name)["$defs"][part] if part else schema(name)


def plain_value(located: Located) -> Any:
    """The plainest value of a sub-schema."""
    return _value(Plain(), located)


def _value(chooser: Chooser, located: Located) -> Any:
    file, part = resolved(located)
    if "const" in part:
        return part["const"]
    if "enum" in part:
        return chooser.pick(part["enum"])
    for choice in ("oneOf", "anyOf"):
        if choice in part and "properties" not in part:
            return _value(chooser, (file, chooser.pick(part[choice])))
    if "allOf" in part and "type" not in part:
        return _value(chooser, (file, part["allOf"][0]))
    match part.get("type"):
        case "object":
            return _object(chooser, file, part)
        case "array":
            return _array(chooser, file, part)
        case "string":
            return chooser.pick(_texts(part))
        case "integer":
            least, most = part["minimum"], part["maximum"]
            return chooser.pick([least, least + 1, most, float(least)])
        case "number":
            least, most = part["minimum"], part.get("maximum", 1e300)
            return chooser.pick([least, most, 0.25, float(least)])
        case "boolean":
            return chooser.pick([True, False])
        case _:
            return chooser.free()


def _object(chooser: Chooser, file: str, part: dict[str, Any]) -> dict[str, Any]:
    if "propertyNames" in part:
        names = {chooser.pick(uris) for _ in range(chooser.size(0))}
        return {name: _value(chooser, (file, part["additionalProperties"])) for name in sorted(names)}
    if "properties" not in part:
        return {chooser.pick(odd_names): chooser.free() for _ in range(chooser.size(0))}
    required = part.get("required", ())
    return {
        name: _value(chooser, (file, sub))
        for name, sub in part["properties"].items()
        if name in required or chooser.takes_optional()
    }


def _array(chooser: Chooser, file: str, part: dict[str, Any]) -> list[Any]:
    items = [_value(chooser, (file, part["items"])) for _ in range(chooser.size(part.get("minItems", 0)))]
    if not part.get("uniqueItems"):
        return items
    return list({equality(item): item for item in items}.values())


def _texts(part: dict[str, Any]) -> Sequence[str]:
    if part.get("pattern") in texts_of_pattern:
        return texts_of_pattern[part["pattern"]]
    if part.get("format") == "date-time":
        return times
    if part.get("format") == "uri":
        return uris
    least = part.get("minLength", 0)
    return "x" * least, "Ω\n " + "x" * least, "x" * part.get("maxLength", 1)


# Mending what conditional rules still miss.


def mended(subject: str, instance: Any) -> Any:
    """The instance with what the schema's conditional rules want added, set or taken away."""
    for _ in range(mending_rounds_max):
        if fast_judge(subject, "given")(instance):
            break
        faults = [fault for error in slow_judge(subject, "given").iter_errors(instance) for fault in _leaves(error)]
        instance = _mend(subject, instance, faults[0])
    return instance


def _leaves(error: Any) -> Iterator[Any]:
    if error.validator in {"anyOf", "oneOf"} and error.context:
        for inner in error.context:
            yield from _leaves(inner)
    else:
        yield error


def _mend(subject: str, instance: Any, fault: Any) -> Any:
    place = tuple(fault.absolute_path)
    wanted = fault.validator_value
    match fault.validator:
        case "required":
            file, part = schema_at(subject, instance, place)
            absent = [member for member in wanted if member not in fault.instance]
            holder = {member: plain_value((file, part["properties"][member])) for member in absent}
            return replaced(instance, place, {**fault.instance, **holder})
        case "not":
            holder = {key: member for key, member in fault.instance.items() if f'"{key}"' not in json.dumps(wanted)}
            return replaced(instance, place, holder)
        case "const":
            return replaced(instance, place, wanted)
        case "enum":
            return replaced(instance, place, wanted[0])
        case "minItems":
            file, part = schema_at(subject, instance, place)
            return replaced(instance, place, [*fault.instance, plain_value((file, part["items"]))])
        case _:
            return instance


# Places.


def resolved(located: Located) -> Located:
    """The sub-schema behind a `$ref`."""
    file, part = located
    while "$ref" in part:
        target, _, pointer = part["$ref"].partition("#")
        file = target.removesuffix(".schema.json") or file
        part = schema(file)
        for step in pointer.split("/")[1:]:
            part = part[step]
    return file, part


def schema_at(subject: str, instance: Any, place: Place) -> Located:
    """The sub-schema of a place, conditional rules aside; a place unknown to the schema has the open one."""
    located = root(subject)
    value = instance
    for step in place:
        file, part = _chosen(located, value)
        inner = part.get("items") if isinstance(step, int) else part.get("properties", {}).get(step)
        located = (file, inner or part.get("additionalProperties") or {})
        value = value[step]
    return _chosen(located, value)


def _chosen(located: Located, value: Any) -> Located:
    """Of a choice of objects the one whose constants `value` has, else the first."""
    file, part = resolved(located)
    if "allOf" in part and "type" not in part:
        return _chosen((file, part["allOf"][0]), value)
    if "oneOf" not in part:
        return file, part
    members = value if isinstance(value, dict) else {}
    options = [resolved((file, option)) for option in part["oneOf"]]
    for option in options:
        constants = {key: sub["const"] for key, sub in option[1]["properties"].items() if "const" in sub}
        if all(members.get(key) == constant for key, constant in constants.items()):
            return option
    return options[0]


def replaced(value: Any, place: Place, new: Any) -> Any:
    """`value` with another value at one place."""
    if not place:
        return new
    step, *rest = place
    changed = copy.copy(value)
    changed[step] = replaced(value[step], tuple(rest), new)
    return changed
