"""A fork that is rolled back to a step, taken up after a failure, or told of a gap: what it borrowed is
neither taken back nor done again, unless somebody says so."""

from __future__ import annotations

import shlex
from typing import Any

import pytest

from holdfast import effect, flow, gather, step, testing, turns
from holdfast.errors import RunFailed, RunHeld, UsageError
from holdfast.versioning import depends_on
from tests.runtime.stops import Stop, interrupted

done: list[str] = []
"""What was executed, and taken back, in order."""
broken: set[str] = set()
fact = ["old"]
stop = Stop()


@pytest.fixture(autouse=True)
def _anew() -> None:
    done.clear()
    broken.clear()
    fact[0] = "old"
    stop.passed = 1


@effect(name="goback.act")
def act(number: Any) -> Any:
    done.append(f"act {number}")
    return number


@act.undo
def unact(_result: Any, number: Any) -> None:
    done.append(f"undo {number}")


@step(name="goback.think")
def think(number: Any) -> Any:
    if number == 5:
        stop.here()
    done.append(f"think {number}")
    return number


@step(name="goback.quote", valid_for="1h", on_expired="redo")
def quote() -> str:
    done.append("quote")
    return "quote"


@step(name="goback.shaky")
def shaky() -> str:
    if "shaky" in broken:
        raise ConnectionError("down")
    done.append("shaky")
    return "well"


def turn_after_turn() -> list[int]:
    none: list[int] = []
    for numbers in turns(none):
        think(len(numbers))
        act(len(numbers))
        numbers.append(len(numbers))
        if len(numbers) == 6:
            break
    return numbers


@flow(name="goback.agent")
def agent() -> list[int]:
    return turn_after_turn()


@flow(name="goback.watching")
def watching(on_change: str) -> list[int]:
    depends_on("fact", lambda: fact[0], on_change=on_change)  # type: ignore[arg-type]
    return turn_after_turn()


@flow(name="goback.quoting")
def quoting() -> list[int]:
    quote()
    return turn_after_turn()


@flow(name="goback.straight")
def straight() -> int:
    think(0)
    return act(act(act(0) + 1) + 1)


def acts() -> list[str]:
    return [line for line in done if line.startswith("act")]


def forked(store: testing.PrivateStore, of: Any, *args: Any, before: str) -> None:
    """Make a fork `f` of a run that has ended, and forget what was executed until then."""
    of.run("o", *args)
    store.fork("o", "f", before=before, confirm=True)
    done.clear()


# -- rolled back to a step -------------------------------------------------------------------------


def test_to_a_step_of_its_own_inside_a_loop(store: testing.PrivateStore) -> None:
    forked(store, agent, before="turns[3]/goback.think")
    agent.run("f")
    done.clear()
    assert store.rollback("f", to="turns[4]/goback.act", confirm=True).status == "held"
    assert done == ["undo 5"]
    store.resume("f")
    assert agent.run("f") == [0, 1, 2, 3, 4, 5]
    assert done == ["undo 5", "think 5", "act 5"]
    done.clear()
    assert store.rollback("f", confirm=True).status == "rolled_back"
    assert done == ["undo 5", "undo 4", "undo 3"]
    assert store.verify() == []


def test_with_a_state_that_was_given(store: testing.PrivateStore) -> None:
    agent.run("o")
    store.fork("o", "f", before="turns[3]", state=[7, 7, 7], confirm=True)
    agent.run("f")
    done.clear()
    store.rollback("f", to="turns[3]/goback.act", confirm=True)
    store.resume("f")
    assert agent.run("f") == [7, 7, 7, 3, 4, 5]
    assert done == ["undo 5", "undo 4", "think 4", "act 4", "think 5", "act 5"]


def test_a_fork_of_a_fork_that_went_back(store: testing.PrivateStore) -> None:
    forked(store, agent, before="turns[2]/goback.think")
    agent.run("f")
    store.rollback("f", to="turns[3]/goback.act", confirm=True)
    store.fork("f", "g", before="turns[3]/goback.act", confirm=True)
    done.clear()
    assert agent.run("g") == [0, 1, 2, 3, 4, 5]
    assert acts() == ["act 3", "act 4", "act 5"]


