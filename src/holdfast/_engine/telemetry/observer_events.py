"""The events that an observer receives: claims, attempts and committed entries of this process.

A replay calls no user code and writes no entry, so an observer never receives one. Committed entries
are reported after the commit and before its waiters go on: a caller who flushes exporters after `run`
misses nothing. An exception in an observer is logged once and changes nothing."""

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
    """A step that was begun in an execution which died, as far as the journal knows of it."""

    key: str
    name: str
    generation: int
    effect: bool
    attempt: int
    running: bool
    """Whether the attempt was under way; else the step waited for its next one."""
    first_us: int
    started_us: int


class PriorExecution(msgspec.Struct, frozen=True):
    """The time before this execution, by the journal."""

    epoch: int | None = None
    """The execution before; None if there was none, or if that is not known."""
    began_us: int = 0
    ended_us: int = 0
    died: bool = False
    """Whether its process is proven to be dead: it says nothing more itself."""
    reborn_seq: int = 0
    """The entry that took the run up again after it had ended; 0: there is none."""
    reborn_us: int = 0
    waits: tuple[ObservedEntry, ...] = ()
    """The waits of the run: the entries that began them."""
    cut: tuple[InterruptedStep, ...] = ()


class ObservedRun(msgspec.Struct, frozen=True):
    """The run that something happened to."""

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
    """Given with `run_claimed` only."""

    @property
    def trace_id(self) -> str:
        """The id of its trace, 32 hexadecimal digits: the same in every process."""
        return self.trace_id_of(self.run_id)

    def trace_id_of(self, run_id: str) -> str:
        """Return the id of the trace of another run of the same store."""
        return trace_id_of(self.store_id, self.namespace, run_id)

    def span_id(self, *of: object, run_id: str | None = None) -> str:
        """Return the id of a span of its trace (or of another run's), by what it stands for."""
        return span_id_of(self.trace_id_of(run_id or self.run_id), *of)


class ObservedEntry:
    """An entry that is committed. Its plain facts are read when they are asked for; values (what
    went into steps and came out of them) are not among them."""

    __slots__ = ("_body", "_facts", "at_us", "attempt", "kind", "started_us", "step")

    def __init__(self, draft: Draft | Entry) -> None:
        self.kind = str(draft.kind)
        self.step = draft.step
        self.attempt = draft.attempt
        self.at_us = draft.at_us
        self.started_us = draft.started_us
        """Of an outcome that was written together with its start: when that was."""
        self._body = draft.body
        self._facts: dict[str, Any] | None = None

    @property
    def name(self) -> str:
        """The name of its step (of the undo of an effect `name.undo`); empty if it is about the run."""
        return told_name(name_of(self.step or ""), self.step or "")

    def facts(self) -> dict[str, Any]:
        """Return what it says, but for values. It is read once for all observers."""
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
    """The name of the step; of the undo of an effect `name.undo`."""
    number: int
    what: str
    """"body", "on_doubt", "fallback", or "look" (at what a run watches)."""
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
    """Override what you want to hear of. An observer cannot harm a run: what it raises is logged,
    once for each kind of event, and nothing else comes of it. It is called in the thread or task
    where the thing happens, so it must be quick."""

    def run_claimed(self, run: ObservedRun, *, resumed: bool) -> None:
        """This process has claimed the run and begins to execute it; `resumed`: not for the first
        time. It is called where somebody asked for that, if it was in this process."""

    def run_released(self, run: ObservedRun, status: str) -> None:
        """This process executes the run no longer; its status is what was written last."""

    def attempt_started(self, attempt: ObservedAttempt) -> Any:
        """User code is about to be called, here; what is returned comes back at its end."""

    def attempt_ended(self, attempt: ObservedAttempt, begun: Any) -> None:
        """It returned or raised, in the same thread or task; or its time was up and nobody waits
        for it any longer, which is reported in another thread, and nothing when it ends after all."""

    def entries_committed(self, run: ObservedRun, entries: Sequence[ObservedEntry]) -> None:
        """Entries of a run were committed by this process."""


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
"""Reasons of a claim that say: somebody had the run until then."""
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
