"""Changes of a JSON document, chosen by a row of bytes: members, texts, signatures, at last the bytes themselves."""

import json
from collections.abc import Callable
from typing import Any, Final

from contracts.signature import base64url_bytes, base64url_text, group_order
from tests.fuzz.choices import Choices
from tests.unit import edwards

edits_max: Final = 6
names: Final = ("signature", "extensions", "payload", "keyId", "createdAt", "value", "id", "type", "x", "\ud800")
texts: Final = (
    "2026-07-15T00:00:00Z", "2026-07-15T00:00:00.0Z", "2026-07-15T00:00:00z", "2026-07-15T00:00:00+00:00",
    "0000-01-01T00:00:00Z", "2026-02-30T00:00:00Z", "9999-12-31T23:59:59.9Z", "9999-12-31T23:59:59-23:59",
    "0001-01-01T00:00:00+23:59", "urn:weavehold:key:fuzz-agent", "urn:weavehold:key:fuzz-human", "urn:%", "a://[::1",
    "Ed25519", "agent", "human", "service", "AA", "AB", "A", "AA==", "\u0661", "ext.a.b.c", "mission.create",
)  # fmt: skip
points: Final = (
    edwards.encode(edwards.identity),
    edwards.encode(edwards.torsion_point()),
    edwards.encode(edwards.add(edwards.torsion_point(), edwards.base)),
    bytes(32),
    b"\xff" * 32,
    (edwards.p + 1).to_bytes(32, "little"),
)
"""Encodings that are small, mixed, malformed or not reduced."""


class _Place:
    """A member or an item of the document."""

    def __init__(self, holder: Any, key: Any) -> None:
        self._holder = holder
        self._key = key

    @property
    def value(self) -> Any:
        return self._holder[self._key]

    def put(self, value: Any) -> None:
        self._holder[self._key] = value

    def remove(self) -> None:
        del self._holder[self._key]


def edited(document: dict[str, Any], choices: Choices) -> Any:
    """The document (a copy of the caller's) after some edits; it need not be an object any more."""
    root = {"": document}
    for _ in range(edits_max):
        if choices.exhausted or not root or not isinstance(root.get(""), dict):
            break
        choices.of(_edits)(_place(root[""], choices) or _Place(root, ""), choices)
    return root.get("")


def spelled(document: Any, choices: Choices) -> bytes:
    """The document in one of several spellings, the last choices spliced into its bytes."""
    way = choices.below(4)
    text = json.dumps(document, ensure_ascii=way % 2 == 0, indent=1 if way == 2 else None)
    raw = bytearray(text.encode("utf-8", "surrogatepass"))
    if way == 3 and not choices.exhausted:
        at, gone = choices.below(65_536) % (len(raw) + 1), choices.below(4)
        raw[at : at + gone] = choices.rest()[:64]
    return bytes(raw)


def _place(document: Any, choices: Choices) -> _Place | None:
    found: _Place | None = None
    inside = document
    while isinstance(inside, dict | list) and inside:
        key = choices.of(list(inside) if isinstance(inside, dict) else range(len(inside)))
        found = _Place(inside, key)
        inside = found.value
        if choices.below(3) == 0:
            break
    return found


def _replace_by_any(place: _Place, choices: Choices) -> None:
    place.put(choices.value(3))


def _replace_by_text(place: _Place, choices: Choices) -> None:
    place.put(choices.of(texts))


def _remove(place: _Place, _choices: Choices) -> None:
    place.remove()


def _add(place: _Place, choices: Choices) -> None:
    inside = place.value
    if isinstance(inside, dict):
        inside[choices.of(names)] = choices.value(2)
    elif isinstance(inside, list):
        inside.append(inside[0] if inside else choices.value(2))


def _splice_text(place: _Place, choices: Choices) -> None:
    if isinstance(text := place.value, str):
        at = choices.below(len(text) + 1)
        place.put(text[:at] + choices.text() + text[at + choices.below(3) :])


def _count(place: _Place, choices: Choices) -> None:
    if isinstance(place.value, int):
        place.put(place.value + choices.of((1, -1, 2**53, 0.5, 1e300)))


def _touch_signature(place: _Place, choices: Choices) -> None:
    """Other bytes of the same length, or a scalar and a point that a careless verifier would take."""
    raw = base64url_bytes(place.value) if isinstance(place.value, str) else None
    if raw is None or len(raw) < 32:
        return
    match choices.below(4):
        case 0:
            at = choices.below(len(raw))
            raw = raw[:at] + bytes([raw[at] ^ choices.below(256)]) + raw[at + 1 :]
        case 1:
            raw = choices.of(points) + raw[32:]
        case 2:
            scalar = int.from_bytes(raw[32:], "little") + group_order
            raw = raw[:32] + (scalar % 2**256).to_bytes(32, "little")
        case _:
            raw = raw[: choices.below(len(raw))]
    place.put(base64url_text(raw))


_edits: Final[tuple[Callable[[_Place, Choices], None], ...]] = (
    _replace_by_any,
    _replace_by_text,
    _remove,
    _add,
    _splice_text,
    _count,
    _touch_signature,
)
