"""Code that changed inside the recorded part is noticed; behind it, it needs nothing."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

import pytest

import holdfast
from holdfast import effect, flow, gather, step, turns
from holdfast._runtime.execution import effect_repetition
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


@step(name="look up")
def looked_up_by_a_step() -> str:
    calls.append("look up")
    return "by a step"


@flow(name="look up")
def looked_up_by_a_flow() -> str:
    calls.append("look up")
    return "by a flow"


def step_named(name: str) -> Any:
    @step(name=name)
    def named() -> str:
        calls.append(name)
        return "by a step"

    return named


def one_turn() -> None:
    for _ in turns(0):
        return


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
    "recorded time first": lambda: (holdfast.context.now(), call_one(), call_two()),
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


SORTS: dict[str, tuple[Callable[[], Any], Callable[[], Any]]] = {
    "a child run": (looked_up_by_a_step, looked_up_by_a_flow),
    "a sleep": (step_named("sleep"), lambda: holdfast.sleep(0)),
    "a recorded value": (step_named("now"), holdfast.context.now),
    "a loop or branches": (step_named("turns"), one_turn),
    "an emitted value": (step_named("emit"), lambda: holdfast.emit(1)),
}


@pytest.mark.parametrize("back", [False, True])
@pytest.mark.parametrize("sort", SORTS)
def test_a_call_of_another_sort_under_the_same_name_is_held(holdfast_store, sort, back):
    one, other = SORTS[sort]
    was, now = "a step", sort
    if back:
        one, other, was, now = other, one, now, was
    changing = Changing(lambda: (one(), call_one()))
    with pytest.raises(RunHeld, match=f"as {was}, the flow now calls it as {now}") as held:
        changing.run(lambda: (other(), call_one()))
    assert held.value.reason == "diverged"
    assert "another name (name=…)" in str(holdfast_store.explain("r"))
    holdfast_store.resume("r", accept_change=True)  # No record is given to a call of another sort.
    with pytest.raises(RunHeld, match=f"as {was}, the flow now calls it as {now}"):
        changing.run(lambda: (other(), call_one()))
    assert changing.run(lambda: (one(), call_one()))[1] == 1
    assert calls == []


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


def test_chance_in_a_flow_is_noticed_and_told_as_the_cause(holdfast_store):
    """The code did not change, so nobody is sent to look for a deploy."""
    numbers = iter([1, 2])
    stop = Stop()

    @flow
    def by_chance() -> None:
        call_one(next(numbers))
        stop.here()

    interrupted(lambda: by_chance.run("r"))
    with pytest.raises(RunHeld, match="x was 1, is 2. The flow's function is the same") as held:
        by_chance.run("r")
    assert "holdfast.context.rng()" in held.value.detail
    assert "code back" not in " ".join(held.value.actions)
    told = str(holdfast_store.explain("r"))
    assert "holdfast.context.now()" in told
    assert "Put the code back" not in told


def test_a_flow_whose_own_code_changed_is_told_so(holdfast_store):
    stop = Stop()

    def deployed(last: bool) -> Any:
        if last:

            @flow(name="told-apart")
            def told_apart() -> None:
                call_one(2)
        else:

            @flow(name="told-apart")
            def told_apart() -> None:
                call_one(1)
                stop.here()

        return told_apart

    interrupted(lambda: deployed(last=False).run("r"))
    with pytest.raises(RunHeld, match="The flow's code or its inputs changed") as held:
        deployed(last=True).run("r")
    assert held.value.actions[0].startswith("put the old code back")


@pytest.mark.parametrize("before", ["gather", "turns"])
def test_a_step_inserted_before_branches_or_a_loop_is_noticed_at_the_latest_behind_them(
    holdfast_store, before
):
    def body() -> Any:
        if before == "gather":
            gather(call_one, call_one)
        else:
            for state in turns({"i": 0}, max_turns=5):
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
        for state in turns({"i": 0}, max_turns=5):
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


@effect
def bill_out() -> str:
    calls.append("bill")
    return "billed"


@flow
def paid_in_a_child() -> str:
    return pay_out()


@flow
def billed_in_a_child() -> str:
    return bill_out()


RENAMED: dict[str, tuple[Callable[[], Any], Callable[[], Any], str]] = {
    "an effect": (pay_out, bill_out, "pay_out"),
    "a child run": (paid_in_a_child, billed_in_a_child, "paid_in_a_child"),
    "in a branch": (lambda: gather(pay_out), lambda: gather(bill_out), r"gather\[0\]/pay_out"),
}


@pytest.mark.parametrize("what", RENAMED)
def test_an_effect_that_was_renamed_is_not_done_again_unless_somebody_confirms(
    holdfast_store, what, monkeypatch
):
    """Accepted is what is found by name: `pay_out` as `bill_out` would be a second payment."""
    monkeypatch.setattr(effect_repetition, "PATIENCE_S", 0.0)
    paid, billed, recorded = RENAMED[what]
    changing = Changing(lambda: (call_one(), paid()))
    with pytest.raises(RunHeld):
        changing.run(lambda: (call_one(), billed()))
    holdfast_store.resume("r", accept_change=True, actor="kim")
    for _ in range(2):  # The same again: a hold decides nothing.
        with pytest.raises(RunHeld, match=f"before it has called {recorded}") as held:
            changing.run(lambda: (call_one(), billed()))
        assert held.value.reason == "diverged"
        assert any("--accept-change --confirm" in action for action in held.value.actions)
    assert calls == []
    told = " ".join(str(holdfast_store.explain("r")).split())
    assert "is to be executed as a new one" in told
    holdfast_store.resume("r", accept_change=True, confirm=True, actor="kim")
    changing.run(lambda: (call_one(), billed()))
    assert calls == ["bill"]
    assert holdfast_store.verify() == []


def test_a_new_effect_behind_those_that_happened_needs_no_confirmation(holdfast_store):
    changing = Changing(lambda: (call_one(), pay_out()))
    with pytest.raises(RunHeld):
        changing.run(lambda: (call_two(), pay_out(), bill_out()))
    holdfast_store.resume("r", accept_change=True, actor="kim")
    changing.run(lambda: (call_two(), pay_out(), bill_out()))  # Without call_one, a plain step.
    assert calls == ["two", "bill"]


def test_a_recorded_effect_in_another_branch_gets_a_moment_to_be_called(holdfast_store):
    """Branches begin in any order: one with a new effect may come before one that is replayed."""
    came = threading.Event()

    def late() -> str:
        assert came.wait(30)
        return pay_out()

    def early() -> str:
        came.set()
        return bill_out()

    changing = Changing(lambda: gather(call_one, pay_out))
    with pytest.raises(RunHeld):
        changing.run(lambda: (call_two(), gather(call_one, pay_out)))
    holdfast_store.resume("r", accept_change=True, actor="kim")
    changing.run(lambda: (call_two(), gather(early, late)))
    assert calls == ["two", "bill"]
