"""Planted bugs in rolling back, which the crash matrix and the order of the undos must find."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from holdfast import testing
from holdfast._engine.journal.history import History
from holdfast._engine.journal.step_keys import is_undo
from holdfast._engine.scripts import attempts, effect_script
from holdfast._features.rollback import model as rollback
from holdfast._runtime.execution.execution import Execution
from tests.crash.test_rollback import in_order, made, not_done, there_and_back
from tests.runtime import test_rollback


def wrong_order(patch: pytest.MonkeyPatch) -> None:
    """The first effect is undone first."""
    real = rollback.effects_to_undo
    patch.setattr(rollback, "effects_to_undo", lambda *args: list(reversed(real(*args))))


def no_intent(patch: pytest.MonkeyPatch) -> None:
    """An undo is called before its intent is recorded."""
    real = effect_script._claim

    def claim(call: Any, run_id: str) -> Any:
        if not is_undo(call.key):
            return (yield from real(call, run_id))
        yield from attempts.begin(call)
        return effect_script.NOTHING

    patch.setattr(effect_script, "_claim", claim)


def undone_again(patch: pytest.MonkeyPatch) -> None:
    """Who goes on with a rollback does not look what was undone before."""
    real = History.match

    def match(self: History, key: str, *args: Any) -> Any:
        return None if is_undo(key) else real(self, key, *args)

    patch.setattr(History, "match", match)
    patch.setattr(rollback, "_fate_of_undo", lambda *_args: rollback.Fate.UNDO)


def one_is_forgotten(patch: pytest.MonkeyPatch) -> None:
    """The last effect is left out."""
    real = rollback.effects_to_undo
    patch.setattr(rollback, "effects_to_undo", lambda *args: real(*args)[1:])


def an_undo_in_doubt_is_repeated(patch: pytest.MonkeyPatch) -> None:
    """An undo that asks a person is called again instead."""
    real = effect_script._settle

    def settle(call: Any, left: Any, run_id: str) -> Any:
        if is_undo(call.key):
            return (yield from effect_script._claim(call, run_id))
        return (yield from real(call, left, run_id))

    patch.setattr(effect_script, "_settle", settle)


PLANTED: list[tuple[Callable[[pytest.MonkeyPatch], None], str]] = [
    (wrong_order, r"\['a', 'a', 'b', 'c', '-a'"),
    (no_intent, "undo/rbm-c was called before its intent was recorded"),
    (undone_again, "undo/rbm-c was executed again, although its outcome was recorded"),
    (one_is_forgotten, r"\['a', 'a', 'b', 'c', '-b'"),
    (an_undo_in_doubt_is_repeated, "undo/rbm-b.*was executed 2×; at most 1× is promised"),
]


def matrix() -> None:
    testing.crash_matrix(there_and_back, 7, setup=made.clear, check=in_order, settle=not_done)


@pytest.mark.parametrize(("plant", "said"), PLANTED, ids=[case[0].__name__ for case in PLANTED])
def test_it_is_found(
    monkeypatch: pytest.MonkeyPatch, plant: Callable[..., None], said: str
) -> None:
    plant(monkeypatch)
    with pytest.raises(AssertionError, match=said):
        matrix()


def test_without_a_bug_nothing_is_found() -> None:
    matrix()


def test_a_rollback_that_hears_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nobody looks between two undos whether the run is to stop."""
    real = Execution.check
    monkeypatch.setattr(
        Execution, "check", lambda self: None if self.history.rollback is not None else real(self)
    )
    test_rollback.undoing.clear()
    test_rollback.seen.clear()
    with testing.store() as store:
        test_rollback.slow_trip.submit("r")
        store.recover()
        with pytest.raises(AssertionError, match="finished"):
            test_rollback.test_a_rollback_is_paused_between_two_undos(
                store, test_rollback.slow_trip
            )
