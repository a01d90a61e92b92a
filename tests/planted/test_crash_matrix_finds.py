"""Planted bugs that the crash matrix must find in a plain user's flow."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any

import pytest

from holdfast import effect, flow, step, testing
from holdfast._api import flows
from holdfast._engine.journal.history import History
from holdfast._engine.journal.rows import Applied, apply
from holdfast._engine.scripts import attempts, effect_script
from holdfast._runtime.execution import blocking_driver
from holdfast._runtime.execution.execution import Execution
from holdfast._stores.sqlite import sqlite_append
from holdfast.errors import HoldfastError

sent: list[str] = []


@step(name="planted-load")
def load() -> str:
    return "text"


@effect(name="planted-send")
def send(text: str) -> str:
    sent.append(text)
    return f"sent {text}"


@effect(name="planted-post", on_doubt="retry")
def post(text: str) -> str:
    sent.append(text)
    return f"posted {text}"


@flow(name="planted-letters")
def letters() -> str:
    return post(send(load()))


def no_intent(patch: pytest.MonkeyPatch) -> None:
    """An effect is called before its intent is recorded."""

    def claim(call: Any, run_id: str) -> Any:
        yield from attempts.begin(call)
        return effect_script.NOTHING

    patch.setattr(effect_script, "_claim", claim)


def doubts_are_repeated(patch: pytest.MonkeyPatch) -> None:
    """An effect in doubt is executed again, whatever its policy."""

    def settle(call: Any, left: Any, run_id: str) -> Any:
        return (yield from effect_script._claim(call, run_id))

    patch.setattr(effect_script, "_settle", settle)


def doubts_are_taken_for_nothing(patch: pytest.MonkeyPatch) -> None:
    """What was started and has no outcome is taken for never started."""
    real = History.match

    def match(self: History, *args: Any) -> Any:
        record = real(self, *args)
        return record if record is None or record.has_outcome else None

    patch.setattr(History, "match", match)


def the_end_is_not_awaited(patch: pytest.MonkeyPatch) -> None:
    """`run` returns before the end of the run is durable."""

    def finish(execution: Execution, end: Any) -> Any:
        try:
            execution.recorder.write(end.drafts, execution.recorder.in_background, end.changes)
            execution.engine.committer.flush()
        finally:
            execution.engine.leave(execution)
        if end.error is not None:
            raise end.error
        return end.value

    patch.setattr(flows, "finish", finish)


def outcomes_are_not_written(patch: pytest.MonkeyPatch) -> None:
    """The outcome of a step is kept in memory only."""
    real = blocking_driver._append

    def append(execution: Execution, request: Any) -> Any:
        if request.notes[-1].kind == "step_completed" and not request.call.spec.effect:
            value = request.notes[-1].values["result"]
            return blocking_driver.Wrote(value)  # type: ignore[attr-defined]
        return real(execution, request)

    patch.setattr(blocking_driver, "_append", append)


def keys_change(patch: pytest.MonkeyPatch) -> None:
    """Each attempt shows another key."""
    numbers = itertools.count()
    patch.setattr(Execution, "derived_key", lambda self, step: f"hf_{next(numbers)}")


def outcomes_are_not_looked_for(patch: pytest.MonkeyPatch) -> None:
    """A replay does not find what is recorded."""
    patch.setattr(History, "match", lambda self, key, position, digest: None)


def half_a_write(patch: pytest.MonkeyPatch) -> None:
    """The row is written, but its last entry is not."""

    def applied(*args: Any) -> Applied:
        made = apply(*args)
        half = bool(made.entries) and made.entries[-1].step == "planted-send"
        return Applied(made.entries[:-1], made.row) if half else made

    patch.setattr(sqlite_append, "apply", applied)


CASES: list[tuple[Callable[[pytest.MonkeyPatch], None], str]] = [
    (no_intent, "called before its intent was recorded"),
    (doubts_are_repeated, "planted-send.*was executed 2×; at most 1× is promised"),
    (doubts_are_taken_for_nothing, "planted-send"),
    (the_end_is_not_awaited, "never acknowledged"),
    (outcomes_are_not_written, "planted-load was executed, and its outcome is not recorded"),
    (keys_change, "different keys"),
    (outcomes_are_not_looked_for, "executed again|has an outcome already"),
    (half_a_write, "planted-send"),
]


@pytest.mark.parametrize(("plant", "said"), CASES, ids=[case[0].__name__ for case in CASES])
def test_a_planted_bug_is_found(monkeypatch: pytest.MonkeyPatch, plant: Any, said: str):
    plant(monkeypatch)
    with pytest.raises((AssertionError, HoldfastError), match=said):
        testing.crash_matrix(letters, setup=sent.clear, crashes=2)


def test_without_a_planted_bug_nothing_is_found():
    testing.crash_matrix(letters, setup=sent.clear, crashes=2)
