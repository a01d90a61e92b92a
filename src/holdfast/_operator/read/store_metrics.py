"""Prometheus metrics of a whole store: queues, workers, held runs, people asked, findings.

It is read from the same functions as the command line and the page. Only the findings, which cost most,
are kept in between: each turn goes on in the open runs where the turn before stopped, for some
milliseconds, until all of them have been looked at; then it begins again. Labels are names of queues,
workers and flows that somebody declared, never ids of runs.

A figure that could not be read is not reported as zero: its samples are absent, or NaN where only a part was read,
and `holdfast_incomplete` is 1 for that figure.
"""

from __future__ import annotations

import math
import time
import weakref
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence

import msgspec

from holdfast._engine.journal.lifecycle import HeldReason, Status
from holdfast._engine.journal.rows import RunRow
from holdfast._features.watchdog import store as watchdog
from holdfast._features.watchdog.model import Finding, Found
from holdfast._operator.read import queue_views
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
FINDINGS_EVERY_S = 5.0
FINDINGS_TIME_S = 0.05
"""How often runs are looked at for findings, and for how long at one time."""
RECENT = "5m"
"""Over which time the figures are that processes have written to the store."""


class Told(msgspec.Struct):
    """Figures that are read together, and whether they say everything."""

    families: list[Family]
    complete: bool = True


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
            told = Told([], complete=False)
        yield from told.families
        incomplete.append(({"figure": name}, not told.complete))
    text = "1 if a figure could not be read, or says only a part: `holdfast doctor` says why"
    yield _family("incomplete", text, incomplete)


# -- queues and workers ------------------------------------------------------------------------


def _queues(store: Store) -> Told:
    return Told(list(_queue_figures(queue_views.queues(store))))


def _queue_figures(views: list[queue_views.QueueView]) -> Iterator[Family]:
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
    yield _family(
        "queue_runs",
        "Runs of a queue; not_due: they wait for an answer, a message or their time; abandoned: their "
        "process died, and none has taken them up; those held and quarantined are counted as both",
        [({"queue": queue, "status": status}, value) for (queue, status), value in runs.items()],
    )
    yield _family(
        "queue_oldest_ready_seconds",
        "How long the oldest run that could be taken, ready or abandoned, has waited",
        [({"queue": name}, value) for name, value in oldest.items()],
    )
    yield _family(
        "queue_paused",
        "1 if nothing of a queue is taken",
        [({"queue": name}, value) for name, value in paused.items()],
    )


def _workers(store: Store) -> Told:
    return Told(list(_worker_figures(queue_views.workers(store))))


def _worker_figures(alive: list[queue_views.WorkerView]) -> Iterator[Family]:
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


def _people(store: Store) -> Told:
    asked = store.questions(None, QUESTIONS_MAX + 1)
    complete = len(asked) <= QUESTIONS_MAX
    kinds = Counter(question.kind for question in asked[:QUESTIONS_MAX])
    samples = _known(kinds, ("question", "approval"), "kind", complete=complete)
    text = "What runs ask people, and nobody has answered"
    return Told([_family("questions_open", text, samples)], complete)


def _held(store: Store) -> Told:
    rows = store.list(Query(status=[Status.HELD], limit=HELD_MAX + 1))
    complete = len(rows) <= HELD_MAX
    reasons = Counter(str(row.held_reason) for row in rows[:HELD_MAX] if row.deleted_us is None)
    samples = _known(reasons, [it.value for it in HeldReason], "reason", complete=complete)
    text = (
        f"Held runs by reason, the newest {HELD_MAX:,} of them; in_doubt: an effect is not settled"
    )
    return Told([_family("runs_held_now", text, samples)], complete)


def _known(
    counted: Counter[str], names: Iterable[str], label: str, *, complete: bool
) -> list[tuple[dict[str, str], float]]:
    """Return a sample for each name. None of a kind is 0 only if all were counted."""
    none = 0.0 if complete else math.nan
    return [({label: name}, counted[name] or none) for name in names]


# -- findings ----------------------------------------------------------------------------------


