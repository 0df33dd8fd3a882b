"""Metrics of one process: OpenTelemetry instruments, read by Prometheus, with bounded label sets (OPS-1).

Every label is declared with its possible values, or with how many different ones may appear; anything else is
counted as `other`, so that no input can grow the number of series.
"""

from collections.abc import Collection, Mapping, Sequence
from typing import Final

from opentelemetry.exporter.prometheus import PrometheusMetricReader
from opentelemetry.metrics import Counter as OtelCounter
from opentelemetry.metrics import Histogram as OtelHistogram
from opentelemetry.metrics import _Gauge as OtelGauge
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.resources import Resource
from prometheus_client import CONTENT_TYPE_LATEST, CollectorRegistry, generate_latest

label_values_max: Final = 64
"""Different values that one undeclared label may take."""
other_value: Final = "other"
"""The value that stands for all that are not counted apart."""
latency_seconds_buckets: Final = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0)
"""Upper bounds, in seconds, of a latency histogram."""

type LabelValues = Mapping[str, Collection[str] | int]
"""Label names with their possible values, or with how many different ones may appear (≤ `label_values_max`)."""


class _Labels:
    """Holds the labels of one instrument within their bounds."""

    def __init__(self, instrument: str, labels: LabelValues) -> None:
        self._instrument = instrument
        self._declared: dict[str, frozenset[str]] = {}
        self._open: dict[str, tuple[int, set[str]]] = {}
        for name, values in labels.items():
            if isinstance(values, int):
                self._open[name] = (min(values, label_values_max), set())
            else:
                self._declared[name] = frozenset(values)

    def bound(self, given: Mapping[str, str]) -> dict[str, str]:
        """The labels with unexpected values replaced. Raises `ValueError` for other label names than declared."""
        if given.keys() != self._declared.keys() | self._open.keys():
            raise ValueError(
                f"{self._instrument} has the labels {sorted(self._declared.keys() | self._open.keys())}, "
                f"not {sorted(given)}"
            )
        return {name: self._bound_one(name, value) for name, value in given.items()}

    def _bound_one(self, name: str, value: str) -> str:
        if name in self._declared:
            return value if value in self._declared[name] else other_value
        maximum, seen = self._open[name]
        if value not in seen:
            if len(seen) >= maximum:
                return other_value
            seen.add(value)
        return value


class Counter:
    """A number that only grows."""

    def __init__(self, instrument: OtelCounter, labels: _Labels) -> None:
        """Wrap an instrument."""
        self._instrument = instrument
        self._labels = labels

    def add(self, amount: float = 1, **labels: str) -> None:
        """Count `amount` more."""
        self._instrument.add(amount, self._labels.bound(labels))


class Gauge:
    """A number that goes up and down."""

    def __init__(self, instrument: OtelGauge, labels: _Labels) -> None:
        """Wrap an instrument."""
        self._instrument = instrument
        self._labels = labels

    def set(self, value: float, **labels: str) -> None:
        """State the current value."""
        self._instrument.set(value, self._labels.bound(labels))


class Histogram:
    """A distribution."""

    def __init__(self, instrument: OtelHistogram, labels: _Labels) -> None:
        """Wrap an instrument."""
        self._instrument = instrument
        self._labels = labels

    def record(self, value: float, **labels: str) -> None:
        """Add one observation."""
        self._instrument.record(value, self._labels.bound(labels))


class Metrics:
    """The instruments of one process, shown as `weavehold_<name>`. Asking twice for a name gives the first one."""

    def __init__(self, service: str) -> None:
        """Start with no instruments; `service` becomes a label of `target_info`."""
        self._registry = CollectorRegistry()
        self._provider = MeterProvider(
            metric_readers=[
                PrometheusMetricReader(prefix="weavehold", scope_info_enabled=False, registry=self._registry)
            ],
            resource=Resource({"service.name": service}),
            shutdown_on_exit=False,
        )
        self._meter = self._provider.get_meter("weavehold")
        self._counters: dict[str, Counter] = {}
        self._gauges: dict[str, Gauge] = {}
        self._histograms: dict[str, Histogram] = {}

    def counter(self, name: str, description: str, *, unit: str = "", labels: LabelValues | None = None) -> Counter:
        """The counter `name` (shown as `weavehold_<name>_total`)."""
        if name not in self._counters:
            instrument = self._meter.create_counter(name, unit=unit, description=description)
            self._counters[name] = Counter(instrument, _Labels(name, labels or {}))
        return self._counters[name]

    def gauge(self, name: str, description: str, *, unit: str = "", labels: LabelValues | None = None) -> Gauge:
        """The gauge `name`; a unit such as `seconds` becomes part of the shown name."""
        if name not in self._gauges:
            instrument = self._meter.create_gauge(name, unit=unit, description=description)
            self._gauges[name] = Gauge(instrument, _Labels(name, labels or {}))
        return self._gauges[name]

    def histogram(
        self,
        name: str,
        description: str,
        *,
        unit: str = "seconds",
        buckets: Sequence[float] = latency_seconds_buckets,
        labels: LabelValues | None = None,
    ) -> Histogram:
        """The histogram `name` with fixed upper bounds in `unit`."""
        if name not in self._histograms:
            instrument = self._meter.create_histogram(
                name, unit=unit, description=description, explicit_bucket_boundaries_advisory=buckets
            )
            self._histograms[name] = Histogram(instrument, _Labels(name, labels or {}))
        return self._histograms[name]

    def exposition(self) -> tuple[bytes, str]:
        """All current values in the Prometheus text format, and its content type."""
        return generate_latest(self._registry), CONTENT_TYPE_LATEST

    def close(self) -> None:
        """Release the provider."""
        self._provider.shutdown()
