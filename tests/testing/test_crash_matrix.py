"""The crash matrix: flows that survive every kill, and the classical mistakes that it finds."""

import itertools
import random
import re
from typing import Any

import pytest

from holdfast import (
    NOT_DONE,
    UNKNOWN,
    Done,
    Retry,
    aio,
    each,
    effect,
    flow,
    gather,
    plan,
    step,
    testing,
    turns,
)
from holdfast.context import uuid4
from holdfast.errors import RunHeld, StepFailed, UsageError
from holdfast.types import Failed
from tests.attempts import attempt

world: list[Any] = []
"""What happened outside."""


@pytest.fixture(autouse=True)
def _empty_world():
    world.clear()


@step(name="cm-add")
def add(a: int, b: int) -> int:
    return a + b


@step(name="cm-aadd")
async def aadd(a: int, b: int) -> int:
    return a + b


@effect(name="cm-ask")
def send(text: str) -> str:
    world.append(text)
    return f"sent {text}"


@effect(name="cm-retry", on_doubt="retry")
def send_again(text: str) -> str:
    world.append(text)
    return f"sent {text}"


@effect(name="cm-fail", on_doubt="fail")
def send_at_most_once(text: str) -> str:
    world.append(text)
    return f"sent {text}"


@effect(name="cm-find", key="letter:{text}")
def send_and_find(text: str) -> str:
    world.append(text)
    return f"sent {text}"


@send_and_find.on_doubt
def find(text: str) -> Any:
    return Done(f"sent {text}") if text in world else NOT_DONE


@flow(name="cm-three")
def three(start: int) -> int:
    return add(add(add(start, 1), 2), 3)


# -- flows that survive ------------------------------------------------------------------------


@pytest.mark.parametrize("url", [None, "memory:", "sqlite:"])
def test_a_plain_flow_survives_every_kill(url):
    report = testing.crash_matrix(three, 1, url=url)
    assert report.writes == 5
    assert len(report.points) == 10
    assert report.result == 7
    assert all(point.completed for point in report.points)
    assert report.undisturbed == {"cm-add": 1, "cm-add#2": 1, "cm-add#3": 1}
    twice = [point.executed for point in report.points if 2 in point.executed.values()]
    assert len(twice) == 3


def test_the_report_reads_well():
    text = str(testing.crash_matrix(three, 1))
    assert text.splitlines()[:3] == [
        "crash matrix of cm-three: 10 kills at 5 writes (simulated), no violation",
        "  undisturbed: cm-add 1×, cm-add#2 1×, cm-add#3 1×",
        "  killed before write 1 (start): completed",
    ]
    assert (
        "  killed before write 3 (step_completed cm-add#2): completed; executed cm-add#2 2×" in text
    )


@pytest.mark.parametrize("url", [None, "memory:", "sqlite:"])
def test_it_really_kills_processes(url):
    report = testing.crash_matrix(three, 1, kill="process", url=url)
    assert len(report.points) == 10
    assert sum(2 in point.executed.values() for point in report.points) == 3
    assert "(process)" in str(report)


def test_two_deaths():
    report = testing.crash_matrix(three, 1, crashes=2)
    nested = [point for point in report.points if len(point.kills) == 2]
    assert len(nested) > 20
    assert max(max(point.executed.values(), default=0) for point in nested) == 3


def test_async_flows_branches_plans_and_loops_survive():
    @flow(name="cm-agather")
    async def agather() -> int:
        return sum(await aio.gather(aadd(1, 2), aadd(3, 4)))

    @flow(name="cm-each")
    def spread() -> list[int]:
        one, two = gather(lambda: add(1, 1), lambda: add(2, 2))
        return each(lambda item: add(item, one), [1, two])

    @flow(name="cm-turns")
    def loop() -> int:
        for state in turns({"sum": 0}, max_turns=9):
            state["sum"] = add(state["sum"], 2)
            if state["sum"] >= 6:
                return state["sum"]
        raise AssertionError

    assert testing.crash_matrix(agather).result == 10
    assert testing.crash_matrix(spread).result == [3, 6]
    assert testing.crash_matrix(loop, crashes=2).result == 6
    made = plan("cm-plan", [lambda_step("cm-one"), lambda_step("cm-two")])
    assert testing.crash_matrix(made, {"n": 0}).result == {"n": 2}


