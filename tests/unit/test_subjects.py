"""Subjects and stream names: tokens only, all distinct, within the broker's limits."""

import re

from hypothesis import given, settings
from hypothesis import strategies as st

from contracts import subjects
from contracts.identifiers import ShardId, organization_shard, token

organization = "urn:weavehold:organization:test"
identifiers = st.text(min_size=1, max_size=512).map(lambda text: "urn:x:" + text)


@given(identifiers)
@settings(max_examples=100, deadline=None)
def test_a_token_is_safe_in_a_subject(identifier: str) -> None:
    """RULE-18, OBX-1: 32 hex digits whatever the identifier holds."""
    if not any("\ud800" <= character <= "\udfff" for character in identifier):
        assert re.fullmatch(r"[0-9a-f]{32}", token(identifier))


def test_subjects_are_as_documented() -> None:
    """RULE-30: all subjects in one place; the Organization shard uses a literal."""
    o, g = token(organization), token("urn:g")
    assert subjects.command_ingress(organization) == f"wh.{o}.cmd"
    assert subjects.event(organization, ShardId(3), "urn:g") == f"wh.{o}.ev.3.{g}"
    assert subjects.event(organization, organization_shard, "") == f"wh.{o}.ev.0.organization"
    assert subjects.shard_events(organization, ShardId(3)) == f"wh.{o}.ev.3.>"
    assert subjects.stream_name(organization, ShardId(3), "abc") == f"WH_{o}_3_abc"


def test_organizations_share_no_subject() -> None:
    """RULE-32: the same Group ID in two Organizations is heard on two subjects."""
    assert subjects.event("urn:a", ShardId(1), "urn:g") != subjects.event("urn:b", ShardId(1), "urn:g")
    assert subjects.stream_name("urn:a", ShardId(1), "i") != subjects.stream_name("urn:b", ShardId(1), "i")
