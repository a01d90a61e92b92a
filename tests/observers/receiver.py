"""A receiver of OTLP for tests: real HTTP and real gRPC, on ports of its own. It keeps the bytes that
came, and reads them as the protocol says."""

from __future__ import annotations

import gzip
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, Self

import grpc  # type: ignore[import-untyped]
from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import (
    ExportMetricsServiceRequest,
    ExportMetricsServiceResponse,
)
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import (
    ExportTraceServiceRequest,
    ExportTraceServiceResponse,
)

WAIT_AT_MOST_S = 30.0


@dataclass(frozen=True)
class Event:
    name: str
    attributes: dict[str, Any]


@dataclass(frozen=True)
class Linked:
    trace_id: str
    span_id: str
    why: str


@dataclass(frozen=True)
class Span:
    """One span as it was received; `process` is who sent it."""

    process: str
    scope: str
    name: str
    trace_id: str
    span_id: str
    parent_id: str
    start_ns: int
    end_ns: int
    failed: bool
    status: str
    attributes: dict[str, Any]
    events: list[Event] = field(default_factory=list)
    links: list[Linked] = field(default_factory=list)

    def __getitem__(self, name: str) -> Any:
        return self.attributes[name]


class Receiver:
    """What came in, whichever way."""

    def __init__(self) -> None:
        self.traces: list[bytes] = []
        self.metrics: list[bytes] = []
        self._http = ThreadingHTTPServer(("127.0.0.1", 0), _handler(self))
        self._thread = threading.Thread(target=self._http.serve_forever, daemon=True)
        self._grpc = grpc.server(ThreadPoolExecutor(2))
        self._grpc.add_generic_rpc_handlers(
            (
                _raw("trace", "TraceService", self.traces, ExportTraceServiceResponse),
                _raw("metrics", "MetricsService", self.metrics, ExportMetricsServiceResponse),
            )
        )
        self._port = self._grpc.add_insecure_port("127.0.0.1:0")

    def __enter__(self) -> Self:
        self._thread.start()
        self._grpc.start()
        return self

    def __exit__(self, *_exc: object) -> None:
        self._http.shutdown()
        self._http.server_close()
        self._grpc.stop(None).wait()

    def environment(self, protocol: str) -> dict[str, str]:
        """The variables with which a process sends here."""
        port = self._port if protocol == "grpc" else self._http.server_address[1]
        return {
            "OTEL_EXPORTER_OTLP_ENDPOINT": f"http://127.0.0.1:{port}",
            "OTEL_EXPORTER_OTLP_PROTOCOL": protocol,
            "OTEL_EXPORTER_OTLP_INSECURE": "true",
        }

    @property
    def everything(self) -> bytes:
        return b"".join([*self.traces, *self.metrics])

    def spans(self) -> list[Span]:
        return [span for data in list(self.traces) for span in _spans(data)]

    def services(self) -> set[str]:
        """Who sent spans, by name."""
        resources = [
            one.resource
            for data in self.traces
            for one in ExportTraceServiceRequest.FromString(data).resource_spans
        ]
        return {_attributes(one.attributes)["service.name"] for one in resources}

    def points(self) -> dict[str, list[tuple[dict[str, Any], float]]]:
        """The newest points of each metric: attributes and value (of a histogram, the sum)."""
        found: dict[str, dict[tuple, tuple[dict[str, Any], float]]] = {}
        for data in list(self.metrics):
            for process, metric, point, value in _points(data):
                said = _attributes(point.attributes)
                key = (process, *sorted(said.items()))
                found.setdefault(metric, {})[key] = (said, value)
        return {name: list(points.values()) for name, points in found.items()}

    def until(self, condition: Callable[[], object]) -> None:
        deadline = time.monotonic() + WAIT_AT_MOST_S
        while not condition():
            assert time.monotonic() < deadline, [span.name for span in self.spans()]
            time.sleep(0.02)


def _handler(receiver: Receiver) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            data = self.rfile.read(int(self.headers["Content-Length"]))
            if self.headers.get("Content-Encoding") == "gzip":
                data = gzip.decompress(data)
            where = {"/v1/traces": receiver.traces, "/v1/metrics": receiver.metrics}[self.path]
            where.append(data)
            self.send_response(200)
            self.send_header("Content-Type", "application/x-protobuf")
            self.send_header("Content-Length", "0")
            self.end_headers()

        def log_message(self, format: str, *args: Any) -> None:
            """Tests are quiet."""

    return Handler


def _raw(what: str, service: str, kept: list[bytes], response: Any) -> Any:
    def export(data: bytes, _context: Any) -> bytes:
        kept.append(data)
        return response().SerializeToString()

    name = f"opentelemetry.proto.collector.{what}.v1.{service}"
    method = grpc.unary_unary_rpc_method_handler(export)  # No serializers: bytes as they are.
    return grpc.method_handlers_generic_handler(name, {"Export": method})


def _value(value: Any) -> Any:
    return getattr(value, value.WhichOneof("value"))


def _attributes(attributes: Any) -> dict[str, Any]:
    return {one.key: _value(one.value) for one in attributes}


def _spans(data: bytes) -> list[Span]:
    found = []
    for resource in ExportTraceServiceRequest.FromString(data).resource_spans:
        process = _attributes(resource.resource.attributes).get("service.instance.id", "")
        for scope in resource.scope_spans:
            for span in scope.spans:
                found.append(
                    Span(
                        process=process,
                        scope=scope.scope.name,
                        name=span.name,
                        trace_id=span.trace_id.hex(),
                        span_id=span.span_id.hex(),
                        parent_id=span.parent_span_id.hex(),
                        start_ns=span.start_time_unix_nano,
                        end_ns=span.end_time_unix_nano,
                        failed=span.status.code == 2,
                        status=span.status.message,
                        attributes=_attributes(span.attributes),
                        events=[Event(it.name, _attributes(it.attributes)) for it in span.events],
                        links=[
                            Linked(
                                it.trace_id.hex(),
                                it.span_id.hex(),
                                _attributes(it.attributes).get("holdfast.link", ""),
                            )
                            for it in span.links
                        ],
                    )
                )
    return found


def _points(data: bytes) -> Any:
    for resource in ExportMetricsServiceRequest.FromString(data).resource_metrics:
        process = _attributes(resource.resource.attributes).get("service.instance.id", "")
        for scope in resource.scope_metrics:
            for metric in scope.metrics:
                kind = str(metric.WhichOneof("data"))
                for point in getattr(metric, kind).data_points:
                    if kind == "histogram":
                        yield process, metric.name, point, point.sum
                    else:
                        yield process, metric.name, point, _number(point)


def _number(point: Any) -> float:
    return float(getattr(point, point.WhichOneof("value")))
