"""The wait before a reconnection is bounded and spread (DUR-3)."""

from services.process.broker import reconnect_delay, reconnect_wait_seconds, reconnect_wait_seconds_max


def test_the_wait_grows_to_its_bound_with_full_jitter() -> None:
    for attempt in range(40):
        ceiling = min(reconnect_wait_seconds_max, reconnect_wait_seconds * 2**attempt)
        waits = [reconnect_delay(attempt) for _ in range(50)]
        assert all(0 <= wait <= ceiling for wait in waits)
        assert len(set(waits)) > 1
