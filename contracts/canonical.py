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
from enum import Enum
from itertools import accumulate
from math import inf, isfinite
from typing import Any, Final, NoReturn

import msgspec

from contracts.bounds import nesting_depth_max, number_digits_max, safe_integer_max

_safe_digits: Final = 15
"""Integers of at most so many digits are within ±(2^53-1) whatever the digits are."""
_fixed_point_max: Final = 20
_fixed_point_min: Final = -6
"""ECMAScript writes a number without exponent while its first digit counts these powers of ten (RFC 8785 3.2.2.3)."""


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


def decode_canonical[T](raw: bytes, decoder: msgspec.json.Decoder[T], limit_bytes: int) -> T | None:
    """What `decoder` makes of bytes that are canonical and plain; None for all others, and for what it refuses.

    A result says at once that `parse_strict` takes `raw`, that `msgspec.convert` makes the same of what it gives, and
    that `raw` is the `canonical_bytes` of either: the result written on the plain road is `raw` again, so `raw` has
    the only spelling there is for what the result holds, every member once. None says nothing.
    """
    if len(raw) > limit_bytes or _spaced_colon in raw[:_looked_at]:
        return None
    if raw.count(b"[") + raw.count(b"{") > nesting_depth_max:
        return None
    try:
        value = decoder.decode(raw)
        if _plain_encoder.encode(value) != raw or not _holds_safe_integers_only(value):
            return None
    except (msgspec.MsgspecError, UnicodeError, RecursionError):
        return None
    return value if raw.isascii() or not _may_sort_otherwise(raw) else None


def canonical_bytes(value: Any) -> bytes:
    """The RFC 8785 bytes of a JSON value or of a Struct, which stands for its object. Raises CanonicalizationFault.

    Tuples are arrays; an Enum is its value.
    """
    try:
        if _holds_safe_integers_only(value):
            encoded = _plain_encoder.encode(value)
            if encoded.isascii() or not _may_sort_otherwise(encoded):
                return encoded
        return _plain_encoder.encode(_plain_form(value))
    except UnicodeEncodeError as fault:
        raise CanonicalizationFault("a text holds a lone surrogate") from fault
    except RecursionError as fault:
        raise CanonicalizationFault("the value is nested too deeply") from fault
    except (TypeError, msgspec.MsgspecError) as fault:
        raise CanonicalizationFault(f"not a JSON value: {fault}") from fault


def signing_bytes(document: Mapping[str, Any]) -> bytes:
    """What a signature covers: the document without its top-level `signature`. Raises CanonicalizationFault."""
    unsigned = dict(document)
    unsigned.pop(_signature, None)
    return canonical_bytes(unsigned)


def cut_signature(whole: bytes, signature: Any, behind: Mapping[str, Any]) -> bytes:
    """`signing_bytes` of the document whose bytes `whole` came through `decode_canonical`, without writing them again.

    `signature` is the value of that top-level member; `behind` are the members whose names sort after it. An object's
    bytes are those of its members in order, so the last of them can be written by themselves to find where they begin.
    """
    member = _signature_member + _plain_encoder.encode(signature)
    if behind:
        tail = _plain_encoder.encode(behind)[1:]
        return whole[: -len(tail) - len(b",") - len(member)] + tail
    return whole[: -len(b"}") - len(member)].removesuffix(b",") + b"}"


def insert_signature(unsigned: bytes, signature: Any, behind: Mapping[str, Any]) -> bytes:
    """The `canonical_bytes` of the document whose `signing_bytes` are `unsigned`, without writing them again.

    The reverse of `cut_signature`, for every document. Raises CanonicalizationFault when the signature has no
    canonical bytes.
    """
    member = _signature_member + canonical_bytes(signature)
    if behind:
        tail = canonical_bytes(behind)[1:]
        return b"".join((unsigned[: -len(tail)], member, b",", tail))
    before = unsigned[: -len(b"}")]
    return b"".join((before, b"" if before == b"{" else b",", member, b"}"))


def members_behind_signature(document: Mapping[str, Any]) -> dict[str, Any]:
    """The members whose names sort after `signature`.

    Beside an ASCII name code points order names as UTF-16 units do: the first unit that differs decides, and one that
    is not ASCII, half of a surrogate pair or not, is the greater either way.
    """
    return {name: document[name] for name in document if name > _signature}


