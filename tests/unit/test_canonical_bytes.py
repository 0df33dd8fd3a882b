"""RFC 8785: the published package judges both roads; the order of names and the spelling of numbers by example."""

import json
import math
import struct
from enum import Enum
from typing import Any

import msgspec
import pytest
import rfc8785
from hypothesis import example, given, settings
from hypothesis import strategies as st
from msgspec import Struct

from contracts.bounds import safe_integer_max
from contracts.canonical import (
    CanonicalizationFault,
    ParseFault,
    canonical_bytes,
    cut_signature,
    decode_canonical,
    insert_signature,
    members_behind_signature,
    number_text,
    parse_strict,
    signing_bytes,
)
from contracts.documents.common import Actor
from tests.unit.test_strict_json import spelled

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


class Tone(Enum):
    HIGH = "high"


class Mixed(Struct):
    """What MessagePack cannot settle: a text of 203 bytes looks like a number there, so every member is searched."""

    number: float | int
    tone: Tone = Tone.HIGH
    text: str = "x" * 203
    inner: Point | msgspec.UnsetType = msgspec.UNSET
    pair: tuple[int, int] = (1, 2)


@pytest.mark.parametrize("number", [1, 2.5, 2**53 - 1, 2**53, -(2**60)])
@pytest.mark.parametrize("inner", [msgspec.UNSET, Point(y=2, x=1), Point(y=0.5, x=2**53)])
def test_a_searched_struct_is_written_like_its_object(number: float, inner: Any) -> None:
    """TRU-3."""
    value = Mixed(number=number, inner=inner)
    assert canonical_bytes(value) == rfc8785.dumps(json.loads(msgspec.json.encode(value), parse_int=binary64))


def binary64(literal: str) -> int | float:
    whole = int(literal)
    return whole if abs(whole) <= safe_integer_max else float(whole)


names_around_signature = st.sampled_from(
    [
        "signature",
        "signaturf",
        "signatur",
        "signature\0",
        "signatures",
        "sig",
        "",
        "a",
        "z",
        "é",
        "\uffff",
        "\U00010000",
    ]
)
documents = st.dictionaries(names_around_signature | any_text | awkward_name, values, max_size=6)
signatures = st.fixed_dictionaries({"algorithm": any_text, "value": any_text}) | values


@quick
@given(documents, signatures)
@example({}, {"value": "x"})
@example({"a": {"signature": {"value": "x"}}}, {"value": "x"})
@example({"z": 1.5, "\U00010000": 1, "\ue000": 2}, None)
def test_a_signature_is_inserted_where_it_belongs(document: dict[str, Any], signature: Any) -> None:
    """TRU-3: writing the whole again would give the same bytes, whatever sorts before and behind."""
    document.pop("signature", None)
    unsigned, behind = canonical_bytes(document), members_behind_signature(document)
    assert insert_signature(unsigned, signature, behind) == canonical_bytes({**document, "signature": signature})


plain_values = st.recursive(
    st.none() | st.booleans() | whole | any_text,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(any_text | names_around_signature, inner, max_size=5),
    max_leaves=20,
)


@quick
@given(st.dictionaries(any_text | names_around_signature, plain_values, max_size=6), plain_values)
@example({}, {})
@example({"payload": {"signature": {}}, "workItemId": "x"}, {})
def test_a_signature_is_cut_out_of_canonical_bytes(document: dict[str, Any], signature: Any) -> None:
    """TRU-3: only the top-level one, and exactly what the definition leaves out."""
    document["signature"] = signature
    whole_bytes = canonical_bytes(document)
    if decode_canonical(whole_bytes, any_json, len(whole_bytes)) is not None:
        behind = members_behind_signature(document)
        assert cut_signature(whole_bytes, signature, behind) == signing_bytes(document)


any_json = msgspec.json.Decoder()


@quick
@given(plain_values)
def test_canonical_bytes_are_decoded_at_once(value: Any) -> None:
    """TRU-3: the short cut is taken by all plain values but those whose names may sort otherwise."""
    raw = canonical_bytes(value)
    decoded = decode_canonical(raw, any_json, len(raw))
    awkward = any(lead in raw for lead in (0xEE, 0xEF)) and any(lead in raw for lead in range(0xF0, 0xF5))
    assert decoded == value or awkward or value is None


@quick
@given(spelled() | values.map(lambda value: canonical_bytes(value).decode()))
@example('{"a":1,"a":1}')
@example('{"a":1,"\\u0061":1}')
@example('{"b":1,"a":2}')
@example('{"a":1.0}')
@example('{"a":-0}')
@example('{"a":9007199254740993}')
@example('{"\\ud800":1}')
@example('{"\U00010000":1,"\ue000":2}')
@example('{"\ue000":2,"\U00010000":1}')
@example("[" * 129 + "]" * 129)
def test_what_is_decoded_at_once_is_canonical(text: str) -> None:
    """TRU-1, TRU-3: nothing that the strict parse refuses or reads otherwise, and no other spelling, gets through."""
    raw = text.encode()
    decoded = decode_canonical(raw, any_json, len(raw))
    if decoded is not None:
        assert repr(parse_strict(raw, len(raw))) == repr(decoded) or canonical_bytes(decoded) == raw
        assert canonical_bytes(parse_strict(raw, len(raw))) == raw
    assert decode_canonical(raw, any_json, len(raw) - 1) is None
    try:
        is_canonical = canonical_bytes(parse_strict(raw, len(raw))) == raw
    except (ParseFault, CanonicalizationFault):
        is_canonical = False
    assert is_canonical or decoded is None


@pytest.mark.parametrize(
    "raw",
    [
        b'{"id":"urn:x:y","type":"agent","type":"agent"}',
        b'{"id":"urn:x:y","type":"agent","unknown":1}',
        b'{"type":"agent","id":"urn:x:y"}',
        b'{"id":"urn:x:y", "type":"agent"}',
        b'{"id":"urn:x:y"}',
        b'{"id":"urn:x:y\\u0021","type":"agent"}',
        b'{"id":"urn:x:y","type":"agent"} ',
        b'{"id":"urn:x:y","type":"nobody"}',
        b'{"id":"no uri","type":"agent"}',
        b"\xff",
        b"",
    ],
)
def test_only_its_one_spelling_becomes_a_document_at_once(raw: bytes) -> None:
    """TRU-1: repeats, unknown members, another order, white space, escapes, a broken schema: the stages tell."""
    decoder = msgspec.json.Decoder(Actor)
    assert decode_canonical(raw, decoder, 1_000) is None
    good = b'{"id":"urn:x:y","type":"agent"}'
    assert decode_canonical(good, decoder, 1_000) == msgspec.convert(parse_strict(good, 1_000), Actor)
