"""The events that an observer receives: claims, attempts and committed entries of this process.

A replay calls no user code and writes no entry, so an observer receives none. Committed entries are
reported after the commit and before its waiters continue: a caller that flushes exporters after
`run` misses nothing. An exception in an observer is logged once and has no other consequence.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec

from holdfast._engine.journal.entries import VALUES, Draft, Entry, Kind
from holdfast._engine.journal.history import History, Record, State
from holdfast._engine.journal.lifecycle import ClaimedBecause
from holdfast._engine.journal.rows import RunRow
from holdfast._engine.journal.step_keys import name_of, told_name
from holdfast._engine.journal.step_record import facts
from holdfast._engine.scripts.attempts import error_facts
from holdfast._engine.telemetry.trace_ids import span_id_of, trace_id_of
from holdfast._engine.values.redactor import Redact, redact_error

_fields = msgspec.json.Decoder(dict[str, msgspec.Raw])


class InterruptedStep(msgspec.Struct, frozen=True):
    """A step that began in a dead execution, as far as the journal knows."""

    key: str
    name: str
    generation: int
    effect: bool
    attempt: int
    running: bool
    """Whether the attempt was under way; otherwise the step waited for its next one."""
    first_us: int
    started_us: int


class PriorExecution(msgspec.Struct, frozen=True):
    """The time before this execution, by the journal."""

    epoch: int | None = None
    """The previous execution; None if there was none, or if it is not known."""
    began_us: int = 0
    ended_us: int = 0
    died: bool = False
    """Whether its process is proven to be dead and reports nothing more itself."""
    reborn_seq: int = 0
    """The entry that resumed the run after its end; 0: there is none."""
    reborn_us: int = 0
    waits: tuple[ObservedEntry, ...] = ()
    """The waits of the run: the entries that began them."""
    cut: tuple[InterruptedStep, ...] = ()


class ObservedRun(msgspec.Struct, frozen=True):
    """The run of an event."""

    store_id: str
    namespace: str
    run_id: str
    flow: str
    version: str
    generation: int
    epoch: int
    """Grows with every claim."""
    queue: str
    parent: str | None
    root: str | None
    """The run at the top of its family, if that has one account; None else."""
    created_us: int
    past: PriorExecution | None = None
    """Set with `run_claimed` only."""

    @property
    def trace_id(self) -> str:
        """Its trace ID, 32 hexadecimal digits: the same in every process."""
        return self.trace_id_of(self.run_id)

    def trace_id_of(self, run_id: str) -> str:
        """Return the trace ID of another run of the same store."""
        return trace_id_of(self.store_id, self.namespace, run_id)

    def span_id(self, *of: object, run_id: str | None = None) -> str:
        """Return the ID of a span of its trace (or of another run's), by its subject."""
        return span_id_of(self.trace_id_of(run_id or self.run_id), *of)


class ObservedEntry:
    """A committed entry. Its plain facts are read on demand; values (arguments and results of
    steps) are not among them."""

    __slots__ = ("_body", "_facts", "at_us", "attempt", "kind", "started_us", "step")

    def __init__(self, draft: Draft | Entry) -> None:
        self.kind = str(draft.kind)
        self.step = draft.step
        self.attempt = draft.attempt
        self.at_us = draft.at_us
        self.started_us = draft.started_us
        """Of an outcome that was written together with its start: the time of the start."""
        self._body = draft.body
        self._facts: dict[str, Any] | None = None

    @property
    def name(self) -> str:
        """The step's name (of the undo of an effect `name.undo`); empty for an entry about the
        run."""
        return told_name(name_of(self.step or ""), self.step or "")

    def facts(self) -> dict[str, Any]:
        """Return its facts, without values. They are read once for all observers."""
        if self._facts is None:
            split = _fields.decode(self._body)
            self._facts = {
                name: msgspec.json.decode(raw) for name, raw in split.items() if name not in VALUES
            }
        return self._facts


class ObservedAttempt(msgspec.Struct):
    """User code that is called now, in this thread or task."""

    run: ObservedRun
    key: str
    """The step key."""
    name: str
    """The step's name; of the undo of an effect `name.undo`."""
    number: int
    what: str
    """"body", "on_doubt", "fallback", or "look" (at a dependency of the run)."""
    effect: bool
    started_us: int
    usage: dict[str, Any] | None = None
    """The usage of `record_usage(…)`; known at its end."""
    error: BaseException | None = None
    """The exception that it raised; known at its end."""
    traced: bool = False
    """Set by an observer that records it in a trace."""
    redact: Redact | None = None
    """The function that redacts texts of this store."""

    def error_facts(self) -> dict[str, str] | None:
        """Return the type and the message of its error as the journal tells them: with what must
        not be reported taken out."""
        if self.error is None:
            return None
        news = error_facts(self.error)
        if self.redact is not None:
            redact_error(news, f"{self.key}: error", self.redact)
        return news


class Observer:
    """Override the methods of the events that you need. An observer cannot harm a run: its
    exceptions are logged, once per kind of event, and have no other consequence. It is called in
    the thread or task of the event, so it must be quick."""

    def run_claimed(self, run: ObservedRun, *, resumed: bool) -> None:
        """This process has claimed the run and begins to execute it; `resumed`: not for the first
        time. If the run was started in this process, it is called there."""

    def run_released(self, run: ObservedRun, status: str) -> None:
        """This process no longer executes the run; its status is the last one written."""

    def attempt_started(self, attempt: ObservedAttempt) -> Any:
        """User code is about to be called, here; the returned value comes back at its end."""

    def attempt_ended(self, attempt: ObservedAttempt, begun: Any) -> None:
        """It returned or raised, in the same thread or task. Or its time was up and nobody waits
        for it any longer: that is reported in another thread, and its later end is not reported."""

    def entries_committed(self, run: ObservedRun, entries: Sequence[ObservedEntry]) -> None:
        """This process committed entries of a run."""


def observed_run(store_id: str, namespace: str, row: RunRow) -> ObservedRun:
    """Return what an observer receives about a run."""
    return ObservedRun(
        store_id=store_id,
        namespace=namespace,
        run_id=row.run_id,
        flow=row.flow,
        version=row.version,
        generation=row.generation,
        epoch=row.epoch,
        queue=row.queue or "default",
        parent=row.parent,
        root=row.root,
        created_us=row.created_us,
    )


# -- what was executed before ------------------------------------------------------------------


_OWNED = frozenset({ClaimedBecause.OWN, ClaimedBecause.OWNER_DEAD, ClaimedBecause.LEASE_EXPIRED})
"""Reasons of a claim that mean: the run had an owner until then."""
_GIVEN_BACK = frozenset({Kind.RUN_WAITING, Kind.RUN_RELEASED, Kind.RUN_HELD})


def past_of(history: History, row: RunRow) -> PriorExecution:
    """Return what a history says of the time before its last claim."""
    drift = history.drift
    if drift.claim is None or drift.before is None or drift.before.kind is Kind.RUN_STARTED:
        return PriorExecution()
    why = facts(drift.claim).get("why")
    epoch = _epoch_before(history, row, why)
    began_us = _began_us(history, epoch)
    died = why == ClaimedBecause.OWNER_DEAD
    reborn = history.reborn if history.reborn is not None and history.reborn.seq > 0 else None
    records = history.records.values()
    return PriorExecution(
        epoch=epoch,
        began_us=began_us,
        ended_us=max(drift.before.at_us, began_us),
        died=died,
        reborn_seq=0 if reborn is None else reborn.seq,
        reborn_us=0 if reborn is None else reborn.at_us,
        waits=tuple(
            ObservedEntry(it.begun)
            for it in records
            if it.begun is not None and it.state is State.WAITING and not it.borrowed
        ),
        cut=tuple(_cut(it) for it in records if died and _is_cut(it, began_us)),
    )


def _epoch_before(history: History, row: RunRow, why: object) -> int | None:
    """Return the epoch of the execution before. Actors raise the epoch too, and claims inside a
    loop are not read again; where that leaves a doubt, it is not known."""
    drift = history.drift
    if why in _OWNED:
        return row.epoch - 1
    if drift.previous is not None and not _is_skipped(row, drift.previous):
        return int(facts(drift.previous)["epoch"])
    if drift.before is None or drift.before.kind not in _GIVEN_BACK:
        return None
    return None if "actor" in facts(drift.before) else row.epoch - 1


def _is_skipped(row: RunRow, after: Entry) -> bool:
    skips: list[tuple[int, int]] = msgspec.json.decode(row.skips)
    return any(high > after.seq for _, high in skips)


def _began_us(history: History, epoch: int | None) -> int:
    """Return when an execution began; if its claim was not read, the newest snapshot of a loop, which
    is later."""
    previous = history.drift.previous
    if previous is not None and facts(previous).get("epoch") == epoch:
        return previous.at_us
    return max((it.at_us for it in history.saved.values() if it.seq > 0), default=0)


def _is_cut(record: Record, began_us: int) -> bool:
    is_open = record.state in (State.RUNNING, State.RETRYING)
    return is_open and not record.borrowed and record.started_us >= began_us


def _cut(record: Record) -> InterruptedStep:
    return InterruptedStep(
        key=record.key,
        name=told_name(name_of(record.key), record.key),
        generation=record.generation,
        effect=record.effect,
        attempt=record.attempts,
        running=record.state is State.RUNNING,
        first_us=record.first_started_us,
        started_us=record.started_us,
    )
