"""The hash chain and the Cursor that carries proof of what it consumed."""

import hashlib

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from contracts.canonical import parse_strict, signing_bytes
from contracts.chain import ChainHash, SigningHash, chain_next, chain_start
from contracts.cursor import Contact, Cursor, EventMark, advance, classify, cursor_start
from contracts.documents.common import ActorType
from contracts.identifiers import GroupSequence
from tests.builders import BuiltEvent, build_history, signing_key, test_group, test_incarnation, test_organization

authority = signing_key("authority", ActorType.SERVICE)
history = build_history(test_organization, test_group, 6, authority)
other_history = build_history(
    test_organization, test_group, 6, authority, payload=lambda sequence: {"other": sequence}, incarnation="f" * 32
)


def cursor_at(sequence: int, events: list[BuiltEvent] = history) -> Cursor:
    cursor = cursor_start(test_organization, test_group, test_incarnation)
    for built in events[:sequence]:
        cursor = advance(cursor, built.mark)
    return cursor


def test_the_chain_is_computed_as_published() -> None:
    """RULE-15: h_0 over the names, h_n over raw 32-byte digests."""
    start = hashlib.sha256(b"weavehold/chain/1\nurn:weavehold:organization:test\nurn:weavehold:group:test").digest()
    assert chain_start(test_organization, test_group) == start
    expected = start
    for built in history:
        assert built.mark.previous_hash == expected
        signing_hash = hashlib.sha256(signing_bytes(parse_strict(built.raw, len(built.raw)))).digest()
        assert built.signing_hash == signing_hash
        expected = hashlib.sha256(expected + signing_hash).digest()
        assert built.mark.chain_hash == expected
        assert built.event.history.previous == built.mark.previous_hash


def test_chains_of_different_groups_never_meet() -> None:
    """RULE-15, RULE-32: the start binds Organization and Group, the Organization's own chain has the empty Group."""
    starts = {
        chain_start("urn:a", ""),
        chain_start("urn:a", "urn:g"),
        chain_start("urn:b", "urn:g"),
        chain_start("urn:a", "urn:h"),
    }
    assert len(starts) == 4


@given(
    st.binary(min_size=32, max_size=32),
    st.lists(st.binary(min_size=32, max_size=32), min_size=2, max_size=6),
    st.data(),
)
@settings(max_examples=100, deadline=None)
def test_any_change_of_a_history_changes_its_head(start: bytes, hashes: list[bytes], data: st.DataObject) -> None:
    """NEW-5, RULE-15: dropped, reordered or rewritten Events show in the last hash."""

    def head(signing_hashes: list[bytes]) -> bytes:
        chained = ChainHash(start)
        for signing_hash in signing_hashes:
            chained = chain_next(chained, SigningHash(signing_hash))
        return chained

    at = data.draw(st.integers(0, len(hashes) - 1))
    changed = data.draw(st.sampled_from(["drop", "rewrite", "swap"]))
    other = list(hashes)
    if changed == "drop":
        del other[at]
    elif changed == "rewrite":
        other[at] = bytes(255 - byte for byte in other[at])
    else:
        other[at], other[at - 1] = other[at - 1], other[at]
    assert (head(other) == head(hashes)) == (other == hashes)


def test_a_cursor_takes_one_event_after_the_other() -> None:
    """MWP-WRK-029, MWP-FND-018: from before the first Event to the head, each with its hash."""
    for sequence in range(1, 7):
        cursor = cursor_at(sequence)
        assert (cursor.sequence, cursor.chain_hash) == (sequence, history[sequence - 1].mark.chain_hash)


@given(st.integers(0, 6), st.integers(1, 6), st.booleans())
@settings(max_examples=60, deadline=None)
def test_contact_follows_from_the_places(at: int, arriving: int, remembered: bool) -> None:
    """MWP-WRK-029: next, duplicate or gap in one's own history; below the Cursor only what is remembered is known."""
    mark = history[arriving - 1].mark
    contact = classify(cursor_at(at), mark, mark.chain_hash if remembered else None)
    if arriving == at + 1:
        assert contact is Contact.NEXT
    elif arriving > at:
        assert contact is Contact.GAP
    elif arriving == at or remembered:
        assert contact is Contact.DUPLICATE
    else:
        assert contact is Contact.UNKNOWN


@given(st.integers(0, 6), st.integers(1, 6))
@settings(max_examples=60, deadline=None)
def test_another_history_is_a_fork_wherever_it_meets(at: int, arriving: int) -> None:
    """PRJ-3, RULE-19: at, behind or right after the Cursor; also when the sequence is lower."""
    mark = other_history[arriving - 1].mark
    contact = classify(cursor_at(at), mark, history[arriving - 1].mark.chain_hash)
    if arriving > at + 1:
        assert contact is Contact.GAP
    elif at == 0:
        assert contact is Contact.NEXT  # before the first Event both histories are the same
    else:
        assert contact is Contact.FORK


@given(st.integers(0, 6), st.integers(1, 6))
@settings(max_examples=60, deadline=None)
def test_a_cursor_moves_over_nothing_but_the_next_event(at: int, arriving: int) -> None:
    """MWP-WRK-029: never over a gap, never backward, never into another history."""
    cursor = cursor_at(at)
    if arriving == at + 1:
        assert advance(cursor, history[arriving - 1].mark).sequence == arriving
    else:
        with pytest.raises(ValueError, match="cannot take"):
            advance(cursor, history[arriving - 1].mark)
    if at and arriving <= at + 1:
        with pytest.raises(ValueError, match="cannot take"):
            advance(cursor, other_history[arriving - 1].mark)


def test_groups_do_not_mix() -> None:
    """MWP-WRK-008: a Cursor judges only its own Group."""
    elsewhere = EventMark(
        test_incarnation, "urn:weavehold:group:other", GroupSequence(1), ChainHash(bytes(32)), ChainHash(bytes(32))
    )
    with pytest.raises(ValueError, match="cannot judge"):
        classify(cursor_at(0), elsewhere)


def test_a_history_goes_on_where_another_call_ended() -> None:
    """RULE-15: the builders of tests chain as the authority does."""
    continued = build_history(test_organization, test_group, 2, authority, start=history[3].mark)
    assert [built.raw for built in continued] == [built.raw for built in history[4:6]]
