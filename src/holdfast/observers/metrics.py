"""Counters of this process's work, for Prometheus: `holdfast.observers.metrics.observe()`.

Attempts and their durations, ended runs by status, tokens and cost by model, and the number of runs
that execute now. Labels are names of flows, steps and models, never run IDs or step keys. Beyond a
limit of names a process counts the rest as `other`.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from holdfast.errors import UsageError
from holdfast.observers import (
    ObservedAttempt,
    ObservedEntry,
    ObservedRun,
    Observer,
    observe as _observe,
)

if TYPE_CHECKING:
    from prometheus_client import CollectorRegistry

NAMES_MAX = 200
"""How many pairs of flow and step, how many flows and how many models have their own series."""
NAME_MAX_CHARS = 100
OTHER = "other"
BUCKETS_S = (0.005, 0.025, 0.1, 0.5, 1, 2.5, 5, 10, 30, 60, 300, 1800)
RUN_BUCKETS_S = (0.1, 1, 10, 60, 300, 1800, 3600, 4 * 3600, 24 * 3600, 7 * 24 * 3600)
ENDS = {
    "run_completed": "completed",
    "run_failed": "failed",
    "run_cancelled": "cancelled",
    "run_rolled_back": "rolled_back",
}


def observe(registry: CollectorRegistry | None = None) -> Metrics:
    """Count the runs of this process from now on; `close()` ends it. Without a registry it creates
    one, and `text()` returns the format that Prometheus reads."""
    metrics = Metrics(registry)
    metrics.begin()
    return metrics


class Metrics(Observer):
    """Counts the runs of this process."""

    def __init__(self, registry: CollectorRegistry | None = None) -> None:
        try:
            import prometheus_client as client
        except ImportError:
            raise UsageError(
                "metrics need the extra: pip install -e '.[metrics]' in a clone"
            ) from None
        self.registry = registry or client.CollectorRegistry()
        self._end: Callable[[], None] | None = None
        self._executing: set[tuple[str, str, str]] = set()
        self._flows, self._steps, self._models = _Names(), _Names(), _Names()

        def counter(name: str, text: str, *labels: str) -> client.Counter:
            return client.Counter(f"holdfast_{name}", text, labels, registry=self.registry)

        self._attempts = counter(
            "attempts", "Attempts of steps, by how they ended", "flow", "step", "outcome"
        )
        self._took = client.Histogram(
            "holdfast_attempt_duration_seconds",
            "How long attempts took",
            ("flow", "step"),
            buckets=BUCKETS_S,
            registry=self.registry,
        )
        self._ended = counter(
            "runs_ended", "Runs that came to an end here, by status", "flow", "status"
        )
        self._lasted = client.Histogram(
            "holdfast_run_duration_seconds",
            "From the start of a run to its end, waiting included",
            ("flow",),
            buckets=RUN_BUCKETS_S,
            registry=self.registry,
        )
        self._held = counter("runs_held", "Runs that were held here, by reason", "flow", "reason")
        self._resumed = counter("runs_taken", "Runs that were taken here", "flow", "resumed")
        self._tokens = counter("tokens", "Tokens that steps said they used", "model", "direction")
        self._cost = counter("cost_usd", "Dollars that steps said they cost", "model")
        self._at_work = client.Gauge(
            "holdfast_runs_executing", "Runs that are executed now", registry=self.registry
        )

    def begin(self) -> None:
        """Count from now on."""
        if self._end is None:
            self._end = _observe(self)

    def close(self) -> None:
        """Stop counting."""
        if self._end is not None:
            self._end()
            self._end = None

    def text(self) -> str:
        """Return all metrics in the format that Prometheus reads."""
        from prometheus_client import generate_latest

        return generate_latest(self.registry).decode()

    # -- what it hears -------------------------------------------------------------------------

    def run_claimed(self, run: ObservedRun, *, resumed: bool) -> None:
        """This process executes a run from now on."""
        self._executing.add((run.store_id, run.namespace, run.run_id))
        self._at_work.set(len(self._executing))
        self._resumed.labels(self._flows.of(run.flow), str(resumed).lower()).inc()

    def run_released(self, run: ObservedRun, status: str) -> None:
        """This process no longer executes it."""
        self._executing.discard((run.store_id, run.namespace, run.run_id))
        self._at_work.set(len(self._executing))

    def attempt_started(self, attempt: ObservedAttempt) -> float:
        """User code is about to be called."""
        return time.perf_counter()

    def attempt_ended(self, attempt: ObservedAttempt, begun: Any) -> None:
        """It returned or raised."""
        took_s = time.perf_counter() - float(begun)
        flow, step = self._steps.pair(attempt.run.flow, attempt.name)
        self._attempts.labels(flow, step, _outcome(attempt.error)).inc()
        self._took.labels(flow, step).observe(took_s)
        if attempt.usage:
            self._used(attempt.usage)

    def entries_committed(self, run: ObservedRun, entries: Sequence[ObservedEntry]) -> None:
        """Entries of a run were committed."""
        for entry in entries:
            status = ENDS.get(entry.kind)
            if status is not None:
                flow = self._flows.of(run.flow)
                self._ended.labels(flow, status).inc()
                self._lasted.labels(flow).observe(max(0, entry.at_us - run.created_us) / 1e6)
            elif entry.kind == "run_held":
                reason = str(entry.facts().get("reason") or "held")
                self._held.labels(self._flows.of(run.flow), reason[:NAME_MAX_CHARS]).inc()

    def _used(self, usage: dict[str, Any]) -> None:
        model = self._models.of(str(usage.get("model") or "unknown"))
        for direction in ("input", "output"):
            tokens = usage.get(f"{direction}_tokens") or 0
            if tokens:
                self._tokens.labels(model, direction).inc(tokens)
        cost = usage.get("cost") or 0
        if cost:
            self._cost.labels(model).inc(cost)


def _outcome(error: BaseException | None) -> str:
    if error is None:
        return "completed"
    return "failed" if isinstance(error, Exception) else "interrupted"


class _Names:
    """Names with their own series, up to the limit."""

    def __init__(self) -> None:
        self._known: set[tuple[str, ...]] = set()

    def of(self, name: str) -> str:
        return name[:NAME_MAX_CHARS] if self._has_room(name) else OTHER

    def pair(self, one: str, other: str) -> tuple[str, str]:
        if self._has_room(one, other):
            return one[:NAME_MAX_CHARS], other[:NAME_MAX_CHARS]
        return OTHER, OTHER

    def _has_room(self, *names: str) -> bool:
        if names in self._known:
            return True
        if len(self._known) >= NAMES_MAX:
            return False
        self._known.add(names)
        return True