@flow(name="goback.nested")
def nested() -> list[int]:
    none: list[int] = []
    for outer in turns(none):
        for inner in turns({"i": 0}):
            think((len(outer), inner["i"]))
            act(10 * len(outer) + inner["i"])
            inner["i"] += 1
            if inner["i"] == 2:
                break
        gather(lambda: act(100 + len(outer)), lambda: think("beside"))
        outer.append(inner["i"])
        if len(outer) == 3:
            break
    return outer


def test_in_loops_within_loops_at_each_step(sqlite: testing.PrivateStore) -> None:
    """What is executed again is what was undone, wherever it goes back to."""
    nested.run("o")
    before = "turns[1]/turns[1]/goback.think"
    sqlite.fork("o", "model", before=before, confirm=True)
    nested.run("model")
    entries = sqlite.history("model")
    steps = {e.step for e in entries if e.kind == "step_completed" and e.step}
    assert len(steps) > 8
    for number, to in enumerate(sorted(steps)):
        run_id = f"f{number}"
        sqlite.fork("o", run_id, before=before, confirm=True)
        nested.run(run_id)
        done.clear()
        sqlite.rollback(run_id, to=to, confirm=True)
        undone = sorted(line.removeprefix("undo ") for line in done)
        done.clear()
        sqlite.resume(run_id)
        assert nested.run(run_id) == [2, 2, 2], to
        assert sorted(line.removeprefix("act ") for line in acts()) == undone, to
    assert sqlite.verify() == []


def test_to_a_step_that_it_borrowed_is_refused_with_a_way_out(store: testing.PrivateStore) -> None:
    forked(store, straight, before="goback.act#3")
    straight.run("f")
    done.clear()
    with pytest.raises(UsageError, match="came along from run 'o'"):
        store.preview_rollback("f", to="goback.think")
    with pytest.raises(UsageError, match="came along from run 'o'") as refused:
        store.rollback("f", to="goback.think")
    assert done == []
    assert store.get("f").status == "completed"
    command = shlex.split(str(refused.value).rpartition("once more: ")[2])
    assert command[:2] == ["holdfast", "fork"]
    made = store.fork(command[2], command[3], before=command[5], confirm=True)
    assert made.before == "goback.think"


# -- taken up after a failure ----------------------------------------------------------------------


@flow(name="goback.caught")
def caught(with_loop: bool) -> str:
    failed: Exception | None = None
    try:
        shaky()
    except Exception as error:
        failed = error
    act("first")
    if with_loop:
        turn_after_turn()
    act("last")
    if failed is not None:
        raise failed
    return "well"


@pytest.mark.parametrize("with_loop", [False, True])
def test_a_borrowed_failure_is_tried_again_and_borrowed_effects_are_not(
    store: testing.PrivateStore, with_loop: bool
) -> None:
    broken.add("shaky")
    with pytest.raises(RunFailed):
        caught.run("o", with_loop)
    before = "turns[4]/goback.act" if with_loop else "goback.act#2"
    store.fork("o", "f", before=before, confirm=True)
    done.clear()
    with pytest.raises(RunFailed):
        caught.run("f", with_loop)
    own = ["act 4", "act 5"] if with_loop else []
    assert acts() == [*own, "act last"]
    broken.clear()
    done.clear()
    assert caught.run("f", with_loop) == "well"
    assert acts() == [*own, "act last"], "its own; neither 'first' nor the turns that it borrowed"
    assert done[0] == "shaky"


# -- after a gap -----------------------------------------------------------------------------------


def stopped_fork(store: testing.PrivateStore, of: Any, *args: Any) -> None:
    """A fork before the fourth turn, stopped in the sixth."""
    forked(store, of, *args, before="turns[3]/goback.think")
    stop.passed = 0
    interrupted(lambda: of.run("f", *args))
    assert acts() == ["act 3", "act 4"]
    done.clear()
    fact[0] = "new"


