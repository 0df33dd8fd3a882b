"""Conditions as a check on every new document: a fast verdict first, and only for a broken one the reason why.

Conditions test few members for few values. What a document owes is therefore worked out when its class is made, for
every combination of those values; a document looks its own duties up and pays for none of the others.
"""

import re
from collections.abc import Callable, Sequence
from enum import Enum
from operator import attrgetter
from typing import Any, Final, TypeGuard

from msgspec import UNSET

from contracts.documents.conditions import Condition, Named, Value, When, Where, check_of, getter

Verdict = Callable[[Any], bool]
"""Whether a document keeps conditions."""

Tabled = When | Named

_other: Final = object()
"""Stands for every value that no test names."""


def keeper(conditions: Sequence[Condition]) -> Callable[[Any], None]:
    """What a class calls on each new document (`__post_init__`) so that all these conditions are kept.

    That raises ValueError for the first broken one, naming the member, the value, the holder and the remedy;
    `msgspec.convert` reports that as a ValidationError with the path.
    """
    keeps = _verdict(conditions)
    checks = tuple(check_of(condition) for condition in conditions)

    def keep_conditions(document: Any) -> None:
        if not keeps(document):
            raise ValueError(next(fault for check in checks if (fault := check(document))))

    return keep_conditions


def _verdict(conditions: Sequence[Condition]) -> Verdict:
    """All conditions as one function."""
    tabled = [each for each in conditions if _is_tabled(each)]
    rest = [_unbroken(each) for each in conditions if each not in tabled]
    return _all_of([*rest, _by_table(tabled)]) if tabled else _all_of(rest)


def _is_tabled(condition: Condition) -> TypeGuard[Tabled]:
    if isinstance(condition, When):
        return all(test.values for test in condition.when)
    return isinstance(condition, Named)


def _unbroken(condition: Condition) -> Verdict:
    check = check_of(condition)
    return lambda document: check(document) is None


def _by_table(conditions: Sequence[Tabled]) -> Verdict:
    """Conditions on named values: the values of the tested members lead to the duties of a document."""
    named: dict[str, list[Value]] = {}
    for condition in conditions:
        for member, values in _named_values(condition):
            named.setdefault(member, []).extend(values)
    root = _branches(conditions, list(named.items()), {})
    gets = tuple(attrgetter(_path(member, values)) for member, values in named.items())

    def keeps(document: Any) -> bool:
        owed = root
        for get in gets:
            by_value, otherwise = owed
            owed = by_value.get(get(document), otherwise)
        return owed(document)  # type: ignore[no-any-return]

    return keeps


def _named_values(condition: Tabled) -> list[tuple[str, Sequence[Value]]]:
    if isinstance(condition, Named):
        return [(condition.member, sorted(condition.names))]
    return [(test.member, test.values or ()) for test in condition.when]


def _branches(conditions: Sequence[Tabled], named: list[tuple[str, list[Value]]], known: dict[str, Any]) -> Any:
    """The verdict where all members are known; else (by value of the next member, for every other value)."""
    if not named:
        return _owed(conditions, known)
    (member, values), *following = named
    by_value = {_plain(value): _branches(conditions, following, {**known, member: _plain(value)}) for value in values}
    return by_value, _branches(conditions, following, {**known, member: _other})


def _path(member: str, values: Sequence[Value]) -> str:
    """Where a comparable value stands: choices are compared by their values, whose hash costs nothing."""
    return f"{member}._value_" if any(isinstance(value, Enum) for value in values) else member


def _plain(value: Value) -> Any:
    return value.value if isinstance(value, Enum) else value


def _owed(conditions: Sequence[Tabled], known: dict[str, Any]) -> Verdict:
    """The duties of all documents whose tested members have these values."""
    owed = [each for each in conditions if isinstance(each, When) and all(_passes(test, known) for test in each.when)]
    taken = [(member, values) for each in owed for member, values in each.takes.items()]
    settled = [(member, values) for member, values in taken if member in known]
    if not all(known[member] in map(_plain, values) for member, values in settled):
        return lambda _document: False
    verdicts = [
        *(_matches(each) for each in conditions if isinstance(each, Named) and known[each.member] is _other),
        *_all_there(tuple(dict.fromkeys(name for each in owed for name in each.requires))),
        *_none_there(tuple(dict.fromkeys(name for each in owed for name in each.refuses))),
        *(_takes(member, values) for member, values in taken if member not in known),
        *(_fills(member) for each in owed for member in each.fills),
    ]
    return _all_of(verdicts)


def _passes(test: Where, known: dict[str, Any]) -> bool:
    return (known[test.member] in map(_plain, test.values or ())) is test.wanted


def _matches(condition: Named) -> Verdict:
    get, length_max, match = attrgetter(condition.member), condition.length_max, re.compile(condition.pattern).match
    return lambda document: len(get(document)) <= length_max and match(get(document)) is not None


def _all_there(members: tuple[str, ...]) -> list[Verdict]:
    if not members:
        return []
    if len(members) == 1:
        get_one = attrgetter(members[0])
        return [lambda document: get_one(document) is not UNSET]
    get_all = attrgetter(*members)
    return [lambda document: UNSET not in get_all(document)]


def _none_there(members: tuple[str, ...]) -> list[Verdict]:
    if not members:
        return []
    if len(members) == 1:
        get_one = attrgetter(members[0])
        return [lambda document: get_one(document) is UNSET]
    get_all, nothing = attrgetter(*members), (UNSET,) * len(members)
    return [lambda document: get_all(document) == nothing]


def _takes(member: str, values: tuple[Value, ...]) -> Verdict:
    get, allowed = getter(member), (*values, UNSET)
    return lambda document: get(document) in allowed


def _fills(member: str) -> Verdict:
    get = attrgetter(member)
    return lambda document: bool(get(document))


def _all_of(verdicts: list[Verdict]) -> Verdict:
    if len(verdicts) == 1:
        return verdicts[0]
    if len(verdicts) == 2:
        first, second = verdicts
        return lambda document: first(document) and second(document)
    return lambda document: all(verdict(document) for verdict in verdicts)
