"""When a schedule is due: the ticks between two times. Pure.

A schedule says when by a cron line in a time zone, or by an interval. All times are microseconds
since 1970, as the store's clock counts them, so a tick is the same moment for every worker.

The clocks of a time zone are put forward and back. A cron line that names a time of day (such as
`30 2 * * *`) has one tick on each of its days: a time that is left out comes when the clocks have
been put forward, and one that comes twice counts the first time. A cron line with a star in the
minutes or the hours means an interval of the clock on the wall: what is left out has no tick, and
what comes twice has two. That is what cron does, and the library that reads the lines does it too.

An interval knows no time zone. It is counted from `start`, or from 1970, so that a schedule that is
declared again ticks as it did before.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterator
from itertools import islice

import msgspec

from holdfast.errors import UsageError

SECOND_US = 1_000_000
SHORTEST_US = 10_000
"""The shortest interval."""

ON_TIME_US = 60 * SECOND_US
"""A tick that nobody has seen for so long was missed."""

_EPOCH = dt.datetime(1970, 1, 1, tzinfo=dt.UTC)
_FIRST_LOOK_US = 60 * SECOND_US


class When(msgspec.Struct, frozen=True):
    """When a schedule is due: by `cron` in a zone, or every so many microseconds."""

    cron: str | None = None
    every_us: int | None = None
    timezone: str = "UTC"
    start_us: int | None = None
    """The first moment that may be a tick; intervals are counted from it."""

    def checked(self) -> When:
        """Return this, or raise a UsageError that says what is wrong with it."""
        if (self.cron is None) == (self.every_us is None):
            raise UsageError('give either times, cron="0 9 * * 1-5", or an interval, every="5m"')
        if self.every_us is not None and self.every_us < SHORTEST_US:
            raise UsageError(
                f"every= is at least {SHORTEST_US / SECOND_US} seconds, not "
                f"{self.every_us / SECOND_US}"
            )
        zone_of(self.timezone)
        if self.cron is not None:
            next(self._of_cron(0), None)
        return self

    def after(self, moment_us: int) -> Iterator[int]:
        """Yield the ticks after a moment, in order; a cron line may run out of them."""
        if self.start_us is not None:
            moment_us = max(moment_us, self.start_us - 1)
        return self._of_interval(moment_us) if self.cron is None else self._of_cron(moment_us)

    def due(self, after_us: int, until_us: int, limit: int) -> list[int]:
        """Return the first ticks after a moment and up to another, at most `limit` of them."""
        found: list[int] = []
        for tick in islice(self.after(after_us), limit):
            if tick > until_us:
                break
            found.append(tick)
        return found

    def newest(self, after_us: int, until_us: int) -> int | None:
        """Return the last tick after a moment and up to another, or None.

        It looks at the end first, and twice as far back each time, so that a schedule that ticks
        every second is not counted through a year in which nobody looked.
        """
        look_us = _FIRST_LOOK_US
        while True:
            from_us = max(after_us, until_us - look_us)
            newest = None
            for tick in self.after(from_us):
                if tick > until_us:
                    break
                newest = tick
            if newest is not None or from_us == after_us:
                return newest
            look_us *= 2

    def following(self, moment_us: int) -> int | None:
        """Return the next tick after a moment; None if there is none any more."""
        return next(self.after(moment_us), None)

    def _of_interval(self, moment_us: int) -> Iterator[int]:
        assert self.every_us is not None
        anchor_us = self.start_us or 0
        number = (moment_us - anchor_us) // self.every_us + 1
        while True:
            yield anchor_us + number * self.every_us
            number += 1

    def _of_cron(self, moment_us: int) -> Iterator[int]:
        assert self.cron is not None
        zone = zone_of(self.timezone)
        after = _moment(moment_us, dt.UTC)
        # The time of day stands in the five last fields; seconds may stand before them.
        stars = any(field.startswith("*") for field in self.cron.split()[:-3])
        found = _by_the_clock if stars else _by_the_day
        return map(_micros, found(self.cron, after, zone))


class Spec(msgspec.Struct):
    """The declaration of a schedule, as a store keeps it."""

    when: When
    catch_up: str = "last"
    input: dict[str, str] = {}
    """For people: the arguments of its runs, as text."""

    def due(self, cursor_us: int, now_us: int, limit: int) -> tuple[list[int], int]:
        """Return the ticks that get a run now, and how far the schedule is afterwards."""
        if self.catch_up == "all":
            ticks = self.when.due(cursor_us, now_us, limit)
            return ticks, ticks[-1] if ticks else cursor_us
        newest = self.when.newest(cursor_us, now_us)
        if newest is None:
            return [], cursor_us
        missed = self.catch_up == "none" and now_us - newest > ON_TIME_US
        return [] if missed else [newest], newest


CATCH_UP = ("all", "last", "none")
"""The treatment of ticks that passed without a worker."""


def _by_the_day(line: str, after: dt.datetime, zone: dt.tzinfo) -> Iterator[dt.datetime]:
    """Yield one moment for each time that the line names, also where the clocks are changed."""
    last = after
    for wall in _cron(line, _naive(after, zone)):
        moment = _first_at(wall, zone)
        # What comes twice counts the first time, which may be before `after`.
        if moment > last:
            last = moment
            yield moment


def _first_at(wall: dt.datetime, zone: dt.tzinfo) -> dt.datetime:
    """Return the first moment at which the clock shows this time, or, if the clocks are put forward
    over it, the moment at which they are."""
    moment = wall.replace(tzinfo=zone).astimezone(dt.UTC)
    if _naive(moment, zone) == wall:
        return moment
    day = dt.timedelta(days=1)
    return _change(moment - day, moment + day, zone)


def _by_the_clock(line: str, after: dt.datetime, zone: dt.tzinfo) -> Iterator[dt.datetime]:
    """Yield every moment at which the clock shows a time that fits the line."""
    begin = after
    while True:
        shift = _shift(after, zone)
        for wall in _cron(line, begin.replace(tzinfo=None) + shift):
            moment = (wall - shift).replace(tzinfo=dt.UTC)
            changed = _next_change(after, moment, zone)
            if changed is not None:
                after, begin = changed, changed - dt.timedelta(seconds=1)
                break
            after = moment
            yield moment
        else:
            return


def zone_of(name: str) -> dt.tzinfo:
    """Return a time zone by its name, or raise a UsageError."""
    if name == "UTC":
        return dt.UTC
    from zoneinfo import ZoneInfo  # Loads much.

    try:
        return ZoneInfo(name)
    except Exception:  # Names that are paths, or no text, raise what the file system raises.
        raise UsageError(
            f"timezone={name!r} is not known here; it is a name such as 'Europe/Berlin' or 'UTC' "
            "(on a system without time zones, pip install tzdata)"
        ) from None


def local(tick_us: int, timezone: str) -> dt.datetime:
    """Return a tick as the clock on the wall shows it."""
    return _moment(tick_us, zone_of(timezone))


def iso(tick_us: int) -> str:
    """Return a tick in UTC as text: `2026-03-29T01:00:00Z`; a part of a second only if needed."""
    return _moment(tick_us, dt.UTC).replace(tzinfo=None).isoformat() + "Z"


def micros_of(moment: dt.datetime) -> int:
    """Return an aware time in microseconds, or raise a UsageError."""
    if moment.tzinfo is None:
        raise UsageError(
            f"start={moment!r} has no time zone; write datetime(…, tzinfo=ZoneInfo('Europe/Berlin'))"
        )
    return _micros(moment)


def _micros(moment: dt.datetime) -> int:
    return (moment.astimezone(dt.UTC) - _EPOCH) // dt.timedelta(microseconds=1)


def _moment(us: int, zone: dt.tzinfo) -> dt.datetime:
    return (_EPOCH + dt.timedelta(microseconds=us)).astimezone(zone)


def _naive(moment: dt.datetime, zone: dt.tzinfo) -> dt.datetime:
    return moment.astimezone(zone).replace(tzinfo=None)


def _shift(moment: dt.datetime, zone: dt.tzinfo) -> dt.timedelta:
    shift = moment.astimezone(zone).utcoffset()
    assert shift is not None
    return shift


def _next_change(after: dt.datetime, until: dt.datetime, zone: dt.tzinfo) -> dt.datetime | None:
    """Return when the clocks are next changed after a moment and up to another, or None."""
    while after < until:
        ahead = min(until, after + dt.timedelta(days=1))
        if _shift(after, zone) != _shift(ahead, zone):
            return _change(after, ahead, zone)
        after = ahead
    return None


def _change(low: dt.datetime, high: dt.datetime, zone: dt.tzinfo) -> dt.datetime:
    """Return the second from which on the clocks show what they do at `high`."""
    shift = _shift(high, zone)
    while high - low > dt.timedelta(seconds=1):
        middle = low + (high - low) // 2
        if _shift(middle, zone) == shift:
            high = middle
        else:
            low = middle
    return high.replace(microsecond=0)


def _cron(line: str, after: dt.datetime) -> Iterator[dt.datetime]:
    try:
        from cronsim import CronSim, CronSimError
    except ImportError:
        raise UsageError(
            "cron= needs a library that reads cron lines: pip install -e '.[schedules]' in a clone; "
            "or write every=timedelta(…)"
        ) from None
    try:
        return iter(CronSim(line, after))
    except (CronSimError, AttributeError) as error:
        raise UsageError(
            f"cron={line!r} cannot be read ({error}); it has five fields, minute hour day month "
            "weekday, such as '0 9 * * 1-5'"
        ) from None
