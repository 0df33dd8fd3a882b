"""Conditions across the members of a document: declared once, checked on reading and printed as JSON Schema.

A document class declares what its members owe each other in `rules`. The declarations are checked by
`contracts.documents.condition_checks` and written as `if`/`then`, `uniqueItems` and their kin by
`contracts.documents.json_schema`. Members are named as in Python; a dotted name leads into a member that is an object,
which must be a required one unless it stands in `takes`.
"""

import re
from collections.abc import Callable, Mapping
from enum import Enum
from operator import attrgetter
from typing import Any, Final

from msgspec import UNSET, Struct

Value = str | int | Enum
"""What a member is compared with: a choice, a text, a number or a truth value."""
Check = Callable[[Any], str | None]
"""Why a document breaks a condition, None when it keeps it."""

_quoted_characters_max: Final = 80
"""Characters of a received text that a message repeats."""


class Where(Struct, frozen=True):
    """Whether a member has (`wanted`) or has not one of `values`; without `values`, whether it is there at all.

    A member that is absent has no value.
    """

    member: str
    values: tuple[Value, ...] | None
    wanted: bool


def has(member: str, *values: Value) -> Where:
    """The member has one of the values."""
    return Where(member, values, wanted=True)


def has_not(member: str, *values: Value) -> Where:
    """The member has none of the values."""
    return Where(member, values, wanted=False)


def present(member: str) -> Where:
    """The member is there."""
    return Where(member, None, wanted=True)


def absent(member: str) -> Where:
    """The member is not there."""
    return Where(member, None, wanted=False)


class When(Struct, frozen=True, kw_only=True):
    """What a document that passes all tests of `when` owes; without tests every document owes it.

    `holder` says in words which documents those are; `{member}` in it is the member's value. `requires` and `refuses`
    name members that are there and not there, `takes` the only values that a member may have, `fills` arrays with
    one item or more.
    """

    holder: str
    when: tuple[Where, ...]
    requires: tuple[str, ...]
    refuses: tuple[str, ...]
    takes: Mapping[str, tuple[Value, ...]]
    fills: tuple[str, ...]


def when(
    *tests: Where,
    holder: str,
    requires: tuple[str, ...] = (),
    refuses: tuple[str, ...] = (),
    takes: Mapping[str, tuple[Value, ...]] | None = None,
    fills: tuple[str, ...] = (),
) -> When:
    """What documents that pass all tests owe."""
    return When(when=tests, holder=holder, requires=requires, refuses=refuses, takes=takes or {}, fills=fills)


def always(
    *, holder: str, requires: tuple[str, ...] = (), takes: Mapping[str, tuple[Value, ...]] | None = None
) -> When:
    """What every document owes."""
    return when(holder=holder, requires=requires, takes=takes)


class Unique(Struct, frozen=True):
    """`uniqueItems`: an array holds each JSON value once.

    Closed Structs compare member by member and 1 equals 1.0, which is JSON Schema's own equality.
    """

    member: str


class Excludes(Struct, frozen=True, kw_only=True):
    """An array holds anything but one value; `because` is the reason with the remedy."""

    member: str
    value: Value
    because: str


class SomeOf(Struct, frozen=True, kw_only=True):
    """At least one of these sets of members is there as a whole; `because` says so in words."""

    sets: tuple[tuple[str, ...], ...]
    because: str


class Named(Struct, frozen=True, kw_only=True):
    """A text is one of `names` or matches `pattern` within `length_max` characters; `words` say what it is if not."""

    member: str
    names: frozenset[str]
    pattern: str
    length_max: int
    words: str


Condition = When | Unique | Excludes | SomeOf | Named


def unique(*members: str) -> tuple[Unique, ...]:
    """Each of these arrays is a set."""
    return tuple(Unique(member) for member in members)


def schema_name(member: str) -> str:
    """A member's name in documents, `groupId` of `group_id`; a dotted name stays dotted."""
    return re.sub("_([a-z])", lambda match: match[1].upper(), member)


# Why a document breaks a condition.


