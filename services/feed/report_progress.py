"""What a projection has applied, dropped and repaired, as metrics of its process (OPS-1)."""

from projections.apply_event import Applied
from projections.projection import Projection
from services.process.metrics import Metrics


class ProgressReport:
    """Counters of one projection, brought up to date after each commit."""

    def __init__(self, metrics: Metrics, projection: Projection) -> None:
        self._projection = projection
        self._gaps_reported = 0
        self._applied = metrics.counter("events_applied", "Events applied to the projection")
        self._duplicates = metrics.counter("duplicates_dropped", "Events that were applied already")
        self._gaps = metrics.counter("gaps_filled", "Holes closed from the replay service")
        self._unproven = metrics.counter("events_unproven", "Runs of Events that were not applied for want of proof")

    def note(self, applied: Applied) -> None:
        """Count what one transaction did, and the repairs before it."""
        self._applied.add(applied.applied)
        self._duplicates.add(applied.duplicates)
        self._unproven.add(len(applied.unproven))
        repaired = self._projection.progress.gaps_filled
        self._gaps.add(repaired - self._gaps_reported)
        self._gaps_reported = repaired
