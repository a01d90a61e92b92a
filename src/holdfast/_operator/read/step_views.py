"""Views of the steps of a run, in order: outcome, attempts, time, and who settled each.

Only executed attempts count as work: neither the pause before another attempt nor the time until a
person decided. The duration of an attempt whose process died is unknown and counts as nothing.
"""

from __future__ import annotations

import datetime as dt

import msgspec

from holdfast._engine.decisions.resume import facts_of
from holdfast._engine.journal.entries import Entry, Kind
from holdfast._engine.journal.history import History, Record, State
from holdfast._engine.journal.rows import DONE
from holdfast._engine.journal.step_keys import name_of
from holdfast._engine.journal.step_record import facts
from holdfast._engine.values.moments import at

# -- how long a step was at work ----------------------------------------------------------------


class SettledView(msgspec.Struct, frozen=True):
    """What somebody decided of a step whose outcome was not known."""

    outcome: str
    """`done`, `not_done` or `failed`."""
    by: str
    at: dt.datetime
    after_s: float | None
    """How long after the doubt was noted."""

    def __str__(self) -> str:
        return f"settled as {self.outcome.replace('_', ' ')} by {self.by}"


def settled_of(record: Record) -> SettledView | None:
    """Return who settled a step, if that is how it stands."""
    entry = record.settled
    if entry is None:
        return None
    told = facts(entry)
    after_us = None if record.doubt is None else max(0, entry.at_us - record.doubt.at_us)
    return SettledView(
        outcome=str(told["outcome"]),
        by=str(told.get("actor") or "its on_doubt function"),
        at=at(entry.at_us),
        after_s=None if after_us is None else after_us / 1e6,
    )


def ended_us(record: Record) -> int | None:
    """Return when a step ended, or None if it has not."""
    ended = record.ended_us if record.state is not State.RUNNING else None
    if ended is None and record.outcome is not None:
        ended = record.outcome.at_us
    return ended


def worked_s(record: Record) -> float | None:
    """Return how long it took; None if it has not ended, or nobody knows."""
    ended = ended_us(record)
    if ended is None:
        return None
    if not record.attempts:  # A wait or a recorded value: it was not executed.
        settled = record.settled is not None
        return None if settled else max(0, ended - record.first_started_us) / 1e6
    return None if record.worked_us is None else record.worked_us / 1e6


# -- the steps of a run -------------------------------------------------------------------------


class ErrorView(msgspec.Struct, frozen=True):
    """An exception as the journal tells it."""

    type: str
    message: str

    def __str__(self) -> str:
        return f"{self.type}: {self.message}" if self.message else self.type


class StepView(msgspec.Struct, frozen=True):
    """One step of a run, in its latest generation or superseded by a later one."""

    key: str
    name: str
    status: str
    attempts: int
    retry_count: int
    effect: bool
    started_at: dt.datetime
    ended_at: dt.datetime | None
    duration_s: float | None
    """How long its attempts were at work; None if it has not ended, or its process died in it."""
    error: ErrorView | None
    degraded: ErrorView | None
    generation: int
    superseded: bool
    transaction: bool = False
    """Whether it is an effect in the store's own database."""
    borrowed: bool = False
    """Whether it is of the run that this one was forked from."""
    settled: SettledView | None = None
    """Who decided what became of it, if nobody else knows."""


class RunningStep(msgspec.Struct, frozen=True):
    """A step that has begun and has no outcome, as far as its journal says. The start of a plain step is
    written when it is still at work at the next pulse of its process, three times per lease; one that
    began since then is not known."""

    key: str
    attempt: int
    since: dt.datetime
    """When this attempt began."""


def running_of(past: History) -> list[RunningStep]:
    """Return the steps that are being executed, the oldest first."""
    begun = [
        record
        for record in past.records.values()
        if record.state is State.RUNNING and record.attempts and not record.borrowed
    ]
    begun.sort(key=lambda record: record.started_us)
    return [RunningStep(it.key, it.attempts, at(it.started_us)) for it in begun]


class StepCounts(msgspec.Struct, frozen=True):
    """How many steps and effects a run has called, and what they came to. This is the one definition:
    `runs`, `show`, `explain`, the page, its timeline and the API count like this.

    A step counts once in each generation that called it, however often it was tried. Waits, child runs
    and recorded values stand in the list of steps, and are counted as `others`. What a fork borrowed is
    the other run's, and is not counted.
    """

    called: int
    done: int
    """Those that completed, were settled as done, or were found done under their key: `totals.steps`."""
    left_behind: int
    """Those of them that a later generation has superseded: they are done anew."""
    failed: int
    """Those that gave up."""
    others: int
    """Waits, child runs and recorded values."""


def counts_of(past: History) -> StepCounts:
    """Return how many steps a run has called."""
    called = done = left_behind = failed = others = 0
    for record, superseded in steps_of(past):
        if record.borrowed:
            continue
        if not is_step(record):
            others += 1
            continue
        is_done = record.state in (State.COMPLETED, State.SKIPPED)
        called += 1
        done += is_done
        left_behind += is_done and superseded
        failed += record.state is State.FAILED
    return StepCounts(called, done, left_behind, failed, others)


def is_step(record: Record) -> bool:
    """Return whether it is a step or an effect that was called, and no wait, child or recorded value."""
    outcome = record.outcome
    if record.attempts or record.intent is not None or record.doubt is not None:
        return True
    return outcome is not None and outcome.kind in (*DONE, Kind.STEP_SETTLED, Kind.STEP_FAILED)


def step_views(past: History, first: int | None = None, last: int | None = None) -> list[StepView]:
    """Return the steps in the order in which they were first called, or a slice of them."""
    chosen = steps_of(past)[first:last]
    return [_step_view(record, superseded=superseded) for record, superseded in chosen]


def steps_of(past: History) -> list[tuple[Record, bool]]:
    """Return the steps in the order in which they were first called, each with whether a later
    generation has superseded it."""
    steps = [(record, False) for record in past.records.values() if not record.keeps_place]
    steps += [(record, True) for record in past.superseded if not record.keeps_place]
    return sorted(steps, key=lambda pair: pair[0].first_seq)


def _step_view(record: Record, *, superseded: bool) -> StepView:
    ended = ended_us(record)
    return StepView(
        key=record.key,
        name=name_of(record.key),
        status=str(record.state),
        attempts=record.attempts,
        retry_count=max(record.attempts - 1, 0),
        effect=record.effect,
        started_at=at(record.first_started_us),
        ended_at=None if ended is None else at(ended),
        duration_s=worked_s(record),
        error=error_of(record),
        degraded=error_in(record.outcome, "degraded"),
        generation=record.generation,
        superseded=superseded,
        transaction=record.transaction,
        borrowed=record.borrowed,
        settled=settled_of(record),
    )


def error_of(record: Record) -> ErrorView | None:
    """Return the error that a step shows now: of its outcome, its doubt or its last attempt."""
    if record.state is State.FAILED:
        return error_in(record.outcome, "error")
    if record.state is State.IN_DOUBT:
        return error_in(record.doubt, "error")
    if record.state is State.RETRYING:
        return error_in(record.failure, "error")
    return None


def error_in(entry: Entry | None, field: str) -> ErrorView | None:
    """Return the exception that an entry tells of in a field of its body, if it does."""
    told = None if entry is None else facts_of(entry).get(field)
    if not isinstance(told, dict):
        return None
    return msgspec.convert(told, ErrorView, strict=False)
