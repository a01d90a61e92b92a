"""A failed run is taken up again: what succeeded stays, what failed is tried anew."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from contextlib import suppress

import pytest

import holdfast
from holdfast import effect, flow, gather, idempotency_key, step
from holdfast.errors import RunFailed, RunHeld, StepFailed
from tests.crash.harness import assert_sound, kinds

calls: Counter[str] = Counter()
keys: list[str] = []
broken = True


@pytest.fixture(autouse=True)
def _begin_broken() -> Iterator[None]:
    global broken
    broken = True
    calls.clear()
    keys.clear()
    yield
    calls.clear()


def mend() -> None:
    global broken
    broken = False


@effect(name="taken_up.charge")
def charge() -> str:
    calls["charge"] += 1
    keys.append(idempotency_key())
    return "ch-1"


@step(name="taken_up.shaky")
def shaky(value: str) -> str:
    calls["shaky"] += 1
    if broken:
        raise ConnectionError("down")
    return f"{value} delivered"


def test_an_effect_before_the_failure_is_not_repeated(store: holdfast.types.Store) -> None:
    @flow
    def order() -> str:
        return shaky(charge())

    for _ in range(2):
        with pytest.raises(RunFailed):
            order.run("r")
    mend()
    assert order.run("r") == "ch-1 delivered"
    assert calls == {"charge": 1, "shaky": 3}
    view = store.get("r")
    assert view.generation == 3
    assert_sound(store)
    assert kinds(store.history("r"), runs=True).count("run_resumed") == 2


def test_what_followed_a_failure_that_was_handled_is_kept(store: holdfast.types.Store) -> None:
    """Only what escaped is tried anew; a failure that the flow dealt with is a result."""

    @flow
    def order() -> list[str]:
        try:
            first = shaky("first")
        except StepFailed:
            first = "handled"
        return [first, charge(), shaky("second")]

    with pytest.raises(RunFailed):
        order.run("r")
    mend()
    assert order.run("r") == ["handled", "ch-1", "second delivered"]
    assert calls == {"charge": 1, "shaky": 3}


def test_a_failed_branch_is_tried_anew_and_its_siblings_are_not(
    store: holdfast.types.Store,
) -> None:
    @flow
    def order() -> list[str]:
        return list(gather(lambda: charge(), lambda: shaky("b"), lambda: shaky("c")))

    with pytest.raises(RunFailed):
        order.run("r")
    mend()
    # Of two branches that failed, one escaped; the other's failure is a result until it does.
    with suppress(RunFailed):
        order.run("r")
    assert order.run("r") == ["ch-1", "b delivered", "c delivered"]
    assert calls == {"charge": 1, "shaky": 4}


def test_an_effect_of_unknown_outcome_is_not_repeated_without_consent(
    store: holdfast.types.Store,
) -> None:
    @effect(on_doubt="fail")
    def risky() -> str:
        calls["risky"] += 1
        keys.append(idempotency_key())
        if broken:
            raise TimeoutError("no answer")
        return "ch-2"

    @flow
    def order() -> str:
        return risky()

    with pytest.raises(RunFailed):
        order.run("r")
    mend()
    with pytest.raises(RunHeld) as held:
        order.run("r")
    assert held.value.reason == "in_doubt"
    assert calls["risky"] == 1
    store.resume("r", actor="ops", confirm=True)
    assert order.run("r") == "ch-2"
    assert calls["risky"] == 2
    assert len(set(keys)) == 2, "another generation, another key"
    assert_sound(store)


def test_interrupted_in_its_second_life(store: holdfast.types.Store) -> None:
    interrupted = False

    @step
    def between() -> str:
        nonlocal interrupted
        calls["between"] += 1
        if not broken and not interrupted:
            interrupted = True
            raise KeyboardInterrupt
        return "between"

    @flow
    def order() -> str:
        charge()
        delivered = shaky("x")
        return between() + delivered

    with pytest.raises(RunFailed):
        order.run("r")
    mend()
    with pytest.raises(KeyboardInterrupt):
        order.run("r")
    assert order.run("r") == "betweenx delivered"
    assert calls == {"charge": 1, "shaky": 2, "between": 2}
    assert store.get("r").generation == 2
