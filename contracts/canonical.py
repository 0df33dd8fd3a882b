"""JSON in and out: the strict parse and the canonical bytes of RFC 8785.

Both have a plain and a full road. The plain road is msgspec's C code, taken only where its result is provably that
of the full road; what is not plain (floats, integers beyond ±(2^53-1), escapes that could hide a colon, every fault)
goes the full road, which alone decides what is refused and why. Numbers are binary64 throughout (RFC 7493): integral
values within ±(2^53-1) are `int`, all others `float`. What JSON can write but its data model cannot hold (a lone
surrogate, a number beyond binary64) passes the parse as it is and is refused by `canonical_bytes`: in the six
stages such a document fails at canonicalization (TRU-3, ACC-5).
"""

import json
import re
from collections.abc import Mapping
from itertools import accumulate
from math import inf, isfinite
from typing import Any, Final, NoReturn

import msgspec

from contracts.bounds import nesting_depth_max, number_digits_max, safe_integer_max

_safe_digits: Final = 15
"""Integers of at most so many digits are within ±(2^53-1) whatever the digits are."""
_fixed_point_max: Final = 21
_fixed_point_min: Final = -6
"""ECMAScript writes a number without exponent while its decimal point stands within these places (RFC 8785 3.2.2.3)."""


class ParseFault(ValueError):
    """The bytes are not exactly one strict JSON value within the bounds; the message says where and why."""


class CanonicalizationFault(ValueError):
    """The value has no canonical bytes: a lone surrogate, a number beyond binary64, or no JSON value at all."""


def parse_strict(raw: bytes, limit_bytes: int) -> Any:
    """One JSON value from strict UTF-8: no BOM, nothing after it, no member name twice (after decoding escapes).

    At most `limit_bytes` bytes and `bounds.nesting_depth_max` levels; time is linear in the bytes. Raises
    ParseFault. A number beyond binary64 becomes ±infinity and a lone surrogate stays in its text: see the module.
    """
    if len(raw) > limit_bytes:
        raise ParseFault(f"{len(raw)} bytes exceed the limit of {limit_bytes}")
    _check_depth(raw)
    if _backslash in raw and _colon_escape in raw:
        return _parse_fully(raw)
    try:
        value = _plain_decoder.decode(raw)
        encoded = _plain_encoder.encode(value)
    except (msgspec.MsgspecError, UnicodeError, RecursionError):
        return _parse_fully(raw)
    # The decoder keeps the last of two members of one name: the other's colon is missing then.
    all_members_kept = encoded == raw or encoded.count(b":") == raw.count(b":")
    return value if all_members_kept and _holds_safe_integers_only(value) else _parse_fully(raw)


def canonical_bytes(value: Any) -> bytes:
    """The RFC 8785 bytes of a JSON value or of a Struct, which stands for its object. Raises CanonicalizationFault.

    Tuples are arrays; an Enum is its value.
    """
    try:
        if _holds_safe_integers_only(value):
            encoded = _plain_encoder.encode(value)
            if encoded.isascii() or not _may_sort_otherwise(encoded):
                return encoded
        return _ordered_encoder.encode(_canonical_form(msgspec.to_builtins(value)))
    except UnicodeEncodeError as fault:
        raise CanonicalizationFault("a text holds a lone surrogate") from fault
    except RecursionError as fault:
        raise CanonicalizationFault("the value is nested too deeply") from fault
    except (TypeError, msgspec.MsgspecError) as fault:
        raise CanonicalizationFault(f"not a JSON value: {fault}") from fault


def signing_bytes(document: Mapping[str, Any]) -> bytes:
    """What a signature covers: the document without its top-level `signature`. Raises CanonicalizationFault."""
    unsigned = dict(document)
    unsigned.pop("signature", None)
    return canonical_bytes(unsigned)


# The plain road.

_plain_decoder: Final = msgspec.json.Decoder()
_plain_encoder: Final = msgspec.json.Encoder(order="sorted")
_backslash: Final = ord("\\")
_colon_escape: Final = b"\\u003"
_pack: Final = msgspec.msgpack.Encoder().encode
_plain_scalars: Final = frozenset({str, bool, type(None)})


def _holds_safe_integers_only(value: Any) -> bool:
    """Whether surely no number in the value is a float or beyond ±(2^53-1). A Struct may get a "no" in error.

    MessagePack opens every binary64 and every integer of more than 32 bits with one of three bytes. Where they are
    not in its encoding, which is made in C, nobody needs to search the value.
    """
    try:
        packed = _pack(value)
    except OverflowError:
        return False
    if 0xCB in packed or 0xCF in packed or 0xD3 in packed:
        return _search_found_safe_integers_only(value)
    return True


def _search_found_safe_integers_only(value: Any) -> bool:
    found = [value]
    for item in found:
        kind = type(item)
        if kind is dict:
            found.extend(item.values())
        elif kind is list or kind is tuple:
            found.extend(item)
        elif kind is int:
            if not -safe_integer_max <= item <= safe_integer_max:
                return False
        elif kind not in _plain_scalars:
            return False
    return True


