"""Spans with IDs that are derived from their subjects.

A tracer of the SDK asks a generator for IDs; this generator answers with the ID that was planned
for the span that starts in this thread. A provider that is not the SDK's uses its own IDs: a run
still has one trace, because its spans have a parent with the run's trace ID.
"""

from __future__ import annotations

import threading
from collections.abc import Mapping, Sequence
from typing import Any

from opentelemetry import trace
from opentelemetry.context import Context
from opentelemetry.sdk.trace.id_generator import IdGenerator
from opentelemetry.trace import (
    Link,
    NonRecordingSpan,
    Span,
    SpanContext,
    SpanKind,
    TraceFlags,
    Tracer,
    TracerProvider,
)
from opentelemetry.util.types import AttributeValue

import holdfast
from holdfast.observers import ObservedRun

SCOPE = "holdfast"
Attributes = Mapping[str, AttributeValue]


class DerivedIds(IdGenerator):
    """Returns planned IDs; without a plan, those of the original generator."""

    def __init__(self, other: IdGenerator) -> None:
        self._other = other
        self._planned = threading.local()

    def plan(self, trace_id: int, span_id: int) -> None:
        """Set the ids of the next span of this thread."""
        self._planned.ids = (trace_id, span_id)

    def forget(self) -> None:
        """Forget the plan: the span was started."""
        self._planned.ids = None

    def generate_trace_id(self) -> int:
        """Return the id of a new trace."""
        ids = getattr(self._planned, "ids", None)
        return self._other.generate_trace_id() if ids is None else ids[0]

    def generate_span_id(self) -> int:
        """Return the id of a new span."""
        ids = getattr(self._planned, "ids", None)
        return self._other.generate_span_id() if ids is None else ids[1]


class Spans:
    """Starts spans of runs with the tracer of a provider."""

    def __init__(self, provider: TracerProvider | None) -> None:
        self._provider = provider
        self._tracer: Tracer | None = None

    def tracer(self) -> Tracer:
        """Return the tracer. The global provider may be set later than this is called."""
        if self._tracer is not None:
            return self._tracer
        provider = self._provider or trace.get_tracer_provider()
        tracer = provider.get_tracer(SCOPE, holdfast.__version__)
        ids = getattr(tracer, "id_generator", None)
        if isinstance(ids, IdGenerator) and not isinstance(ids, DerivedIds):
            tracer.id_generator = DerivedIds(ids)  # type: ignore[attr-defined]  # pyright: ignore[reportAttributeAccessIssue]
        if not isinstance(provider, trace.ProxyTracerProvider):
            self._tracer = tracer
        return tracer

    def start(
        self,
        run: ObservedRun,
        of: Sequence[object],
        name: str,
        parent: Context,
        attributes: Attributes,
        *,
        links: Sequence[Link] = (),
        start_us: int | None = None,
    ) -> Span:
        """Start the span of this part of a run; without a time, now."""
        tracer = self.tracer()
        ids: Any = getattr(tracer, "id_generator", None)
        planned = isinstance(ids, DerivedIds)
        if planned:
            ids.plan(int(run.trace_id, 16), int(run.span_id(*of), 16))
        try:
            return tracer.start_span(
                name,
                context=parent,
                attributes=dict(attributes),
                links=list(links),
                start_time=None if start_us is None else start_us * 1000,
                record_exception=False,
                set_status_on_exception=False,
            )
        finally:
            if planned:
                ids.forget()

    def root(self, run: ObservedRun, of: Sequence[object], name: str, it: Attributes) -> Context:
        """Return a context with a root span as current that is started later, or elsewhere; the
        sampler decides now whether it will be recorded."""
        sampled, state = True, None
        sampler = getattr(self.tracer(), "sampler", None)
        if sampler is not None:
            asked: Any = sampler.should_sample(
                Context(), int(run.trace_id, 16), name, SpanKind.INTERNAL, dict(it), []
            )
            sampled, state = asked.decision.is_sampled(), asked.trace_state
        flags = TraceFlags(TraceFlags.SAMPLED if sampled else TraceFlags.DEFAULT)
        named = SpanContext(
            int(run.trace_id, 16),
            int(run.span_id(*of), 16),
            is_remote=True,
            trace_flags=flags,
            trace_state=state,
        )
        return trace.set_span_in_context(NonRecordingSpan(named), Context())


def link(
    run: ObservedRun, of: Sequence[object], why: str, flags: TraceFlags, run_id: str | None = None
) -> Link:
    """Return a link to a span of a run, possibly of another run, by its subject."""
    trace_id = int(run.trace_id_of(run_id or run.run_id), 16)
    span_id = int(run.span_id(*of, run_id=run_id), 16)
    to = SpanContext(trace_id, span_id, is_remote=True, trace_flags=flags)
    return Link(to, {"holdfast.link": why})
