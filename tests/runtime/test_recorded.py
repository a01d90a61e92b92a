"""Recorded time, chance and ids; streams, progress, usage; and what code can know of its run."""

from __future__ import annotations

import asyncio
import datetime as dt
import logging
import subprocess
import sys
from typing import Any

import pytest

import holdfast
from holdfast import Retry, each, flow, gather, step, testing, turns
from holdfast.errors import RunFailed, StepFailed, UsageError
from holdfast.observers.logging import RunFilter
from tests.attempts import attempt
from tests.runtime.stops import Stop, interrupted


def test_time_chance_and_ids_are_the_same_on_replay(store):
    seen: list[Any] = []
    stop = Stop()

    @flow
    def work() -> None:
        seen.append(
            (
                holdfast.context.now(),
                holdfast.context.rng().random(),
                holdfast.context.uuid4(),
                holdfast.context.now(),
            )
        )
        stop.here()

    interrupted(lambda: work.run("r"))
    work.run("r")
    assert seen[0] == seen[1]
    assert seen[0][0].tzinfo is dt.UTC
    assert len({holdfast_id for _, _, holdfast_id, _ in seen}) == 1


def test_now_is_the_time_of_the_store():
    clock = testing.FakeClock()

    @flow
    def work() -> dt.datetime:
        return holdfast.context.now()

    with testing.store(clock):
        assert work.run("r") == clock.now


def test_they_belong_into_a_flow():
    for call in (holdfast.context.now, holdfast.context.rng, holdfast.context.uuid4):
        with pytest.raises(UsageError, match="inside a flow"):
            call()


def test_branches_have_ids_of_their_own(store):
    seen: list[Any] = []
    stop = Stop()

    @flow
    def work() -> None:
        seen.append(each(lambda _: holdfast.context.uuid4(), range(5)))
        stop.here()

    interrupted(lambda: work.run("r"))
    work.run("r")
    assert seen[0] == seen[1]
    assert len(set(seen[0])) == 5


# -- streams -----------------------------------------------------------------------------------


def test_a_stream_is_in_order_and_each_value_has_its_attempt(store):
    tries: list[int] = []

    @step(retry=Retry(attempts=2, initial_wait_s=0))
    def talks() -> None:
        tries.append(1)
        for word in ("a", "b"):
            holdfast.emit(word)
            if len(tries) == 1 and word == "a":
                raise ValueError

    @flow
    def work() -> None:
        holdfast.emit({"first": 1})
        talks()
        holdfast.emit("last")

    work.run("r")
    items = list(store.stream("r"))
    assert [(item.step, item.attempt, item.value, item.begins) for item in items] == [
        ("emit", 0, {"first": 1}, False),
        (talks.name, 1, "a", True),
        (talks.name, 2, "a", True),
        (talks.name, 2, "b", False),
        ("emit#2", 0, "last", False),
    ]
    assert [item.seq for item in items] == sorted(item.seq for item in items)


TALKS = """
import os, sys
import holdfast

store = holdfast.open(sys.argv[1])

@holdfast.step(name="talks")
def talks():
    for word in ("a", "b", "c"):
        holdfast.emit(word)
        if sys.argv[2] == "dies" and word == "b":
            seen = store.stream("r")
            next(seen), next(seen)  # Both are durable.
            os._exit(9)

@holdfast.flow(name="work")
def work():
    talks()

work.run("r")
"""


@pytest.mark.parametrize(
    ("speak", "kind"),
    [(holdfast.emit, "value_emitted"), (holdfast.context.save_progress, "step_progressed")],
)
def test_what_a_step_says_stands_behind_its_start(store, speak: Any, kind: str):
    @step(name="speaks")
    def speaks() -> None:
        speak("one")
        speak("two")

    @step(name="is_silent")
    def is_silent() -> None: ...

    @flow(name="speaking")
    def work() -> None:
        speaks()
        is_silent()

    work.run("r")
    said = [(entry.kind, entry.step) for entry in store.history("r") if entry.step]
    assert said == [
        ("step_started", "speaks"),
        (kind, "speaks"),
        (kind, "speaks"),
        ("step_completed", "speaks"),
        ("step_started", "is_silent"),
        ("step_completed", "is_silent"),
    ]


