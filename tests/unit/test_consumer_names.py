"""The few names that an Agent's consumers take in turn (RULE-25)."""

from contracts.identifiers import SessionEpoch
from services.authority.provision_delivery import consumer_name, consumer_names, is_replaced

ada, bob = "urn:weavehold:agent:ada", "urn:weavehold:agent:bob"


def test_names_are_few_and_differ_between_sessions_that_may_meet() -> None:
    """A session's consumer has another name than those of the sessions before and after it."""
    names = [consumer_name(ada, SessionEpoch(epoch)) for epoch in range(1, 100)]
    assert len(set(names)) == consumer_names
    for start in range(len(names) - consumer_names):
        assert len(set(names[start : start + consumer_names])) == consumer_names


def test_only_consumers_of_earlier_sessions_are_replaced() -> None:
    """Also around the turn: what is older goes, what a newer session made meanwhile and what is another's stays."""
    for epoch in range(9, 60):
        for behind in range(1, consumer_names // 2 + 1):
            assert is_replaced(consumer_name(ada, SessionEpoch(epoch - behind)), ada, SessionEpoch(epoch))
        for ahead in range(consumer_names // 2):
            assert not is_replaced(consumer_name(ada, SessionEpoch(epoch + ahead)), ada, SessionEpoch(epoch))
        assert not is_replaced(consumer_name(bob, SessionEpoch(epoch - 1)), ada, SessionEpoch(epoch))
    for foreign in ("mission_board-1", "worker-x", f"{consumer_name(ada, SessionEpoch(1))}x"):
        assert not is_replaced(foreign, ada, SessionEpoch(9))
