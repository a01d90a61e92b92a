"""Schedules: one run for each tick, whoever looks, and whatever was missed."""

from __future__ import annotations

import datetime as dt
import json
from collections.abc import Iterator
from typing import Any
from zoneinfo import ZoneInfo

import pytest
from click.testing import CliRunner

import holdfast
from holdfast import flow, step, testing
from holdfast._features.schedules import runtime as schedules
from holdfast._features.schedules.runtime import BATCH, Schedule, Ticker
from holdfast._operator.cli.main import main
from holdfast._stores import audit_log
from holdfast.errors import UsageError
from holdfast.schedules import SCHEDULED_TIME

MIDNIGHT = dt.datetime(2026, 3, 28, tzinfo=dt.UTC)
BERLIN = ZoneInfo("Europe/Berlin")


@step
def note(text: str) -> str:
    return text


@flow(name="scheduled report")
def report(topic: str, day: dt.datetime | None = None) -> str:
    return note(f"{topic} {day and day.isoformat()}")


@flow(name="scheduled other")
def other() -> None: ...


@pytest.fixture(autouse=True)
def _none_declared() -> Iterator[None]:
    schedules.declared.clear()
    yield
    schedules.declared.clear()


@pytest.fixture(params=["memory:", "sqlite:"])
def clocked(request: pytest.FixtureRequest) -> Iterator[testing.PrivateStore]:
    with testing.store(testing.FakeClock(MIDNIGHT), url=request.param) as opened:
        yield opened


def ids(store: testing.PrivateStore) -> list[str]:
    return sorted(run.run_id for run in store.runs(limit=10_000))


def hourly(**options: Any) -> Schedule:
    return holdfast.schedules.schedule("hourly", report, every=3600, args=("news",), **options)


# -- ticking -----------------------------------------------------------------------------------


def test_a_run_for_each_tick_and_nothing_before_it(clocked):
    holdfast.schedules.schedule("nine", report, cron="0 9 * * *", kwargs={"topic": "news"})
    ticker = Ticker(clocked._engine)
    assert ticker.tick() > clocked._engine.now_us()
    assert ids(clocked) == []
    clocked.clock.advance(9 * 3600 - 1)
    due_us = ticker.tick()
    assert ids(clocked) == []
    assert 0 < due_us - clocked._engine.now_us() <= 1_100_000, "it is looked at again in time"
    clocked.clock.advance(1)
    ticker.tick()
    assert ids(clocked) == ["nine::2026-03-28T09:00:00Z"]
    ticker.tick()
    clocked.clock.advance(24 * 3600)
    ticker.tick()
    assert ids(clocked) == ["nine::2026-03-28T09:00:00Z", "nine::2026-03-29T09:00:00Z"]
    assert clocked.verify() == []


def test_the_run_is_submitted_with_its_input_and_its_tags(clocked):
    daily = holdfast.schedules.schedule(
        "daily",
        report.with_options(tags={"team": "a"}, queue="slow"),
        cron="30 2 * * *",
        timezone="Europe/Berlin",
        args=("news",),
        kwargs={"day": SCHEDULED_TIME},
    )
    ticker = Ticker(clocked._engine, [daily])
    ticker.tick()
    clocked.clock.advance(2 * 24 * 3600)
    ticker.tick()
    # That night the clocks are put forward from two to three.
    run = clocked.get("daily::2026-03-29T01:00:00Z")
    assert run.status == "queued"
    assert run.tags == {"team": "a", "schedule": "daily", "tick": "2026-03-29T01:00:00Z"}
    assert clocked._backend.get(run.run_id).queue == "slow"
    day = run.input["day"]
    assert day == dt.datetime(2026, 3, 29, 3, tzinfo=BERLIN)
    assert day.tzinfo == BERLIN
    assert clocked.recover() == [run.run_id]
    assert clocked.get(run.run_id).result == f"news {day.isoformat()}"


def test_any_number_of_workers_start_it_once(clocked):
    made = hourly()
    tickers = [Ticker(clocked._engine, [made]) for _ in range(5)]
    for _ in range(10):
        for ticker in tickers:
            ticker.tick()
        clocked.clock.advance(3600)
    assert len(ids(clocked)) == 9
    assert clocked.verify() == []


