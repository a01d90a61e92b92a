"""An overview of a fleet: workers, queues, running runs, and runs that need a person."""

from __future__ import annotations

import datetime as dt
from collections import Counter
from collections.abc import Iterator

import msgspec

from holdfast._engine.journal.lifecycle import HeldReason, Status
from holdfast._engine.journal.rows import RunRow
from holdfast._engine.values.moments import at
from holdfast._operator.read import queue_views, run_views
from holdfast._operator.read.queue_views import QueueView, WorkerView
from holdfast._operator.read.run_views import RunSummary
from holdfast._stores.contract import Query, Store

SHOWN = 100
"""How many runs of each kind are looked for."""


class Shown(msgspec.Struct, frozen=True):
    """A run of the overview, and why it is there."""

    run: RunSummary
    why: str
    """held, asks, failed, left (its process died, and nobody has taken it up yet), at work, queued or
    waiting."""

    @property
    def needs_a_person(self) -> bool:
        """Whether nothing goes on until somebody has decided something."""
        return self.why in ("held", "asks", "failed")


class Overview(msgspec.Struct, frozen=True):
    """A fleet as it is now."""

    at: dt.datetime
    workers: list[WorkerView]
    saturation: float | None
    """How much of their places is in use, from 0 to 1; None without workers."""
    queues: list[QueueView]
    runs: list[Shown]
    """Those that need a person first, oldest change last; then those at work."""
    held: int
    failed: int
    asking: int
    """How many runs are held, failed, or ask somebody; questions up to a limit."""


def overview(store: Store, limit: int = SHOWN) -> Overview:
    """Look at the fleet."""
    known = queue_views.queues(store)
    asking = {question.run_id for question in store.questions(limit=limit)}
    rows = [
        row
        for status in _there_may_be(known)
        for row in store.list(Query(status=[status], limit=limit))
    ]
    alive = _at_work(queue_views.workers_by_owner(store), rows)
    return Overview(
        at=at(store.now_us()),
        workers=alive,
        saturation=queue_views.saturation(alive),
        queues=known,
        runs=_runs(store, rows, asking),
        held=sum(queue.held for queue in known),
        failed=sum(queue.failed for queue in known),
        asking=len(asking),
    )


def _at_work(alive: dict[int, WorkerView], rows: list[RunRow]) -> list[WorkerView]:
    """Return the workers. What one last said of itself may be some seconds old: what is seen to be
    at work there now is more."""
    seen = Counter(row.owner for row in rows if row.status is Status.RUNNING)
    return [
        msgspec.structs.replace(
            worker,
            working=(working := min(worker.concurrency, max(worker.working, seen[owner]))),
            saturation=working / worker.concurrency if worker.concurrency else 0.0,
        )
        for owner, worker in alive.items()
    ]


def _runs(store: Store, rows: list[RunRow], asking: set[str]) -> list[Shown]:
    found: list[Shown] = []
    for row in rows:
        run = run_views.summary_of(store, row)
        if run.held_reason != HeldReason.MOVED:
            found.append(Shown(run, _why(run, asking)))
    for run_id in asking - {shown.run.run_id for shown in found}:
        asks = store.get(run_id)
        if asks is not None and asks.deleted_us is None:
            found.append(Shown(run_views.summary_of(store, asks), "asks"))
    return sorted(found, key=_order)


def _there_may_be(known: list[QueueView]) -> Iterator[Status]:
    """Yield the statuses that some run has: nothing is looked for that is not there."""
    if any(queue.held for queue in known):
        yield Status.HELD
    if any(queue.failed for queue in known):
        yield Status.FAILED
    if any(queue.ready or queue.delayed or queue.taking_room for queue in known):
        yield from (Status.RUNNING, Status.WAITING, Status.QUEUED)


def _why(run: RunSummary, asking: set[str]) -> str:
    if run.status == Status.HELD:
        return "held"  # Also if it asks: an answer alone does not let it go on.
    if run.run_id in asking:
        return "asks"
    if run.abandoned:
        return "left"
    return "at work" if run.status == Status.RUNNING else run.status


_ORDER = ("held", "asks", "failed", "left", "at work", "queued", "waiting")


def _order(shown: Shown) -> tuple[int, float]:
    return _ORDER.index(shown.why), -shown.run.updated_at.timestamp()
