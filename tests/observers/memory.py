"""A provider whose spans and metrics stay in this process."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any, Self

from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import InMemoryMetricReader
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.sdk.trace.sampling import ALWAYS_ON, Sampler
from opentelemetry.trace import StatusCode

from holdfast.observers import opentelemetry

WAIT_AT_MOST_S = 30.0
Span = Any
"""A `ReadableSpan` that has ended: nothing of it is None."""


class Telling:
    """Observes with providers of its own; what was told is read by the names of spans."""

    def __init__(self, sampler: Sampler = ALWAYS_ON, *, messages: bool = False) -> None:
        self._kept = InMemorySpanExporter()
        self.provider = TracerProvider(sampler, shutdown_on_exit=False)
        self.provider.add_span_processor(SimpleSpanProcessor(self._kept))
        self._reader = InMemoryMetricReader()
        self._meters = MeterProvider([self._reader], shutdown_on_exit=False)
        self._messages = messages

    def __enter__(self) -> Self:
        self.end = opentelemetry.observe(self.provider, self._meters, messages=self._messages)
        return self

    def __exit__(self, *_exc: object) -> None:
        self.end()
        self.provider.shutdown()
        self._meters.shutdown()

    def spans(self, name: str | None = None) -> list[Span]:
        """All of them in the order of their end, or those of a name; none is there twice."""
        found: list[Span] = list(self._kept.get_finished_spans())
        ids = [(it.context.trace_id, it.context.span_id) for it in found]
        assert len(ids) == len(set(ids)), [it.name for it in found]
        return [it for it in found if name in (None, it.name)]

    def names(self) -> list[str]:
        return [it.name for it in self.spans()]

    def one(self, name: str) -> Span:
        (found,) = self.spans(name)
        return found

    def until(self, condition: Callable[[], object]) -> None:
        """Wait for a fact: a run in the background is left a little after its end is known."""
        deadline = time.monotonic() + WAIT_AT_MOST_S
        while not condition():
            assert time.monotonic() < deadline, self.names()
            time.sleep(0.005)

    def below(self, parent: Span) -> list[Span]:
        return [it for it in self.spans() if it.parent and it.parent.span_id == id_of(parent)]

    def links(self, span: Span) -> dict[str, int]:
        """Where links lead to, by why."""
        return {str(it.attributes["holdfast.link"]): it.context.span_id for it in span.links}

    def points(self, metric: str) -> list[tuple[dict[str, Any], float]]:
        """What a metric says: attributes and value (of a histogram, the sum)."""
        data: Any = self._reader.get_metrics_data()
        if data is None:
            return []
        return [
            (dict(point.attributes), point.value if hasattr(point, "value") else point.sum)
            for resource in data.resource_metrics
            for scope in resource.scope_metrics
            for it in scope.metrics
            if it.name == metric
            for point in it.data.data_points
        ]


def id_of(span: Span) -> int:
    return span.context.span_id


def failed(span: Span) -> bool:
    return span.status.status_code is StatusCode.ERROR


def said(span: Span, name: str) -> Any:
    return span.attributes[f"holdfast.{name}"]