def test_a_worker_that_dies_before_the_cursor_is_moved(clocked, monkeypatch):
    made = hourly(catch_up="all")
    Ticker(clocked._engine, [made]).tick()
    clocked.clock.advance(2 * 3600)
    put = clocked._backend.put_schedule

    class Dead(BaseException): ...

    def dies(*_: object) -> bool:
        raise Dead

    monkeypatch.setattr(clocked._engine.backend, "put_schedule", dies)
    with pytest.raises(Dead):
        Ticker(clocked._engine, [made]).tick()
    assert len(ids(clocked)) == 2
    monkeypatch.setattr(clocked._engine.backend, "put_schedule", put)
    clocked.clock.advance(3600)
    Ticker(clocked._engine, [made]).tick()
    assert len(ids(clocked)) == 3


# -- what was missed ---------------------------------------------------------------------------


@pytest.mark.parametrize(("catch_up", "made_up"), [("all", [1, 2, 3]), ("last", [3]), ("none", [])])
def test_what_was_missed(clocked, catch_up, made_up):
    made = hourly(catch_up=catch_up)
    Ticker(clocked._engine, [made]).tick()
    clocked.clock.advance(3.5 * 3600)
    ticker = Ticker(clocked._engine, [made])
    ticker.tick()
    assert ids(clocked) == [f"hourly::2026-03-28T0{hour}:00:00Z" for hour in made_up]
    clocked.clock.advance(1800)
    ticker.tick()
    assert ids(clocked)[-1] == "hourly::2026-03-28T04:00:00Z", "and it goes on"
    assert len(ids(clocked)) == len(made_up) + 1


def test_ten_thousand_missed_minutes_are_made_up_for_bit_by_bit(clocked):
    made = holdfast.schedules.schedule("minutes", other, every=60, catch_up="all")
    ticker = Ticker(clocked._engine, [made])
    ticker.tick()
    clocked.clock.advance(1000 * 60)
    again_us = ticker.tick()
    assert again_us <= clocked._engine.now_us(), "there is more to do at once"
    assert len(ids(clocked)) == BATCH
    assert ids(clocked)[0] == "minutes::2026-03-28T00:01:00Z", "the oldest first"
    while ticker.tick() <= clocked._engine.now_us():
        pass
    assert len(ids(clocked)) == 1000


def test_a_start_in_the_past(clocked):
    made = hourly(catch_up="all", start=MIDNIGHT - dt.timedelta(hours=2))
    Ticker(clocked._engine, [made]).tick()
    assert ids(clocked) == [
        *("hourly::2026-03-27T22:00:00Z", "hourly::2026-03-27T23:00:00Z"),
        "hourly::2026-03-28T00:00:00Z",
    ]


def test_a_start_in_the_future(clocked):
    made = hourly(start=MIDNIGHT + dt.timedelta(hours=2, minutes=30))
    ticker = Ticker(clocked._engine, [made])
    for _ in range(3):
        ticker.tick()
        clocked.clock.advance(3600)
    ticker.tick()
    assert ids(clocked) == ["hourly::2026-03-28T02:30:00Z"]


def test_parts_of_a_second_have_ids_of_their_own(clocked):
    made = holdfast.schedules.schedule("fast", other, every=0.25, catch_up="all")
    ticker = Ticker(clocked._engine, [made])
    ticker.tick()
    clocked.clock.advance(1)
    ticker.tick()
    assert len(ids(clocked)) == 4
    assert "fast::2026-03-28T00:00:00.500000Z" in ids(clocked)


# -- declared anew -----------------------------------------------------------------------------


def test_a_changed_declaration_keeps_the_cursor(clocked):
    Ticker(clocked._engine, [hourly()]).tick()
    clocked.clock.advance(1800)
    changed = holdfast.schedules.schedule(
        "hourly", report, every=600, args=("news",), catch_up="all"
    )
    Ticker(clocked._engine, [changed]).tick()
    assert len(ids(clocked)) == 3
    [row] = clocked._backend.schedules()
    assert json.loads(row.spec)["when"]["every_us"] == 600_000_000


