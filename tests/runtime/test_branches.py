"""Branches: gather and each in threads, what they return, raise, record and replay."""

from __future__ import annotations

import threading
from typing import Any

import pytest

import holdfast
from holdfast import Done, each, effect, flow, gather, step
from holdfast.errors import RunFailed, RunHeld, StepFailed, UsageError
from tests.runtime.stops import Stop, interrupted, steps

calls: list[Any] = []


@pytest.fixture(autouse=True)
def _no_calls():
    calls.clear()


@step
def look(x: Any) -> Any:
    calls.append(x)
    if isinstance(x, str) and x.startswith("bad"):
        raise ValueError(x)
    return x


def test_results_come_in_order_whoever_is_faster(store):
    last = threading.Event()

    @step
    def first() -> str:
        assert last.wait(10)
        return "first"

    @step
    def second() -> str:
        last.set()
        return "second"

    @flow
    def work() -> tuple[str, str]:
        return gather(first, second)

    assert work.run("r") == ("first", "second")
    assert set(steps(store, "r")) == {f"gather[0]/{first.name}", f"gather[1]/{second.name}"}


def test_every_started_branch_finishes_then_the_first_failure_in_order_is_raised(store):
    @flow
    def work() -> str:
        try:
            gather(
                lambda: look("a") + look("b"),
                lambda: look("bad one"),
                lambda: look("bad two"),
                lambda: look("c") + look("d"),
            )
        except StepFailed as failed:
            return failed.message
        return ""

    assert work.run("r") == "bad one"
    assert sorted(calls) == ["a", "b", "bad one", "bad two", "c", "d"]


def test_failures_can_be_collected(store):
    stop = Stop()
    seen: list[list[str]] = []

    @flow
    def work() -> None:
        found = each(look, ["a", "bad", "c"], failures="collect")
        seen.append([type(item).__name__ for item in found])
        stop.here()

    interrupted(lambda: work.run("r"))
    work.run("r")
    assert seen == [["str", "StepFailed", "str"]] * 2
    assert len(calls) == 3


def test_at_once_is_kept(holdfast_store):
    lock = threading.Lock()
    now = most = 0

    @step
    def counts(i: int) -> int:
        nonlocal now, most
        with lock:
            now += 1
            most = max(most, now)
        threading.Event().wait(0.002)
        with lock:
            now -= 1
        return i

    @flow
    def work() -> list[int]:
        return each(counts, range(20), max_concurrency=3)

    assert work.run("r") == list(range(20))
    assert most == 3


def test_keys_by_item_survive_another_order(store):
    stop = Stop()

    @flow
    def work() -> list[str]:
        items = ["a", "b"] if stop.passed == 0 else ["new", "b", "a"]
        found = each(look, items, key=lambda item: item)
        stop.here()
        return found

    interrupted(lambda: work.run("r"))
    assert work.run("r") == ["new", "b", "a"]
    assert sorted(calls) == ["a", "b", "new"]
    assert set(steps(store, "r")) == {"each[a]/look", "each[b]/look", "each[new]/look"}


def test_two_items_with_one_key_are_refused_before_anything_is_done(holdfast_store):
    @flow
    def work() -> None:
        each(look, ["a", "a"], key=lambda item: item)

    with pytest.raises(RunFailed, match="two items have the key 'a'"):
        work.run("r")
    assert calls == []


@pytest.mark.parametrize(
    ("options", "why"), [({"at_once": 0}, "at_once"), ({"failures": "ignore"}, "failures")]
)
def test_options_that_cannot_work(holdfast_store, options, why):
    @flow
    def work() -> None:
        each(look, [1], **options)

    with pytest.raises(RunFailed, match=why):
        work.run("r")


def test_gather_takes_functions(holdfast_store):
    @flow
    def work() -> None:
        gather(look(1))

    with pytest.raises(RunFailed, match="functions without arguments"):
        work.run("r")


def test_outside_a_flow():
    with pytest.raises(UsageError):
        gather(lambda: 1)
    with pytest.raises(UsageError):
        each(look, [1])


def test_nothing_to_do(holdfast_store):
    @flow
    def work() -> list[Any]:
        return [*gather(), *each(look, []), look(1)]  # type: ignore[call-overload]

    assert work.run("r") == [1]


