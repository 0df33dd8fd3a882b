"""No pattern of the contracts goes back over what it has read: texts made to make them try (ACC-5)."""

import importlib
import pkgutil
import re
import time
from collections.abc import Iterator
from typing import Any

import pytest
from msgspec import inspect

import contracts
from contracts.documents.common import Document

prefixes = (
    "", "urn:a", "a:", "a://", "a://b@", "a://[", "a://[::", "a:?", "a:#", "wss://", "ext.a.b.c", "1.1.1", "1.1.1-",
    "1.1.1+", "P1D", "PT", "PT1.", "2026-07-15T00:00:00.", "2026-02-29T", "sha256:", "a/", "A", "a", '"', "[",
)  # fmt: skip
units = (
    "a", "A", "0", "f", "-", ".", "_", ":", "/", "+", "@", "?", "%", "%41", "a.", "a-", "a:", "a_", "a@", "0.", "0:",
    "::", "1H", " ", "\u00a0", "=", '"', "\\", '\\"', "~!$&'()*+,;=", "[", "]",
)  # fmt: skip
suffixes = ("", "!", "\n", " ", "é", "%", "Z", "\ud800")
lengths = (40, 1_000, 64 * 1024)
"""Signs: a pattern that doubles its work with each is caught at the first, one that squares it at the last."""
own_texts_only = {"contracts.documents.json_schema"}
"""Modules whose patterns read the contracts themselves, never what was received."""
seconds_max = 0.25
"""CPU seconds for one text; a linear pattern takes about a millisecond for the longest."""


def modules() -> Iterator[Any]:
    for module in pkgutil.walk_packages(contracts.__path__, "contracts."):
        yield importlib.import_module(module.name)


def in_types(found: inspect.Type, seen: set[Any]) -> Iterator[str]:
    """The patterns that msgspec checks for a type and everything in it."""
    match found:
        case inspect.StrType(pattern=str(pattern)):
            yield pattern
        case inspect.StructType(cls=cls, fields=fields):
            if cls not in seen:
                seen.add(cls)
                for field in fields:
                    yield from in_types(field.type, seen)
        case inspect.UnionType(types=types):
            for each in types:
                yield from in_types(each, seen)
        case inspect.DictType(key_type=key, value_type=value):
            yield from in_types(key, seen)
            yield from in_types(value, seen)
        case inspect.CollectionType(item_type=item):
            yield from in_types(item, seen)
        case inspect.TupleType(item_types=items):
            for each in items:
                yield from in_types(each, seen)


def patterns() -> dict[str | bytes, re.Pattern[Any]]:
    """Every pattern in `contracts`: those of the Structs' members, and those compiled or named in a module."""
    found: dict[str | bytes, re.Pattern[Any]] = {}
    seen: set[Any] = set()
    for module in modules():
        if module.__name__ in own_texts_only:
            continue
        for name, value in vars(module).items():
            if isinstance(value, re.Pattern):
                found[value.pattern] = value
            elif name.endswith("_pattern") and isinstance(value, str):
                found[value] = re.compile(value)
            elif isinstance(value, type) and issubclass(value, Document) and value.__module__.startswith("contracts."):
                for pattern in in_types(inspect.type_info(value), seen):
                    found[pattern] = re.compile(pattern)
    return found


every_pattern = patterns()


def test_patterns_are_found() -> None:
    """ACC-5: at least the well-known ones, so that the next test is not about nothing."""
    assert len(every_pattern) > 15
    for part in ("sha256", "wss", "ext", "%[0-9A-Fa-f]", "(?:T(?=[0-9])"):
        assert any(part in str(pattern) for pattern in every_pattern), part


@pytest.mark.parametrize("pattern", every_pattern.values(), ids=lambda pattern: str(pattern.pattern)[:32])
def test_no_pattern_goes_back_far(pattern: re.Pattern[Any]) -> None:
    """ACC-5: for near matches of 64 Ki signs in every combination the time stays that of one reading."""
    for length in lengths:
        for prefix in prefixes:
            for unit in units:
                text = prefix + unit * (length // len(unit))
                for suffix in suffixes:
                    received: str | bytes = text + suffix
                    if isinstance(pattern.pattern, bytes):
                        received = (text + suffix).encode("utf-8", "surrogatepass")
                    started = time.process_time()
                    pattern.search(received)
                    seconds = time.process_time() - started
                    assert seconds < seconds_max, f"{prefix!r} {unit!r} × {length} {suffix!r}: {seconds:.2f} s"
