"""OpenTelemetry metrics of runs: counted where the work happens, and never for a replay."""

from __future__ import annotations

import threading
import time
from collections.abc import Sequence
from typing import Any

from opentelemetry import metrics
from opentelemetry.metrics import MeterProvider

import holdfast
from holdfast.observers import ObservedAttempt, ObservedEntry, ObservedRun, Observer

ENDS = {
    "run_completed": "completed",
    "run_failed": "failed",
    "run_cancelled": "cancelled",
    "run_rolled_back": "rolled_back",
    "run_held": "held",
}
OUTCOMES = {
    "step_completed": "completed",
    "step_failed": "failed",
    "step_in_doubt": "in_doubt",
    "step_cancelled": "cancelled",
}
"""Entries that record how an attempt ended."""
_Key = tuple[str, str, str, int]


class Metering(Observer):
    """Counts attempts, runs, tokens and money, and measures the duration of steps."""

    def __init__(self, provider: MeterProvider | None) -> None:
        meter = metrics.get_meter("holdfast", holdfast.__version__, provider)
        self._lock = threading.Lock()
        self._executing: dict[_Key, dict[str, Any]] = {}
        self._began: dict[tuple[_Key, str], tuple[str, float]] = {}
        self._duration = meter.create_histogram(
            "holdfast.step.duration", "s", "From the first attempt of a step here to its outcome."
        )
        self._attempts = meter.create_counter(
            "holdfast.attempts", "{attempt}", "Attempts of steps, by how they ended."
        )
        self._runs = meter.create_counter(
            "holdfast.runs", "{run}", "Runs that ended or were held here."
        )
        self._tokens = meter.create_histogram(
            "gen_ai.client.token.usage",
            "{token}",
            "What attempts said of themselves by record_usage(…).",
        )
        self._cost = meter.create_counter("holdfast.cost", "USD", "What model calls cost.")
        self._at_work = meter.create_up_down_counter(
            "holdfast.executing", "{run}", "Runs that are at work here."
        )

    def close(self) -> None:
        """Forget all open work: no more events come."""
        with self._lock:
            left, self._executing = list(self._executing.values()), {}
        for where in left:
            self._at_work.add(-1, where)

    def run_claimed(self, run: ObservedRun, *, resumed: bool) -> None:
        """One more executing run."""
        where = {"holdfast.flow": run.flow, "holdfast.queue": run.queue}
        with self._lock:
            self._executing[_key(run)] = where
        self._at_work.add(1, where)

    def run_released(self, run: ObservedRun, status: str) -> None:
        """One less; steps without an outcome are not measured."""
        key = _key(run)
        with self._lock:
            where = self._executing.pop(key, None)
            for step in [it for it in self._began if it[0] == key]:
                del self._began[step]
        if where is not None:
            self._at_work.add(-1, where)

    def attempt_started(self, attempt: ObservedAttempt) -> None:
        """The first attempt of a step in this process is its start."""
        if attempt.what != "look":
            began = (attempt.name, time.monotonic())
            with self._lock:
                self._began.setdefault((_key(attempt.run), attempt.key), began)

    def attempt_ended(self, attempt: ObservedAttempt, begun: Any) -> None:
        """Usage counts whatever the outcome."""
        used = attempt.usage
        if used is None:
            return
        model = {"gen_ai.request.model": str(used["model"])} if "model" in used else {}
        where = {"holdfast.flow": attempt.run.flow, "holdfast.step": attempt.name, **model}
        for kind in ("input", "output"):
            tokens = used.get(f"{kind}_tokens", 0)
            if tokens:
                self._tokens.record(tokens, {**where, "gen_ai.token.type": kind})
        if used.get("cost"):
            self._cost.add(used["cost"], where)

    def entries_committed(self, run: ObservedRun, entries: Sequence[ObservedEntry]) -> None:
        """Outcomes count when they are committed."""
        for entry in entries:
            if entry.kind in ENDS:
                status = {"holdfast.flow": run.flow, "holdfast.status": ENDS[entry.kind]}
                self._runs.add(1, status)
            elif entry.kind in OUTCOMES:
                self._outcome(run, entry, OUTCOMES[entry.kind])
            elif entry.kind == "step_settled":
                self._through(run, entry, "settled")

    def _outcome(self, run: ObservedRun, entry: ObservedEntry, outcome: str) -> None:
        facts = entry.facts()
        if "degraded" in facts:
            outcome = "degraded"
        name = self._through(run, entry, outcome) if _is_through(entry, facts) else None
        if name is None:
            name = self._name(run, entry)
        if not facts.get("unknown"):  # The attempt was in doubt, and is counted as that.
            where = {"holdfast.flow": run.flow, "holdfast.step": name, "holdfast.outcome": outcome}
            self._attempts.add(1, where)

    def _name(self, run: ObservedRun, entry: ObservedEntry) -> str:
        with self._lock:
            known = self._began.get((_key(run), entry.step or ""))
        return known[0] if known is not None else entry.name

    def _through(self, run: ObservedRun, entry: ObservedEntry, outcome: str) -> str | None:
        with self._lock:
            began = self._began.pop((_key(run), entry.step or ""), None)
        if began is None:
            return None
        name, since = began
        where = {"holdfast.flow": run.flow, "holdfast.step": name, "holdfast.outcome": outcome}
        self._duration.record(time.monotonic() - since, where)
        return name


def _key(run: ObservedRun) -> _Key:
    return run.store_id, run.namespace, run.run_id, run.epoch


def _is_through(entry: ObservedEntry, facts: dict[str, Any]) -> bool:
    return entry.kind in {"step_completed", "step_cancelled"} or bool(facts.get("final"))
