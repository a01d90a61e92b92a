"""Code that changed inside the recorded part is noticed; behind it, it needs nothing."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

import holdfast
from holdfast import effect, flow, gather, step, turns
from holdfast.errors import RunHeld
from tests.runtime.stops import Stop, interrupted, steps

calls: list[Any] = []


@pytest.fixture(autouse=True)
def _no_calls():
    calls.clear()


@step
def call_one(x: int = 0) -> int:
    calls.append("one")
    return 1


@step
def call_two() -> int:
    calls.append("two")
    return 2


@step
def call_three() -> int:
    calls.append("three")
    return 3


@effect
def pay_out() -> str:
    calls.append("charge")
    return "charged"


class Changing:
    """A flow whose body can be replaced; it is stopped once, after the first body has ended."""

    def __init__(self, before: Callable[[], Any]) -> None:
        self.body = before
        self.stop = Stop()

        @flow
        def changing() -> Any:
            found = self.body()
            self.stop.here()
            return found

        self.flow = changing
        interrupted(lambda: changing.run("r"))
        calls.clear()

    def run(self, body: Callable[[], Any]) -> Any:
        self.body = body
        return self.flow.run("r")


CHANGES: dict[str, Callable[[], Any]] = {
    "in another order": lambda: (call_two(), call_one()),
    "one inserted at the front": lambda: (call_three(), call_one(), call_two()),
    "one inserted between": lambda: (call_one(), call_three(), call_two()),
    "the first left out": lambda: call_two(),
    "the last left out": lambda: call_one(),
    "all left out": lambda: 0,
    "other arguments": lambda: (call_one(5), call_two()),
    "another step": lambda: (call_one(), call_three()),
    "recorded time first": lambda: (holdfast.now(), call_one(), call_two()),
}


@pytest.mark.parametrize("change", CHANGES)
def test_a_change_inside_the_recorded_part_is_held(holdfast_store, change):
    changing = Changing(lambda: (call_one(), call_two()))
    with pytest.raises(RunHeld) as held:
        changing.run(CHANGES[change])
    assert held.value.reason == "diverged"
    assert holdfast_store.get("r").held_reason == "diverged"
    assert changing.run(lambda: (call_one(), call_two())) == (
        1,
        2,
    )  # With the former code it goes on.
    assert not {"one", "two"} & set(calls)


def test_code_behind_the_recorded_part_may_change(store):
    changing = Changing(lambda: (call_one(), call_two()))
    assert changing.run(lambda: (call_one(), call_two(), call_three())) == (1, 2, 3)
    assert calls == ["three"]


def test_a_branch_more_or_less(store):
    changing = Changing(lambda: gather(call_one, call_two))
    assert changing.run(lambda: gather(call_one, call_two, call_three)) == (1, 2, 3)
    assert calls == ["three"]


def test_a_branch_that_is_left_out_is_noticed(holdfast_store):
    changing = Changing(lambda: gather(call_one, call_two))
    with pytest.raises(RunHeld, match="diverged"):
        changing.run(lambda: gather(call_one))


def test_chance_in_a_flow_is_noticed(holdfast_store):
    numbers = iter([1, 2])
    changing = Changing(lambda: call_one(next(numbers)))
    with pytest.raises(RunHeld, match="other arguments"):
        changing.run(lambda: call_one(next(numbers)))


@pytest.mark.parametrize("before", ["gather", "turns"])
def test_a_step_inserted_before_branches_or_a_loop_is_noticed_at_the_latest_behind_them(
    holdfast_store, before
):
    def body() -> Any:
        if before == "gather":
            gather(call_one, call_one)
        else:
            for state in turns({"i": 0}, limit=5):
                if state["i"] == 2:
                    break
                state["i"] += call_one()
        return call_two()

    changing = Changing(body)
    with pytest.raises(RunHeld, match="diverged"):
        changing.run(lambda: (call_three(), body()))


@pytest.mark.parametrize("before", ["gather", "turns"])
def test_an_effect_inserted_before_branches_or_a_loop_is_not_executed(holdfast_store, before):
    """It stands inside the recorded part, so the run is held before it is called."""

    def body() -> Any:
        if before == "gather":
            return gather(call_one, call_one)
        for state in turns({"i": 0}, limit=5):
            if state["i"] == 2:
                break
            state["i"] += call_one()
        return call_two()

    changing = Changing(body)
    with pytest.raises(RunHeld, match="diverged"):
        changing.run(lambda: (pay_out(), body()))
    assert calls == []


def test_an_accepted_change_is_kept_over_the_next_crash(store):
    changing = Changing(lambda: (call_one(), call_two()))
    again = Stop()

    def changed() -> Any:
        found = (call_three(), call_two(), call_one())
        again.here()
        return (*found, call_three())

    with pytest.raises(RunHeld):
        changing.run(changed)
    store.resume("r", accept_change=True, actor="kim")
    interrupted(lambda: changing.run(changed))
    assert calls == ["three"]
    assert changing.run(changed) == (3, 2, 1, 3)
    assert calls == ["three", "three"]
    assert store.verify() == []


def test_after_an_accepted_change_another_one_is_noticed(store):
    changing = Changing(lambda: (call_one(), call_two()))
    again = Stop()

    def changed() -> Any:
        call_three()
        call_one()
        again.here()
        return call_two()

    with pytest.raises(RunHeld):
        changing.run(changed)
    store.resume("r", accept_change=True, actor="kim")
    interrupted(lambda: changing.run(changed))
    with pytest.raises(RunHeld, match="diverged"):
        changing.run(lambda: (pay_out(), call_three()))
    assert "charge" not in calls


def test_what_an_accepted_change_left_out_is_listed(store):
    changing = Changing(lambda: (call_one(), call_two()))
    with pytest.raises(RunHeld):
        changing.run(lambda: call_two())
    store.resume("r", accept_change=True, actor="kim")
    assert changing.run(lambda: call_two()) == 2
    completed = store.history("r")[-1]
    assert completed.body["unconsumed"] == ["call_one"]
    assert calls == []


def test_an_effect_that_was_left_out_must_be_confirmed(store):
    changing = Changing(lambda: (call_one(), pay_out()))
    with pytest.raises(RunHeld):
        changing.run(lambda: call_one())
    store.resume("r", accept_change=True, actor="kim")
    with pytest.raises(RunHeld, match="pay_out"):
        changing.run(lambda: call_one())
    store.resume("r", accept_change=True, confirm=True, actor="kim")
    assert changing.run(lambda: call_one()) == 1
    assert steps(store, "r")["pay_out"] == "completed"
    assert calls == []


def test_a_flow_that_swallows_the_stop_is_held(store):
    """`except BaseException` delays it only: every later call raises it again."""

    @effect
    def doubtful() -> None:
        raise ConnectionError

    seen: list[str] = []

    @flow
    def swallows() -> str:
        try:
            doubtful()
        except BaseException:
            seen.append("stopped")
        try:
            call_one()
        except BaseException:
            seen.append("again")
        return "went on"

    with pytest.raises(RunHeld, match="must not catch BaseException"):
        swallows.run("r")
    assert seen == ["stopped", "again"]
    assert calls == []


def test_a_step_that_was_only_begun_may_get_other_arguments(store):
    """It was cut short and has no outcome, so there is nothing that another call contradicts."""
    ports = iter(["wrong", "right", "right"])
    on_the_way, behind = Stop(), Stop()

    @step
    def reach(port: str) -> str:
        on_the_way.here()
        return port

    @flow
    def reaching() -> str:
        found = reach(next(ports))
        behind.here()
        return found

    interrupted(lambda: reaching.run("r"))
    interrupted(lambda: reaching.run("r"))
    assert reaching.run("r") == "right"
    assert list(steps(store, "r").values()) == ["completed"]
    assert store.verify() == []


def test_what_cut_a_step_short_is_told(store):
    @step
    def waits() -> None:
        raise KeyboardInterrupt("no answer from port 1")

    @flow
    def waiting() -> None:
        waits()

    interrupted(lambda: waiting.run("r"))
    [cut] = [entry for entry in store.history("r") if entry.kind == "step_cancelled"]
    assert cut.body["error"] == {"type": "KeyboardInterrupt", "message": "no answer from port 1"}


def test_both_arguments_are_shown(store):
    changing = Changing(lambda: call_one(7))
    with pytest.raises(RunHeld, match="x was 7, is 8"):
        changing.run(lambda: call_one(8))
    assert "x was 7, is 8" in (store.get("r").held_detail or "")
    assert "x was 7, is 8" in str(store.explain("r"))
