"""RFC 8785: the published package judges both roads; the order of names and the spelling of numbers by example."""

import json
import math
import struct
from typing import Any

import pytest
import rfc8785
from hypothesis import example, given, settings
from hypothesis import strategies as st
from msgspec import Struct

from contracts.bounds import safe_integer_max
from contracts.canonical import CanonicalizationFault, canonical_bytes, number_text, parse_strict, signing_bytes

quick = settings(max_examples=200, deadline=None)
whole = st.integers(-safe_integer_max, safe_integer_max)
finite = st.floats(allow_nan=False, allow_infinity=False)
any_text = st.text(st.characters(exclude_categories=("Cs",)), max_size=8)
awkward_name = st.text(st.sampled_from('a\0\x1f\x7f"\\/é€\ue000\uffff\U00010000\U0001f600'), max_size=3)
values = st.recursive(
    st.none() | st.booleans() | whole | finite | any_text,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(any_text | awkward_name, inner, max_size=5),
    max_leaves=20,
)


@quick
@given(values)
@example({"\U0001f600": 1, "\ue000": 2, "\uffff": 3})
@example({"t": "2026-07-15T10:20:30.123456Z, [1.5], :1e5,"})
@example([1e21, 1e-7, -0.0, 5e-324, 1.7976931348623157e308, 333333333.33333329, 2.0**53, 1e20])
@example("null")
@example({"a": None, "b": float(7)})
def test_bytes_are_those_of_the_published_package(value: Any) -> None:
    """TRU-3."""
    assert canonical_bytes(value) == rfc8785.dumps(value)


@quick
@given(values)
def test_canonical_bytes_survive_a_round_trip(value: Any) -> None:
    """TRU-3, ACC-5: parsing canonical bytes and writing them again changes nothing."""
    first = canonical_bytes(value)
    assert canonical_bytes(parse_strict(first, len(first))) == first


@quick
@given(values)
def test_spelling_does_not_matter(value: Any) -> None:
    """TRU-3: escapes, white space and the order of members leave no trace."""
    spelled = json.dumps(value, ensure_ascii=True, indent=1).encode()
    assert canonical_bytes(parse_strict(spelled, len(spelled))) == canonical_bytes(value)


@quick
@given(st.binary(min_size=8, max_size=8))
def test_every_binary64_number_is_spelled_as_the_package_does(bits: bytes) -> None:
    """TRU-3: RFC 8785 3.2.2.3."""
    (number,) = struct.unpack(">d", bits)
    if math.isfinite(number):
        assert number_text(number) == rfc8785.dumps(number).decode()
        assert float(number_text(number)) == number
    else:
        with pytest.raises(CanonicalizationFault):
            canonical_bytes({"n": number})


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (2**53 + 1, b"9007199254740992"),
        (2**53, b"9007199254740992"),
        (-(2**53) - 1, b"-9007199254740992"),
        (2**60, b"1152921504606847000"),
        (2**70, b"1.1805916207174113e+21"),
        (10**21, b"1e+21"),
        (10**20, b"100000000000000000000"),
        (safe_integer_max, b"9007199254740991"),
        (4294967296, b"4294967296"),
        (-0.0, b"0"),
        (1.0, b"1"),
        (1e-6, b"0.000001"),
        (1e-7, b"1e-7"),
        (1e21, b"1e+21"),
        (True, b"true"),
        ([], b"[]"),
        ({}, b"{}"),
        ({"b": {}, "a": []}, b'{"a":[],"b":{}}'),
        ('\0\b\t\n\f\r\x1b\x7f"\\/\u2028', '"\\u0000\\b\\t\\n\\f\\r\\u001b\x7f\\"\\\\/\u2028"'.encode()),
        ({"\ue000": 1, "\U00010000": 2}, '{"\U00010000":2,"\ue000":1}'.encode()),
    ],
)
def test_spelling_by_example(value: Any, text: bytes) -> None:
    """TRU-3: integers beyond 2^53-1 are binary64, names sort by UTF-16 units."""
    assert canonical_bytes(value) == text
    assert canonical_bytes({"x": [value]}) == b'{"x":[' + text + b"]}"


@pytest.mark.parametrize(
    "value",
    [
        "\ud800",
        {"\udc00": 1},
        {"a": ["\ud83d"]},
        [float("nan")],
        [float("inf")],
        {"a": float("-inf"), "b": None},
        10**400,
        {"a": 10**400},
        {"a": object()},
        {"a": {1, 2.5, object()}},
        {1.5: 2.5},
    ],
)
def test_what_has_no_canonical_bytes_is_refused(value: Any) -> None:
    """ACC-5, TRU-3: lone surrogates, numbers beyond binary64, what is no JSON at all."""
    with pytest.raises(CanonicalizationFault):
        canonical_bytes(value)


def test_endless_nesting_is_a_fault() -> None:
    """ACC-5: a value that code nested without end never ends in a RecursionError."""
    nested: list[Any] = [1.5]
    for _ in range(100_000):
        nested = [nested]
    with pytest.raises(CanonicalizationFault):
        canonical_bytes(nested)
    while nested and isinstance(nested[0], list):  # taken apart step by step, as its own end would recurse
        nested = nested.pop()


class Point(Struct):
    y: float
    x: int


def test_structs_are_written_like_their_objects() -> None:
    """TRU-3: a Struct has the canonical bytes of the object that it stands for."""
    assert canonical_bytes(Point(y=2.0, x=1)) == b'{"x":1,"y":2}'


def test_signing_bytes_leave_out_the_top_level_signature_only() -> None:
    """TRU-3: a nested `signature` is covered; the document itself is left as it is."""
    document = {"signature": {"value": "x"}, "payload": {"signature": "kept"}}
    assert signing_bytes(document) == b'{"payload":{"signature":"kept"}}'
    assert "signature" in document
    assert signing_bytes({"a": 1}) == b'{"a":1}'