class Round:
    """Looks at the open and failed runs of a store, some at a time, again and again."""

    def __init__(self, store: Store) -> None:
        self._store: Store = weakref.proxy(store)  # A round keeps no store alive that nobody has.
        self._survey = watchdog.Survey(self._store)
        self._rows: Iterator[RunRow] | None = None
        self._found: dict[int, list[Finding]] = {}
        """What was found, by run; from the round before, until it is looked at again."""
        self._seen: set[int] = set()
        self._unread: set[int] = set()
        self._turn_s = -math.inf
        self._begun_s = 0.0
        self.age_of: float | None = None
        """When the last round that came to its end began; None if none has."""
        self.runs = 0
        self.unread = 0

    @property
    def findings(self) -> list[Finding]:
        """What is found, as far as it was looked."""
        return [it for found in self._found.values() for it in found]

    @property
    def complete(self) -> bool:
        """Whether all runs were looked at, and could be read."""
        return self.age_of is not None and not self.unread

    def go_on(self) -> None:
        """Look at some more runs, unless that was done a moment ago."""
        if time.monotonic() - self._turn_s < FINDINGS_EVERY_S:
            return
        ends_s = time.monotonic() + FINDINGS_TIME_S
        rows, self._rows = self._rows, None  # If the list cannot be read, it begins again.
        if rows is None:
            rows = watchdog.open_rows(self._store)
            self._begun_s = time.monotonic()
            self._seen, self._unread = set(), set()
        for row in rows:
            self._look(row)
            if time.monotonic() >= ends_s:
                self._rows = rows
                break
        else:
            self._end()
        self._turn_s = time.monotonic()
        if self.age_of is None:
            self.runs, self.unread = len(self._seen), len(self._unread)

    def _look(self, row: RunRow) -> None:
        damaged = len(self._survey.damaged)
        self._seen.add(row.run_no)
        self._found[row.run_no] = self._survey.findings(row)
        if len(self._survey.damaged) > damaged:
            self._unread.add(row.run_no)
            self._survey.damaged.clear()

    def _end(self) -> None:
        self._found = {number: it for number, it in self._found.items() if number in self._seen}
        self.age_of = self._begun_s
        self.runs, self.unread = len(self._seen), len(self._unread)


_rounds: weakref.WeakKeyDictionary[Store, Round] = weakref.WeakKeyDictionary()


def _findings(store: Store) -> Told:
    looked = _rounds.get(store)
    if looked is None:
        looked = _rounds[store] = Round(store)
    looked.go_on()
    return Told(list(_finding_figures(looked)), looked.complete)


def _finding_figures(looked: Round) -> Iterator[Family]:
    kinds = Counter((str(it.kind), str(it.severity)) for it in looked.findings)
    samples = [
        ({"kind": kind, "severity": severity}, float(n)) for (kind, severity), n in kinds.items()
    ]
    missing = {str(kind) for kind in Found} - {kind for kind, _ in kinds}
    none = 0.0 if looked.complete else math.nan
    samples += [({"kind": kind, "severity": "warning"}, none) for kind in sorted(missing)]
    text = "What the watchdog finds, in the runs that were looked at; NaN: not all were, so unknown"
    yield _family("findings", text, samples)
    yield _one("findings_runs", "Open and failed runs that were looked at", looked.runs)
    yield _one("findings_unread", "Those of them that could not be read", looked.unread)
    yield _one("findings_complete", "1 if all were looked at, and could be read", looked.complete)
    age = math.nan if looked.age_of is None else time.monotonic() - looked.age_of
    yield _one(
        "findings_age_seconds", "How long ago the oldest of them was looked at, at most", age
    )


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


def _recent(store: Store) -> Told:
    """Return what the fleet did in the last minutes, as its processes wrote it down."""
    told = trends(store, since=RECENT)
    values = {name: getattr(told.totals, name)[0] for name in _SUMS}
    text = "in the last 5 minutes, in all processes"
    made = [
        _one(f"recent_{name}", f"{_SUMS[name]}, {text}", value)
        for name, value in values.items()
        if value is not None
    ]
    return Told(made, complete=not told.notes)


def _store(store: Store) -> Told:
    lost = store.regression() is not None
    return Told([_one("store_regressed", "1 if acknowledged commits are missing", lost)])


FIGURES: dict[str, Callable[[Store], Told]] = {
    "queues": _queues,
    "workers": _workers,
    "questions": _people,
    "held": _held,
    "findings": _findings,
    "store": _store,
    "recent": _recent,
}
"""What is read together, by the name that `holdfast_incomplete` has for it."""


# -- figures -----------------------------------------------------------------------------------


def _label(name: str, number: int) -> str:
    return name[:LABEL_MAX_CHARS] if number < SERIES_MAX else OTHER


def _one(name: str, text: str, value: float) -> Family:
    return _family(name, text, [({}, value)])


def _family(name: str, text: str, samples: Sequence[tuple[dict[str, str], float]]) -> Family:
    named = f"holdfast_{name}"
    return Family(named, "gauge", text, [(named, labels, float(n)) for labels, n in samples])
