"""Prometheus metrics of a whole store: queues, workers, held runs, people asked, findings.

It is read from the same functions as the command line and the page. Labels are names of queues,
workers and flows that somebody declared, never ids of runs.

A figure that could not be read is not reported as zero: its samples are absent, or NaN where only a part was read,
and `holdfast_incomplete` is 1 for that figure.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterable, Iterator

from holdfast._engine.journal.lifecycle import HeldReason, Status
from holdfast._features.operator_side import Gauge, Reading, single
from holdfast._operator.read import queue_views
from holdfast._operator.read.feature_sides import FIGURES as FEATURE_FIGURES
from holdfast._operator.read.metrics_merge import Family, text_of
from holdfast._operator.read.trends import trends
from holdfast._stores.contract import Query, Store
from holdfast.errors import Corrupt

SERIES_MAX = 500
"""How many queues, and how many workers, are told apart; the rest is added up as `other`."""
LABEL_MAX_CHARS = 100
OTHER = "other"
HELD_MAX = 2000
"""How many held runs are counted by their reason."""
QUESTIONS_MAX = 10_000
RECENT = "5m"
"""Over which time the figures are that processes have written to the store."""


def store_metrics(store: Store) -> str:
    """Return the figures of a store, as Prometheus reads them."""
    return text_of(families(store))


def families(store: Store) -> Iterator[Family]:
    """Yield the figures of a store. One that cannot be read takes no other away."""
    incomplete: list[tuple[dict[str, str], float]] = []
    for name, read in FIGURES.items():
        try:
            told = read(store)
        except Corrupt:
            told = Reading([], complete=False)
        yield from map(_family, told.gauges)
        incomplete.append(({"figure": name}, not told.complete))
    text = "1 if a figure could not be read, or says only a part: `holdfast doctor` says why"
    yield _family(Gauge("incomplete", text, incomplete))


def _family(gauge: Gauge) -> Family:
    name = f"holdfast_{gauge.name}"
    samples = [(name, labels, float(value)) for labels, value in gauge.samples]
    return Family(name, "gauge", gauge.text, samples)


# -- queues and workers ------------------------------------------------------------------------


def _queues(store: Store) -> Reading:
    return Reading(list(_queue_figures(queue_views.queues(store))))


def _queue_figures(views: list[queue_views.QueueView]) -> Iterator[Gauge]:
    runs = Counter[tuple[str, str]]()
    oldest: dict[str, float] = {}
    paused: dict[str, float] = {}
    for number, view in enumerate(views):
        name = _label(view.name, number)
        for status in ("ready", "running", "abandoned", "failed", "held", "quarantined"):
            runs[name, status] += getattr(view, status)
        runs[name, "not_due"] += view.delayed
        oldest[name] = max(oldest.get(name, 0.0), view.oldest_s or 0.0)
        paused[name] = max(paused.get(name, 0.0), float(view.paused))
    yield Gauge(
        "queue_runs",
        "Runs of a queue; not_due: they wait for an answer, a message or their time; abandoned: their "
        "process died, and none has taken them up; those held and quarantined are counted as both",
        [({"queue": queue, "status": status}, value) for (queue, status), value in runs.items()],
    )
    yield Gauge(
        "queue_oldest_ready_seconds",
        "How long the oldest run that could be taken, ready or abandoned, has waited",
        [({"queue": name}, value) for name, value in oldest.items()],
    )
    yield Gauge(
        "queue_paused",
        "1 if nothing of a queue is taken",
        [({"queue": name}, value) for name, value in paused.items()],
    )


def _workers(store: Store) -> Reading:
    return Reading(list(_worker_figures(queue_views.workers(store))))


def _worker_figures(alive: list[queue_views.WorkerView]) -> Iterator[Gauge]:
    places, busy = Counter[tuple[str, str]](), Counter[tuple[str, str]]()
    for number, worker in enumerate(alive):
        who = (_label(worker.name, number), _label(worker.host, number))
        places[who] += worker.concurrency
        busy[who] += worker.working
    draining = sum(worker.draining for worker in alive)
    yield Gauge(
        "workers",
        "Live workers of the fleet",
        [({"draining": "false"}, len(alive) - draining), ({"draining": "true"}, draining)],
    )
    for name, text, counted in (
        ("fleet_places", "Runs that a worker may have at work at one time", places),
        ("fleet_places_busy", "Runs that a worker has at work", busy),
    ):
        samples = [({"worker": who, "host": host}, n) for (who, host), n in counted.items()]
        yield Gauge(name, text, samples)


# -- what wants people -------------------------------------------------------------------------


def _people(store: Store) -> Reading:
    asked = store.questions(None, QUESTIONS_MAX + 1)
    complete = len(asked) <= QUESTIONS_MAX
    kinds = Counter(question.kind for question in asked[:QUESTIONS_MAX])
    samples = _known(kinds, ("question", "approval"), "kind", complete=complete)
    text = "What runs ask people, and nobody has answered"
    return Reading([Gauge("questions_open", text, samples)], complete)


def _held(store: Store) -> Reading:
    rows = store.list(Query(status=[Status.HELD], limit=HELD_MAX + 1))
    complete = len(rows) <= HELD_MAX
    reasons = Counter(str(row.held_reason) for row in rows[:HELD_MAX] if row.deleted_us is None)
    samples = _known(reasons, [it.value for it in HeldReason], "reason", complete=complete)
    text = (
        f"Held runs by reason, the newest {HELD_MAX:,} of them; in_doubt: an effect is not settled"
    )
    return Reading([Gauge("runs_held_now", text, samples)], complete)


def _known(
    counted: Counter[str], names: Iterable[str], label: str, *, complete: bool
) -> list[tuple[dict[str, str], float]]:
    """Return a sample for each name. None of a kind is 0 only if all were counted."""
    none = 0.0 if complete else math.nan
    return [({label: name}, counted[name] or none) for name in names]


# -- the last minutes --------------------------------------------------------------------------

_SUMS = {
    "steps": "Steps",
    "attempts": "Attempts",
    "errors": "Attempts that failed",
    "runs_completed": "Runs completed",
    "runs_failed": "Runs failed",
    "runs_held": "Runs held",
    "cost_usd": "Dollars spent",
    "tokens": "Tokens used",
    "error_rate": "Errors by attempts",
    "step_p50_ms": "Half of all attempts took at most so many milliseconds",
    "step_p95_ms": "19 of 20 attempts took at most so many milliseconds",
    "traced": "The share of attempts that had a span of a trace",
    "saturation": "The share of all workers' places that was in use",
}


def _recent(store: Store) -> Reading:
    """Return what the fleet did in the last minutes, as its processes wrote it down."""
    told = trends(store, since=RECENT)
    values = {name: getattr(told.totals, name)[0] for name in _SUMS}
    text = "in the last 5 minutes, in all processes"
    made = [
        single(f"recent_{name}", f"{_SUMS[name]}, {text}", value)
        for name, value in values.items()
        if value is not None
    ]
    return Reading(made, complete=not told.notes)


def _store(store: Store) -> Reading:
    lost = store.regression() is not None
    return Reading([single("store_regressed", "1 if acknowledged commits are missing", lost)])


FIGURES: dict[str, Callable[[Store], Reading]] = {
    "queues": _queues,
    "workers": _workers,
    "questions": _people,
    "held": _held,
    **FEATURE_FIGURES,
    "store": _store,
    "recent": _recent,
}
"""What is read together, by the name that `holdfast_incomplete` has for it."""


# -- figures -----------------------------------------------------------------------------------


def _label(name: str, number: int) -> str:
    return name[:LABEL_MAX_CHARS] if number < SERIES_MAX else OTHER
