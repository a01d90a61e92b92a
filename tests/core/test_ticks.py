"""When a schedule is due: cron lines in time zones whose clocks are changed, and intervals."""

from __future__ import annotations

import datetime as dt
import sys
from itertools import islice, product
from zoneinfo import ZoneInfo

import pytest
from cronsim import CronSim
from hypothesis import given, settings, strategies as st

from holdfast._features.schedules.model import SECOND_US, When, iso, local, micros_of
from holdfast.errors import UsageError
from tests import sweeps

CHANGES = [
    ("Europe/Berlin", (2026, 3, 28)),
    ("Europe/Berlin", (2026, 10, 24)),
    ("America/New_York", (2026, 3, 7)),
    ("America/New_York", (2026, 10, 31)),
    ("Africa/Cairo", (2026, 4, 23)),  # At midnight.
    ("Africa/Cairo", (2026, 10, 28)),
    ("Australia/Lord_Howe", (2026, 4, 4)),  # By half an hour.
    ("Australia/Lord_Howe", (2026, 10, 3)),
    ("Pacific/Apia", (2011, 12, 29)),  # A day that never was.
    ("Asia/Kolkata", (2026, 1, 1)),  # Never.
]
LINES = [
    *("0 9 * * *", "30 2 * * *", "0,30 2 * * *", "30 0-3 * * *", "0 0 * * *", "30 1 * * 0"),
    *("*/15 * * * *", "0 * * * *", "7 * * * *", "*/10 5 * * *", "*/30 1-3 * * *", "15 */2 * * *"),
    *("*/15 * * * 5", "*/20 0 * * 5,0"),
]
CASES = [(*change, line) for change, line in product(CHANGES, LINES)][:: sweeps.size(3, 1)]
MINUTE = dt.timedelta(minutes=1)


def us(year: int, *rest: int, zone: str = "UTC", fold: int = 0) -> int:
    return micros_of(dt.datetime(year, *rest, tzinfo=ZoneInfo(zone), fold=fold))  # type: ignore[arg-type,misc]


def walls(line: str, zone: str, after_us: int, count: int) -> list[str]:
    ticks = islice(When(cron=line, timezone=zone).after(after_us), count)
    return [f"{local(tick, zone):%d %H:%M%z}" for tick in ticks]


# -- against a count of every minute -----------------------------------------------------------


def fits(line: str, wall: dt.datetime) -> bool:
    fields = CronSim(line, dt.datetime(2020, 1, 1))
    named = wall.minute in fields.minutes and wall.hour in fields.hours
    return named and wall.month in fields.months and fields.match_day(wall.date())


def counted(line: str, zone: str, low: dt.datetime, high: dt.datetime) -> list[int]:
    """Go through all minutes of the clock on the wall, one by one."""
    clock = ZoneInfo(zone)
    minute, hour, *_ = line.split()
    if minute.startswith("*") or hour.startswith("*"):
        minutes = int((high - low) / MINUTE)
        moments = [low + n * MINUTE for n in range(1, minutes + 1)]
        return [micros_of(moment) for moment in moments if fits(line, moment.astimezone(clock))]
    wall = low.astimezone(clock).replace(tzinfo=None) - dt.timedelta(days=2)
    found: set[int] = set()
    for n in range(int((high - low) / MINUTE) + 4 * 1440):
        shown = wall + n * MINUTE
        if fits(line, shown):
            while (at := shown.replace(tzinfo=clock).astimezone(dt.UTC)).astimezone(clock).replace(
                tzinfo=None
            ) != shown:
                shown += MINUTE  # The clocks are put forward over it.
            found.add(micros_of(at))
    return sorted(tick for tick in found if micros_of(low) < tick <= micros_of(high))


@pytest.mark.sweep
@pytest.mark.parametrize(("zone", "day", "line"), CASES, ids=str)
def test_ticks_are_those_that_the_clock_on_the_wall_shows(zone, day, line):
    year, month, number = day
    low = dt.datetime(year, month, number, tzinfo=ZoneInfo(zone)).astimezone(dt.UTC)
    high = low + dt.timedelta(days=3)
    low_us, high_us = micros_of(low), micros_of(high)
    when = When(cron=line, timezone=zone)
    expected = counted(line, zone, low, high)
    assert when.due(low_us, high_us, 10_000) == expected

    # Whoever goes on from any tick, or from any moment, sees the same ticks.
    again: list[int] = []
    while (tick := when.following(again[-1] if again else low_us)) is not None and tick <= high_us:
        again.append(tick)
    assert again == expected
    for moment_us in range(low_us, high_us, 97 * 60 * SECOND_US):
        later = [tick for tick in expected if tick > moment_us]
        assert when.due(moment_us, high_us, 1) == later[:1]
    assert when.newest(low_us, high_us) == (expected[-1] if expected else None)


# -- by example --------------------------------------------------------------------------------


def test_a_time_that_is_left_out_comes_when_the_clocks_have_been_put_forward():
    after = us(2026, 3, 28, 12, zone="Europe/Berlin")
    assert walls("30 2 * * *", "Europe/Berlin", after, 2) == ["29 03:00+0200", "30 02:30+0200"]


def test_a_time_that_comes_twice_counts_the_first_time():
    after = us(2026, 10, 24, 12, zone="Europe/Berlin")
    assert walls("30 2 * * *", "Europe/Berlin", after, 2) == ["25 02:30+0200", "26 02:30+0100"]
    # Also for a schedule that is declared between the two.
    between = us(2026, 10, 25, 2, 15, zone="Europe/Berlin", fold=1)
    assert walls("30 2 * * *", "Europe/Berlin", between, 1) == ["26 02:30+0100"]