# The plain road.

_plain_decoder: Final = msgspec.json.Decoder()
_plain_encoder: Final = msgspec.json.Encoder(order="sorted")
_backslash: Final = ord("\\")
_colon_escape: Final = b"\\u003"
_spaced_colon: Final = b'": '
_looked_at: Final = 128
"""The first bytes: where they hold a space behind a colon, the bytes are not canonical and nothing else is tried."""
_signature: Final = "signature"
_signature_member: Final = b'"signature":'
_pack: Final = msgspec.msgpack.Encoder().encode
_plain_scalars: Final = frozenset({str, bool, type(None), msgspec.UnsetType})


def _holds_safe_integers_only(value: Any) -> bool:
    """Whether surely no number in the value is a float or beyond ±(2^53-1). A "no" may be said in error.

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
        if kind in _plain_scalars:
            continue
        if kind is dict:
            found.extend(item.values())
        elif kind is list or kind is tuple:
            found.extend(item)
        elif kind is int:
            if not -safe_integer_max <= item <= safe_integer_max:
                return False
        elif isinstance(item, msgspec.Struct):
            found.extend(msgspec.structs.astuple(item))
        elif isinstance(item, Enum):
            found.append(item.value)
        else:
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
"""Keeps the order of names that it is given."""
_containers: Final = frozenset({dict, list})
_utf16_places: Final = bytes({0xEE: 0xF8, 0xEF: 0xF9}.get(byte, byte) for byte in range(256))
"""UTF-8 orders as code points do; with the lead bytes of U+E000…U+FFFF behind all others it orders as UTF-16 does."""


def _plain_form(value: Any) -> Any:
    """The value, so that the plain encoder writes it canonically.

    What that encoder would write otherwise stands in it as its final bytes: numbers beyond the safe integers, and
    objects whose names have another order in UTF-16.
    """
    kind = type(value)
    if kind is dict:
        form = {name: item if type(item) in _plain_scalars else _plain_form(item) for name, item in value.items()}
        # Joining refuses a name that is no text. Most orders of names are settled by ASCII alone.
        names = "".join(form)
        return form if names.isascii() or not _may_sort_otherwise(names.encode()) else _in_utf16_order(form)
    if kind is list or kind is tuple:
        return [item if type(item) in _plain_scalars else _plain_form(item) for item in value]
    if kind is float or (kind is int and not -safe_integer_max <= value <= safe_integer_max):
        return msgspec.Raw(number_text(value).encode())
    if kind is int or kind in _plain_scalars:
        return value
    # A Struct, an Enum: what they stand for is JSON.
    built = msgspec.to_builtins(value)
    return built if type(built) is kind else _plain_form(built)


def _in_utf16_order(form: dict[str, Any]) -> msgspec.Raw:
    ordered = sorted([(name.encode().translate(_utf16_places), name) for name in form])
    members = {
        name: msgspec.Raw(_plain_encoder.encode(item)) if type(item := form[name]) in _containers else item
        for _, name in ordered
    }
    return msgspec.Raw(_ordered_encoder.encode(members))


def number_text(value: float) -> str:
    """A binary64 number as ECMAScript writes it (RFC 8785 3.2.2.3). Raises CanonicalizationFault beyond binary64.

    Python finds the same digits. It writes an exponent of two figures or more, and writes one sooner.
    """
    try:
        number = float(value)
    except OverflowError:
        number = inf
    if not isfinite(number):
        raise CanonicalizationFault("a number is beyond binary64")
    if number == 0:
        return "0"
    text = repr(number)
    if "e" not in text:
        return text.removesuffix(".0")
    mantissa, _, exponent = text.partition("e")
    power = int(exponent)
    if not _fixed_point_min <= power <= _fixed_point_max:
        return f"{mantissa}e{power:+}"
    digits = mantissa.removeprefix("-").replace(".", "")
    fixed = digits.ljust(power + 1, "0") if power > 0 else f"0.{'0' * (-power - 1)}{digits}"
    return f"-{fixed}" if number < 0 else fixed
