"""A run over time: steps, attempts, waits, gaps, times held, and who had it."""

from __future__ import annotations

import asyncio
import datetime as dt
import os
import random
import signal
import sqlite3
import subprocess
import sys
import threading
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

import holdfast
from holdfast import NOT_DONE, Retry, effect, flow, gather, sleep, step, turns, wait_for_signal
from holdfast._engine.journal.entries import Kind
from holdfast._engine.journal.rows import SEQ_BITS
from holdfast._operator.read.timeline import BARS_MAX, Bar, Timeline, give_lanes, timeline
from holdfast._stores.contract import Store
from holdfast.errors import Corrupt, RunFailed, RunHeld, RunNotFound
from tests.ops.conftest import Clock
from tests.ops.journals import Journal
from tests.tidy.source import ROOT

tries: dict[str, int] = {}


@step(name="tl.plain")
def plain(n: int = 0) -> int:
    return n


@step(name="tl.flaky", retry=Retry(attempts=3, initial_wait_s=0.01))
def flaky() -> int:
    tries["flaky"] = tries.get("flaky", 0) + 1
    if tries["flaky"] % 3:
        raise TimeoutError("no answer")
    return 1


@effect(name="tl.pay")
def pay() -> str:
    raise TimeoutError("no answer")


@step(name="tl.meet")
def meet(barrier: str) -> None:
    together.wait(20)


together = threading.Barrier(2)


@flow(name="tl.simple")
def simple() -> int:
    plain()
    return flaky()


@flow(name="tl.beside")
def beside() -> None:
    gather(lambda: meet("a"), lambda: meet("b"))
    gather(lambda: plain(1), lambda: plain(2))
    plain(3)


@flow(name="tl.doubtful")
def doubtful() -> str:
    return pay()


@flow(name="tl.sleepy")
def sleepy() -> None:
    sleep(0.05)
    wait_for_signal("go", timeout=0.05)


@flow(name="tl.looping")
def looping(length: int) -> None:
    for state in turns({"n": 0}):
        plain(state["n"])
        state["n"] += 1
        if state["n"] == length:
            return


@pytest.fixture
def opened(tmp_path: Path) -> Iterator[holdfast.types.Store]:
    tries.clear()
    with holdfast.open(f"sqlite:///{tmp_path}/tl.db") as store:
        yield store


def told(bars: list[Bar]) -> list[tuple[str, str, str]]:
    return [(bar.kind, bar.key or bar.name, bar.status) for bar in bars]


def check(line: Timeline) -> Timeline:
    """Bars lie inside the run, and those of one lane do not overlap."""
    assert line.start <= line.end
    for bar in line.bars:
        end = bar.end or line.end
        assert line.start <= bar.start <= end <= line.end, bar
        assert 0 <= bar.lane < line.lanes
        if not line.open:
            assert bar.end is not None, bar
    steps = [bar for bar in line.bars if bar.kind == "step"]
    for one in steps:
        for other in steps:
            if one is not other and one.lane == other.lane and one.branch != other.branch:
                apart = (one.end or line.end) <= other.start or (other.end or line.end) <= one.start
                assert apart or "" in (one.branch, other.branch), (one, other)
    return line


def test_steps_and_attempts(opened: holdfast.types.Store) -> None:
    simple.run("r")
    line = check(timeline(opened._backend, "r"))
    assert told(line.bars) == [
        ("step", "tl.plain", "completed"),
        ("step", "tl.flaky", "completed"),
        ("attempt", "tl.flaky", "failed"),
        ("attempt", "tl.flaky", "failed"),
        ("attempt", "tl.flaky", "completed"),
    ]
    assert [bar.attempt for bar in line.bars] == [1, 3, 1, 2, 3]
    assert not line.open
    [execution] = line.executions
    assert execution.how == "completed"
    assert str(os.getpid()) in execution.owner
    assert line.end == execution.end


def test_branches_have_lanes(opened: holdfast.types.Store) -> None:
    beside.run("r")
    line = check(timeline(opened._backend, "r"))
    lanes = {bar.key: (bar.lane, bar.branch) for bar in line.bars}
    assert {lanes["gather[0]/tl.meet"][0], lanes["gather[1]/tl.meet"][0]} == {1, 2}
    assert lanes["gather#2[0]/tl.plain"] == (1, "gather#2[0]")  # The lane is free again.
    assert lanes["tl.plain"] == (0, "")
    assert line.lanes in (2, 3)


@step(name="tl.awaited")
async def awaited(n: int) -> int:
    tries["beside"] = tries.get("beside", 0) + 1
    while tries["beside"] < 2:  # Until both are at work.
        await asyncio.sleep(0.001)
    await asyncio.sleep(0.002)
    return n


@flow(name="tl.side_by_side")
async def side_by_side() -> int:
    await asyncio.gather(awaited(0), awaited(1))
    return await awaited(2)