def test_stars_mean_the_clock_itself():
    after = us(2026, 3, 29, 1, 15, zone="Europe/Berlin")
    assert walls("*/30 * * * *", "Europe/Berlin", after, 2) == ["29 01:30+0100", "29 03:00+0200"]
    after = us(2026, 10, 25, 2, 15, zone="Europe/Berlin")
    assert walls("*/30 * * * *", "Europe/Berlin", after, 4) == [
        *("25 02:30+0200", "25 02:00+0100", "25 02:30+0100", "25 03:00+0100"),
    ]


def test_working_days():
    friday = us(2026, 11, 13, 9, zone="Europe/Berlin")
    assert walls("0 9 * * 1-5", "Europe/Berlin", friday, 2) == ["16 09:00+0100", "17 09:00+0100"]


def test_seconds_may_stand_before_the_minutes():
    when = When(cron="*/20 * * * * *")
    assert when.due(us(2026, 1, 1), us(2026, 1, 1, 0, 1), 9) == [
        us(2026, 1, 1, 0, 0, second) for second in (20, 40)
    ] + [us(2026, 1, 1, 0, 1)]


def test_a_cron_line_may_run_out_of_ticks():
    assert When(cron="0 0 */20 * 1L").following(0) is None


def test_a_start_is_the_first_moment_that_may_be_a_tick():
    nine = us(2026, 1, 2, 9)
    when = When(cron="0 9 * * *", start_us=nine)
    assert when.due(0, nine, 9) == [nine]
    assert When(cron="0 9 * * *", start_us=nine + 1).following(0) == us(2026, 1, 3, 9)


def test_the_newest_of_a_million_is_found_at_once():
    when = When(cron="* * * * *", timezone="Europe/Berlin")
    assert when.newest(us(2024, 1, 1), us(2026, 1, 1, 0, 0, 30)) == us(2026, 1, 1)
    yearly = When(cron="0 0 1 1 *")
    assert yearly.newest(us(2024, 6, 1), us(2026, 6, 1)) == us(2026, 1, 1)
    assert yearly.newest(us(2026, 1, 1), us(2026, 6, 1)) is None


# -- intervals ---------------------------------------------------------------------------------


def test_an_interval_is_counted_from_its_start():
    when = When(every_us=90 * SECOND_US, start_us=us(2026, 1, 1, 0, 0, 7))
    assert when.due(0, us(2026, 1, 1, 0, 3), 9) == [
        us(2026, 1, 1, 0, 0, 7),
        us(2026, 1, 1, 0, 1, 37),
    ]


def test_without_a_start_it_is_counted_from_1970():
    assert When(every_us=3600 * SECOND_US).following(us(2026, 1, 1, 5, 30)) == us(2026, 1, 1, 6)


@settings(max_examples=200)
@given(
    every_us=st.integers(10_000, 10**12),
    start_us=st.none() | st.integers(0, 2 * 10**15),
    after_us=st.integers(0, 2 * 10**15),
    span=st.integers(0, 20),
)
def test_intervals_are_even_and_complete(every_us, start_us, after_us, span):
    when = When(every_us=every_us, start_us=start_us)
    until_us = after_us + span * every_us
    ticks = when.due(after_us, until_us, 100)
    assert all(after_us < tick <= until_us for tick in ticks)
    assert {later - tick for tick, later in zip(ticks, ticks[1:], strict=False)} <= {every_us}
    if start_us is None or start_us <= after_us:
        assert len(ticks) == span
    assert when.newest(after_us, until_us) == (ticks[-1] if ticks else None)


# -- what is refused, and how a tick is written -----------------------------------------------


@pytest.mark.parametrize(
    ("when", "told"),
    [
        (When(), "give either times, cron="),
        (When(cron="0 9 * * *", every_us=SECOND_US), "give either times, cron="),
        (When(every_us=0), "at least 0.01 seconds"),
        (When(every_us=-SECOND_US), "at least 0.01 seconds"),
        (When(cron="0 9 * * *", timezone="Europe/Atlantis"), "such as 'Europe/Berlin'"),
        (When(cron="0 9 * * *", timezone="../etc/passwd"), "such as 'Europe/Berlin'"),
        (When(cron="61 * * * *"), "Bad minute"),
        (When(cron="every day"), "five fields"),
        (When(cron=""), "five fields"),
    ],
)
def test_what_cannot_be_meant_is_refused(when, told):
    with pytest.raises(UsageError, match=told):
        when.checked()


def test_a_start_without_a_zone_is_refused():
    with pytest.raises(UsageError, match="no time zone"):
        micros_of(dt.datetime(2026, 1, 1))


def test_without_the_library_cron_says_how_to_get_it(monkeypatch):
    monkeypatch.setitem(sys.modules, "cronsim", None)
    with pytest.raises(UsageError, match=r"pip install -e '\.\[schedules\]' in a clone"):
        When(cron="0 9 * * *").checked()
    assert When(every_us=SECOND_US).checked().following(0) == SECOND_US


def test_a_tick_is_written_in_utc():
    assert iso(us(2026, 3, 29, 3, zone="Europe/Berlin")) == "2026-03-29T01:00:00Z"
    assert iso(us(2026, 3, 29, 1) + 100_000) == "2026-03-29T01:00:00.100000Z"
