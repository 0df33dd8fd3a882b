"""Keys as a consumer of Events learns and forgets them (TRU-2)."""

from collections.abc import Callable

import pytest
from msgspec import Raw

from contracts.verification import RegisteredKey
from projections.arrival import read_arrival
from projections.proof import SignatureProof
from services.agent.read_history import Unavailable
from services.feed.trusted_keys import (
    TrustedKeys,
    absence_seconds_max,
    backoff_seconds_max,
    key_age_seconds_max,
    keys_remembered_max,
)
from tests.builders import build_event, signing_key
from tests.trust_rig import Reader, RegistryDouble, anchors, authority, authority_key, stranger

keys = [authority_key(number) for number in range(1, 6)]


class Clock:
    """Stands still; `meanwhile` is done whenever somebody looks at it."""

    def __init__(self) -> None:
        self.now = 1_000.0
        self.meanwhile: Callable[[], None] = lambda: None

    def __call__(self) -> float:
        self.meanwhile()
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


def key_in(trusted: TrustedKeys, key_id: str) -> RegisteredKey | None:
    """The key that is known now."""
    known = trusted.known(key_id)
    return None if known is None else known.resolve(key_id)


async def test_even_a_pinned_key_is_asked_about(trusted: TrustedKeys, registry: RegistryDouble, clock: Clock) -> None:
    """TRU-2: it may have ended since it was pinned; an answer counts for a while, then it is asked for again."""
    assert trusted.known(keys[0].key_id) is None
    assert key_in(trusted, keys[0].key_id) is None
    await trusted.learn([keys[0].key_id, keys[0].key_id])
    await trusted.learn([keys[0].key_id])
    found = key_in(trusted, keys[0].key_id)
    assert found is not None
    assert (found.principal, found.public_key) == (authority, keys[0].public_key)
    assert len(registry.asked) == 1
    clock.now += key_age_seconds_max
    assert trusted.known(keys[0].key_id) is None
    trusted.forget()
    registry.revoked[keys[0].key_id] = "2026-07-15T12:00:00Z"
    registry.keys.append(keys[1])
    await trusted.learn([keys[0].key_id])
    ended = key_in(trusted, keys[0].key_id)
    assert ended is not None
    assert ended.revoked_at == "2026-07-15T12:00:00Z"


async def test_a_key_that_is_not_registered_is_known_to_be_none_for_a_moment(
    trusted: TrustedKeys, registry: RegistryDouble, clock: Clock
) -> None:
    """TRU-2: absence counts briefly; what cannot be a key ID is never asked for."""
    await trusted.learn([stranger.key_id])
    assert trusted.known(stranger.key_id) is not None
    assert key_in(trusted, stranger.key_id) is None
    clock.now += absence_seconds_max
    assert trusted.known(stranger.key_id) is None
    for nonsense in ("no identifier", "", "urn:test:" + "x" * 512):
        assert trusted.known(nonsense) is not None
        assert key_in(trusted, nonsense) is None
    asked = len(registry.asked)
    await trusted.learn(["no identifier"])
    assert len(registry.asked) == asked


async def test_after_many_rotations_one_comes_back_to_the_pinned_key(
    trusted: TrustedKeys, registry: RegistryDouble
) -> None:
    """TRU-2: each answer names who bound the key before, until one is known; afterwards one question is enough."""
    registry.keys = keys
    await trusted.learn([keys[-1].key_id])
    assert key_in(trusted, keys[-1].key_id) is not None
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
    assert trusted.known(authority_key(9).key_id) is None
    assert trusted.known(keys[0].key_id) is None
    assert key_in(trusted, keys[0].key_id) is None


async def test_without_an_answer_a_key_stays_unknown(
    trusted: TrustedKeys, registry: RegistryDouble, clock: Clock
) -> None:
    """TRU-2: an outage means neither "no such key" nor "trusted"; questions pause, and then go on."""
    registry.faults = [Unavailable("away"), TimeoutError()]
    for _ in range(2):
        await trusted.learn([keys[0].key_id])
        assert trusted.known(keys[0].key_id) is None
        clock.now += backoff_seconds_max
    await trusted.learn([keys[0].key_id])
    assert trusted.known(keys[0].key_id) is not None
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
    assert trusted.known(keys[0].key_id) is not None
    assert len(registry.asked) == 2


async def test_what_is_remembered_is_bounded(trusted: TrustedKeys, registry: RegistryDouble) -> None:
    """TRU-2: a flood of invented key IDs displaces what is oldest; questions stay within their bound."""
    await trusted.learn([signing_key("worker").key_id])
    for start in range(0, keys_remembered_max + 100, 99):
        await trusted.learn([f"urn:test:key:{number}" for number in range(start, start + 150)])
    assert trusted.known(signing_key("worker").key_id) is None
    assert trusted.known(keys[0].key_id) is not None
    assert max(len(asked) for asked in registry.asked) == 100


async def test_a_change_announced_in_the_middle_of_a_proof_disproves_nothing(
    trusted: TrustedKeys, clock: Clock
) -> None:
    """TRU-2, NEW-5: the store's thread proves an Event while the event loop forgets its key: what was known counts."""
    built = build_event("message.posted", {"message": {}}, keys[0])
    arrival, proof = read_arrival(Raw(built.raw)), SignatureProof(trusted)
    assert await proof.examine(arrival) is None
    # Whether a key is still known is judged by the clock: in that moment all that is known is forgotten.
    clock.meanwhile = trusted.forget
    assert proof.fault_of(arrival) is None
    doubt = proof.fault_of(arrival)
    assert doubt is not None
    assert doubt.for_now
