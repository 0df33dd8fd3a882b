"""The strict parse: what is one JSON value, what is refused, and that neither road of the parser differs."""

import json
import time
from contextlib import suppress
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from contracts import canonical
from contracts.bounds import nesting_depth_max
from contracts.canonical import CanonicalizationFault, ParseFault, canonical_bytes, parse_strict

limit = 4 * 1024 * 1024
quick = settings(max_examples=200, deadline=None)


def parse(raw: bytes) -> Any:
    return parse_strict(raw, limit)


def same(first: Any, second: Any) -> bool:
    """Equal with equal types: 1 and 1.0, True and 1, 0.0 and -0.0 all differ."""
    return repr(first) == repr(second)


@pytest.mark.parametrize(
    ("raw", "value"),
    [
        (b'{"a":[1,true,false,null,"x"]}', {"a": [1, True, False, None, "x"]}),
        (b' \t\n\r{ "a" : 1 } \r\n', {"a": 1}),
        (b'"\\u0000"', "\0"),
        (b'"\x7f"', "\x7f"),
        (b'"\\ud83d\\ude00"', "\U0001f600"),
        ('"\U0001f600\ue000"'.encode(), "\U0001f600\ue000"),
        (b"1.0", 1),
        (b"-0", 0),
        (b"-0.0", 0),
        (b"10e-1", 1),
        (b"1e2", 100),
        (b"0.5", 0.5),
        (b"9007199254740991", 9007199254740991),
        (b"9007199254740992", 9007199254740992.0),
        (b"9007199254740993", 9007199254740992.0),
        (b"-9007199254740993", -9007199254740992.0),
        (b"123456789012345678901234567890", 1.2345678901234568e29),
        (b"1e-400", 0),
        (b"1e21", 1e21),
        (b'{"a\\u003ab":1,"a:b2":2}', {"a:b": 1, "a:b2": 2}),
        (b'{"":{"":{}}}', {"": {"": {}}}),
    ],
)
def test_strict_json_is_read_as_binary64_data(raw: bytes, value: Any) -> None:
    """ACC-5, TRU-3: U+0000, 2^53+1, -0.0 and every spelling of an integer have one meaning."""
    assert same(parse(raw), value)
    assert same(parse(b'{"x":' + raw.strip() + b"}")["x"], value)


@pytest.mark.parametrize(
    "raw",
    [
        b"",
        b" ",
        b"\xef\xbb\xbf{}",
        b"{}\x00",
        b"{} {}",
        b"{}x",
        b"\xff\xfe{\x00}\x00",
        b'"\xc0\x80"',
        b'"\xe0\x80\xaf"',
        b'"\xf4\x90\x80\x80"',
        b'"\xed\xa0\x80"',
        b'"\xed\xb0\x80\xed\xa0\x80"',
        b'"\xff"',
        b'{"\xff":1}',
        b'"\xe2\x82"',
        b'"a\nb"',
        b'"\x1f"',
        b'"\\x41"',
        b'"\\u12"',
        b'"\\U0041"',
        b"'a'",
        b"[1,]",
        b'{"a":1,}',
        b"[1 2]",
        b"{a:1}",
        b"{1:1}",
        b"[",
        b'"',
        b"01",
        b"-01",
        b"1.",
        b".5",
        b"+1",
        b"1e",
        b"0x1",
        b"1_000",
        b"NaN",
        b"Infinity",
        b"-Infinity",
        b"nan",
        b"True",
        b"nul",
        b"// x\n1",
        b"[1]//",
        b"\x0c1",
        "\u00a01".encode(),
        "\uff11".encode(),
        b'{"a":1,"a":1}',
        b'{"a":1,"b":{"c":1,"c":2}}',
        b'{"a":1,"\\u0061":2}',
        b'{"a:b":1,"a\\u003ab":2}',
        b'{"a:b":1,"a\\u003Ab":2}',
        b'{"\\ud83d\\ude00":1,"\xf0\x9f\x98\x80":2}',
        b'{"\\uD800":1,"\\ud800":2}',
        b'{"/":1,"\\/":2}',
        b'{"x":"\\u003a","a":1,"a":2}',
        b'{"x":"::","a":1,"a":{"b":":"}}',
    ],
)
def test_what_is_not_one_strict_json_value_is_refused(raw: bytes) -> None:
    """ACC-5, TRU-1 parse: BOM, overlong UTF-8, trailing data, names that differ only by escapes, lax spellings."""
    with pytest.raises(ParseFault) as refused:
        parse(raw)
    assert str(refused.value).isprintable()
    assert len(str(refused.value)) < 200


@pytest.mark.parametrize("raw", [b'"\\ud800"', b'{"\\udc00":1}', b'["\\ud83d\\ud83d\\ude00"]', b'"\\ude00\\ud83d"'])
def test_a_lone_surrogate_is_left_to_canonicalization(raw: bytes) -> None:
    """ACC-5, TRU-3: JSON can write it, its data model cannot hold it."""
    value = parse(raw)
    with pytest.raises(CanonicalizationFault):
        canonical_bytes(value)


@pytest.mark.parametrize("raw", [b"1e400", b"-1e400", b'{"x":[1e309]}', b"9" * 400, b"-" + b"9" * 400, b"9" * 250_000])
def test_a_number_beyond_binary64_is_left_to_canonicalization(raw: bytes) -> None:
    """ACC-5, TRU-3."""
    value = parse(raw)
    with pytest.raises(CanonicalizationFault):
        canonical_bytes(value)


def test_size_is_refused_before_anything_is_read() -> None:
    """ACC-5: a size bomb."""
    assert parse_strict(b"[1]", 3) == [1]
    with pytest.raises(ParseFault, match=r"^4 bytes exceed the limit of 3$"):
        parse_strict(b"[1] ", 3)


