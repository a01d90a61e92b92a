"""List schedules, with their next tick and last run, pause them, and move them to another store.

A schedule must tick in one store only. It is written to the target first, paused, with a cursor that
marks it as being moved; then it is paused in the source; then it gets its cursor in the target, and
ticks there if it did before. If the process is killed in between, the next copy continues from there.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterator

import msgspec

from holdfast._engine.text import length
from holdfast._features.schedules.model import SECOND_US, Spec, local, zone_of
from holdfast._stores import audit_log
from holdfast._stores.contract import Query, ScheduleRow, Store
from holdfast.errors import NotFound


class ScheduleView(msgspec.Struct, frozen=True):
    """The state of a schedule. Times are those of its time zone."""

    name: str
    flow: str
    when: str
    """A cron line, or `every 5 min`."""
    timezone: str
    catch_up: str
    input: dict[str, str]
    paused: bool
    next_at: dt.datetime | None
    """None if it is paused, or has no further tick."""
    last_run_id: str | None
    last_status: str | None
    last_at: dt.datetime | None
    """The start of the last run."""


def schedules(store: Store) -> list[ScheduleView]:
    """Return the schedules that workers of this store have declared, by name."""
    return [_view(store, row) for row in store.schedules()]


def _view(store: Store, row: ScheduleRow) -> ScheduleView:
    spec = msgspec.json.decode(row.spec, type=Spec)
    zone = spec.when.timezone
    next_us = None if row.paused else spec.when.following(row.cursor_us)
    found = store.list(Query(tag=("schedule", row.name), limit=1))
    last = found[0] if found else None
    return ScheduleView(
        name=row.name,
        flow=row.flow,
        when=spec.when.cron or f"every {length((spec.when.every_us or 0) / SECOND_US)}",
        timezone=zone,
        catch_up=spec.catch_up,
        input=spec.input,
        paused=row.paused,
        next_at=None if next_us is None else local(next_us, zone),
        last_run_id=None if last is None else last.run_id,
        last_status=None if last is None else str(last.status),
        last_at=None
        if last is None
        else dt.datetime.fromtimestamp(last.created_us / 1e6, zone_of(zone)),
    )


def set_schedule(store: Store, name: str, *, paused: bool, actor: str) -> ScheduleView:
    """Pause or resume a schedule; its catch-up decides about missed ticks. The audit log has the
    actor."""
    recorded = False
    while True:
        rows = {row.name: row for row in store.schedules()}
        if name not in rows:
            known = ", ".join(rows) or "none"
            raise NotFound(f"there is no schedule {name!r}; known are: {known}")
        row = rows[name]
        if row.paused == paused:
            return _view(store, row)
        # A worker that has read the old row must not write it back, so the cursor changes. No two
        # ticks are a microsecond apart.
        changed = msgspec.structs.replace(row, paused=paused, cursor_us=row.cursor_us + 1)
        if not recorded:
            audit_log.record(store, actor, f"schedule {name}", "paused" if paused else "resumed")
            recorded = True
        if store.put_schedule(changed, row.cursor_us):
            return _view(store, changed)


# -- moving to another store -------------------------------------------------------------------


ON_ITS_WAY, PAUSED_ON_ITS_WAY = -1, -2
"""Cursors of a schedule that is being moved: it ticked in the source, or was paused there."""
SCHEDULE_TRIES = 100


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
    for _ in range(SCHEDULE_TRIES):
        row = next((row for row in source.schedules() if row.name == name), None)
        if row is None or row.paused:
            return row
        # A worker that has read it as it was must not write it back (see `set_schedule`).
        paused = msgspec.structs.replace(row, paused=True, cursor_us=row.cursor_us + 1)
        if source.put_schedule(paused, row.cursor_us):
            return paused
    return None
