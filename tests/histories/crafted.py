"""A history as a later version of Weavehold could have left it: kinds, versions and extensions unknown here."""

import json
from collections.abc import Iterable, Mapping
from types import MappingProxyType
from typing import Any, Final

from msgspec.structs import replace

from contracts.group_state import EventFacts
from contracts.upcasting import contract_extension, contract_mark
from contracts.verification import RegisteredKey
from tests.builders import BuiltEvent, build_event, start_time, test_group, test_organization
from tests.histories.recorded import Head, Proof, Recorded
from tests.mission_history import agent_id, authority_key, extend_history, mission_facts, more_messages

passing, newer, critical, silent = (
    f"urn:weavehold:group:{name}" for name in ("passing", "newer", "critical", "silent")
)
weather: Final = "ext.future.weather.observed"
words: Final = {"text": "Rain."}
note: Final[dict[str, Any]] = {"version": "1.2.0", "critical": False, "data": {"colour": "green"}}
no_extensions: Final[Mapping[str, Any]] = MappingProxyType({})


def craft_unknown() -> Recorded:
    """Four Groups: one that is passed over, one with a newer Membership, one that stops everybody, one nobody reads."""
    groups = [_passing(), _newer(), _critical(), _silent()]
    events = [built for group in groups for built in group]
    heads = {group[-1].mark.group_id: _head(group[-1]) for group in groups}
    key = RegisteredKey(
        key_id=authority_key.key_id,
        principal=authority_key.principal,
        public_key=authority_key.public_key,
        valid_from=start_time,
    )
    about = "Kinds, contract versions and extensions that only a later version knows, signed by a key of the tests."
    proof = Proof(about, test_organization, agent_id, (key,), heads)
    return Recorded("unknown-kinds-and-marks", proof, tuple(built.raw for built in events))


def _passing() -> list[BuiltEvent]:
    """Kinds that are unknown here, core and ext alike, marked and not, and a note that nobody has to read."""
    history = _begun(passing, 12)
    history.append(_next(history[-1], "mission.terminated", words))
    history.append(_next(history[-1], weather, words))
    history.append(_next(history[-1], weather, words, {contract_extension: contract_mark(3)}))
    history.append(_next(history[-1], "group.archived", words, {"urn:future:extension:note": note}))
    return extend_history(history, passing, _of(passing, more_messages(1, 3)))


def _newer() -> list[BuiltEvent]:
    """A Membership of contract version 2, which stops those who read Memberships, and what they would read."""
    history = _begun(newer, 8)
    membership = next(fact for fact in _of(newer, mission_facts()) if fact.kind == "membership.changed")
    history.append(_next(history[-1], membership.kind, membership.payload, {contract_extension: contract_mark(2)}))
    return extend_history(history, newer, _of(newer, more_messages(1, 2)))


def _critical() -> list[BuiltEvent]:
    """An extension that nobody may pass over, on a kind that nobody knows."""
    history = _begun(critical, 8)
    history.append(_next(history[-1], weather, words, {"urn:future:extension:void": note | {"critical": True}}))
    return extend_history(history, critical, _of(critical, more_messages(1, 1)))


def _silent() -> list[BuiltEvent]:
    """A Group of unknown kinds alone."""
    first = build_event(weather, words, authority_key, group_id=silent)
    return [first, _next(first, "ext.future.weather.forgotten", words)]


def _begun(group_id: str, events: int) -> list[BuiltEvent]:
    """The first Events of a Mission in this Group."""
    return extend_history([], group_id, _of(group_id, mission_facts()[:events]))


def _of(group_id: str, facts: Iterable[EventFacts]) -> list[EventFacts]:
    """Facts of the tests' Group as those of another one, also where their documents name it."""
    return [replace(fact, payload=json.loads(json.dumps(fact.payload).replace(test_group, group_id))) for fact in facts]


def _next(
    before: BuiltEvent, kind: str, payload: Mapping[str, Any], extensions: Mapping[str, Any] = no_extensions
) -> BuiltEvent:
    """The Event after `before`, with these extensions besides its own."""
    place: dict[str, Any] = {"group_id": before.mark.group_id, "previous": before.mark}
    return build_event(kind, payload, authority_key, **place, extensions=extensions)


def _head(last: BuiltEvent) -> Head:
    return Head(last.mark.incarnation, last.mark.sequence, last.mark.chain_hash.hex())