def check_of(condition: Condition) -> Check:
    """A condition as a function that says why a document breaks it."""
    match condition:
        case When():
            return _check_when(condition)
        case Unique(member):
            return _check_unique(member)
        case Excludes():
            return _check_excludes(condition)
        case SomeOf():
            return _check_some_of(condition)
        case Named():
            return _check_named(condition)


def _check_when(condition: When) -> Check:
    duty = _duty(condition)
    tests = tuple(_passes(test) for test in condition.when)
    if not tests:
        return duty
    if len(tests) == 1:
        (passes,) = tests
        return lambda document: duty(document) if passes(document) else None
    return lambda document: duty(document) if all(passes(document) for passes in tests) else None


def _passes(test: Where) -> Callable[[Any], bool]:
    get, wanted = getter(test.member), test.wanted
    if test.values is None:
        return lambda document: (get(document) is not UNSET) is wanted
    # Text is looked up; choices are compared by identity, which is faster than their hash.
    values = frozenset(test.values) if all(isinstance(value, str) for value in test.values) else test.values
    return lambda document: (get(document) in values) is wanted


def _duty(condition: When) -> Check:
    required = tuple((name, attrgetter(name)) for name in condition.requires)
    refused = tuple((name, attrgetter(name)) for name in condition.refuses)
    taken = tuple((name, getter(name), (*values, UNSET)) for name, values in condition.takes.items())
    filled = tuple((name, attrgetter(name)) for name in condition.fills)

    def fault(document: Any) -> str | None:
        for name, get, values in taken:
            value = get(document)
            if value not in values:
                needed = " or ".join(_shown(each) for each in condition.takes[name])
                return f"{schema_name(name)} is {_shown(value)}; {_holder(condition, document)} needs {needed}"
        for name, get in required:
            if get(document) is UNSET:
                return f"{schema_name(name)} is missing; {_holder(condition, document)} requires it"
        for name, get in refused:
            if get(document) is not UNSET:
                holder = _holder(condition, document)
                return f"{schema_name(name)} is not allowed; {holder} carries none, leave it out"
        for name, get in filled:
            if not get(document):
                return f"{schema_name(name)} is empty; {_holder(condition, document)} names at least one"
        return None

    return fault


def _check_unique(member: str) -> Check:
    get = attrgetter(member)

    def fault(document: Any) -> str | None:
        items = get(document)
        if items is UNSET or len(items) < 2 or len(set(items)) == len(items):
            return None
        return f"{schema_name(member)} repeats an item; list each item once"

    return fault


def _check_excludes(condition: Excludes) -> Check:
    get = attrgetter(condition.member)
    message = f"{schema_name(condition.member)} names {_shown(condition.value)}, {condition.because}"
    return lambda document: message if condition.value in get(document) else None


def _check_some_of(condition: SomeOf) -> Check:
    sets = tuple(tuple(attrgetter(member) for member in members) for members in condition.sets)

    def fault(document: Any) -> str | None:
        for members in sets:
            if all(get(document) is not UNSET for get in members):
                return None
        return condition.because

    return fault


def _check_named(condition: Named) -> Check:
    get, names, length_max = attrgetter(condition.member), condition.names, condition.length_max
    matches = re.compile(condition.pattern).match

    def fault(document: Any) -> str | None:
        text = get(document)
        if text in names or (len(text) <= length_max and matches(text)):
            return None
        return f"{schema_name(condition.member)} {text[:_quoted_characters_max]!r} is {condition.words}"

    return fault


def getter(member: str) -> Callable[[Any], Any]:
    """Reads a member; one inside an absent object is absent too."""
    get = attrgetter(member)
    if "." not in member:
        return get

    def inner(document: Any) -> Any:
        try:
            return get(document)
        except AttributeError:
            return UNSET

    return inner


def _holder(condition: When, document: Any) -> str:
    return re.sub(r"\{([a-z_.]+)\}", lambda match: _shown(attrgetter(match[1])(document)), condition.holder)


def _shown(value: Any) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    return str(value.value if isinstance(value, Enum) else value)[:_quoted_characters_max]
