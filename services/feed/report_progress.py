"""What a projection has applied, dropped and repaired, as metrics of its process (OPS-1)."""

from typing import Final

from projections.apply_event import Applied
from projections.projection import Projection
from services.process.metrics import Counter, Metrics

consumers_counted_max: Final = 64
"""Consumers of one process that are counted apart."""


class ProgressReport:
    """Counters of one projection, labelled with its consumer, brought up to date after each commit."""

    def __init__(self, metrics: Metrics, projection: Projection) -> None:
        def counter(name: str, description: str) -> Counter:
            return metrics.counter(name, description, labels={"consumer": consumers_counted_max})

        self._projection = projection
        self._gaps_reported = 0
        self._applied = counter("events_applied", "Events applied to the projection")
        self._duplicates = counter("duplicates_dropped", "Events that were applied already")
        self._gaps = counter("gaps_filled", "Holes closed from the replay service")
        self._unproven = counter("events_unproven", "Runs of Events that were not applied for want of proof")
        self._quarantines = counter("quarantines", "Times that a Group was stopped before an Event that failed")
        self._tried = counter("quarantine_retries", "Times that a quarantined Group was tried again")
        self._skipped = counter("events_skipped", "Events that were passed over because somebody decided so")
        self._standing = metrics.gauge(
            "groups_quarantined",
            "Groups that stand before an Event that the consumer cannot apply",
            labels={"consumer": consumers_counted_max},
        )

    def note(self, applied: Applied) -> None:
        """Count what one transaction did, and the repairs before it."""
        consumer = self._projection.name
        self._applied.add(applied.applied, consumer=consumer)
        self._duplicates.add(applied.duplicates, consumer=consumer)
        self._unproven.add(len(applied.unproven), consumer=consumer)
        self._quarantines.add(len(applied.stops), consumer=consumer)
        self._skipped.add(applied.skipped, consumer=consumer)
        repaired = self._projection.progress.gaps_filled
        self._gaps.add(repaired - self._gaps_reported, consumer=consumer)
        self._gaps_reported = repaired

    def note_quarantined(self, standing: int, tried: int) -> None:
        """State how many Groups stand, and count those that are tried again since it was called last."""
        self._standing.set(standing, consumer=self._projection.name)
        self._tried.add(tried, consumer=self._projection.name)
