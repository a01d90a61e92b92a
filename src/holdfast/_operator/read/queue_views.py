"""Views of queues and workers."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import msgspec

from holdfast._engine.command_lines import command
from holdfast._engine.journal.rows import RunRow
from holdfast._stores.claim_rules import queue_of
from holdfast._stores.contract import Limits, Pulse, QueueState, Store
from holdfast.errors import NotFound


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
    unread: str | None = None
    """Why what it says of itself cannot be read: it is alive, and nothing else is known of it."""

    @property
    def stands_back(self) -> str | None:
        """Explain why it takes no other run at this moment, although it has room, or that nobody knows
        what it takes; None if it does."""
        if self.unread is not None:
            return f"what {self.name} says of itself cannot be read: {self.unread}"
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
        """Return whether it takes runs of a queue."""
        return not self.draining and (self.queues is None or queue in self.queues)

    def executes(self, row: RunRow) -> bool:
        """Return whether it would take a run, when it is due."""
        versions = self.flows.get(row.flow, [])
        return self.takes_from(queue_of(row)) and row.version in versions


class QueueView(msgspec.Struct, frozen=True):
    """A queue: what waits in it, what is at work, what it allows, who takes from it."""

    name: str
    ready: int
    delayed: int
    """Runs that are not due: they wait for an answer, a message or their time."""
    running: int
    """Runs that a live process works on."""
    failed: int
    held: int
    quarantined: int
    oldest_s: float | None
    """For how long the oldest run that could be taken, ready or abandoned, has waited."""
    saturation: float | None
    """How much of its own `concurrency` is in use; None without that limit."""
    workers: int
    """Live workers that take from it."""
    workers_saturation: float | None
    """How much of their places is in use; None if there are none."""
    concurrency: int | None
    concurrency_per_key: int | None
    rate: int | None
    rate_per_key: int | None
    period_s: float
    paused: bool
    abandoned: int = 0
    """Runs whose process died or let their lease run out; they go on when a worker takes them."""

    @property
    def taking_room(self) -> int:
        """How many runs count for its own `concurrency`: those at work, and those abandoned, which
        need no new room when they are taken up."""
        return self.running + self.abandoned


def workers(store: Store) -> list[WorkerView]:
    """Return the live workers: with a pulse within a lease, and not proven dead."""
    return list(workers_by_owner(store).values())


def workers_by_owner(store: Store) -> dict[int, WorkerView]:
    """Return the workers that are alive, by the number under which they own runs."""
    return {
        pulse.owner: view
        for pulse in store.pulses()
        if (view := _worker(pulse)) is not None and not store.owner_is_dead(pulse.owner)
    }


_FACTS = msgspec.json.Decoder(dict[str, Any])
_VIEW = msgspec.json.Decoder(WorkerView)
"""Made once: msgspec prepares a class when it is first asked for, and two threads that do so at the same
moment may meet it half prepared."""


def _worker(pulse: Pulse) -> WorkerView | None:
    """Return what a pulse says of a worker; None of a process that is none. One whose words cannot be
    read, such as a newer one, is shown as that: unknown is not nothing."""
    try:
        told = _FACTS.decode(pulse.facts)
        if "worker" not in told:
            return None
        return msgspec.convert({**told, "name": told["worker"]}, WorkerView)
    except msgspec.MsgspecError as error:
        return WorkerView(pulse.name, 0, "", [], {}, 0, 0, 0.0, False, unread=str(error))


def queues(store: Store) -> list[QueueView]:
    """Return every queue that has limits, or a run that is open, failed or held."""
    alive = workers(store)
    now_us = store.now_us()
    return [_queue(state, alive, now_us) for state in store.queues()]


def _queue(state: QueueState, alive: Iterable[WorkerView], now_us: int) -> QueueView:
    limits = state.limits
    serving = [worker for worker in alive if worker.takes_from(limits.queue)]
    oldest_s = None if state.oldest_us is None else max(0.0, (now_us - state.oldest_us) / 1e6)
    in_use = state.running + state.abandoned
    return QueueView(
        name=limits.queue,
        ready=state.ready,
        delayed=state.delayed,
        running=state.running,
        failed=state.failed,
        held=state.held,
        quarantined=state.quarantined,
        oldest_s=oldest_s,
        saturation=None if limits.concurrency is None else in_use / limits.concurrency,
        workers=len(serving),
        workers_saturation=saturation(serving),
        abandoned=state.abandoned,
        **limit_fields(limits),
    )


def saturation(alive: Iterable[WorkerView]) -> float | None:
    """Return how much of the places of some workers is in use."""
    known = list(alive)
    places = sum(worker.concurrency for worker in known)
    return sum(worker.working for worker in known) / places if places else None


def view(store: Store, queue: str) -> QueueView:
    """Return a queue that has limits, or a run that is open, failed or held; raise NotFound."""
    found = next((it for it in queues(store) if it.name == queue), None)
    if found is None:
        raise no_queue(queue)
    return found


def no_queue(name: str) -> NotFound:
    """Return the error for a queue that is not there."""
    return NotFound(
        f"there is no queue {name!r} with limits, or with a run that is open, failed or held; to list "
        f"the queues: {command('queues')}"
    )


def existing_limits(store: Store, queue: str) -> Limits | None:
    """Return what a queue allows now; None of one that has neither limits nor a run."""
    limits = limits_of(store, queue)
    if limits != Limits(queue) or any(it.limits.queue == queue for it in store.queues()):
        return limits
    return None


def limits_of(store: Store, queue: str) -> Limits:
    """Return what a queue allows now; one that nobody has limited allows all."""
    limited = (state.limits for state in store.queues(counted=False))
    return next((it for it in limited if it.queue == queue), Limits(queue))


def limit_fields(limits: Limits) -> dict[str, Any]:
    """Return what a queue allows by its public names."""
    return {
        "concurrency": limits.concurrency,
        "concurrency_per_key": limits.concurrency_per_key,
        "rate": limits.rate,
        "rate_per_key": limits.rate_per_key,
        "period_s": limits.period_us / 1e6,
        "paused": limits.paused,
    }
