"""RFC 8259 read sign by sign: a second opinion on the strict parse, and a map of it for the fuzzer to cover.

Slow and plain on purpose; it shares nothing with `contracts.canonical` but what the two must agree on.
"""

import math
from typing import Any, Final

depth_max: Final = 128
_escapes: Final = {'"': '"', "\\": "\\", "/": "/", "b": "\b", "f": "\f", "n": "\n", "r": "\r", "t": "\t"}
_words: Final[dict[str, bool | None]] = {"true": True, "false": False, "null": None}
_digits: Final = "0123456789"
_hex: Final = "0123456789abcdefABCDEF"


class NotStrict(Exception):
    """The bytes are not one strict JSON value."""


def read_strictly(raw: bytes) -> Any:
    """The one value, numbers as binary64 with integral ones within ±(2^53-1) as int. Raises NotStrict."""
    try:
        text = raw.decode("utf-8", "strict")
    except UnicodeDecodeError as fault:
        raise NotStrict from fault
    reader = _Reader(text)
    value = reader.value(0)
    reader.space()
    if reader.at != len(text):
        raise NotStrict
    return value


class _Reader:
    def __init__(self, text: str) -> None:
        self.text = text
        self.at = 0

    def peek(self) -> str:
        return self.text[self.at : self.at + 1]

    def take(self) -> str:
        sign = self.peek()
        if not sign:
            raise NotStrict
        self.at += 1
        return sign

    def expect(self, sign: str) -> None:
        if self.take() != sign:
            raise NotStrict

    def space(self) -> None:
        while self.peek() in (" ", "\t", "\n", "\r"):
            self.at += 1

    def value(self, depth: int) -> Any:
        self.space()
        match self.peek():
            case "{":
                return self.members(depth + 1)
            case "[":
                return self.items(depth + 1)
            case '"':
                return self.string()
            case sign if sign and sign in "-" + _digits:
                return self.number()
        for word, value in _words.items():
            if self.text.startswith(word, self.at):
                self.at += len(word)
                return value
        raise NotStrict

    def members(self, depth: int) -> dict[str, Any]:
        self.open(depth)
        found: dict[str, Any] = {}
        if self.closed("}"):
            return found
        while True:
            self.space()
            if self.peek() != '"':
                raise NotStrict
            name = self.string()
            self.space()
            self.expect(":")
            if name in found:
                raise NotStrict
            found[name] = self.value(depth)
            if self.ended("}"):
                return found

    def items(self, depth: int) -> list[Any]:
        self.open(depth)
        found: list[Any] = []
        if self.closed("]"):
            return found
        while True:
            found.append(self.value(depth))
            if self.ended("]"):
                return found

    def open(self, depth: int) -> None:
        if depth > depth_max:
            raise NotStrict
        self.take()

    def closed(self, sign: str) -> bool:
        self.space()
        if self.peek() != sign:
            return False
        self.at += 1
        return True

    def ended(self, sign: str) -> bool:
        self.space()
        match self.take():
            case ",":
                return False
            case end if end == sign:
                return True
        raise NotStrict

    def string(self) -> str:
        self.take()
        units: list[int] = []
        while (sign := self.take()) != '"':
            if ord(sign) < 0x20:
                raise NotStrict
            if sign != "\\":
                units.extend(_utf16(sign))
                continue
            escape = self.take()
            units.extend([self.hexadecimal()] if escape == "u" else _utf16(_unescaped(escape)))
        return b"".join(unit.to_bytes(2) for unit in units).decode("utf-16-be", "surrogatepass")

    def hexadecimal(self) -> int:
        digits = "".join(self.take() for _ in range(4))
        if any(digit not in _hex for digit in digits):
            raise NotStrict
        return int(digits, 16)

    def number(self) -> int | float:
        start = self.at
        if self.peek() == "-":
            self.at += 1
        if self.peek() == "0":
            self.at += 1
        else:
            self.digits()
        if self.peek() == ".":
            self.at += 1
            self.digits()
        if self.peek() in ("e", "E"):
            self.at += 1
            if self.peek() in ("+", "-"):
                self.at += 1
            self.digits()
        number = float(self.text[start : self.at])
        safe = math.isfinite(number) and number == math.floor(number) and abs(number) < 2.0**53
        return int(number) if safe else number

    def digits(self) -> None:
        start = self.at
        while self.peek() and self.peek() in _digits:
            self.at += 1
        if self.at == start:
            raise NotStrict


def _unescaped(escape: str) -> str:
    if escape not in _escapes:
        raise NotStrict
    return _escapes[escape]


def _utf16(sign: str) -> list[int]:
    raw = sign.encode("utf-16-be")
    return [int.from_bytes(raw[at : at + 2]) for at in range(0, len(raw), 2)]