def test_branches_nest(store):
    stop = Stop()

    def inner(x: int) -> list[int]:
        return list(gather(lambda: look(10 * x), lambda: look(10 * x + 1)))

    @flow
    def work() -> list[list[int]]:
        found = each(inner, [1, 2])
        stop.here()
        return found

    interrupted(lambda: work.run("r"))
    assert work.run("r") == [[10, 11], [20, 21]]
    assert sorted(calls) == [10, 11, 20, 21]
    assert "each[1]/gather[0]/look" in steps(store, "r")


def test_deep_nesting_needs_no_more_threads_than_there_are_branches(holdfast_store):
    def down(depth: int) -> int:
        if depth == 0:
            return look(1)
        return sum(each(down, [depth - 1, depth - 1], max_concurrency=1))

    @flow
    def work() -> int:
        return down(5)

    assert work.run("r") == 32


def test_only_branches_without_an_outcome_are_executed_after_a_stop(store):
    once = Stop()

    @step
    def stops(x: int) -> int:
        calls.append(x)
        if x == 1:
            once.here()
        return x

    @flow
    def work() -> list[int]:
        return each(stops, [0, 1, 2])

    interrupted(lambda: work.run("r"))
    assert work.run("r") == [0, 1, 2]
    assert sorted(calls) == [0, 1, 1, 2]


def test_a_hold_in_one_branch_lets_the_others_effects_finish(store):
    at_work, held = threading.Event(), threading.Event()

    @effect
    def doubtful() -> str:
        assert at_work.wait(10)
        held.set()
        raise ConnectionError

    @effect
    def charge() -> str:
        at_work.set()
        assert held.wait(10)
        threading.Event().wait(0.02)
        calls.append("charged")
        return "charged"

    @flow
    def work() -> tuple[str, str]:
        return gather(doubtful, lambda: charge() + str(look("after")))

    with pytest.raises(RunHeld):
        work.run("r")
    assert steps(store, "r")[f"gather[1]/{charge.name}"] == "completed"
    store.settle("r", f"gather[0]/{doubtful.name}", Done("found"), actor="kim")
    assert work.run("r") == ("found", "chargedafter")
    assert calls.count("charged") == 1
    assert store.verify() == []


def test_two_doubts_at_once_are_settled_one_by_one(store):
    gate = threading.Barrier(2)

    @effect
    def doubtful(x: int) -> str:
        gate.wait(10)
        raise ConnectionError

    @flow
    def work() -> list[str]:
        return each(doubtful, [0, 1])

    with pytest.raises(RunHeld):
        work.run("r")
    for number in (0, 1):
        with pytest.raises(RunHeld):
            work.run("r")
        store.settle("r", f"each[{number}]/{doubtful.name}", Done(f"{number}"), actor="kim")
    assert work.run("r") == ["0", "1"]


def test_an_interrupt_in_a_branch_gives_the_run_back_when_all_have_finished(store):
    @step
    def stops(x: int) -> int:
        calls.append(x)
        if x == 0 and calls.count(0) == 1:
            raise KeyboardInterrupt
        return x

    @flow
    def work() -> list[int]:
        return each(stops, [0, 1, 2], max_concurrency=1, failures="collect")  # type: ignore[return-value]

    interrupted(lambda: work.run("r"))
    assert store.get("r").status == "queued"
    assert calls == [0, 1, 2]
    assert work.run("r") == [0, 1, 2]
    assert calls == [0, 1, 2, 0]


def test_a_thousand_branches(sqlite):
    @flow
    def work() -> int:
        return sum(each(look, range(1000)))

    assert work.run("r") == sum(range(1000))
    assert sqlite.verify() == []
    assert len(sqlite.get("r").steps) == 1000


def test_context_variables_are_seen_and_do_not_leak(holdfast_store):
    import contextvars

    name = contextvars.ContextVar("name", default="nobody")
    seen: list[str] = []

    def branch(x: int) -> None:
        seen.append(name.get())
        name.set(f"branch {x}")
        look(x)

    @flow
    def work() -> str:
        name.set("flow")
        each(branch, [0, 1], max_concurrency=1)
        return name.get()

    assert work.run("r") == "flow"
    assert seen == ["flow", "flow"]
    assert holdfast.context.current_run() is None


def test_failures_of_two_branches_are_both_taken_up_again(store):
    down = [True]

    @step
    def fails(x: int) -> int:
        calls.append(x)
        if down:
            raise ValueError(x)
        return x

    @flow
    def work() -> list[int]:
        return each(fails, [0, 1, 2])

    with pytest.raises(RunFailed):
        work.run("r")
    down.clear()
    assert work.run("r") == [0, 1, 2]
