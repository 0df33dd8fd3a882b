"""Which consumers a projector keeps (OPS-2)."""

import pytest

from projections.listing import listed_consumers, server_consumers
from services.process.settings import Environment, SettingsFault
from services.projector.select_consumers import select_consumers


def selected(text: str) -> list[str]:
    return [consumer.name for consumer in select_consumers(Environment({"WEAVEHOLD_PROJECTIONS": text}))]


def test_all_or_those_that_are_named() -> None:
    """All without a setting; else those named, once each, in the order of their naming."""
    assert selected("") == selected("  ") == [consumer.name for consumer in server_consumers()]
    assert selected("usage_report, mission_board,usage_report") == ["usage_report", "mission_board"]


@pytest.mark.parametrize("text", ["nobody", "mission_board,nobody", "mission_board,", "work_queue"])
def test_what_nobody_is_called_is_named_with_the_choice(text: str) -> None:
    """A Worker's queue is no projection of the server's side either."""
    with pytest.raises(SettingsFault, match=r"WEAVEHOLD_PROJECTIONS names .* Separate some of mission_board, "):
        selected(text)


def test_names_are_their_own() -> None:
    """Stores, consumers at the broker and counters go by the name."""
    names = [consumer.name for consumer in listed_consumers("urn:test:agent")]
    assert len(set(names)) == len(names)