def assert_nothing_overlaps(told: Timeline) -> None:
    by_lane: dict[int, list[Bar]] = {}
    for bar in told.bars:
        if bar.kind not in ("gap", "held", "attempt"):
            by_lane.setdefault(bar.lane, []).append(bar)
    assert max(by_lane) == told.lanes - 1
    for bars in by_lane.values():
        for one, next_one in pairwise(sorted(bars, key=lambda it: (it.start, it.end or told.end))):
            assert (one.end or told.end) <= next_one.start, (one, next_one)


def test_calls_that_overlap_without_a_branch_have_lanes_of_their_own(
    opened: holdfast.types.Store,
) -> None:
    tries.pop("beside", None)
    asyncio.run(side_by_side.run("r"))
    told = timeline(opened._engine.backend, "r")
    assert told.lanes == 2
    assert [bar.lane for bar in told.bars if bar.kind == "step"] == [0, 1, 0]
    assert_nothing_overlaps(told)


def test_no_bars_of_a_lane_ever_overlap() -> None:
    chance = random.Random(7)
    day = dt.datetime(2026, 1, 1, tzinfo=dt.UTC)
    for _ in range(300):
        bars = []
        for number in range(chance.randint(1, 30)):
            start = day + dt.timedelta(seconds=chance.randint(0, 50))
            end = start + dt.timedelta(seconds=chance.randint(0, 20))
            bar = Bar("step", f"s#{number}", "s", False, "", start, end, 1, 1)
            bar.branch = chance.choice(["", "", "gather[0]", "gather[1]"])
            if chance.random() < 0.1:
                bar.end = None
            bars.append(bar)
            if chance.random() < 0.5:
                bars.append(Bar("attempt", bar.key, "s", False, "", start, end, 1, 1))
                bars[-1].branch = bar.branch
        now = day + dt.timedelta(seconds=70)
        lanes = give_lanes(bars, now)
        assert_nothing_overlaps(Timeline("r", day, now, True, bars, lanes, []))
        lane_of = {bar.key: bar.lane for bar in bars if bar.kind == "step"}
        assert all(bar.lane == lane_of[bar.key] for bar in bars)


def test_a_doubt_and_the_time_held(opened: holdfast.types.Store) -> None:
    with pytest.raises(RunHeld):
        doubtful.run("r")
    line = check(timeline(opened._backend, "r"))
    assert line.open
    assert told(line.bars) == [("step", "tl.pay", "in_doubt"), ("held", "in doubt", "in_doubt")]
    assert [bar.end for bar in line.bars] == [None, None]
    assert [it.how for it in line.executions] == ["held"]
    assert line.bars[0].effect

    opened.settle("r", "tl.pay", NOT_DONE, actor="kim")
    line = check(timeline(opened._backend, "r"))
    [held] = [bar for bar in line.bars if bar.kind == "held"]
    assert held.end is not None
    assert ("gap", "nobody had taken it", "queued") in told(line.bars)
    with pytest.raises(RunHeld):
        doubtful.run("r")
    line = check(timeline(opened._backend, "r"))
    attempts = [bar for bar in line.bars if bar.kind == "attempt"]
    assert [(bar.attempt, bar.status) for bar in attempts] == [(1, "in_doubt"), (2, "in_doubt")]


def test_waits(opened: holdfast.types.Store) -> None:
    with pytest.raises(RunFailed):
        sleepy.run("r")
    line = check(timeline(opened._backend, "r"))
    waits = [bar for bar in line.bars if bar.kind == "wait"]
    assert [(bar.name, bar.status) for bar in waits] == [
        ("sleep", "ended"),
        ("signal go", "timed_out"),
    ]
    assert all(bar.end is not None and bar.end > bar.start for bar in waits)
    assert [it.how for it in line.executions] == ["failed"]


KILLED = """
import os, sys, holdfast
from holdfast import flow, step, effect
@effect(name="tl.dies", on_doubt="retry")
def dies(): os.kill(os.getpid(), 9) if sys.argv[2] == "die" else None
@step(name="tl.before")
def before(): pass
@flow(name="tl.killed")
def killed():
    before(); dies()
holdfast.open(sys.argv[1])
killed.run("r")
"""


