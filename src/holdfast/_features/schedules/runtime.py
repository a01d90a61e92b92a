"""Schedules (cron): start one run for each scheduled time, from whichever worker is alive.

    ticks after the cursor, up to now ─► start a run for each ─► move the cursor

The id of a run is made from the schedule's name and the time, so a run starts once however many
workers start it; there is no leader election. The cursor moves only past runs that exist: if a worker
dies in between, the next one repeats the start and finds the run.
"""

from __future__ import annotations

import datetime as dt
import sys
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final, Literal

import msgspec

from holdfast._engine.journal.step_keys import CHILD_SEPARATOR, RUN_ID_MAX_CHARS, check_name
from holdfast._engine.values.chunks import Values
from holdfast._engine.values.durations import Duration, micros
from holdfast._features.schedules.model import (
    CATCH_UP,
    SECOND_US,
    Spec,
    When,
    iso,
    local,
    micros_of,
)
from holdfast._runtime import log as logs
from holdfast._runtime.clocks import CHANCE
from holdfast._runtime.engine import Engine
from holdfast._runtime.execution.admission import RunRequest, new_run
from holdfast._runtime.feature import PeriodicJob
from holdfast._runtime.registry import RegisteredFlow
from holdfast._stores.contract import ScheduleRow
from holdfast.errors import HoldfastError, StoreError, UsageError

BATCH = 100
"""How many missed ticks of one schedule are made up for in one go."""
LOOK_US = 5 * SECOND_US
"""How long a worker goes without a look at the schedules, whatever they say."""
HERD_US = SECOND_US // 20
"""Within which workers look for a tick that is due, each at a moment of chance."""

_TICK_CHARS = len("2026-03-29T01:00:00.000000Z")


class Tick:
    """The type of `SCHEDULED_TIME`."""

    def __repr__(self) -> str:
        return "SCHEDULED_TIME"


SCHEDULED_TIME: Final = Tick()
"""Stands in the arguments of a schedule for the time of the tick, in the schedule's time zone."""


class Schedule:
    """A declared schedule."""

    def __init__(
        self,
        name: str,
        flow: RegisteredFlow,
        when: When,
        catch_up: str,
        args: Sequence[Any],
        kwargs: Mapping[str, Any],
    ) -> None:
        self.name = name
        self.flow = flow
        self.when = when
        self.args = tuple(args)
        self.kwargs = dict(kwargs)
        bound = self.request(0).input  # Any moment: to see whether the arguments fit.
        shown = self.flow._request_for(self.run_id(0), self.args, self.kwargs).input  # pyright: ignore[reportPrivateUsage]
        self.spec = Spec(when, catch_up, {name: f"{shown[name]!r:.200}" for name in bound})

    def __repr__(self) -> str:
        return f"<schedule {self.name}: {self.flow.name}>"

    def run_id(self, tick_us: int) -> str:
        """Return the id of the run of a tick."""
        return f"{self.name}{CHILD_SEPARATOR}{iso(tick_us)}"

    def request(self, tick_us: int) -> RunRequest:
        """Return what is to be run for a tick."""
        tick = local(tick_us, self.when.timezone)
        args = tuple(tick if value is SCHEDULED_TIME else value for value in self.args)
        kwargs = {
            name: tick if value is SCHEDULED_TIME else value for name, value in self.kwargs.items()
        }
        request: RunRequest = self.flow._request_for(self.run_id(tick_us), args, kwargs)  # pyright: ignore[reportPrivateUsage]
        request.tags = {**request.tags, "schedule": self.name, "tick": iso(tick_us)}
        return request

    def row(self, cursor_us: int, *, paused: bool) -> ScheduleRow:
        """Return what was declared, as the store keeps it."""
        spec = msgspec.json.encode(self.spec).decode()
        return ScheduleRow(self.name, self.flow.name, spec, cursor_us, paused)


declared: dict[str, Schedule] = {}
"""Every schedule of this process, by name."""


def schedule(
    name: str,
    flow: Any,
    *,
    cron: str | None = None,
    every: Duration | None = None,
    timezone: str = "UTC",
    catch_up: Literal["all", "last", "none"] = "last",
    args: Sequence[Any] = (),
    kwargs: Mapping[str, Any] | None = None,
    start: dt.datetime | None = None,
) -> Schedule:
    """Declare that a flow is run at certain times, by whichever worker imports this module.

    `cron="0 9 * * 1-5"` in a time zone, or `every="5m"` (or seconds, or a timedelta). `SCHEDULED_TIME` among the arguments
    stands for the time of the tick. Ticks that passed while no worker was there: `catch_up="all"`
    makes up for each, "last" for the newest only, "none" for none of them.
    """
    check_name("schedule", name)
    if len(name) > RUN_ID_MAX_CHARS - _TICK_CHARS - len(CHILD_SEPARATOR):
        raise UsageError(f"schedule {name[:40]!r}…: the name is too long to be part of a run id")
    try:
        made = _made(name, flow, cron, every, timezone, catch_up, args, kwargs or {}, start)
    except UsageError as wrong:
        raise UsageError(f"schedule {name!r}: {wrong}") from None
    known = declared.get(name)
    if known is not None and known.flow.name != made.flow.name:
        raise UsageError(
            f"two schedules are named {name!r}, of {known.flow.name} and of {made.flow.name}; "
            "give one of them another name"
        )
    declared[name] = made
    return made


