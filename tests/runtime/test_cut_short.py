"""Calls under a key that were cut short: tried again in the same step, or left for good."""

from __future__ import annotations

import contextlib

import pytest

import holdfast
from holdfast import flow
from holdfast.adapters import as_step, step_key


class Failed(GeneratorExit):
    """It came to nothing, and is tried again."""


class Left(GeneratorExit):
    """Nobody wants the rest of it."""

    again = False


@pytest.mark.parametrize(
    ("cut", "expected"),
    [(Failed, ["ask:model"]), (Left, ["ask:model", "ask:model#2"])],
)
def test_the_same_call_again(cut: type[GeneratorExit], expected: list[str]) -> None:
    tries = [cut]

    def ask(text: str) -> str:
        if tries:
            raise tries.pop()
        return text

    @flow(name="cut-short")
    def asks() -> str:
        with step_key("model"):
            with contextlib.suppress(cut):
                as_step(ask, name="ask")("hello")
            return as_step(ask, name="ask")("hello")

    with holdfast.open("memory:") as store:
        assert asks.run("r") == "hello"
        told = [it.step for it in store.history("r") if it.kind in TOLD]
        assert list(dict.fromkeys(told)) == expected


TOLD = ("step_cancelled", "step_completed")
