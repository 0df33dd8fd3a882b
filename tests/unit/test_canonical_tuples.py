"""Canonical bytes of values that hold tuples."""

import pytest

from contracts.canonical import canonical_bytes


@pytest.mark.parametrize("number", [202, 203, 207, 211, 1.5])
def test_tuples_are_ordered_like_lists_on_both_roads(number: float) -> None:
    """TRU-3: a tuple inside a value gets the same bytes as a list, whichever road its numbers send it along."""
    inside = {"type": "text", "text": "x"}
    expected = canonical_bytes({"content": [inside], "n": number})
    assert canonical_bytes({"content": (inside,), "n": number}) == expected
    assert expected.startswith(b'{"content":[{"text":"x","type":"text"}]')
