"""What Prometheus is told of a store as a whole: queues, workers, people who are asked, what is found.

It is read from the same functions as the command line and the page, and nothing is kept in between but
the findings, which cost most: they are looked for at most twice a minute, in the newest open runs, for a
few milliseconds. Labels are names of queues, workers and flows that somebody declared, never ids of runs.
"""

from __future__ import annotations

import time
import weakref
from collections import Counter
from collections.abc import Iterator, Sequence

import msgspec

from holdfast._core.findings import Finding, Found
from holdfast._core.lifecycle import HeldReason, Status
from holdfast._ops import queues
from holdfast._ops.figures import Family, text_of
from holdfast._ops.trends import trends
from holdfast._store import watchdog
from holdfast._store.contract import Query, Store

SERIES_MAX = 500
"""How many queues, and how many workers, are told apart; the rest is added up as `other`."""
LABEL_MAX_CHARS = 100
OTHER = "other"
HELD_MAX = 2000
"""How many held runs are counted by their reason."""
QUESTIONS_MAX = 10_000
FINDINGS_EVERY_S = 30.0
FINDINGS_BUDGET_S = 0.025
FINDINGS_RUNS = 1000
RECENT_HOURS = 5 / 60
"""Over which time the figures are that processes have written to the store."""

_found: weakref.WeakKeyDictionary[Store, tuple[float, Looked]] = weakref.WeakKeyDictionary()


class Looked(msgspec.Struct):
    """What was found, and in how much of the store."""

    findings: list[Finding]
    runs: int
    complete: bool


def store_metrics(store: Store) -> str:
    """Return the figures of a store, as Prometheus reads them."""
    return text_of(families(store))


def families(store: Store) -> Iterator[Family]:
    """Yield the figures of a store."""
    alive = queues.workers(store)
    yield from _queues(queues.queues(store))
    yield from _workers(alive)
    yield from _people(store)
    yield from _held(store)
    yield from _findings(store)
    lost = store.regression() is not None
    yield _one("store_regressed", "1 if acknowledged commits are missing", lost)
    yield from _recent(store)


# -- queues and workers ------------------------------------------------------------------------


def _queues(views: list[queues.QueueView]) -> Iterator[Family]:
    runs = Counter[tuple[str, str]]()
    oldest: dict[str, float] = {}
    paused: dict[str, float] = {}
    for number, view in enumerate(views):
        name = _label(view.name, number)
        for status in ("ready", "running", "failed", "held", "quarantined"):
            runs[name, status] += getattr(view, status)
        runs[name, "not_due"] += view.delayed
        oldest[name] = max(oldest.get(name, 0.0), view.oldest_s or 0.0)
        paused[name] = max(paused.get(name, 0.0), float(view.paused))
    yield _family(
        "queue_runs",
        "Runs of a queue; not_due: they wait for an answer, a message or their time; those that are "
        "held and quarantined are counted as both",
        [({"queue": queue, "status": status}, value) for (queue, status), value in runs.items()],
    )
    yield _family(
        "queue_oldest_ready_seconds",
        "How long the oldest run that could be taken has waited",
        [({"queue": name}, value) for name, value in oldest.items()],
    )
    yield _family(
        "queue_paused",
        "1 if nothing of a queue is taken",
        [({"queue": name}, value) for name, value in paused.items()],
    )


def _workers(alive: list[queues.WorkerView]) -> Iterator[Family]:
    places, busy = Counter[tuple[str, str]](), Counter[tuple[str, str]]()
    for number, worker in enumerate(alive):
        who = (_label(worker.name, number), _label(worker.host, number))
        places[who] += worker.concurrency
        busy[who] += worker.working
    draining = sum(worker.draining for worker in alive)
    yield _family(
        "workers",
        "Live workers of the fleet",
        [({"draining": "false"}, len(alive) - draining), ({"draining": "true"}, draining)],
    )
    for name, text, counted in (
        ("fleet_places", "Runs that a worker may have at work at one time", places),
        ("fleet_places_busy", "Runs that a worker has at work", busy),
    ):
        samples = [({"worker": who, "host": host}, n) for (who, host), n in counted.items()]
        yield _family(name, text, samples)


# -- what wants people -------------------------------------------------------------------------


def _people(store: Store) -> Iterator[Family]:
    kinds = Counter(question.kind for question in store.questions(None, QUESTIONS_MAX))
    samples = [({"kind": kind}, kinds[kind]) for kind in ("question", "approval")]
    yield _family("questions_open", "What runs ask people, and nobody has answered", samples)


def _held(store: Store) -> Iterator[Family]:
    rows = store.list(Query(status=[Status.HELD], limit=HELD_MAX))
    reasons = Counter(row.held_reason for row in rows if row.deleted_us is None)
    samples = [({"reason": reason.value}, reasons[reason.value]) for reason in HeldReason]
    text = (
        f"Held runs by reason, the newest {HELD_MAX:,} of them; in_doubt: an effect is not settled"
    )
    yield _family("runs_held_now", text, samples)


def _findings(store: Store) -> Iterator[Family]:
    known = _found.get(store)
    if known is None or time.monotonic() - known[0] > FINDINGS_EVERY_S:
        known = _found[store] = (time.monotonic(), look(store))
    looked = known[1]
    kinds = Counter((str(it.kind), str(it.severity)) for it in looked.findings)
    samples = [({"kind": kind, "severity": severity}, n) for (kind, severity), n in kinds.items()]
    missing = {str(kind) for kind in Found} - {kind for kind, _ in kinds}
    samples += [({"kind": kind, "severity": "warning"}, 0) for kind in sorted(missing)]
    yield _family(
        "findings", "What the watchdog finds now, in the runs that were looked at", samples
    )
    yield _one(
        "findings_runs", "Open and failed runs that were looked at, newest first", looked.runs
    )
    yield _one("findings_complete", "1 if those were all of them", looked.complete)


def look(store: Store) -> Looked:
    """Look for findings in the newest open and failed runs, for as long as it may take."""
    ends_s = time.monotonic() + FINDINGS_BUDGET_S
    survey = watchdog.Survey(store)
    looked = Looked([], 0, complete=True)
    for row in watchdog.open_rows(store):
        if looked.runs >= FINDINGS_RUNS or time.monotonic() > ends_s:
            looked.complete = False
            break
        looked.runs += 1
        looked.findings += survey.findings(row)
    return looked


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


def _recent(store: Store) -> Iterator[Family]:
    """Yield what the fleet did in the last minutes, as its processes wrote it down."""
    totals = trends(store, hours=RECENT_HOURS).totals
    for name, text in _SUMS.items():
        value = getattr(totals, name)[0]
        if value is not None:
            yield _one(f"recent_{name}", f"{text}, in the last 5 minutes, in all processes", value)


# -- figures -----------------------------------------------------------------------------------


def _label(name: str, number: int) -> str:
    return name[:LABEL_MAX_CHARS] if number < SERIES_MAX else OTHER


def _one(name: str, text: str, value: float) -> Family:
    return _family(name, text, [({}, value)])


def _family(name: str, text: str, samples: Sequence[tuple[dict[str, str], float]]) -> Family:
    named = f"holdfast_{name}"
    return Family(named, "gauge", text, [(named, labels, float(n)) for labels, n in samples])
