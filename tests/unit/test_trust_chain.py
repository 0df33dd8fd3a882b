"""Which keys are the authority's: pinned ones, and those that a trusted one vouches for (TRU-2)."""

import pytest

from contracts.signature import SigningKey
from services.feed import trust_chain
from services.feed.trust_chain import NotBelieved, TrustChain, Wanting, trusted_keys_max
from tests.builders import later, principal, signing_key, start_time
from tests.trust_rig import (
    action_id,
    anchors,
    answer,
    authority,
    authority_key,
    binding,
    bound,
    operator,
    stranger,
)

first, second, third = (authority_key(number) for number in (1, 2, 3))
worker = signing_key("worker")


@pytest.fixture
def chain() -> TrustChain:
    return TrustChain(anchors(first))


def test_an_answer_of_the_pinned_key_is_believed(chain: TrustChain) -> None:
    """TRU-2: keys come as the authority states them; only its own count for Events."""
    found = chain.judge(answer(first, [binding(first), binding(worker), binding(second)]), action_id)
    assert isinstance(found, dict)
    assert found.keys() == {first.key_id, worker.key_id, second.key_id}
    assert found[worker.key_id].principal == worker.principal
    assert set(chain.key_ids) == {first.key_id, second.key_id}
    assert chain.accepts(authority)
    assert not chain.accepts(operator.principal)
    assert chain.judge(answer(first), action_id) == {}


def altered(document: dict, **members: object) -> dict:
    return document | members


revoked = binding(first, revoked_at=later(start_time, 60))
lies = {
    "for another request": lambda: answer(first, to="urn:test:action:2"),
    "of another Organization": lambda: answer(first, organization_id="urn:weavehold:organization:other"),
    "with another time": lambda: altered(answer(first), answeredAt=later(start_time, 7_200)),
    "with a key slipped in": lambda: altered(answer(first), registry=answer(first, [binding(stranger)])["registry"]),
    "with one more member": lambda: altered(answer(first), note="hello"),
    "before the key's time": lambda: answer(first, answered_at="2025-01-01T00:00:00Z"),
    "under a name of another": lambda: answer(SigningKey(first.key_id, authority, b"x" * 32)),
    "with an aliased key": lambda: answer(first, [binding(SigningKey("urn:test:alias", authority, b"\1" * 32))]),
    "with a pinned key rebound": lambda: answer(
        first, [binding(SigningKey(first.key_id, operator.principal, b"\1" * 32))]
    ),
    "with a key bound twice": lambda: answer(first, [binding(second), binding(second)]),
    "of another shape": lambda: altered(answer(first), kind="ext.weavehold.answer.other"),
    "with a lone surrogate": lambda: altered(answer(first), note="\ud800"),
    "with small-order bytes": lambda: answer(first, [binding(second) | {"publicKey": "AQ" + "A" * 41}]),
}


@pytest.mark.parametrize("lie", lies.values(), ids=lies.keys())
def test_an_answer_that_is_not_the_authoritys_own_is_not_believed(chain: TrustChain, lie) -> None:
    """TRU-2: whoever carries answers can neither alter nor repeat nor invent them; nothing of it stays."""
    with pytest.raises(NotBelieved):
        chain.judge(lie(), action_id)
    assert chain.key_ids == (first.key_id,)


def test_a_stranger_is_asked_about_and_never_trusted(chain: TrustChain) -> None:
    """TRU-2: an unknown signer leaves the question open; his own word, or another service's, settles nothing."""
    claimed = [binding(stranger)]
    for events in (
        [],
        [bound(stranger, stranger)],
        [bound(stranger, operator)],
        [bound(stranger, first, group_id="urn:weavehold:group:other")],
        [bound(stranger, SigningKey(first.key_id, authority, b"x" * 32))],
        [bound(operator, first)],
        [bound(stranger, first) | {"payload": {"key": {}}}],
    ):
        verdict = chain.judge(answer(stranger, claimed, events), action_id)
        assert isinstance(verdict, Wanting)
        assert stranger.key_id in verdict.key_ids
        assert chain.key_ids == (first.key_id,)


def test_later_keys_are_reached_by_the_registrys_own_history(chain: TrustChain) -> None:
    """TRU-2: the Event that binds a key is signed by the one before; in whatever order they come."""
    events = [bound(third, second), bound(second, first)]
    missing = chain.judge(answer(third, [binding(third)], events[:1]), action_id)
    assert missing == Wanting(frozenset({third.key_id, second.key_id}))
    found = chain.judge(answer(third, [binding(third), binding(second)], events), action_id)
    assert isinstance(found, dict)
    assert set(chain.key_ids) == {key.key_id for key in (first, second, third)}