def test_a_killed_process_leaves_a_gap(opened: holdfast.types.Store) -> None:
    def play(how: str) -> int:
        command = [sys.executable, "-c", KILLED, opened.url, how]
        return subprocess.run(command, check=False, cwd=ROOT).returncode

    assert play("die") == -signal.SIGKILL
    line = check(timeline(opened._backend, "r"))
    assert [it.how for it in line.executions] == ["died"]
    assert told(line.bars) == [
        ("step", "tl.before", "completed"),
        ("step", "tl.dies", "running"),
        ("gap", "its process died in this time", "died"),
    ]
    assert line.bars[-1].end is None

    assert play("live") == 0
    line = check(timeline(opened._backend, "r"))
    assert [it.how for it in line.executions] == ["died", "completed"]
    [gap] = [bar for bar in line.bars if bar.kind == "gap"]
    assert gap.status == "died"
    assert gap.end == line.executions[1].start
    first, second = (bar for bar in line.bars if bar.kind == "attempt")
    assert (first.status, second.status) == ("in_doubt", "completed")
    assert line.executions[0].end == gap.start
    assert line.executions[0].found_dead == gap.end
    # It may have been at work until it was found dead: nobody knows when in the gap it died.
    assert first.end == gap.end
    assert first.known_until is not None
    assert first.start <= first.known_until <= gap.start
    assert second.known_until is None


def test_a_run_that_nobody_has_taken_yet(opened: holdfast.types.Store) -> None:
    simple.submit("r")
    line = check(timeline(opened._backend, "r"))
    assert told(line.bars) == [("gap", "nobody had taken it", "queued")]
    assert line.executions == []


def test_what_a_rollback_left_behind(opened: holdfast.types.Store) -> None:
    simple.run("r")
    opened.rollback("r", to="tl.plain", actor="kim", reason="again")
    opened.resume("r", actor="kim")
    simple.run("r")
    line = check(timeline(opened._backend, "r"))
    steps = [(b.key, b.generation, b.superseded) for b in line.bars if b.kind == "step"]
    assert steps == [
        ("tl.plain", 1, False),
        ("tl.flaky", 1, True),
        ("tl.flaky", 2, False),
    ]
    assert any(bar.kind == "held" for bar in line.bars)
    assert line.executions[-1].how == "completed"


def test_a_fork_took_no_time_for_what_it_borrowed(opened: holdfast.types.Store) -> None:
    simple.run("r")
    opened.fork("r", "f", before="tl.flaky")
    simple.run("f")
    line = check(timeline(opened._backend, "f"))
    assert line.borrowed == 1
    assert {bar.key for bar in line.bars if bar.kind == "step"} == {"tl.flaky"}


def test_a_long_run_is_thinned_and_says_so(opened: holdfast.types.Store) -> None:
    looping.run("r", 700)
    line = check(timeline(opened._backend, "r"))
    assert len(line.bars) == BARS_MAX
    assert line.bars[0].kind == "joined"
    assert line.joined == line.bars[0].count == 700 - (BARS_MAX - 1)
    assert line.bars[-1].key == "turns[699]/tl.plain"


def test_waits_are_called_by_what_they_wait_for(store: Store) -> None:
    Journal(store, "asks").asks("ask:size", "size", "Which?").asks_approval("mail", {"to": "x"})
    Journal(store, "calls").child_called("report", "report-7")
    Journal(store, "hears").waits("wait:go", "go").sleeps("sleep", 60)
    named = {
        run_id: [bar.name for bar in timeline(store, run_id).bars if bar.kind == "wait"]
        for run_id in ("asks", "calls", "hears")
    }
    assert named == {
        "asks": ["answer to size", "approval of mail"],
        "calls": ["child report-7"],
        "hears": ["signal go", "sleep"],
    }


def test_a_wait_that_a_worker_unloaded_is_no_gap(store: Store, clock: Clock) -> None:
    until_us = clock.us + 60_000_000
    journal = Journal(store, "r").step("a")
    timer = journal.draft(Kind.TIMER_SET, "sleep", 1, until_us=until_us)
    waits = {"what": "timer", "name": "", "until_us": until_us, "step": "sleep"}
    facts: dict[str, Any] = {"for": [waits]}
    waiting = journal.draft(Kind.RUN_WAITING, **facts)
    journal.write(journal._call(timer)).write(waiting, owner=None, wake_us=until_us)
    line = check(timeline(store, "r"))
    assert [it.how for it in line.executions] == ["waiting"]
    assert told(line.bars) == [("step", "a", "completed"), ("wait", "sleep", "waiting")]

    clock.advance(90)  # Due since half a minute, and nobody takes it.
    store.claim("r", store.register_owner(), clock.us)
    line = check(timeline(store, "r"))
    [gap] = [bar for bar in line.bars if bar.kind == "gap"]
    assert gap.end is not None
    assert (gap.end - gap.start).total_seconds() == 30


def test_damage_and_absence_are_said(opened: holdfast.types.Store, tmp_path: Path) -> None:
    with pytest.raises(RunNotFound):
        timeline(opened._backend, "r")
    simple.run("r")
    with sqlite3.connect(tmp_path / "tl.db") as file:
        file.execute(
            f"UPDATE journal SET step = 'tl.other' WHERE step = 'tl.plain' AND id >> {SEQ_BITS} = 1"
        )
        assert file.total_changes == 1
    with pytest.raises(Corrupt):
        timeline(opened._backend, "r")
