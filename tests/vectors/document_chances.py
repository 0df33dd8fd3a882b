"""Samples of one subject for the equivalence tests: valid instances, and instances with some places changed.

`systematic` goes once through every change at every place. Two others go on without end: `by_chance` changes several
places at once, `turning` tries the conditional rules. All follow from the random numbers alone.
"""

import random
from collections.abc import Iterator
from typing import Any, Final, NamedTuple

from tests.vectors.document_instances import Chance, instance, wholes
from tests.vectors.document_neighbours import (
    Change,
    changes,
    changes_at,
    deciding_places,
    places,
    some_variant,
    variants,
)

samples_of_one_instance: Final = 8
"""Samples by chance that are made from one drawn instance."""
changes_at_once_max: Final = 3
"""Places of one sample that are changed."""


class Sample(NamedTuple):
    """An instance and how it came about, in words."""

    how: str
    instance: Any


def systematic(subject: str, chance: random.Random) -> Iterator[Sample]:
    """Every change at every place once, and the coming and going of members under every variant of every form."""
    seen: set[tuple[str, ...]] = set()
    for form, whole in enumerate(wholes(subject, Chance(chance, optional_share=1.0))):
        for number, variant in enumerate(variants(subject, whole)):
            name = f"variant {number} of form {form}"
            yield Sample(name, variant)
            for change in changes(subject, variant):
                spot = (*change.spot, name if change.kind in {"loses", "gains"} else "")
                if spot not in seen:
                    seen.add(spot)
                    yield Sample(f"{name} {change}", change.applied(variant))


def by_chance(subject: str, chance: random.Random) -> Iterator[Sample]:
    """Drawn instances, their variants, and both with up to `changes_at_once_max` changes."""
    while True:
        drawn = instance(subject, Chance(chance, optional_share=chance.choice([0.1, 0.5, 0.9])))
        yield Sample("as drawn", drawn)
        for _ in range(samples_of_one_instance - 1):
            how, sample = "varied", drawn
            if chance.random() < 0.6:
                sample = some_variant(subject, sample, chance)
            for _ in range(chance.choice([0, *range(1, changes_at_once_max + 1)])):
                change = some_change(subject, sample, chance)
                how, sample = f"{how}, then {change}", change.applied(sample)
            yield Sample(how, sample)


def turning(subject: str, chance: random.Random) -> Iterator[Sample]:
    """Variants of drawn instances with one member more or less beside those on which conditional rules turn."""
    while True:
        drawn = instance(subject, Chance(chance, optional_share=0.5))
        variant = some_variant(subject, some_variant(subject, drawn, chance), chance)
        yield Sample("varied", variant)
        holders = {place[:-1] for place in deciding_places(subject, variant)} or {()}
        for holder in sorted(holders, key=str):
            for change in changes_at(subject, variant, holder):
                if change.kind in {"loses", "gains"}:
                    yield Sample(f"varied {change}", change.applied(variant))


def some_change(subject: str, sample: Any, chance: random.Random) -> Change:
    """One change of one place."""
    place = chance.choice(list(places(sample)))
    options = list(changes_at(subject, sample, place))
    kind = chance.choice(sorted({option.kind for option in options}))
    return chance.choice([option for option in options if option.kind == kind])
