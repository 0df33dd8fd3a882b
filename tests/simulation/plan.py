"""What a seed decides before anything runs: how large the world is, its weather, and which steps happen when."""

import random
from typing import Final

from msgspec import Struct

from tests.simulation.network import Weather

steps_max: Final = 45
"""Steps of one run."""


class Settings(Struct, frozen=True, kw_only=True):
    """The size and the bounds of one world."""

    shards: int
    groups: int
    projectors: int
    workers: int
    page_events: int
    held_events: int
    remembered_pairs: int
    batch_events: int


class Step(Struct, frozen=True):
    """One thing that happens `wait` seconds after the one before it; `draw` decides its details."""

    number: int
    kind: str
    wait: float
    draw: int


class Plan(Struct, frozen=True):
    """Everything that a seed decides beforehand. The rest it decides while it runs, message by message."""

    seed: int
    settings: Settings
    weather: Weather
    relay_weather: Weather
    steps: tuple[Step, ...]


_weights: Final = {
    "accept": 40,
    "announce": 6,
    "crash": 9,
    "copy_consumer": 4,
    "older_consumer": 4,
    "lose_consumer": 1,
    "cut_consumer": 4,
    "cut_relay": 3,
    "history_away": 3,
    "delete_message": 4,
    "delete_consumer": 2,
    "copy_broker": 3,
    "older_broker": 2,
    "wipe_broker": 2,
    "relay_takeover": 3,
    "restore": 5,
    "silent_restore": 3,
    "refresh": 3,
    "hide_group": 3,
}
"""How often each kind of step is drawn."""


def draw_plan(seed: int) -> Plan:
    """The plan of a seed, always the same."""
    rng = random.Random(seed)
    projectors = rng.choice((0, 1, 1, 2))
    settings = Settings(
        shards=rng.choice((1, 2, 3)),
        groups=rng.randint(2, 7),
        projectors=projectors,
        workers=rng.choice((0, 1, 2)) if projectors else rng.choice((1, 2)),
        page_events=rng.choice((1, 3, 8, 50)),
        held_events=rng.choice((0, 2, 6, 4_096)),
        remembered_pairs=rng.choice((2, 5, 256)),
        batch_events=rng.choice((1, 4, 2_000)),
    )
    rough = rng.random() < 0.8
    weather = Weather(
        drop=rng.choice((0.0, 0.02, 0.1)) * rough,
        duplicate=rng.choice((0.0, 0.05, 0.2)) * rough,
        late=rng.choice((0.0, 0.05, 0.2)) * rough,
        forge=rng.choice((0.0, 0.0, 0.03)) * rough,
        lose_call=rng.choice((0.0, 0.05)) * rough,
        lose_answer=rng.choice((0.0, 0.05, 0.2)) * rough,
        slow=rng.choice((1.0, 1.0, 10.0)),
    )
    relay_weather = Weather(lose_answer=rng.choice((0.0, 0.05)), slow=rng.choice((1.0, 5.0)))
    kinds = [kind for kind in _weights if kind == "accept" or rng.random() < 0.7]
    weights = [_weights[kind] for kind in kinds]
    steps = tuple(
        Step(
            number,
            rng.choices(kinds, weights)[0],
            rng.choice((0.0, 0.05, 0.5, 2.0)) * rng.random(),
            rng.getrandbits(32),
        )
        for number in range(1, rng.randint(10, steps_max) + 1)
    )
    return Plan(seed, settings, weather, relay_weather, steps)
