"""Queues and workers as people see them, and what is done with many runs of a queue together."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

import msgspec

from holdfast._core.lifecycle import HeldReason, Status
from holdfast._core.rows import RunRow
from holdfast._ops import actions, audit
from holdfast._store.contract import Limits, Query, QueueState, Store
from holdfast._store.decisions import queue_of
from holdfast.errors import HoldfastError, UsageError

PAGE = 500


class Alone(msgspec.Struct, frozen=True):
    """A run beside which a worker takes no other, and why."""

    run_id: str
    why: str


class WorkerView(msgspec.Struct, frozen=True):
    """A worker that is alive, as it last said."""

    name: str
    pid: int
    host: str
    queues: list[str] | None
    """None means all."""
    flows: dict[str, list[str]]
    """The versions that it can execute, by flow."""
    concurrency: int
    working: int
    saturation: float
    draining: bool
    alone: Alone | None = None
    """The run that it executes with nothing beside it, for a minute at most."""
    emptying: bool = False
    """Whether it takes nothing until it is empty, to execute such a run."""

    @property
    def stands_back(self) -> str | None:
        """Say why it takes no other run at this moment, although it has room; None if it does."""
        if self.alone is not None:
            run_id, why = self.alone.run_id, self.alone.why
            return f"worker {self.name} executes only run {run_id} now, because {why}"
        if self.emptying:
            return (
                f"worker {self.name} takes nothing now until it is empty, because a run is to be "
                "executed alone"
            )
        return None

    def takes_from(self, queue: str) -> bool:
        """Tell whether it takes runs of a queue."""
        return not self.draining and (self.queues is None or queue in self.queues)

    def executes(self, row: RunRow) -> bool:
        """Tell whether it would take a run, when it is due."""
        versions = self.flows.get(row.flow, [])
        return self.takes_from(queue_of(row)) and row.version in versions


class QueueView(msgspec.Struct, frozen=True):
    """A queue: what waits in it, what is at work, what it allows, who takes from it."""

    name: str
    ready: int
    delayed: int
    """Runs that are not due: they wait for an answer, a message or their time."""
    running: int
    failed: int
    held: int
    quarantined: int
    oldest_s: float | None
    """For how long the oldest ready run has waited."""
    saturation: float | None
    """How much of its own `concurrency` is in use; None without that limit."""
    workers: int
    """Live workers that take from it."""
    workers_saturation: float | None
    """How much of their places is in use; None if there are none."""
    concurrency: int | None
    per_key: int | None
    rate: int | None
    per_key_rate: int | None
    per_s: float
    paused: bool


class Resumed(msgspec.Struct, frozen=True):
    """What became of one run that was to be taken up again with others."""

    run_id: str
    did: str
    error: str | None = None


def workers(store: Store) -> list[WorkerView]:
    """Return the workers that are alive: heard of within a lease, and not proven dead."""
    return list(workers_by_owner(store).values())


def workers_by_owner(store: Store) -> dict[int, WorkerView]:
    """Return the workers that are alive, by the number under which they own runs."""
    return {
        pulse.owner: view
        for pulse in store.pulses()
        if (view := _worker(pulse.facts)) is not None and not store.owner_is_dead(pulse.owner)
    }


def _worker(facts: str) -> WorkerView | None:
    """Return what a pulse says of a worker; a process that is none, or a newer one, says less."""
    try:
        told: dict[str, Any] = msgspec.json.decode(facts, type=dict[str, Any])
        if "worker" not in told:
            return None
        return msgspec.convert({**told, "name": told["worker"]}, WorkerView)
    except msgspec.MsgspecError:
        return None


def queues(store: Store) -> list[QueueView]:
    """Return every queue that has limits, or a run that is open, failed or held."""
    alive = workers(store)
    now_us = store.now_us()
    return [_queue(state, alive, now_us) for state in store.queues()]


def _queue(state: QueueState, alive: Iterable[WorkerView], now_us: int) -> QueueView:
    limits = state.limits
    serving = [worker for worker in alive if worker.takes_from(limits.queue)]
    oldest_s = None if state.oldest_us is None else max(0.0, (now_us - state.oldest_us) / 1e6)
    return QueueView(
        name=limits.queue,
        ready=state.ready,
        delayed=state.delayed,
        running=state.running,
        failed=state.failed,
        held=state.held,
        quarantined=state.quarantined,
        oldest_s=oldest_s,
        saturation=None if limits.concurrency is None else state.running / limits.concurrency,
        workers=len(serving),
        workers_saturation=saturation(serving),
        concurrency=limits.concurrency,
        per_key=limits.per_key,
        rate=limits.rate,
        per_key_rate=limits.per_key_rate,
        per_s=limits.period_us / 1e6,
        paused=limits.paused,
    )


def saturation(alive: Iterable[WorkerView]) -> float | None:
    """Return how much of the places of some workers is in use."""
    known = list(alive)
    places = sum(worker.concurrency for worker in known)
    return sum(worker.working for worker in known) / places if places else None


def limits_of(store: Store, queue: str) -> Limits:
    """Return what a queue allows now; one that nobody has limited allows all."""
    found = (state.limits for state in store.queues() if state.limits.queue == queue)
    return next(found, Limits(queue))


def set_limits(store: Store, limits: Limits, actor: str) -> None:
    """Change what a queue allows, and keep who did it: what holds now has been recorded before."""
    told = msgspec.to_builtins(limits)
    name = str(told.pop("queue"))
    audit.record(store, actor, f"queue {name}", "set", **told)
    store.set_limits(limits)


# -- many runs together ------------------------------------------------------------------------


def chosen(store: Store, queue: str | None, status: str) -> Iterator[RunRow]:
    """Yield the failed or the quarantined runs of a queue, newest first."""
    if status not in ("failed", "quarantined"):
        raise UsageError(f"status={status!r}: 'failed' or 'quarantined'")
    query = Query(status=[Status.FAILED], queue=queue, limit=PAGE)
    if status == "quarantined":
        query.status, query.held_reason = [Status.HELD], HeldReason.QUARANTINED.value
    while True:
        rows = store.list(query)
        yield from rows
        if len(rows) < PAGE:
            return
        query.before_run_no = rows[-1].run_no


def resume_all(store: Store, queue: str | None, status: str, actor: str) -> Iterator[Resumed]:
    """Take up again all failed, or all quarantined, runs of a queue; the error of one (an effect
    that may have happened wants a person) does not stop the others."""
    for row in chosen(store, queue, status):
        try:
            answer = actions.resume(store, row.run_id, actor=actor)
        except HoldfastError as error:
            yield Resumed(row.run_id, "left as it is", str(error))
        else:
            yield Resumed(row.run_id, answer.did)