def test_a_stream_tells_where_a_step_begins_again_after_its_process_died(tmp_path):
    url = f"sqlite:///{tmp_path}/emitted.db"
    for ends, code in (("dies", 9), ("lives", 0)):
        done = subprocess.run([sys.executable, "-c", TALKS, url, ends], check=False)
        assert done.returncode == code
    with holdfast.open(url, default=False) as store:
        items = list(store.stream("r"))
        told = [e.body.get("begins") for e in store.history("r") if e.kind == "value_emitted"]
    assert [(item.attempt, item.value, item.begins) for item in items] == [
        (1, "a", True),
        (1, "b", False),
        (1, "a", True),
        (1, "b", False),
        (1, "c", False),
    ]
    assert told == [True, None, True, None, None]


def test_what_a_flow_emitted_is_not_emitted_again_by_a_replay(store):
    stop = Stop()

    @flow
    def work() -> None:
        holdfast.emit(1)
        stop.here()
        holdfast.emit(2)

    interrupted(lambda: work.run("r"))
    work.run("r")
    assert [item.value for item in store.stream("r")] == [1, 2]


def test_an_async_stream(holdfast_store):
    @flow
    async def talks() -> None:
        for i in range(3):
            holdfast.emit(i)

    async def main() -> list[int]:
        await talks.run("r")
        return [item.value async for item in holdfast_store.handle("r").aio.stream()]

    assert asyncio.run(main()) == [0, 1, 2]
    with pytest.raises(UsageError):
        holdfast.emit(1)


# -- progress ----------------------------------------------------------------------------------


def test_progress_is_found_by_the_next_attempt_and_the_next_process(store):
    seen: list[Any] = []

    @step(retry=Retry(attempts=2, initial_wait_s=0))
    def reads() -> int:
        seen.append(holdfast.context.load_progress())
        if len(seen) == 1:
            holdfast.context.save_progress({"page": 1})
            raise ValueError
        if len(seen) == 2:
            holdfast.context.save_progress({"page": 2})
            raise KeyboardInterrupt
        return 1

    @flow
    def work() -> int:
        return reads() + reads()

    interrupted(lambda: work.run("r"))
    assert work.run("r") == 2
    assert seen == [None, {"page": 1}, {"page": 2}, None]
    assert store.verify() == []


# -- usage -------------------------------------------------------------------------------------


def test_usage_is_added_up_over_attempts_and_not_by_replays(store):
    stop = Stop()
    tries: list[int] = []

    @step(retry=Retry(attempts=2, initial_wait_s=0))
    def think() -> None:
        tries.append(1)
        holdfast.context.record_usage(model="small", input_tokens=10, cost_usd=0.5)
        holdfast.context.record_usage(output_tokens=1)
        if len(tries) == 1:
            raise ValueError

    @flow
    def work() -> None:
        think()
        stop.here()
        think()

    interrupted(lambda: work.run("r"))
    work.run("r")
    usage = store.get("r").totals.usage
    assert (usage["input_tokens"], usage["output_tokens"], usage["cost"]) == (30, 3, 1.5)


@pytest.mark.parametrize("amount", [-1, "3"])
def test_usage_takes_numbers(holdfast_store, amount):
    @step
    def think() -> None:
        holdfast.context.record_usage(input_tokens=amount)

    @flow
    def work() -> str:
        try:
            think()
        except StepFailed as failed:
            return failed.type_name
        return ""

    assert work.run("r") == "UsageError"


def test_a_sum_of_costs_is_shown_as_money(store):
    @step
    def think(number: int) -> int:
        holdfast.context.record_usage(cost_usd=0.1)
        return number

    @flow
    def work() -> None:
        for number in range(3):
            think(number)

    work.run("r")
    assert store.get("r").totals.usage == {"cost": 0.3}


