"""How keys stand, what an audit mentions, and how long ago a duration is (TRU-2, TRU-5)."""

from typing import Any

import pytest

from contracts.documents.common import Actor, ActorType
from contracts.timestamps import instant
from ops.init import first_principals
from ops.keys.audit_registry import notes_on
from ops.keys.read_failures import seconds_back
from ops.keys.read_registry import KeyLine, RegistryReport, Standing, standing_at

now = "2026-07-15T12:00:00.000000Z"
soon = "2026-07-20T00:00:00Z"
far = "2027-07-20T00:00:00Z"
ada = Actor(type=ActorType.HUMAN, id="urn:weavehold:human:ada")
begin = "2026-01-01T00:00:00Z"


@pytest.mark.parametrize(
    ("boundaries", "standing"),
    [
        ((begin, None, None), Standing.VALID),
        ((now, None, None), Standing.VALID),
        ((soon, None, None), Standing.NOT_YET),
        ((begin, soon, None), Standing.ENDING),
        ((begin, None, soon), Standing.ENDING),
        ((begin, now, None), Standing.RETIRED),
        ((begin, "2026-07-15T14:00:00.0+02:00", None), Standing.RETIRED),
        ((begin, far, now), Standing.REVOKED),
        ((begin, begin, now), Standing.REVOKED),
        ((begin, "2026-07-15T12:00:00.000000000001Z", None), Standing.ENDING),
        (("yesterday", None, None), Standing.UNREADABLE),
    ],
)
def test_how_a_key_stands(boundaries: tuple[Any, Any, Any], standing: Standing) -> None:
    """TRU-2: the interval is half-open and compared exactly."""
    assert standing_at(instant(now), *boundaries) is standing


@pytest.mark.parametrize(
    ("text", "seconds"),
    [("90s", 90), ("15m", 900), ("2h", 7_200), ("7d", 604_800), ("0s", 0)]
    + [(text, None) for text in ("", "7", "d", "-1d", "1w", "1.5h", "1d ", "9999999d", "\u0661d")],
)
def test_a_duration(text: str, seconds: int | None) -> None:
    """TRU-5: whole seconds, minutes, hours or days; anything else is none."""
    assert seconds_back(text) == seconds


def key(name: str, principal: Actor = ada, **members: Any) -> KeyLine:
    """A key of the registry, bound by an Event."""
    ends = (members.get("valid_until"), members.get("revoked_at"))
    given = {
        "key_id": f"urn:weavehold:key:{name}",
        "principal": principal,
        "standing": standing_at(instant(now), begin, *ends),
        "public_key": "x",
        "valid_from": begin,
        "valid_until": None,
        "revoked_at": None,
        "registered_at": begin,
        "event_id": "urn:uuid:1",
        "statements": (),
    }
    return KeyLine(**(given | members))


def notes(*keys: KeyLine) -> list[str]:
    """What an audit mentions of these keys."""
    return list(notes_on(RegistryReport(organization_id="urn:org", read_at=now, keys=keys)))


authority = first_principals["authority"]


def test_a_registry_that_goes_on_by_itself_needs_no_note() -> None:
    """TRU-2: ended keys, far ends and one key beside the history are nothing to mention."""
    lasting = key("a", authority, event_id=None)
    assert notes(lasting, key("b"), key("c", valid_until=far), key("d", revoked_at=now)) == []


def test_ends_that_come_soon_are_mentioned() -> None:
    """TRU-2: a fortnight before; the earlier of two ends counts."""
    [note] = notes(key("a", authority), key("b", valid_until=far, revoked_at=soon))
    assert "urn:weavehold:key:b" in note
    assert soon in note


def test_an_authority_without_a_successor_is_mentioned() -> None:
    """TRU-2: its last end, and at once when it has no valid key at all."""
    lasting = key("a", authority, valid_until=far)
    [note] = notes(lasting)
    assert f"signs until {far}" in note
    assert notes(lasting, key("b", authority)) == []
    [none] = notes(key("a", authority, valid_until=begin))
    assert "weavehold init" in none


def test_several_keys_beside_the_history_are_mentioned() -> None:
    """TRU-2: whoever writes to the database could have bound one of them."""
    beside = [key(name, first_principals["operator"], event_id=None) for name in ("x", "y")]
    [note] = notes(key("a", authority), *beside)
    assert "urn:weavehold:key:x, urn:weavehold:key:y" in note
