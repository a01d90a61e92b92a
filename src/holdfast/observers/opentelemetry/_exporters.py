"""Providers from the environment: `holdfast worker --otel` sends its traces and metrics with them.

The variables are OpenTelemetry's own. The SDK and its exporters read resource, sampler, limits and
the receiver's address; this module reads which exporter to use.
"""

from __future__ import annotations

import atexit
import importlib
import os
import threading
import time
from collections.abc import Callable
from typing import Any

from opentelemetry import metrics, trace
from opentelemetry.metrics import MeterProvider as AnyMeterProvider
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import ConsoleMetricExporter, PeriodicExportingMetricReader
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor, ConsoleSpanExporter

from holdfast.errors import UsageError

SERVICE = "holdfast-worker"
SEND_S = 4.0
"""How long sending the rest may take at the end."""
PROTOCOLS = {"http/protobuf": "http", "grpc": "grpc"}
_EXPORTERS = {
    "traces": ("trace_exporter", "OTLPSpanExporter"),
    "metrics": ("metric_exporter", "OTLPMetricExporter"),
}


def check() -> None:
    """Raise UsageError if a requested exporter is unknown or not installed."""
    for signal in _EXPORTERS:
        _otlp(signal) if _wanted(signal) == "otlp" else None


def exporting(observe: Callable[[], Callable[[], None]]) -> Callable[[], None]:
    """Set missing providers, and observe; returns a function that ends that and sends the rest."""
    sends: list[Callable[[], None]] = []
    if isinstance(trace.get_tracer_provider(), trace.ProxyTracerProvider):
        sends += _trace()
    if _has_no_meter_provider(metrics.get_meter_provider()):
        sends += _meter()
    stop = observe()

    def end() -> None:
        atexit.unregister(end)
        stop()
        _send(sends)
        sends.clear()

    atexit.register(end)
    return end


def _send(sends: list[Callable[[], None]]) -> None:
    """Send the rest, within a time limit: a receiver that is gone delays no exit."""
    until_s = time.monotonic() + SEND_S
    threads = [threading.Thread(target=send, daemon=True) for send in sends]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(max(0.0, until_s - time.monotonic()))


def _trace() -> list[Callable[[], None]]:
    wanted = _wanted("traces")
    if wanted == "none":
        return []
    exporter = ConsoleSpanExporter() if wanted == "console" else _otlp("traces")()
    provider = TracerProvider(resource=_resource(), shutdown_on_exit=False)
    provider.add_span_processor(BatchSpanProcessor(exporter))
    trace.set_tracer_provider(provider)
    return [provider.shutdown]


def _meter() -> list[Callable[[], None]]:
    wanted = _wanted("metrics")
    if wanted == "none":
        return []
    exporter = ConsoleMetricExporter() if wanted == "console" else _otlp("metrics")()
    reader = PeriodicExportingMetricReader(exporter)
    provider = MeterProvider([reader], resource=_resource(), shutdown_on_exit=False)
    metrics.set_meter_provider(provider)
    return [provider.shutdown]


def _has_no_meter_provider(provider: AnyMeterProvider) -> bool:
    return type(provider).__name__ == "_ProxyMeterProvider"


def _resource() -> Resource:
    named = "OTEL_SERVICE_NAME" in os.environ or "service.name=" in os.environ.get(
        "OTEL_RESOURCE_ATTRIBUTES", ""
    )
    return Resource.create({} if named else {"service.name": SERVICE})


def _wanted(signal: str) -> str:
    variable = f"OTEL_{signal.upper()}_EXPORTER"
    wanted = os.environ.get(variable, "").strip() or "otlp"
    if wanted not in {"otlp", "console", "none"}:
        raise UsageError(
            f"{variable}={wanted}: otlp, console or none; for another exporter set up the providers "
            "in the module of your flows, and they are used"
        )
    return wanted


def _otlp(signal: str) -> Callable[[], Any]:
    module, name = _EXPORTERS[signal]
    ways = [_protocol(signal)] if _protocol(signal) else list(PROTOCOLS.values())
    for way in ways:
        try:
            found = importlib.import_module(f"opentelemetry.exporter.otlp.proto.{way}.{module}")
        except ImportError:
            continue
        exporter: Callable[[], Any] = getattr(found, name)
        return exporter
    raise UsageError(
        "to send traces and metrics, the exporter of OpenTelemetry has to be installed: "
        f"pip install opentelemetry-exporter-otlp-proto-{ways[0]}"
    )


def _protocol(signal: str) -> str | None:
    """Return the protocol that the environment selects; None if it selects none."""
    own = f"OTEL_EXPORTER_OTLP_{signal.upper()}_PROTOCOL"
    variable = own if own in os.environ else "OTEL_EXPORTER_OTLP_PROTOCOL"
    wanted = os.environ.get(variable, "").strip()
    if wanted and wanted not in PROTOCOLS:
        raise UsageError(f"{variable}={wanted}: one of {', '.join(PROTOCOLS)}")
    return PROTOCOLS.get(wanted)