def lambda_step(name: str) -> Any:
    def more(state: dict[str, Any]) -> dict[str, Any]:
        return {"n": state["n"] + 1}

    return step(name=name)(more)


def test_retries_take_no_time():
    @step(name="cm-flaky", retry=Retry(attempts=3, initial_wait_s=3600, max_wait_s=3600))
    def flaky() -> str:
        if attempt() < 3:
            raise ConnectionError
        return "there"

    @flow(name="cm-patient")
    def patient() -> str:
        return flaky()

    assert testing.crash_matrix(patient).undisturbed == {"cm-flaky": 3}


def test_long_values_survive():
    @step(name="cm-write")
    def write(number: int) -> str:
        return f"{number}" * 1000

    @flow(name="cm-book")
    def book() -> list[str]:
        for state in turns({"pages": [write(0)]}, max_turns=9):
            state["pages"].append(write(len(state["pages"])))
            if len(state["pages"]) == 4:
                return state["pages"]
        raise AssertionError

    assert len(testing.crash_matrix(book).result) == 4


# -- effects -----------------------------------------------------------------------------------


def flow_of(the_effect: Any, name: str) -> Any:
    def body(text: str) -> str:
        return the_effect(text)

    return flow(name=name)(body)


def no_more_than(count: int) -> Any:
    def check(result: object, point: object) -> None:
        assert len(world) <= count, (result, str(point))

    return check


def test_ask_is_held_and_never_repeated():
    report = testing.crash_matrix(
        flow_of(send, "cm-f-ask"), "x", setup=world.clear, check=no_more_than(1)
    )
    assert [str(point.kills[0]) for point in report.held] == [
        "after write 2 (step_started cm-ask)",
        "before write 3 (step_completed cm-ask)",
    ]
    assert "held for a person, as declared: 2" in str(report)
    assert "stopped; held: cm-ask" in str(report)


@pytest.mark.parametrize("kill", ["simulated", "process"])
def test_what_is_held_is_settled_by_the_function_given(kill):
    asked: list[RunHeld] = []

    def settle(held: RunHeld) -> Any:
        asked.append(held)
        return Done("sent x") if world else NOT_DONE

    report = testing.crash_matrix(
        flow_of(send, "cm-f-ask2"), "x", setup=world.clear, settle=settle, kill=kill
    )
    assert all(point.completed for point in report.points)
    assert len(asked) == 2
    assert asked[0].step == "cm-ask"
    if kill == "simulated":
        assert [point.settled for point in report.held] == [
            {"cm-ask": "not done"},
            {"cm-ask": "done"},
        ]


def test_a_doubt_that_is_given_up_fails_the_run_as_decided():
    with pytest.raises(AssertionError, match="now it stops"):
        testing.crash_matrix(
            flow_of(send, "cm-f-ask3"), "x", setup=world.clear, settle=lambda held: Failed("no")
        )


def test_retry_sends_the_same_key_again():
    report = testing.crash_matrix(
        flow_of(send_again, "cm-f-retry"), "x", setup=world.clear, check=no_more_than(2)
    )
    assert all(point.completed for point in report.points)
    assert [point.executed["cm-retry"] for point in report.points].count(2) == 1


def test_fail_gives_up_as_declared():
    report = testing.crash_matrix(
        flow_of(send_at_most_once, "cm-f-fail"), "x", setup=world.clear, check=no_more_than(1)
    )
    given_up = [point for point in report.points if point.given_up]
    assert len(given_up) == 2
    assert not any(point.completed for point in given_up)


def test_a_flow_may_handle_what_was_given_up():
    @flow(name="cm-handles")
    def handles() -> str:
        try:
            return send_at_most_once("x")
        except StepFailed:
            return "perhaps sent"

    report = testing.crash_matrix(handles, setup=world.clear)
    results = {point.result for point in report.points}
    assert results == {"sent x", "perhaps sent"}