def test_two_deployments_do_not_take_turns_in_writing(clocked):
    """Old and new workers side by side: both declarations are in force, each tick has one run."""
    old = Ticker(clocked._engine, [hourly(catch_up="all")])
    new = Ticker(
        clocked._engine,
        [
            holdfast.schedules.schedule(
                "hourly", report, cron="30 * * * *", args=("n",), catch_up="all"
            )
        ],
    )
    puts: list[object] = []
    put = clocked._backend.put_schedule
    for ticker in (old, new):
        ticker.tick()

    def counted(*args: Any) -> bool:
        puts.append(args)
        return put(*args)

    clocked._engine.backend.put_schedule = counted
    for _ in range(12):
        for ticker in (old, new):
            ticker.tick()
        clocked.clock.advance(600)
    assert ids(clocked) == [
        *("hourly::2026-03-28T00:30:00Z", "hourly::2026-03-28T01:00:00Z"),
        "hourly::2026-03-28T01:30:00Z",
    ]
    assert len(puts) == 3


def test_a_schedule_that_cannot_be_started_does_not_stop_the_others(clocked, caplog):
    good = hourly(catch_up="all")
    bad = holdfast.schedules.schedule("bad", report, every=3600, args=("x",))
    ticker = Ticker(clocked._engine, [bad, good])
    ticker.tick()
    bad.args = ()
    for _ in range(2):
        clocked.clock.advance(3600)
        ticker.tick()
    assert len(ids(clocked)) == 2
    assert caplog.text.count("schedule bad") == 1


# -- pausing and looking -----------------------------------------------------------------------


def test_paused_and_resumed(clocked):
    made = hourly()
    ticker = Ticker(clocked._engine, [made])
    ticker.tick()
    assert clocked.pause_schedule("hourly").next_at is None
    clocked.clock.advance(2 * 3600)
    ticker.tick()
    Ticker(clocked._engine, [made]).tick()
    assert ids(clocked) == []
    clocked.resume_schedule("hourly")
    ticker.tick()
    assert ids(clocked) == ["hourly::2026-03-28T02:00:00Z"], "what catch_up says"
    kept = audit_log.recorded_changes(clocked._backend)
    assert [(it.what, it.did) for it in kept] == [
        ("schedule hourly", "resumed"),
        ("schedule hourly", "paused"),
    ]
    with pytest.raises(UsageError, match="known are: hourly"):
        clocked.pause_schedule("nightly")


def test_a_pause_is_not_lost_to_a_worker_that_is_at_it(clocked):
    """It comes between the look at the schedule and the write of the cursor."""
    made = hourly()
    ticker = Ticker(clocked._engine, [made])
    ticker.tick()
    clocked.clock.advance(3600)
    start = clocked._backend.start_all

    def paused_meanwhile(news: Any) -> Any:
        clocked._engine.backend.start_all = start
        clocked.pause_schedule("hourly")
        return start(news)

    clocked._engine.backend.start_all = paused_meanwhile
    ticker.tick()
    [row] = clocked._backend.schedules()
    assert row.paused
    clocked.clock.advance(3600)
    ticker.tick()
    assert len(ids(clocked)) == 1


def test_what_people_see(clocked):
    made = hourly()
    holdfast.schedules.schedule(
        "nine", report, cron="0 9 * * *", timezone="Europe/Berlin", args=("x",)
    )
    ticker = Ticker(clocked._engine)
    ticker.tick()
    clocked.clock.advance(3600)
    ticker.tick()
    clocked.recover()
    seen_hourly, nine = clocked.schedules()
    assert (seen_hourly.name, seen_hourly.flow, seen_hourly.when) == (
        *("hourly", "scheduled report", "every 60 min"),
    )
    assert seen_hourly.next_at == MIDNIGHT + dt.timedelta(hours=2)
    assert seen_hourly.last_run_id == made.run_id(int(MIDNIGHT.timestamp() + 3600) * 1_000_000)
    assert seen_hourly.last_status == "completed"
    assert seen_hourly.input == {"topic": "'news'", "day": "None"}
    assert nine.next_at == dt.datetime(2026, 3, 28, 9, tzinfo=BERLIN)
    assert nine.last_run_id is None