def test_usage_that_is_no_number_does_no_harm(holdfast_store):
    @step
    def think() -> int:
        holdfast.context.record_usage(cost_usd=float("nan"))
        return 1

    @flow
    def work() -> str:
        try:
            think()
        except StepFailed as failed:
            return failed.message
        return ""

    assert "a finite number" in work.run("r")


# -- what code can know ------------------------------------------------------------------------


def test_current_run_and_attempt(store):
    seen: list[Any] = []

    def look() -> None:
        run = holdfast.context.current_run()
        assert run is not None
        seen.append((run.run_id, run.flow, run.generation, run.step))

    @step
    def inside() -> int:
        look()
        return attempt()

    @flow
    def work() -> tuple[int, int]:
        look()
        return gather(inside, inside)

    assert holdfast.context.current_run() is None
    assert work.run("r") == (1, 1)
    assert holdfast.context.current_run() is None
    assert seen[0] == ("r", work.name, 1, None)
    assert {step for *_, step in seen[1:]} == {f"gather[{i}]/{inside.name}" for i in (0, 1)}


def test_replaying_tells_what_happened_before(store):
    seen: list[bool] = []
    stop = Stop()

    @step
    def one() -> int:
        seen.append(holdfast.context.is_replaying())
        return 1

    @flow
    def work() -> None:
        seen.append(holdfast.context.is_replaying())
        one()
        seen.append(holdfast.context.is_replaying())
        stop.here()
        one()
        seen.append(holdfast.context.is_replaying())

    interrupted(lambda: work.run("r"))
    assert seen == [False, False, False]
    seen.clear()
    work.run("r")
    assert seen == [True, False, False, False]
    assert not holdfast.context.is_replaying()


@pytest.mark.parametrize("where", ["loop", "loop in a branch"])
def test_replaying_ends_where_a_loop_goes_on(store, where):
    seen: list[bool] = []
    stop = Stop()

    @step
    def tick(i: int) -> int:
        if i == 3:
            stop.here()
        return i

    def looping() -> None:
        for state in turns({"i": 0}, max_turns=9):
            if state["i"] == 5:
                return
            tick(state["i"])
            seen.append(holdfast.context.is_replaying())
            state["i"] += 1

    @flow
    def work() -> bool:
        if where == "loop":
            looping()
        else:
            gather(looping)
        return holdfast.context.is_replaying()

    interrupted(lambda: work.run("r"))
    seen.clear()
    assert work.run("r") is False
    assert seen[-1] is False


def test_logs_of_replayed_code_are_dropped_and_the_others_know_their_run(store):
    out: list[str] = []

    class Keep(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            out.append(f"{record.run_id}|{record.step}|{record.getMessage()}")  # type: ignore[attr-defined]

    handler = Keep()
    handler.addFilter(RunFilter())
    log = logging.getLogger("test_recorded")
    log.addHandler(handler)
    log.setLevel(logging.INFO)
    stop = Stop()

    @step
    def one() -> None:
        log.info("in the step")

    @flow
    def work() -> None:
        log.info("begins")
        one()
        stop.here()
        log.info("ends")

    interrupted(lambda: work.run("r"))
    work.run("r")
    log.info("outside")
    log.removeHandler(handler)
    assert out == ["r||begins", f"r|{one.name}|in the step", "r||ends", "||outside"]


def test_an_idempotency_key_is_the_same_on_every_attempt(store):
    keys: list[str] = []

    @step(retry=Retry(attempts=3, initial_wait_s=0))
    def sends() -> None:
        keys.append(holdfast.idempotency_key())
        if len(keys) < 3:
            raise ValueError

    @flow
    def work(x: int) -> None:
        sends()

    work.run("r", 1)
    work.run("other", 1)
    assert len(set(keys[:3])) == 1
    assert len(set(keys)) == 2


def test_what_a_stopped_flow_still_calls_raises_again(holdfast_store):
    @flow
    def work() -> None:
        try:
            holdfast.emit(object())
        except RunFailed:
            raise AssertionError from None

    with pytest.raises(RunFailed, match="object"):
        work.run("r")