def test_a_function_finds_out():
    report = testing.crash_matrix(
        flow_of(send_and_find, "cm-f-find"), "x", setup=world.clear, check=no_more_than(1)
    )
    assert all(point.completed and not point.held for point in report.points)


def test_a_function_that_never_knows_is_held():
    @effect(name="cm-never", on_doubt=lambda: UNKNOWN)
    def never() -> str:
        return "sent"

    @flow(name="cm-f-never")
    def unsure() -> str:
        return never()

    assert len(testing.crash_matrix(unsure).held) == 2


# -- mistakes that it finds --------------------------------------------------------------------


def test_it_finds_a_local_that_does_not_survive_turns():
    @flow(name="cm-local")
    def local() -> list[int]:
        seen = []
        for state in turns({"n": 0}, max_turns=9):
            state["n"] = add(state["n"], 1)
            seen.append(state["n"])
            if state["n"] == 3:
                return seen
        raise AssertionError

    with pytest.raises(
        AssertionError, match=r"the result is \[2, 3\].*Locals do not survive"
    ) as it:
        testing.crash_matrix(local)
    assert "killed after write" in str(it.value)
    assert any("crash matrix of cm-local" in note for note in it.value.__notes__)


def test_it_finds_a_flow_that_takes_another_way():
    @flow(name="cm-random")
    def dice() -> int:
        return add(add(random.randrange(10**9), 1), 2)

    with pytest.raises(AssertionError, match=r"killed after write 2 .*held \(diverged\)") as it:
        testing.crash_matrix(dice, same_result=False)
    assert "Step: cm-add" in str(it.value)


def test_it_finds_a_step_left_out_the_second_time():
    calls = itertools.count()

    @flow(name="cm-order")
    def order() -> int:
        return add(1, 1) if next(calls) % 2 else add(add(1, 1), 0)

    with pytest.raises(AssertionError, match="diverged|the result is"):
        testing.crash_matrix(order)


def test_it_finds_a_result_that_depends_on_how_often_a_step_was_called():
    counts: list[int] = []

    @step(name="cm-count")
    def count() -> int:
        counts.append(1)
        return len(counts)

    @flow(name="cm-counts")
    def counting() -> int:
        return count()

    with pytest.raises(AssertionError, match="the result is 2, undisturbed it is 1"):
        testing.crash_matrix(counting, setup=counts.clear)


def test_a_check_that_fails_names_the_boundary():
    def check(result: int, point: Any) -> None:
        assert "cm-add#2" not in str(point.kills[0])

    with pytest.raises(AssertionError) as it:
        testing.crash_matrix(three, 1, check=check)
    assert re.search("before write 3 .step_completed cm-add#2", "".join(it.value.__notes__))


def test_a_flow_that_fails_by_itself_is_no_case():
    @flow(name="cm-broken")
    def broken() -> None:
        raise ValueError("by itself")

    with pytest.raises(AssertionError, match="does not complete undisturbed.*by itself"):
        testing.crash_matrix(broken)


# -- options -----------------------------------------------------------------------------------


def test_results_that_are_new_each_time():
    @flow(name="cm-id")
    def ids() -> str:
        return str(uuid4()) + str(add(1, 1))

    with pytest.raises(AssertionError, match="the result is"):
        testing.crash_matrix(ids)
    assert testing.crash_matrix(ids, same_result=False).points


def test_a_long_run_is_killed_at_evenly_chosen_places():
    @flow(name="cm-long")
    def long() -> int:
        total = 0
        for _ in range(30):
            total = add(total, 1)
        return total

    report = testing.crash_matrix(long, max_points=5)
    assert report.left_out == 27
    assert [point.kills[0].number for point in report.points[::2]] == [1, 9, 17, 24, 32]
    assert "left out by max_points: 27" in str(report)


@pytest.mark.parametrize(
    "options",
    [
        {"kill": "twice"},
        {"crashes": 3},
        {"url": "sqlite:///x.db"},
    ],
)
def test_options_that_cannot_work(options):
    with pytest.raises(UsageError):
        testing.crash_matrix(three, 1, **options)
