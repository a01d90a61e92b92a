"""Exceptions that are hard to tell: no text, broken text, no Exception at all, deep recursion."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Callable

import pytest

from holdfast import effect, flow, step
from holdfast.errors import RunFailed, RunHeld, StepFailed
from tests.runtime.stops import steps


class NoText(Exception):
    def __str__(self) -> str:
        raise RuntimeError("no text")


class Other(BaseException):
    pass


ODD: dict[str, Callable[[], BaseException]] = {
    "no text": NoText,
    "surrogate": lambda: FileNotFoundError("/tmp/\udcff"),
    "null": lambda: ValueError("a\x00b"),
    "huge": lambda: ValueError("x" * 100_000),
    "base": lambda: Other("base"),
    "stop iteration": lambda: StopIteration(3),
    "group": lambda: ExceptionGroup("several", [ValueError(1), OSError(2)]),
    "assertion": AssertionError,
}


def made(kind: str) -> BaseException:
    return ODD[kind]()


@pytest.mark.parametrize("kind", ODD)
def test_a_step_that_raises_it_fails_like_any_other(holdfast_store, kind):
    @step
    def fails() -> None:
        raise made(kind)

    @flow
    def work() -> str:
        try:
            fails()
        except StepFailed as failed:
            return failed.type_name
        return ""

    assert work.run("r") == type(made(kind)).__name__
    assert steps(holdfast_store, "r") == {fails.name: "failed"}


@pytest.mark.parametrize("kind", ODD)
def test_an_effect_that_raises_it_is_in_doubt(holdfast_store, kind):

    @effect
    def fails() -> None:
        raise made(kind)

    @flow
    def work() -> None:
        fails()

    with pytest.raises(RunHeld):
        work.run("r")
    assert holdfast_store.get("r").status == "held"


@pytest.mark.parametrize("colour", ["sync", "async"])
@pytest.mark.parametrize("kind", ODD)
def test_a_flow_that_raises_it_has_failed(holdfast_store, kind, colour):
    def body() -> None:
        raise made(kind)

    @flow
    def work() -> None:
        body()

    @flow
    async def awaited() -> None:
        body()

    with pytest.raises(RunFailed):
        if colour == "sync":
            work.run("r")
        else:
            asyncio.run(awaited.run("r"))
    assert holdfast_store.get("r").status == "failed"
    assert holdfast_store._engine.executing() == []


def test_endless_recursion_in_a_step_and_in_a_flow(holdfast_store):
    def down(i: int) -> int:
        return down(i + 1)

    @step
    def deep() -> int:
        return down(0)

    @flow
    def in_step() -> str:
        try:
            deep()
        except StepFailed as failed:
            return failed.type_name
        return ""

    @flow
    def in_flow() -> int:
        return down(0)

    assert in_step.run("a") == "RecursionError"
    with pytest.raises(RunFailed, match="RecursionError"):
        in_flow.run("b")
    assert holdfast_store.get("b").status == "failed"


def test_steps_deep_in_the_stack(holdfast_store):
    @step
    def one(i: int) -> int:
        return 1

    def down(i: int) -> int:
        return one(i) + (down(i - 1) if i else 0)

    @flow
    def work() -> int:
        return down(100)

    assert work.run("r") == 101
    assert sys.getrecursionlimit() > 100
