"""The strict parse against two other readers: same verdict and same value for any bytes (TRU-1 parse, ACC-5)."""

import json
from collections.abc import Iterator
from typing import Any, Final, NoReturn

from contracts.canonical import ParseFault, parse_strict
from tests.fuzz.drive import fuzz
from tests.fuzz.strict_reader import NotStrict, read_strictly

refused: Final = "refused"
limit_bytes: Final = 1 << 20


def check(data: bytes) -> None:
    """Any bytes at all."""
    parsed, why = refused, ""
    try:
        parsed = repr(parse_strict(data, limit_bytes))
    except ParseFault as fault:
        why = str(fault)
    assert why.isprintable(), "a fault says something that nobody can print"
    assert len(why) < 1_000, "a fault says too much"
    by_hand = _outcome(read_strictly, data)
    assert parsed == by_hand, f"parse_strict: {parsed[:200]}; by hand: {by_hand[:200]}"
    if parsed is not refused:
        library = _outcome(_by_library, data)
        assert parsed == library, f"parse_strict: {parsed[:200]}; json: {library[:200]}"
        _too_large(data)


def _outcome(reader: Any, data: bytes) -> str:
    # repr tells 1 from 1.0 and from True, 0.0 from -0.0, and keeps lone surrogates.
    try:
        return repr(reader(data))
    except NotStrict:
        return refused


def _too_large(data: bytes) -> None:
    try:
        parse_strict(data, len(data) - 1)
    except ParseFault:
        return
    raise AssertionError("a byte too many was taken")


def _by_library(data: bytes) -> Any:
    def members(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        if len({name for name, _ in pairs}) != len(pairs):
            raise NotStrict
        return dict(pairs)

    def number(literal: str) -> int | float:
        value = float(literal)
        return int(value) if value.is_integer() and abs(value) < 2.0**53 else value

    def constant(_literal: str) -> NoReturn:
        raise NotStrict

    text = data.decode("utf-8")
    return json.loads(text, object_pairs_hook=members, parse_int=number, parse_float=number, parse_constant=constant)


def seeds() -> Iterator[bytes]:
    """Every kind of token once, and the edges."""
    yield from (
        b"", b"{}", b"[]", b' {"a" : [1, -2.5e+3, true, false, null, "x"]}\n', b'{"a":{"b":{"c":[[[]]]}}}',
        b'{"a":1,"\\u0061":2}', b'{"a":":","a":1}', b'{"a:b":1,"a\\u003ab":2}', b'{"x":"\\u003a","a":1,"a":1}',
        b"\xef\xbb\xbf{}", b"{}{}", b"[1,]", b'"\\ud83d\\ude00\\ud800"', b'"\xf0\x9f\x98\x80\xee\x80\x80"',
        b'"\xed\xa0\x80"', b'"\xc0\xaf"', b'"\xe2\x82"', b'"\\"\\\\\\/\\b\\f\\n\\r\\t\\u0000"', b'"\x00"', b"NaN",
        b"-Infinity", b"[-0,-0.0,0e9,1E400,-1e400,1e-400]", b"[9007199254740991,9007199254740992,9007199254740993]",
        b"1.0", b"01", b"-", b"1e", b"9" * 330, b"-" + b"9" * 330, b"[" * 128 + b"]" * 128, b"[" * 129 + b"]" * 129,
        b'["' + b"[{" * 130 + b'"]', b'{"a":' * 127 + b"[]" + b"}" * 127, b'"' + b'\\"' * 200, b"[" * 140 + b'"\\',
    )  # fmt: skip


if __name__ == "__main__":
    fuzz("strict_parse")
