"""Two ways of doing the same work, measured in alternating slices, so that whatever else runs here slows both."""

import time
from collections.abc import Callable, Iterable, Sequence
from typing import Final

pairs_counted: Final = 41
"""Pairs of slices behind one median."""
pairs_of_warming: Final = 3
"""Pairs before them that are not counted."""


def interleave[T](
    slices: Iterable[tuple[Sequence[T], Sequence[T]]],
    subject: Callable[[T], object],
    baseline: Callable[[T], object],
) -> list[tuple[float, float]]:
    """Seconds per item of subject and baseline, one pair for each of `slices` after the warming ones.

    Each slice holds the subject's items and the baseline's; they may be the same. Which of the two goes first
    alternates, since the second finds the items in the processor's cache.
    """
    pairs = []
    for number, (for_subject, for_baseline) in enumerate(slices):
        if number % 2:
            bare = _seconds_per_item(for_baseline, baseline)
            pairs.append((_seconds_per_item(for_subject, subject), bare))
        else:
            full = _seconds_per_item(for_subject, subject)
            pairs.append((full, _seconds_per_item(for_baseline, baseline)))
    return pairs[pairs_of_warming:]


def _seconds_per_item[T](items: Sequence[T], work: Callable[[T], object]) -> float:
    started = time.thread_time()
    for item in items:
        work(item)
    return (time.thread_time() - started) / len(items)
