"""Valid instances of the protocol's schemas for property tests, read from the schemas themselves.

`instances(name)` draws every member from its sub-schema and then mends what conditional rules still miss, so nearly
all instances are valid; the judge of `protocol_schemas` has the last word.
"""

import copy
import json
from collections.abc import Callable, Iterator, Sequence
from typing import Any, Final, Protocol

from hypothesis import strategies as st

from tests.vectors.protocol_schemas import schema, validator

Draw = Callable[[st.SearchStrategy[Any]], Any]
Place = tuple[str | int, ...]
"""Where a value stands in an instance."""
Located = tuple[str, dict[str, Any]]
"""A sub-schema with the name of the file that its `$ref`s start from."""

items_max: Final = 3
"""Items in a drawn array."""
mending_rounds_max: Final = 12
"""How often an instance is mended before it is taken as it is."""

times: Final = (
    "2026-07-15T00:00:00Z",
    "2026-07-15t00:00:00.123456789z",
    "0001-01-01T00:00:00+23:59",
    "2024-02-29T23:59:59.000-11:30",
)
uris: Final = (
    "urn:weavehold:thing:one",
    "example:",
    "https://user:pw@example.org:8080/a/b;c?d=e#f",
    "https://[2001:db8::7]/",
    "file:///x%20y",
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

any_json: Final = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**53), 2**53)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(st.text(max_size=4), inner, max_size=2),
    max_leaves=4,
)


def normalized(value: Any) -> Any:
    """`value` with the numbers of the strict parser: integral binary64 within ±(2^53-1) are int, all others float."""
    if isinstance(value, dict):
        return {name: normalized(member) for name, member in value.items()}
    if isinstance(value, list):
        return [normalized(item) for item in value]
    if isinstance(value, bool) or not isinstance(value, int | float):
        return value
    number = float(value)
    return int(number) if number.is_integer() and abs(number) <= 2**53 - 1 else number


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


class Drawn:
    """Decides by hypothesis."""

    def __init__(self, draw: Draw) -> None:
        self._draw = draw

    def pick(self, options: Sequence[Any]) -> Any:
        return self._draw(st.sampled_from(options))

    def size(self, least: int) -> int:
        return int(self._draw(st.integers(least, items_max)))

    def free(self) -> Any:
        return self._draw(any_json)

    def takes_optional(self) -> bool:
        return bool(self._draw(st.booleans()))


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


@st.composite
def instances(draw: Draw, name: str) -> Any:
    """A nearly always valid instance of the schema `name`."""
    return mended(name, _value(Drawn(draw), (name, schema(name))))


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
    required = part.get("required", ())
    return {
        name: _value(chooser, (file, sub))
        for name, sub in part.get("properties", {}).items()
        if name in required or chooser.takes_optional()
    }


def _array(chooser: Chooser, file: str, part: dict[str, Any]) -> list[Any]:
    items = [_value(chooser, (file, part["items"])) for _ in range(chooser.size(part.get("minItems", 0)))]
    if not part.get("uniqueItems"):
        return items
    return list({json.dumps(normalized(item), sort_keys=True): item for item in items}.values())


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


def mended(name: str, instance: Any) -> Any:
    """The instance with what the schema's conditional rules want added, set or taken away."""
    for _ in range(mending_rounds_max):
        faults = [fault for error in validator(name).iter_errors(instance) for fault in _leaves(error)]
        if not faults:
            break
        instance = _mend(name, instance, faults[0])
    return instance


def _leaves(error: Any) -> Iterator[Any]:
    if error.validator in {"anyOf", "oneOf"} and error.context:
        for inner in error.context:
            yield from _leaves(inner)
    else:
        yield error


def _mend(name: str, instance: Any, fault: Any) -> Any:
    place = tuple(fault.absolute_path)
    wanted = fault.validator_value
    match fault.validator:
        case "required":
            file, part = schema_at(name, instance, place)
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
            file, part = schema_at(name, instance, place)
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


def schema_at(name: str, instance: Any, place: Place) -> Located:
    """The sub-schema of a place, conditional rules aside; a place unknown to the schema has the open one."""
    located: Located = (name, schema(name))
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