@pytest.mark.parametrize("policy", ["redo", "hold"])
@pytest.mark.parametrize("answer", ["keep", "redo"])
def test_a_redo_of_what_it_borrowed_is_asked_for(
    store: testing.PrivateStore, policy: str, answer: Any
) -> None:
    stopped_fork(store, watching, policy)
    with pytest.raises(RunHeld) as held:
        watching.run("f", policy)
    assert "Behind it, turns[0] to turns[2], turns[3]/goback.act, turns[4]/goback.act" in str(
        held.value
    )
    assert done == []
    if answer == "redo":
        with pytest.raises(RunHeld, match=r"turns\[0\] to turns\[2\]"):
            store.resume("f", drift="redo")
    store.resume("f", drift=answer, confirm=answer == "redo")
    assert watching.run("f", policy) == [0, 1, 2, 3, 4, 5]
    assert acts() == [f"act {n}" for n in range(5 if answer == "keep" else 0, 6)]


def test_a_fork_that_failed_for_it_needs_a_confirmation(store: testing.PrivateStore) -> None:
    stopped_fork(store, watching, "fail")
    with pytest.raises(RunFailed, match="the fact fact"):
        watching.run("f", "fail")
    with pytest.raises(RunHeld, match=r"execute turns\[0\] to turns\[2\], turns\[3\]/goback.act"):
        store.resume("f")
    assert done == []
    store.resume("f", confirm=True)
    assert watching.run("f", "fail") == [0, 1, 2, 3, 4, 5]
    assert acts() == [f"act {n}" for n in range(6)]


def test_an_expired_result_that_it_borrowed_starts_no_loop_over_unasked() -> None:
    clock = testing.FakeClock()
    with testing.store(clock=clock) as store:
        forked(store, quoting, before="turns[3]/goback.think")
        clock.advance(2 * 3600)
        with pytest.raises(RunHeld, match=r"turns\[0\] to turns\[2\] has happened, or may have"):
            quoting.run("f")
        assert done == []
        store.resume("f", drift="keep")
        assert quoting.run("f") == [0, 1, 2, 3, 4, 5]
        assert acts() == ["act 3", "act 4", "act 5"]


def test_its_preflight_looks_at_what_it_borrowed(store: testing.PrivateStore) -> None:
    stopped_fork(store, watching, "hold")
    (change,) = store.preview_resume("f").changes
    assert (change.kind, change.name) == ("fact", "fact")
    assert change.effects == (
        "turns[0] to turns[2]",
        "turns[3]/goback.act",
        "turns[4]/goback.act",
    )
    assert done == []


# -- the origin is rolled back ---------------------------------------------------------------------


def test_the_plan_names_forks_that_stand_on_what_is_undone(store: testing.PrivateStore) -> None:
    straight.run("o")
    store.fork("o", "early", before="goback.act", confirm=True)
    store.fork("o", "late", before="goback.act#3", confirm=True)
    straight.run("late")
    store.fork("late", "later", before="goback.act#3", confirm=True)
    plan = store.preview_rollback("o")
    assert plan.forks == ("late", "later")
    assert "run late was forked from it, stands on what is undone" in str(plan)
    assert "holdfast rollback late" in str(plan)
    assert store.preview_rollback("o", to="goback.act#2").forks == ()
    assert store.preview_rollback("early").forks == ()
    store.rollback("late")
    assert store.preview_rollback("o").forks == ("later",)
    done.clear()
    assert store.rollback("o").status == "rolled_back"
    assert straight.run("later") == 2, "it goes on: what it borrowed is as it was recorded"
    assert done == ["undo 2", "undo 1", "undo 0", "act 2"]


def test_a_loop_in_which_it_was_done_counts_too(store: testing.PrivateStore) -> None:
    forked(store, agent, before="turns[3]/goback.think")
    assert store.preview_rollback("o", to="turns[1]/goback.act").forks == ("f",)
    assert store.preview_rollback("o", to="turns[2]/goback.act").forks == ()