def _may_sort_otherwise(encoded: bytes) -> bool:
    """Whether code-point order of names may differ from RFC 8785's order of UTF-16 units.

    It does only between U+E000…U+FFFF and U+10000 and up, whose UTF-8 begins with EE or EF and F0 to F4.
    """
    if 0xEE not in encoded and 0xEF not in encoded:
        return False
    return any(lead in encoded for lead in range(0xF0, 0xF5))


# The full road, in.

_strings: Final = re.compile(rb'"(?:[^"\\]++|\\.)*+\\?(?:"|\Z)', re.DOTALL)
"""Every string, also one that the input ends in: it matches at every quote, so a scan is linear for any bytes."""
_not_brackets: Final = bytes(byte for byte in range(256) if byte not in b"[]{}")
_as_steps: Final = bytes(1 if byte in b"[{" else 255 for byte in range(256))


def _check_depth(raw: bytes) -> None:
    """Refuse deeper nesting than `nesting_depth_max` before any recursive parser sees it."""
    if raw.count(b"[") + raw.count(b"{") <= nesting_depth_max:
        return
    steps = memoryview(_strings.sub(b"", raw).translate(_as_steps, _not_brackets)).cast("b")
    depth = max(accumulate(steps), default=0)
    if depth > nesting_depth_max:
        raise ParseFault(f"nested {depth} levels deep; at most {nesting_depth_max} are allowed")


def _parse_fully(raw: bytes) -> Any:
    try:
        text = raw.decode("utf-8")
    except UnicodeDecodeError as fault:
        raise ParseFault(f"not UTF-8: {fault.reason} at byte {fault.start}") from fault
    if text.startswith("\ufeff"):
        raise ParseFault("begins with a byte order mark")
    try:
        return _full_decoder.decode(text)
    except json.JSONDecodeError as fault:
        raise ParseFault(f"not one JSON value: {fault.msg} at character {fault.pos}") from fault


def _members(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    members = dict(pairs)
    if len(members) != len(pairs):
        seen: set[str] = set()
        for name, _ in pairs:
            if name in seen:
                raise ParseFault(f"member name {name[:80]!r} appears twice in one object")
            seen.add(name)
    return members


def _integer(literal: str) -> int | float:
    if len(literal) <= _safe_digits:
        return int(literal)
    if len(literal) > number_digits_max:
        return -inf if literal.startswith("-") else inf
    return _binary64(literal)


def _binary64(literal: str) -> int | float:
    value = float(literal)
    return int(value) if value.is_integer() and abs(value) <= safe_integer_max else value


def _refuse_constant(literal: str) -> NoReturn:
    raise ParseFault(f"{literal} is not JSON")


_full_decoder: Final = json.JSONDecoder(
    object_pairs_hook=_members, parse_int=_integer, parse_float=_binary64, parse_constant=_refuse_constant
)

# The full road, out.

_ordered_encoder: Final = msgspec.json.Encoder()
"""Keeps the order of names that it is given; its escapes are those of RFC 8785 3.2.2.2."""


def _canonical_form(value: Any) -> Any:
    """The value with names in RFC 8785's order and every number that msgspec writes otherwise as its final text."""
    kind = type(value)
    if kind is dict:
        return {name: _canonical_form(value[name]) for name in sorted(value, key=_utf16_units)}
    if kind is list or kind is tuple:
        return [_canonical_form(item) for item in value]
    if kind is float or (kind is int and not -safe_integer_max <= value <= safe_integer_max):
        return msgspec.Raw(number_text(value).encode())
    return value


def _utf16_units(name: Any) -> bytes:
    if type(name) is not str:
        raise TypeError(f"member name {name!r} is not text")
    # Big-endian bytes compare as the units do; a lone surrogate is refused when it is encoded.
    return name.encode("utf-16-be", "surrogatepass")


def number_text(value: float) -> str:
    """A binary64 number as ECMAScript writes it (RFC 8785 3.2.2.3). Raises CanonicalizationFault beyond binary64."""
    try:
        number = float(value)
    except OverflowError:
        number = inf
    if not isfinite(number):
        raise CanonicalizationFault("a number is beyond binary64")
    if number == 0:
        return "0"
    mantissa, _, exponent = repr(abs(number)).partition("e")
    whole, _, fraction = mantissa.partition(".")
    digits = (whole + fraction).lstrip("0")
    # Where the decimal point stands, counted from the first digit that is not zero.
    point = len(digits) - len(fraction) + int(exponent or 0)
    return ("-" if number < 0 else "") + _place_point(digits.rstrip("0"), point)


def _place_point(digits: str, point: int) -> str:
    """0.`digits` × 10^`point` in ECMAScript's four spellings."""
    if len(digits) <= point <= _fixed_point_max:
        return digits + "0" * (point - len(digits))
    if 0 < point <= _fixed_point_max:
        return f"{digits[:point]}.{digits[point:]}"
    if _fixed_point_min < point <= 0:
        return f"0.{'0' * -point}{digits}"
    fraction = f".{digits[1:]}" if len(digits) > 1 else ""
    return f"{digits[0]}{fraction}e{point - 1:+d}"
