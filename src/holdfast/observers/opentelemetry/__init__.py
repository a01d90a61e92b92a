"""Traces and metrics by OpenTelemetry (extra `otel`). Add one line to the setup of your exporters:

    holdfast.observers.opentelemetry.observe()

A run is one trace, however many processes execute it: its ID and its spans' IDs are derived from
the run. `run` is the root; below it is one `execution` per claim, linked to the previous one; below
that are steps, attempts and waits. The attempt is the current span while your code runs, so spans
of instrumented libraries are its children. A replay makes no spans.

Arguments, results and error messages are not sent; `messages=True` adds error messages.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import holdfast
from holdfast.errors import UsageError

if TYPE_CHECKING:
    from opentelemetry.metrics import MeterProvider
    from opentelemetry.trace import TracerProvider


def observe(
    tracer_provider: TracerProvider | None = None,
    meter_provider: MeterProvider | None = None,
    messages: bool = False,
) -> Callable[[], None]:
    """Trace and count all runs of this process from now on; returns a function that ends it.
    Without providers, it uses OpenTelemetry's global ones, whenever they are set."""
    metering, tracing = _parts()
    traces = tracing.Tracing(tracer_provider, messages=messages)
    counts = metering.Metering(meter_provider)
    ends = (holdfast.observers.observe(traces), holdfast.observers.observe(counts))

    def end() -> None:
        for one in (*ends, traces.close, counts.close):
            one()

    return end


def observe_from_environment(*, messages: bool = False) -> Callable[[], None]:
    """The same, with exporters configured by OpenTelemetry's variables (`OTEL_EXPORTER_OTLP_…`,
    `OTEL_SERVICE_NAME`, `OTEL_TRACES_SAMPLER` …), unless providers are set already. The returned
    function ends it and sends the rest."""
    _parts()
    from holdfast.observers.opentelemetry import _exporters

    return _exporters.exporting(lambda: observe(messages=messages))


def check_environment() -> None:
    """Raise UsageError if `observe_from_environment` could not follow the variables."""
    _parts()
    from holdfast.observers.opentelemetry import _exporters

    _exporters.check()


def _parts() -> tuple[Any, Any]:
    try:
        from holdfast.observers.opentelemetry import _metric_observer, _trace_observer
    except ImportError as error:
        raise UsageError(
            f"traces need OpenTelemetry ({error}): pip install -e '.[otel]' in a clone"
        ) from error
    return _metric_observer, _trace_observer
