"""JSON Schema as an independent judge: Draft 2020-12 with asserted formats and ECMAScript patterns.

Nothing here uses our own patterns: URIs and times are taken apart by hand, so that a fault in
`contracts.identifiers` or `contracts.timestamps` shows as a disagreement.
"""

import ipaddress
import json
import re
from collections.abc import Iterator, Mapping
from datetime import date
from functools import cache, lru_cache
from typing import Any, Final

from jsonschema import Draft202012Validator, FormatChecker, SchemaError, ValidationError, validators
from referencing import Registry, Resource
from referencing.exceptions import Unresolvable
from referencing.jsonschema import DRAFT202012

schemas_remembered_max: Final = 256
"""Schemas that one process remembers as checked."""


class SchemaFault(Exception):
    """A schema that nothing can be judged by; the message says which and why."""


class SchemaJudge:
    """Judges values by schemas that may refer to each other by their `$id`. Fetches nothing."""

    def __init__(self, schemas: Mapping[str, Mapping[str, Any]]) -> None:
        """`schemas` are schema documents under any names."""
        # With `$schema` jsonschema would judge a referenced file by its own Draft 2020-12 class instead of ours.
        self._schemas = {
            name: {key: part for key, part in schema.items() if key != "$schema"} for name, schema in schemas.items()
        }
        self._registry: Registry[Any] = Registry().with_resources(
            (schema["$id"], Resource.from_contents(schema, default_specification=DRAFT202012))
            for schema in self._schemas.values()
            if isinstance(schema.get("$id"), str)
        )
        self._validators: dict[str, Any] = {}

    def validator(self, name: str) -> Any:
        """The jsonschema validator of one schema. Raises SchemaFault."""
        if name not in self._validators:
            if name not in self._schemas:
                raise SchemaFault(f"there is no schema {name}")
            schema = self._schemas[name]
            if fault := _fault_of(json.dumps(schema, sort_keys=True)):
                raise SchemaFault(f"{name} is no JSON Schema: {fault}")
            self._validators[name] = _EcmaValidator(schema, registry=self._registry, format_checker=_formats)
        return self._validators[name]

    def accepts(self, name: str, value: Any) -> bool:
        """Whether the schema accepts `value`, JSON as `parse_strict` gives it. Raises SchemaFault."""
        try:
            return bool(self.validator(name).is_valid(value))
        except Unresolvable as fault:
            raise SchemaFault(f"{name} refers to {fault.ref}, which is not there") from fault
        except re.error as fault:
            raise SchemaFault(f"{name} has a pattern that is none: {fault}") from fault


# Formats.

_unreserved: Final = frozenset("ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-._~")
_sub_delims: Final = frozenset("!$&'()*+,;=")
_hex: Final = frozenset("0123456789ABCDEFabcdef")


def is_uri(value: object) -> bool:
    """RFC 3986 `URI`, taken apart by hand from left to right."""
    if not isinstance(value, str):
        return True
    scheme, colon, rest = value.partition(":")
    if not colon or not re.fullmatch(r"[A-Za-z][A-Za-z0-9+.-]*", scheme):
        return False
    rest, hash_sign, fragment = rest.partition("#")
    rest, question, query = rest.partition("?")
    if (hash_sign and not _all_in(fragment, ":@/?")) or (question and not _all_in(query, ":@/?")):
        return False
    if not rest.startswith("//"):
        return _all_in(rest, ":@/")
    authority, slash, path = rest[2:].partition("/")
    return _is_authority(authority) and _all_in(slash + path, ":@/")


def _all_in(text: str, extra: str) -> bool:
    """Only unreserved characters, sub-delims, whole percent escapes and `extra`."""
    plain, *escaped = text.split("%")
    if any(len(part) < 2 or not set(part[:2]) <= _hex for part in escaped):
        return False
    allowed = _unreserved | _sub_delims | set(extra)
    return set(plain) <= allowed and all(set(part) <= allowed for part in escaped)


def _is_authority(authority: str) -> bool:
    userinfo, at, host_port = authority.rpartition("@")
    if at and not _all_in(userinfo, ":"):
        return False
    literal = re.fullmatch(r"\[(.*)\](?::[0-9]*)?", host_port, re.DOTALL)
    if literal is not None:
        return _is_ip_literal(literal[1])
    host, colon, port = host_port.partition(":")
    return _all_in(host, "") and (not colon or set(port) <= set("0123456789"))


def _is_ip_literal(literal: str) -> bool:
    future = re.fullmatch(r"[vV][0-9A-Fa-f]+\.(.+)", literal, re.DOTALL)
    if future is not None:
        return set(future[1]) <= _unreserved | _sub_delims | {":"}
    if not set(literal) <= _hex | set(":."):
        return False
    try:
        ipaddress.IPv6Address(literal)
    except ValueError:
        return False
    return True


def is_date_time(value: object) -> bool:
    """RFC 3339 of the years 0001 to 9999 without leap seconds and without the unknown offset -00:00."""
    if not isinstance(value, str):
        return True
    parts = re.fullmatch(
        r"([0-9]{4})-([0-9]{2})-([0-9]{2})[Tt]([0-9]{2}):([0-9]{2}):([0-9]{2})(?:\.[0-9]+)?(.+)", value, re.DOTALL
    )
    if parts is None:
        return False
    year, month, day, hour, minute, second = (int(part) for part in parts.groups()[:6])
    try:
        date(year, month, day)
    except ValueError:
        return False
    return hour < 24 and minute < 60 and second < 60 and _is_offset(parts[7])


def _is_offset(offset: str) -> bool:
    if offset in {"Z", "z"}:
        return True
    match = re.fullmatch(r"[+-]([0-9]{2}):([0-9]{2})", offset)
    return match is not None and int(match[1]) < 24 and int(match[2]) < 60 and offset != "-00:00"


_formats: Final = FormatChecker(formats=())
_formats.checks("uri")(is_uri)
_formats.checks("date-time")(is_date_time)


# ECMAScript patterns.

_ecma_space: Final = r"\t\n\v\f\r \u00a0\u1680\u2000-\u200a\u2028\u2029\u202f\u205f\u3000\ufeff"


@cache
def ecma(pattern: str) -> re.Pattern[str]:
    r"""An ECMAScript pattern for Python: `$` is the very end, `\S` is the complement of ECMAScript's white space."""
    translated = re.sub(r"\\.|\[(?:\\.|[^\]\\])*\]|\$", _translate, pattern, flags=re.DOTALL)
    return re.compile(translated)


def _translate(token: re.Match[str]) -> str:
    text = token[0]
    if text == "$":
        return r"\Z"
    return f"[^{_ecma_space}]" if text == r"\S" else text


def _judge_pattern(judge: Any, pattern: str, instance: object, _schema: Any) -> Iterator[ValidationError]:
    if judge.is_type(instance, "string") and not ecma(pattern).search(str(instance)):
        yield ValidationError(f"{instance!r} does not match {pattern!r}")


@lru_cache(maxsize=schemas_remembered_max)
def _fault_of(schema: str) -> str | None:
    """Why a schema, given as JSON text, is none. Slow: the meta-schema is larger than most schemas."""
    try:
        _EcmaValidator.check_schema(json.loads(schema), format_checker=None)
    except SchemaError as fault:
        return str(fault.message)
    return None


_EcmaValidator: Final = validators.extend(Draft202012Validator, {"pattern": _judge_pattern})