@pytest.mark.parametrize(("opening", "closing"), [(b"[", b"]"), (b'{"a":', b"}"), (b'[{"a":', b"}]")])
def test_nesting_is_bounded(opening: bytes, closing: bytes) -> None:
    """ACC-5: a depth bomb ends in a clean fault, and the bound itself is allowed."""
    levels = opening.count(b"[") + opening.count(b"{")
    allowed = nesting_depth_max // levels
    parse(opening * allowed + b"1" + closing * allowed)
    with pytest.raises(ParseFault, match="levels deep"):
        parse(opening * (allowed + 1) + b"1" + closing * (allowed + 1))
    with pytest.raises(ParseFault, match="levels deep"):
        parse(opening * 10_000 + b"1" + closing * 10_000)
    with pytest.raises(ParseFault):
        parse(opening * 10_000)


def test_brackets_in_texts_are_not_nesting() -> None:
    """ACC-5."""
    text = '[{"' * 1_000 + "\\"
    assert parse(json.dumps({"a": [text] * 10}).encode()) == {"a": [text] * 10}


@pytest.mark.parametrize(
    "raw",
    [
        b"{" + b",".join(b'"member %d":1' % n for n in range(100_000)) + b"}",
        b"{" + b",".join(b'"m\\u0061%d":1.5' % n for n in range(100_000)) + b"}",
        b'{"a":0,' + b",".join(b'"%d":1' % n for n in range(100_000)) + b',"a":1}',
        b'"' + b'\\"' * 500_000,
        b"[" * 200 + b'"' + b'\\"' * 500_000,
        b"[" * 200 + b'"\\' * 200_000,
        b"[" * 500_000,
        b"[" + b",".join([b"[" * 127 + b"]" * 127] * 4_000) + b"]",
        b"[0." + b"9" * 1_000_000 + b"]",
        b"[0." + b"0" * 1_000_000 + b"1]",
        b"[1" + b"0" * 1_000_000 + b"]",
        b"[1e" + b"9" * 1_000_000 + b"]",
        b'["' + b":" * 1_000_000 + b'"]',
        b'["' + b"\\u003a" * 300_000 + b'"]',
        b" " * 1_000_000 + b"1" + b" " * 1_000_000,
    ],
    ids=lambda raw: f"{raw[:12]!r}x{len(raw)}",
)
def test_time_is_linear_in_the_bytes(raw: bytes) -> None:
    """ACC-5: no input of some megabytes takes long, whatever it consists of."""
    started = time.process_time()
    with suppress(ParseFault):
        parse(raw)
    assert time.process_time() - started < 2.0


@st.composite
def spelled(draw: st.DrawFn, depth: int = 3) -> str:
    """JSON texts in many spellings, some of them faulty: repeated names, lone surrogates, huge numbers."""
    space = draw(st.sampled_from(["", "", "", " ", "\n"]))
    shapes = ["scalar"] if depth == 0 else ["scalar", "scalar", "array", "object", "object"]
    shape = draw(st.sampled_from(shapes))
    if shape == "array":
        items = draw(st.lists(spelled(depth - 1), max_size=4))
        return f"{space}[{','.join(items)}]"
    if shape == "object":
        pairs = draw(st.lists(st.tuples(names, spelled(depth - 1)), max_size=4))
        members = ",".join(f"{name}{space}:{value}" for name, value in pairs)
        return f"{{{members}}}{space}"
    return space + draw(scalars)


names = st.sampled_from(
    ['"a"', '"\\u0061"', '"b"', '"a:b"', '"a\\u003ab"', '"a\\u003Ab"', '"\\/"', '"é"', '"\\u00e9"', '""']
)
scalars = st.one_of(
    st.sampled_from(["true", "false", "null", "1.0", "-0", "-0.0", "0e5", "1e400", "1E2", "0.1", "1e-7", "tru", "01"]),
    st.integers(-(2**70), 2**70).map(str),
    st.floats().map(repr),
    st.text(max_size=6).map(json.dumps),
    st.text(max_size=6).map(lambda text: json.dumps(text, ensure_ascii=False)),
    names,
    st.sampled_from(['"\\ud800"', '"\\ud83d\\ude00"', '"::"', '"2026-07-15T10:20:30.5Z"', '"a,1.5,b"', '"\\u003a"']),
)


def outcome(parser: Any, raw: bytes) -> str:
    try:
        return repr(parser(raw))
    except ParseFault:
        return "refused"


@quick
@given(spelled())
@example('{"a":":","a":1}')
@example('{"x":"\\u003a","a":1,"a":1}')
def test_both_roads_read_the_same(text: str) -> None:
    """TRU-3: the plain road only ever takes what the full road would read the same."""
    raw = text.encode()
    assert outcome(parse, raw) == outcome(canonical._parse_fully, raw)


@quick
@given(spelled(), st.data())
def test_both_roads_read_damaged_bytes_the_same(text: str, data: st.DataObject) -> None:
    """ACC-5: any byte changed, inserted or cut."""
    raw = bytearray(text.encode())
    for _ in range(data.draw(st.integers(1, 3))):
        at = data.draw(st.integers(0, len(raw)))
        raw[at : at + data.draw(st.integers(0, 2))] = data.draw(
            st.binary(max_size=2) | st.sampled_from([b'"', b"\\", b":"])
        )
    assert outcome(parse, bytes(raw)) == outcome(canonical._parse_fully, bytes(raw))


@quick
@given(st.binary(max_size=40))
def test_any_bytes_give_a_value_or_a_fault(raw: bytes) -> None:
    """ACC-5: nothing but ParseFault ever escapes."""
    outcome(parse, raw)
