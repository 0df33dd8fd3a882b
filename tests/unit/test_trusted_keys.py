"""Keys as a consumer of Events learns and forgets them (TRU-2)."""

import pytest

from services.agent.read_history import Unavailable
from services.feed.trusted_keys import (
    TrustedKeys,
    absence_seconds_max,
    backoff_seconds_max,
    key_age_seconds_max,
    keys_remembered_max,
)
from tests.builders import signing_key
from tests.trust_rig import Reader, RegistryDouble, anchors, authority, authority_key, stranger

keys = [authority_key(number) for number in range(1, 6)]


class Clock:
    def __init__(self) -> None:
        self.now = 1_000.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def registry() -> RegistryDouble:
    return RegistryDouble(keys[0])


@pytest.fixture
def trusted(registry: RegistryDouble, clock: Clock) -> TrustedKeys:
    return TrustedKeys(Reader(registry), anchors(keys[0]), clock)


async def test_even_a_pinned_key_is_asked_about(trusted: TrustedKeys, registry: RegistryDouble, clock: Clock) -> None:
    """TRU-2: it may have ended since it was pinned; an answer counts for a while, then it is asked for again."""
    assert not trusted.settled(keys[0].key_id)
    assert trusted.resolve(keys[0].key_id) is None
    await trusted.learn([keys[0].key_id, keys[0].key_id])
    await trusted.learn([keys[0].key_id])
    found = trusted.resolve(keys[0].key_id)
    assert found is not None
    assert (found.principal, found.public_key) == (authority, keys[0].public_key)
    assert len(registry.asked) == 1
    clock.now += key_age_seconds_max
    assert not trusted.settled(keys[0].key_id)
    trusted.forget()
    registry.revoked[keys[0].key_id] = "2026-07-15T12:00:00Z"
    registry.keys.append(keys[1])
    await trusted.learn([keys[0].key_id])
    ended = trusted.resolve(keys[0].key_id)
    assert ended is not None
    assert ended.revoked_at == "2026-07-15T12:00:00Z"


async def test_a_key_that_is_not_registered_is_known_to_be_none_for_a_moment(
    trusted: TrustedKeys, registry: RegistryDouble, clock: Clock
) -> None:
    """TRU-2: absence counts briefly; what cannot be a key ID is never asked for."""
    await trusted.learn([stranger.key_id])
    assert trusted.settled(stranger.key_id)
    assert trusted.resolve(stranger.key_id) is None
    clock.now += absence_seconds_max
    assert not trusted.settled(stranger.key_id)
    for nonsense in ("no identifier", "", "urn:test:" + "x" * 512):
        assert trusted.settled(nonsense)
        assert trusted.resolve(nonsense) is None
    asked = len(registry.asked)
    await trusted.learn(["no identifier"])
    assert len(registry.asked) == asked


async def test_after_many_rotations_one_comes_back_to_the_pinned_key(
    trusted: TrustedKeys, registry: RegistryDouble
) -> None:
    """TRU-2: each answer names who bound the key before, until one is known; afterwards one question is enough."""
    registry.keys = keys
    await trusted.learn([keys[-1].key_id])
    assert trusted.resolve(keys[-1].key_id) is not None
    assert len(registry.asked) == len(keys) - 1
    trusted.forget()
    await trusted.learn([keys[-1].key_id])
    assert len(registry.asked) == len(keys)
    # The trusted keys are asked about with every question.
    assert {key.key_id for key in keys} <= set(registry.asked[-1])


async def test_an_authority_nobody_leads_to_is_not_believed(trusted: TrustedKeys, registry: RegistryDouble) -> None:
    """TRU-2: another answering service with keys of its own settles nothing."""
    registry.keys = [stranger, authority_key(9)]
    await trusted.learn([authority_key(9).key_id, keys[0].key_id])
    assert not trusted.settled(authority_key(9).key_id)
    assert not trusted.settled(keys[0].key_id)
    assert trusted.resolve(keys[0].key_id) is None


async def test_without_an_answer_a_key_stays_unknown(
    trusted: TrustedKeys, registry: RegistryDouble, clock: Clock
) -> None:
    """TRU-2: an outage means neither "no such key" nor "trusted"; questions pause, and then go on."""
    registry.faults = [Unavailable("away"), TimeoutError()]
    for _ in range(2):
        await trusted.learn([keys[0].key_id])
        assert not trusted.settled(keys[0].key_id)
        clock.now += backoff_seconds_max
    await trusted.learn([keys[0].key_id])
    assert trusted.settled(keys[0].key_id)
    assert len(registry.asked) == 3


async def test_a_change_during_the_question_asks_again(trusted: TrustedKeys, registry: RegistryDouble) -> None:
    """TRU-2: an answer from before an announced change is not remembered."""
    answering = registry.keys_of

    async def changing(key_ids):
        if len(registry.asked) == 1:
            trusted.forget()
        return await answering(key_ids)

    registry.keys_of = changing  # type: ignore[method-assign]
    await trusted.learn([keys[0].key_id])
    assert trusted.settled(keys[0].key_id)
    assert len(registry.asked) == 2


async def test_what_is_remembered_is_bounded(trusted: TrustedKeys, registry: RegistryDouble) -> None:
    """TRU-2: a flood of invented key IDs displaces what is oldest; questions stay within their bound."""
    await trusted.learn([signing_key("worker").key_id])
    for start in range(0, keys_remembered_max + 100, 99):
        await trusted.learn([f"urn:test:key:{number}" for number in range(start, start + 150)])
    assert not trusted.settled(signing_key("worker").key_id)
    assert trusted.settled(keys[0].key_id)
    assert max(len(asked) for asked in registry.asked) == 100
