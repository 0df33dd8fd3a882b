"""Traces across Command → outbox → broker → projection: OpenTelemetry spans and W3C `traceparent` headers.

Without WEAVEHOLD_OTLP_ENDPOINT no span is recorded and tracing costs nothing.
"""

from collections.abc import Mapping
from typing import Final

from opentelemetry.context import Context
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor
from opentelemetry.trace import NoOpTracer, Tracer
from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

export_timeout_seconds: Final = 5
"""Seconds of one attempt to hand spans to the collector."""
spans_queued_max: Final = 2048
"""Spans waiting for export; more are dropped, never waited for."""

_propagator: Final = TraceContextTextMapPropagator()


class Tracing:
    """The tracer of one process and what must be closed with it."""

    def __init__(self, service: str, otlp_endpoint: str | None = None) -> None:
        """Export to the collector at `otlp_endpoint` (OTLP over HTTP), or record nothing without one."""
        self._provider: TracerProvider | None = None
        self.tracer: Tracer = NoOpTracer()
        if otlp_endpoint is not None:
            # Imported only here: the exporter's HTTP client costs every other process a fifth of a second.
            from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter  # noqa: PLC0415

            self._provider = TracerProvider(resource=Resource({"service.name": service}), shutdown_on_exit=False)
            exporter = OTLPSpanExporter(endpoint=otlp_endpoint, timeout=export_timeout_seconds)
            self._provider.add_span_processor(BatchSpanProcessor(exporter, max_queue_size=spans_queued_max))
            self.tracer = self._provider.get_tracer("weavehold")

    def close(self) -> None:
        """Hand over what is still queued."""
        if self._provider is not None:
            self._provider.shutdown()


def trace_headers() -> dict[str, str]:
    """The current span as message headers; empty outside a recorded span."""
    headers: dict[str, str] = {}
    _propagator.inject(headers)
    return headers


def trace_context(headers: Mapping[str, str] | None) -> Context:
    """The sender's span from message headers, to start a span with `context=`."""
    return _propagator.extract(dict(headers or {}))
