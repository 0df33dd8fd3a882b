"""The Event envelope: kinds, what each kind carries, and the history extension."""

from typing import Any

import msgspec
import pytest

from contracts.chain import history_extension
from contracts.documents.common import ActorType
from contracts.event import Event, agent_card_registered, core_event_kinds, late_result_recorded, session_opened
from tests.builders import build_event, signing_key
from tests.vectors.protocol_schemas import needs_bundle, schema

authority = signing_key("authority", ActorType.SERVICE)


@needs_bundle
def test_core_kinds_are_those_of_the_schema() -> None:
    """MWP-EVT-005: neither one more nor one less."""
    core, extension = schema("event")["properties"]["kind"]["anyOf"]
    assert set(core["enum"]) == core_event_kinds
    assert extension["maxLength"] == 160


@pytest.mark.parametrize("kind", ["message.posted", late_result_recorded, "ext.a.b.c", "ext." + "a" * 152 + ".b.c"])
def test_kinds_of_the_protocol_and_of_extensions(kind: str) -> None:
    """PRJ-5: an extension kind has three or more parts after `ext`."""
    assert build_event(kind, {}, authority).event.kind == kind


@pytest.mark.parametrize(
    "kind",
    [
        "",
        "message.unknown",
        "message.posted\n",
        "ext.a.b",
        "ext.A.b.c",
        "ext..b.c",
        "ext.a.b.c\n",
        "ext." + "a" * 153 + ".b.c",
    ],
)
def test_other_kinds_are_refused(kind: str) -> None:
    """PRJ-5."""
    with pytest.raises(msgspec.ValidationError, match="kind"):
        build_event(kind, {}, authority)


@pytest.mark.parametrize("kind", [agent_card_registered, session_opened])
def test_organization_scoped_events_have_no_place_in_a_group(kind: str) -> None:
    """RULE-15: their sequence and chain are those of the Organization shard, outside the document."""
    event = build_event(kind, {}, authority, group_id="").event
    with pytest.raises(ValueError, match="Organization-scoped"):
        _ = event.group_sequence
    with pytest.raises(msgspec.ValidationError):
        build_event(kind, {}, authority, group_id="", sequence=1)
    with pytest.raises(msgspec.ValidationError):
        build_event(kind, {}, authority, group_id="", actor=signing_key("worker").principal)


@pytest.mark.parametrize("member", ["groupId", "sequence", "aggregateRevision"])
def test_a_groups_event_says_where_it_stands(member: str) -> None:
    """MWP-EVT-005."""
    with pytest.raises(msgspec.ValidationError, match="requires"):
        build_event("message.posted", {}, authority, **{member: None})


@pytest.mark.parametrize(
    "data",
    [
        None,
        {},
        {"incarnation": "0" * 32, "previousHash": "0" * 64},
        {"incarnation": "0" * 31, "previousHash": "0" * 64, "salt": "0" * 32},
        {"incarnation": "0" * 32, "previousHash": "0" * 62, "salt": "0" * 32},
        {"incarnation": "0" * 32, "previousHash": "A" * 64, "salt": "0" * 32},
        {"incarnation": "0" * 32, "previousHash": "0" * 64, "salt": "0" * 30},
        {"incarnation": "0" * 32, "previousHash": "0" * 64, "salt": "0" * 31 + "\n"},
    ],
)
def test_a_malformed_history_is_no_history(data: Any) -> None:
    """RULE-15: incarnation, previous hash and salt are whole or refused."""
    event = build_event("message.posted", {}, authority).event
    extension = msgspec.structs.replace(event.extensions[history_extension], data=data)  # type: ignore[index]
    damaged: Event = msgspec.structs.replace(event, extensions={history_extension: extension})
    with pytest.raises(ValueError, match=r".+"):
        _ = damaged.history
    without = msgspec.structs.replace(event, extensions=msgspec.UNSET)
    with pytest.raises(ValueError, match="carries no"):
        _ = without.history
