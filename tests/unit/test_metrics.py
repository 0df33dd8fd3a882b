"""Metrics have bounded label sets and a Prometheus exposition (OPS-1)."""

from collections.abc import Iterator

import pytest

from services.process.metrics import Metrics


@pytest.fixture
def metrics() -> Iterator[Metrics]:
    made = Metrics("test")
    yield made
    made.close()


def shown(metrics: Metrics) -> str:
    content, content_type = metrics.exposition()
    assert content_type.startswith("text/plain")
    return content.decode()


def test_counter_gauge_and_histogram_are_shown(metrics: Metrics) -> None:
    metrics.counter("commands_accepted", "Accepted").add(3)
    metrics.gauge("relay_lag", "Age of the oldest unrelayed row", unit="seconds").set(1.5)
    metrics.histogram("latency", "End to end", buckets=(0.1, 1.0)).record(0.5)
    text = shown(metrics)
    assert "weavehold_commands_accepted_total 3.0" in text
    assert "weavehold_relay_lag_seconds 1.5" in text
    assert 'weavehold_latency_seconds_bucket{le="1.0"} 1.0' in text


def test_an_undeclared_value_is_counted_as_other(metrics: Metrics) -> None:
    counter = metrics.counter("refused", "Refused", labels={"code": ("BACKPRESSURE",)})
    counter.add(code="BACKPRESSURE")
    counter.add(code="surprise")
    counter.add(code="surprise 2")
    assert 'weavehold_refused_total{code="BACKPRESSURE"} 1.0' in shown(metrics)
    assert 'weavehold_refused_total{code="other"} 2.0' in shown(metrics)


def test_an_open_label_takes_only_so_many_values(metrics: Metrics) -> None:
    counter = metrics.counter("per_shard", "Per shard", labels={"shard": 3})
    for shard in range(10):
        counter.add(shard=str(shard))
    text = shown(metrics)
    assert text.count("weavehold_per_shard_total{") == 4
    assert 'weavehold_per_shard_total{shard="other"} 7.0' in text


def test_other_labels_than_declared_are_a_fault(metrics: Metrics) -> None:
    counter = metrics.counter("refused", "Refused", labels={"code": ("A",)})
    with pytest.raises(ValueError, match="refused has the labels"):
        counter.add(kind="A")


def test_the_same_name_is_the_same_instrument(metrics: Metrics) -> None:
    metrics.counter("seen", "Seen").add()
    metrics.counter("seen", "Seen").add()
    assert "weavehold_seen_total 2.0" in shown(metrics)