def test_the_way_leads_over_a_key_that_has_ended_since(chain: TrustChain) -> None:
    """TRU-2: a key vouches for what it signed before its end, and for nothing afterwards."""
    found = chain.judge(answer(second, [revoked, binding(second)], [bound(second, first)]), action_id)
    assert isinstance(found, dict)
    assert found[first.key_id].revoked_at == later(start_time, 60)
    with pytest.raises(NotBelieved, match="not trusted any more"):
        chain.judge(answer(first), action_id)
    late = bound(third, first, occurred_at=later(start_time, 61))
    assert isinstance(chain.judge(answer(third, [binding(third)], [late]), action_id), Wanting)


def test_ends_only_move_earlier(chain: TrustChain) -> None:
    """TRU-2: an older answer cannot take back an end that was heard of."""
    ended = later(start_time, 5_000)
    assert isinstance(chain.judge(answer(first, [binding(second, valid_until=ended)]), action_id), dict)
    found = chain.judge(answer(first, [binding(second)]), action_id)
    assert isinstance(found, dict)
    assert found[second.key_id].valid_until == ended
    earlier = later(start_time, 4_000)
    assert isinstance(chain.judge(answer(first, [binding(second, valid_until=earlier)]), action_id), dict)
    kept = chain.resolve(second.key_id)
    assert kept is not None
    assert kept.valid_until == earlier


def test_trusted_keys_are_bounded(chain: TrustChain) -> None:
    """TRU-2: of many the pinned one and the newest stay."""
    keys = many_keys(trusted_keys_max + 5)
    for key in keys:
        chain.judge(answer(first, [binding(key)]), action_id)
    assert chain.key_ids == (first.key_id, *(key.key_id for key in keys[5:]))


def many_keys(count: int, start: int = 100) -> list[SigningKey]:
    """Keys of the authority, each another one."""
    return [
        SigningKey(f"urn:test:key:{number}", authority, number.to_bytes(32, "big"))
        for number in range(start, start + count)
    ]


@pytest.mark.parametrize("way", ["an answer", "the registry's history"])
def test_a_forgotten_key_comes_back_with_its_end(chain: TrustChain, way: str) -> None:
    """TRU-2: displaced by newer keys and stated without an end again, it still has the earliest end ever heard of."""
    ended = later(start_time, 60)
    chain.judge(answer(first, [binding(second, revoked_at=ended)]), action_id)
    for key in many_keys(trusted_keys_max):
        chain.judge(answer(first, [binding(key)]), action_id)
    assert chain.resolve(second.key_id) is None
    if way == "an answer":
        chain.judge(answer(first, [binding(second)]), action_id)
    else:
        with pytest.raises(NotBelieved, match="not trusted any more"):
            chain.judge(answer(second, [], [bound(second, first)]), action_id)
    back = chain.resolve(second.key_id)
    assert back is not None
    assert back.revoked_at == ended
    with pytest.raises(NotBelieved, match="not trusted any more"):
        chain.judge(answer(second), action_id)


def test_what_is_kept_of_forgotten_keys_is_bounded(chain: TrustChain, monkeypatch: pytest.MonkeyPatch) -> None:
    """TRU-2: no end is dropped to make room; nobody new is trusted instead, and who is trusted stays."""
    monkeypatch.setattr(trust_chain, "ends_remembered_max", 2)
    ended = later(start_time, 60)
    keys = many_keys(trusted_keys_max + 2)
    for key in keys:
        chain.judge(answer(first, [binding(key, revoked_at=ended)]), action_id)
    with pytest.raises(NotBelieved, match="renew the trust anchors"):
        chain.judge(answer(first, [binding(second)]), action_id)
    assert chain.resolve(second.key_id) is None
    assert chain.judge(answer(first), action_id) == {}
    for key in keys[:2]:
        assert chain.resolve(key.key_id) is None
    assert len(chain.key_ids) == trusted_keys_max + 1


def test_only_the_services_that_are_pinned_accept_events() -> None:
    """TRU-1: two pinned services both do."""
    other = signing_key("other", "service")
    chain = TrustChain(anchors(first, other))
    assert chain.accepts(other.principal)
    assert not chain.accepts(principal("third", "service"))
