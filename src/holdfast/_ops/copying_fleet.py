"""Moving what belongs to no single run: limits of queues, and schedules.

A schedule must tick in one store only. It is written to the target first, paused and with a cursor
that says that it is on its way; then it is paused in the source; then it gets its cursor in the
target, and ticks there if it did before. Killed in between, the next copy goes on from there.
"""

from __future__ import annotations

from collections.abc import Iterator

import msgspec

from holdfast._store.contract import Limits, ScheduleRow, Store

ON_ITS_WAY, PAUSED_ON_ITS_WAY = -1, -2
"""Cursors of a schedule that is being moved: it ticked in the source, or was paused there."""
TRIES = 100


def copy_limits(source: Store, target: Store, *, dry_run: bool = False) -> Iterator[str]:
    """Set the limits of queues in the target where it has none; yields the queues."""
    known = {state.limits.queue: state.limits for state in target.queues()}
    for state in source.queues():
        limits, name = state.limits, state.limits.queue
        if limits != Limits(name) and known.get(name, Limits(name)) == Limits(name):
            if not dry_run:
                target.set_limits(limits)
            yield name


def copy_schedules(source: Store, target: Store, *, dry_run: bool = False) -> Iterator[str]:
    """Move the schedules; yields the names of those that were moved now."""
    known = {row.name: row for row in target.schedules()}
    for row in source.schedules():
        there = known.get(row.name)
        if there is not None and there.cursor_us >= 0:
            if not dry_run:
                _pause(source, row.name)
            continue
        if not dry_run:
            _move(source, target, row, there)
        yield row.name


def _move(source: Store, target: Store, row: ScheduleRow, there: ScheduleRow | None) -> None:
    if there is None:
        marker = PAUSED_ON_ITS_WAY if row.paused else ON_ITS_WAY
        there = msgspec.structs.replace(row, cursor_us=marker, paused=True)
        if not target.put_schedule(there, None):
            return  # Somebody else moves it, or declared it there just now.
    here = _pause(source, row.name) or row
    paused = there.cursor_us == PAUSED_ON_ITS_WAY
    arrived = msgspec.structs.replace(here, paused=paused)
    target.put_schedule(arrived, there.cursor_us)


def _pause(source: Store, name: str) -> ScheduleRow | None:
    """Pause a schedule in the source; returns it as it stands then."""
    for _ in range(TRIES):
        row = next((row for row in source.schedules() if row.name == name), None)
        if row is None or row.paused:
            return row
        # A worker that has read it as it was must not write it back (see schedules.set_schedule).
        paused = msgspec.structs.replace(row, paused=True, cursor_us=row.cursor_us + 1)
        if source.put_schedule(paused, row.cursor_us):
            return paused
    return None
