"""Keys that depend on where a call is made: what goes on from the middle finds its records."""

from __future__ import annotations

from typing import Any

import pytest

import holdfast
from holdfast import effect, flow, step, testing
from holdfast.adapters import step_key
from holdfast.errors import RunFailed

place = ["?"]
paid: list[int] = []


@step(name="kp-look")
def look(what: str) -> str:
    return what.upper()


@effect(name="kp-pay", on_doubt="retry")
def pay(amount: int) -> str:
    paid.append(amount)
    return f"paid {amount}"


def keys_of(work: Any) -> list[str]:
    @flow(name=f"kp-{work.__name__}")
    def run() -> None:
        with step_key(lambda: place[0]):
            work()

    with testing.store() as store:
        run.run("r")
        return [it.key for it in store.get("r").steps]


def test_a_function_is_asked_at_each_call() -> None:
    def moves() -> None:
        for place[0] in ("one", "two"):
            look("x")
            look("y")

    assert keys_of(moves) == ["kp-look:one", "kp-look:one#2", "kp-look:two", "kp-look:two#2"]


def test_a_key_inside_stands_behind_the_place_unless_it_is_unique() -> None:
    def nested() -> None:
        place[0] = "one"
        with step_key("inner"):
            look("x")
        with step_key("call_17", unique=True):
            look("x")
        look.with_options(step_key="own")("x")

    assert keys_of(nested) == ["kp-look:one.inner", "kp-look:call_17", "kp-look:one.own"]


@flow(name="kp-resumes")
def resumes() -> list[str]:
    """Goes on from the middle, as a graph does from a checkpoint: the first place is skipped."""
    done = holdfast.context.current_run()
    assert done is not None
    result = []
    with step_key(lambda: place[0]):
        for place[0] in ("b", "c") if paid else ("a", "b", "c"):
            result.append(pay(5))
            if len(paid) == 1:
                raise KeyboardInterrupt
    return result


def test_what_goes_on_from_the_middle_skips_no_effect() -> None:
    paid.clear()
    with testing.store() as store:
        with pytest.raises(KeyboardInterrupt):
            resumes.run("r")
        assert resumes.run("r") == ["paid 5", "paid 5"]
        assert [it.key for it in store.get("r").steps] == ["kp-pay:a", "kp-pay:b", "kp-pay:c"]
    assert paid == [5, 5, 5]


@pytest.mark.parametrize("what", ["now", "rng", "uuid4"])
def test_recorded_facts_have_keys_there_too(what: str) -> None:
    def facts() -> None:
        place[0] = "one"
        getattr(holdfast.context, what)()
        place[0] = "two"
        getattr(holdfast.context, what)()

    @flow(name=f"kp-{what}")
    def run() -> Any:
        with step_key(lambda: place[0]):
            facts()

    with testing.store() as store:
        run.run("r")
        keys = {it.step for it in store.history("r") if it.step}
    assert keys == {f"{what}:one", f"{what}:two"}


def test_what_counts_from_the_beginning_is_refused_there() -> None:
    @flow(name="kp-refused")
    def run() -> None:
        with step_key(lambda: "one"):
            holdfast.gather(lambda: look("x"))

    with testing.store(), pytest.raises(RunFailed, match="UsageError"):
        run.run("r")
