"""Forks of random flows at random places, and forks of those, interrupted now and then: the same
result, and nothing that was borrowed is executed again."""

from __future__ import annotations

from collections import Counter
from typing import Any

from hypothesis import given, settings, strategies as st

import holdfast
from holdfast import flow, gather, step, testing, turns
from holdfast.errors import StepFailed

Node = Any
executed: Counter[str] = Counter()
interrupts: list[int] = []
"""After so many executions the flow is interrupted, once each."""

leaf = st.sampled_from(["step", "step", "fails", "now"])
shapes: st.SearchStrategy[Node] = st.recursive(
    leaf,
    lambda inner: st.one_of(
        st.tuples(st.just("line"), st.lists(inner, min_size=1, max_size=4)),
        st.tuples(st.just("branches"), st.lists(inner, min_size=1, max_size=3)),
        st.tuples(st.just("turns"), st.lists(inner, min_size=1, max_size=4)),
    ),
    max_leaves=14,
)


@step(name="at_random.work")
def work(value: int) -> int:
    executed[where()] += 1
    if interrupts and executed.total() >= interrupts[-1]:
        interrupts.pop()
        raise KeyboardInterrupt
    return value * 7 % 1000


@step(name="at_random.fails")
def fails(value: int) -> int:
    executed[where()] += 1
    raise ValueError(f"no {value}")


def where() -> str:
    run = holdfast.context.current_run()
    assert run is not None
    return f"{run.run_id} {run.step}"


def play(shape: Node, value: int) -> int:
    """Play a shape: each part works on what came out of the one before."""
    if shape == "step":
        return work(value)
    if shape == "now":
        return value + holdfast.context.now().microsecond % 2
    if shape == "fails":
        try:
            return fails(value)
        except StepFailed as failed:
            return len(str(failed)) + value
    kind, parts = shape
    if kind == "line":
        for part in parts:
            value = play(part, value)
        return value
    if kind == "branches":
        return sum(
            gather(*(lambda p=part, n=n: play(p, value + n) for n, part in enumerate(parts)))
        )
    for state in turns([value]):
        if len(state) > len(parts):
            return sum(state) % 1000
        state.append(play(parts[len(state) - 1], state[-1]))
    raise AssertionError


@flow(name="at_random.player")
def player(shape: Node) -> int:
    return play(shape, 3)


def played(run_id: str, shape: Node) -> int:
    """Run it until it ends, however often it is interrupted."""
    while True:
        try:
            return player.run(run_id, shape)
        except KeyboardInterrupt:
            continue


@settings(max_examples=25, deadline=None)
@given(
    shape=shapes,
    chosen=st.lists(st.floats(0, 0.999), min_size=1, max_size=3),
    stops=st.lists(st.integers(1, 40), max_size=4),
)
def test_random_forks(shape: Node, chosen: list[float], stops: list[int]) -> None:
    executed.clear()
    # An interrupt in a thread of its own is another story, told elsewhere.
    interrupts[:] = [] if "branches" in str(shape) else sorted(stops, reverse=True)
    with testing.store(url="memory:") as store:
        result = played("run-0", shape)
        for number, share in enumerate(chosen):
            origin, new = f"run-{number}", f"run-{number + 1}"
            recorded = [one.key for one in store.get(origin).steps if not one.superseded]
            if not recorded:
                return
            place = recorded[int(share * len(recorded))]
            made = store.fork(origin, new, before=place)
            borrowed = [one.key for one in store.get(new).steps]
            assert made.borrowed == len(borrowed)
            assert place not in borrowed
            took_again = played(new, shape)
            assert "now" in str(shape) or took_again == result
            assert not [key for key in borrowed if executed[f"{new} {key}"]]
            assert store.verify() == []
            result = took_again
            assert player.run(new, shape) == result