def _made(
    name: str,
    flow: Any,
    cron: str | None,
    every: Duration | None,
    timezone: str,
    catch_up: str,
    args: Sequence[Any],
    kwargs: Mapping[str, Any],
    start: dt.datetime | None,
) -> Schedule:
    if not isinstance(flow, RegisteredFlow):
        raise UsageError(f"{flow!r} is no flow; decorate it with @flow")
    if flow.is_method:
        raise UsageError(f"{flow.name} is a method, and a worker has no object to call it on")
    if catch_up not in CATCH_UP:
        raise UsageError(f'catch_up={catch_up!r}: "all", "last" or "none"')
    when = When(
        cron=cron,
        every_us=None if every is None else micros(every, "every="),
        timezone=timezone,
        start_us=None if start is None else micros_of(start),
    )
    made = Schedule(name, flow, when.checked(), catch_up, args, kwargs)
    Values(_no_chunks).encode(made.request(0).input, "input")
    return made


def _no_chunks(_number: int) -> dict[int, bytes]:
    return {}


class Ticker(PeriodicJob):
    """Starts the runs that are due. Every worker has one, and any number of them agree."""

    def __init__(self, engine: Engine, schedules: Iterable[Schedule] | None = None) -> None:
        self._engine = engine
        self._schedules = None if schedules is None else list(schedules)
        self._written: set[str] = set()
        self._complained: set[str] = set()
        self._due_us = 0

    def run(self) -> int:
        """Start what is due, if it is time; return when to look again."""
        if self._engine.now_us() >= self._due_us:
            self._due_us = self.tick()
        return self._due_us

    def tick(self) -> int:
        """Start every run that is due, and return when to look again, by the store's clock."""
        schedules = list(declared.values()) if self._schedules is None else self._schedules
        now_us = self._engine.now_us()
        if not schedules:
            return now_us + LOOK_US
        rows = {row.name: row for row in self._engine.backend.schedules()}
        looks = [self._look(schedule, rows.get(schedule.name), now_us) for schedule in schedules]
        return min(looks)

    def _look(self, schedule: Schedule, row: ScheduleRow | None, now_us: int) -> int:
        try:
            return self._ticked(schedule, row, now_us)
        except StoreError:
            raise
        except HoldfastError as error:
            if schedule.name not in self._complained:
                self._complained.add(schedule.name)
                logs.warning("schedule %s: %s", schedule.name, error)
            return now_us + LOOK_US

    def _ticked(self, schedule: Schedule, row: ScheduleRow | None, now_us: int) -> int:
        if row is None or schedule.name not in self._written:
            row = self._declared(schedule, row, now_us)
        if row is None:
            return now_us  # Somebody else was faster: look at what is there now.
        if row.paused:
            return now_us + LOOK_US
        ticks, cursor_us = schedule.spec.due(row.cursor_us, now_us, BATCH)
        if ticks:
            engine = self._engine
            news = [(new_run(engine, schedule.request(tick)), None) for tick in ticks]
            engine.backend.start_all(news)
        if cursor_us != row.cursor_us:
            moved = schedule.row(cursor_us, paused=False)
            if not self._engine.backend.put_schedule(moved, row.cursor_us):
                return now_us
        following = schedule.when.following(cursor_us)
        if following is None or following > now_us + LOOK_US:
            return now_us + LOOK_US
        gap_us = (schedule.when.following(following) or sys.maxsize) - following
        return following + CHANCE.randrange(min(HERD_US, gap_us // 4) + 1)

    def _declared(
        self, schedule: Schedule, row: ScheduleRow | None, now_us: int
    ) -> ScheduleRow | None:
        """Write down what is declared here; the cursor of a schedule that is known stays.

        It is done once, and whenever the cursor is moved: workers of two deployments that declare
        it differently do not take turns in writing it.
        """
        if row is None:
            start_us = schedule.when.start_us
            made = schedule.row(now_us if start_us is None else start_us - 1, paused=False)
        else:
            made = schedule.row(row.cursor_us, paused=row.paused)
        expected = None if row is None else row.cursor_us
        if made != row and not self._engine.backend.put_schedule(made, expected):
            return None
        self._written.add(schedule.name)
        return made
