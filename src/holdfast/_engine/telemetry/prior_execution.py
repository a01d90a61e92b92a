"""What observers are told of the time before an execution: read from the history of its run. Pure."""

from __future__ import annotations

import msgspec

from holdfast._engine.journal.entries import Entry, Kind
from holdfast._engine.journal.history import History, Record, State
from holdfast._engine.journal.lifecycle import ClaimedBecause
from holdfast._engine.journal.rows import RunRow
from holdfast._engine.journal.step_keys import name_of, told_name
from holdfast._engine.journal.step_record import facts
from holdfast._engine.telemetry.observer_events import (
    InterruptedStep,
    ObservedEntry,
    PriorExecution,
)

_OWNED = frozenset({ClaimedBecause.OWN, ClaimedBecause.OWNER_DEAD, ClaimedBecause.LEASE_EXPIRED})
"""Reasons of a claim that say: somebody had the run until then."""
_GIVEN_BACK = frozenset({Kind.RUN_WAITING, Kind.RUN_RELEASED, Kind.RUN_HELD})


def past_of(history: History, row: RunRow) -> PriorExecution:
    """Return what a history says of the time before its last claim."""
    gap = history.gap
    if gap.claim is None or gap.before is None or gap.before.kind is Kind.RUN_STARTED:
        return PriorExecution()
    why = facts(gap.claim).get("why")
    epoch = _epoch_before(history, row, why)
    began_us = _began_us(history, epoch)
    died = why == ClaimedBecause.OWNER_DEAD
    reborn = history.reborn if history.reborn is not None and history.reborn.seq > 0 else None
    records = history.records.values()
    return PriorExecution(
        epoch=epoch,
        began_us=began_us,
        ended_us=max(gap.before.at_us, began_us),
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
    gap = history.gap
    if why in _OWNED:
        return row.epoch - 1
    if gap.previous is not None and not _is_skipped(row, gap.previous):
        return int(facts(gap.previous)["epoch"])
    if gap.before is None or gap.before.kind not in _GIVEN_BACK:
        return None
    return None if "actor" in facts(gap.before) else row.epoch - 1


def _is_skipped(row: RunRow, after: Entry) -> bool:
    skips: list[tuple[int, int]] = msgspec.json.decode(row.skips)
    return any(high > after.seq for _, high in skips)


def _began_us(history: History, epoch: int | None) -> int:
    """Return when an execution began; if its claim was not read, the newest snapshot of a loop, which
    is later."""
    previous = history.gap.previous
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
