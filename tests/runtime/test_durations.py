"""Every time that users give may be seconds, a timedelta or a string, and is refused in one way."""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable
from typing import Any

import pytest

from holdfast import Approval, Budget, Queue, Watchdog, effect, flow, step
from holdfast.errors import UsageError
from holdfast.schedules import schedule
from holdfast.testing import FakeClock


@step(name="durations-step")
def look() -> None: ...


@effect(name="durations-effect")
def pay() -> None: ...


@flow(name="durations-flow")
def work() -> None:
    look()


TAKES: dict[str, Callable[[Any], Any]] = {
    "step timeout": lambda it: step(name="durations-1", timeout=it)(lambda: None),
    "effect timeout": lambda it: effect(name="durations-2", timeout=it)(lambda: None),
    "key_ttl": lambda it: effect(name="durations-3", key_ttl=it)(lambda: None),
    "undo timeout": lambda it: pay.undo(timeout=it)(lambda _result: None),
    "undo key_ttl": lambda it: pay.undo(key_ttl=it)(lambda _result: None),
    "valid_for": lambda it: step(name="durations-4", valid_for=it)(lambda: None),
    "flow timeout": lambda it: flow(name="durations-5", timeout=it)(lambda: None),
    "retention": lambda it: flow(name="durations-6", retention=it)(lambda: None),
    "delay": lambda it: work.with_options(delay=it),
    "timeout": lambda it: work.with_options(timeout=it),
    "period": lambda it: Queue("durations", period=it),
    "every": lambda it: schedule("durations", work, every=it),
    "wall": lambda it: Budget(wall=it),
    "stuck_after": lambda it: flow(name="durations-7", watchdog=Watchdog(stuck_after=it))(
        lambda: None
    ),
    "approval": lambda it: effect(name="durations-8", needs_approval=Approval(valid_for=it))(
        lambda: None
    ),
    "advance": lambda it: FakeClock().advance(it),
}


@pytest.fixture(autouse=True)
def names_are_free(monkeypatch):
    """One name is given to a function again and again."""
    from holdfast._features.schedules import runtime as schedules
    from holdfast._runtime import registry

    for known in (registry._functions, registry.flows, registry.steps, registry.effects):
        monkeypatch.setattr(registry, _name_of(registry, known), dict(known))
    monkeypatch.setattr(schedules, "declared", dict(schedules.declared))


def _name_of(module: Any, value: object) -> str:
    return next(name for name, it in vars(module).items() if it is value)


@pytest.mark.parametrize("duration", [7200, 7200.0, "2h", dt.timedelta(hours=2)], ids=repr)
@pytest.mark.parametrize("name", TAKES)
def test_a_time_may_be_seconds_a_timedelta_or_a_string(name, duration):
    TAKES[name](duration)


@pytest.mark.parametrize("duration", ["2 hours", b"2h", True], ids=repr)
@pytest.mark.parametrize("name", TAKES)
def test_what_is_no_time_is_refused_with_one_message(name, duration):
    with pytest.raises(UsageError) as refused:
        TAKES[name](duration)
    words = 'seconds, a timedelta, or a string such as "90s", "2h", "1h30m" or "3d"; not '
    assert words + repr(duration) in str(refused.value)


def test_runs_and_results_take_them_too(holdfast_store):
    work.run("durations-run")
    assert [run.run_id for run in holdfast_store.runs(older_than="0s")] == ["durations-run"]
    assert list(holdfast_store.runs(older_than="2h")) == []
    assert holdfast_store.handle("durations-run").result(timeout="5s") is None
    for wrong in (
        lambda: holdfast_store.runs(older_than="old"),
        lambda: holdfast_store.handle("durations-run").result(timeout="soon"),
    ):
        with pytest.raises(UsageError, match="seconds, a timedelta, or a string"):
            wrong()