def test_the_commands(tmp_path):
    url = f"sqlite:///{tmp_path}/runs.db"

    def command(*args: str, code: int = 0) -> str:
        ended = CliRunner().invoke(main, ["--url", url, *args])
        assert ended.exit_code == code, ended.output
        return ended.output

    assert "No schedules" in command("schedules")
    with holdfast.open(url, default=False) as store:
        assert "No worker of this store has declared" in command("schedules")
        Ticker(store._engine, [hourly()]).tick()
        assert "every 60 min" in command("schedules")
        assert "is paused" in command("schedules", "pause", "hourly")
        assert "paused" in command("schedules")
        assert "is resumed" in command("schedules", "resume", "hourly")
        told = json.loads(command("schedules", "--json"))
        assert [view["name"] for view in told["schedules"]] == ["hourly"]
        assert "no schedule 'x'" in command("schedules", "pause", "x", code=6)


# -- a worker ----------------------------------------------------------------------------------


def test_a_worker_starts_what_is_due_and_executes_it(store):
    start = dt.datetime.now(dt.UTC) - dt.timedelta(hours=5)
    holdfast.schedules.schedule(
        "made up", report, every=3600, args=("x",), start=start, catch_up="all"
    )
    with store.worker(flows=[report]):
        for hour in range(6):
            at = start + dt.timedelta(hours=hour)
            run_id = f"made up::{at.replace(tzinfo=None).isoformat()}Z"
            store.wait_until(run_id, status="completed")
    assert len(store.runs()) == 6


def test_a_run_of_a_tick_is_taken_up_by_its_id(clocked):
    """It was started by us; a person takes it up like any other."""
    made = hourly()
    ticker = Ticker(clocked._engine, [made])
    ticker.tick()
    clocked.clock.advance(3600)
    ticker.tick()
    [run_id] = ids(clocked)
    assert report.run(run_id, "news") == "news None"
    with pytest.raises(UsageError, match="derived"):
        report.run("hourly::2030-01-01T00:00:00Z", "news")


# -- what is refused ---------------------------------------------------------------------------


class Unknown:
    """A class that no reader knows."""


@pytest.mark.parametrize(
    ("options", "told"),
    [
        ({}, "give either times"),
        ({"cron": "0 9 * * *", "every": 5}, "give either times"),
        ({"cron": "9 o'clock"}, "five fields"),
        ({"cron": "0 9 * * *", "timezone": "Mars/Olympus"}, "timezone='Mars/Olympus'"),
        ({"every": 0}, "at least"),
        ({"every": "5 min"}, "seconds, a timedelta"),
        ({"every": 60, "catch_up": "some"}, '"all", "last" or "none"'),
        ({"every": 60, "args": ()}, "topic"),
        ({"every": 60, "kwargs": {"nothing": 1}}, "nothing"),
        ({"every": 60, "args": (Unknown(),)}, "Unknown"),
        ({"every": 60, "start": dt.datetime(2026, 1, 1)}, "no time zone"),
    ],
)
def test_what_cannot_be_meant_is_refused_where_it_is_written(options, told):
    with pytest.raises((UsageError, holdfast.errors.NotSerializable), match=told):
        holdfast.schedules.schedule("wrong", report, **{"args": ("x",), **options})
    assert "wrong" not in schedules.declared


def test_names():
    with pytest.raises(UsageError, match="no flow"):
        holdfast.schedules.schedule("wrong", print, every=5)
    for name in ("", "a::b", "x" * 180):
        with pytest.raises(UsageError):
            holdfast.schedules.schedule(name, other, every=5)
    hourly()
    hourly(catch_up="all")  # A module that is loaded again declares it again.
    with pytest.raises(UsageError, match="two schedules are named 'hourly'"):
        holdfast.schedules.schedule("hourly", other, every=5)
