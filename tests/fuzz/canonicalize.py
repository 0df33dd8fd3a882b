"""Canonical bytes against the plain `rfc8785` package, and what makes them canonical (TRU-3).

The input is a JSON text, or a row of choices that makes a value: fuzzing finds both.
"""

import json
import math
from collections.abc import Iterator
from typing import Any, Final

import rfc8785

from contracts.canonical import CanonicalizationFault, ParseFault, canonical_bytes, parse_strict
from contracts.documents.common import Actor, ActorType
from contracts.signature import SigningKey, sign_document
from tests.fuzz.choices import Choices
from tests.fuzz.drive import fuzz

refused: Final = b"refused"
limit_bytes: Final = 1 << 20
signer: Final = SigningKey("urn:x:key", Actor(type=ActorType.SERVICE, id="urn:x:service"), bytes(32))


def check(data: bytes) -> None:
    """Any bytes: a JSON text if they are one, else the value that they choose."""
    try:
        value = parse_strict(data, limit_bytes)
    except ParseFault:
        value = as_parsed(Choices(data).value())
    raw = _canonical(value)
    assert raw == _by_library(value), f"{raw[:200]!r} is not what rfc8785 gives for {value!r:.200}"
    if raw == refused:
        return
    again = parse_strict(raw, limit_bytes)
    assert _in_order(again) == _in_order(value), "the canonical bytes mean another value"
    assert canonical_bytes(again) == raw, "canonical bytes have other canonical bytes"
    assert canonical_bytes(_turned(value)) == raw, "the order of members matters"
    if isinstance(value, dict):
        signed = dict(value)
        assert sign_document(signed, signer, "") == canonical_bytes(signed), "signing writes other bytes"
    for text in (json.dumps(value), json.dumps(value, ensure_ascii=False, indent=1)):
        spelled = parse_strict(text.encode(), 1 << 22)
        assert canonical_bytes(spelled) == raw, "the spelling matters"


def _canonical(value: Any) -> bytes:
    try:
        return canonical_bytes(value)
    except CanonicalizationFault:
        return refused


def _by_library(value: Any) -> bytes:
    try:
        return rfc8785.dumps(value)
    except ValueError:
        return refused


def as_parsed(value: Any) -> Any:
    """A value as the strict parse would give it: integral numbers within ±(2^53-1) are int."""
    match value:
        case dict():
            return {name: as_parsed(member) for name, member in value.items()}
        case list():
            return [as_parsed(item) for item in value]
        case float() if math.isfinite(value) and value.is_integer() and abs(value) < 2.0**53:
            return int(value)
    return value


def _in_order(value: Any) -> str:
    """A spelling in which equal values are equal and others are not."""
    match value:
        case dict():
            members = sorted((name, _in_order(member)) for name, member in value.items())
            return f"{{{members}}}"
        case list():
            return f"[{[_in_order(item) for item in value]}]"
    return repr(value)


def _turned(value: Any) -> Any:
    match value:
        case dict():
            return {name: _turned(member) for name, member in reversed(value.items())}
        case list():
            return tuple(_turned(item) for item in value)
    return value


def seeds() -> Iterator[bytes]:
    """Texts with every awkward order, escape and number; rows of choices."""
    yield from (
        b"[0.5,1e21,1e-7,123456789012345680000,1e20,0.000001,5e-324,1.7976931348623157e308,333333333.33333329]",
        b"[1e400]", b'"\\ud800"', b'{"\\udc00":1}', b'{"b":1,"a":{"d":[],"c":{}}}', b'"\\u0000\\u001f\\u007f\\u2028/"',
        '{"\ue000":1,"\U0001f600":2,"z":3}'.encode(), '{"\uffff":1,"\U00010000":0.5}'.encode(), b'{"10":1,"9":2,"":3}',
        b"9007199254740993", b"-0.0", b'{"signature":1,"signaturf":2,"a":0.5}',
        '{"signature":1,"\ue000":2}'.encode(), b"[true,false,null]",
    )  # fmt: skip
    for first in range(9):
        yield bytes([first]) + bytes(range(1, 60))
        yield bytes([first]) + bytes(range(250, 190, -1))


if __name__ == "__main__":
    fuzz("canonicalize")
