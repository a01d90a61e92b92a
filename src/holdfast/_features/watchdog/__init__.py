"""The watchdog: runs that are stuck, repeat themselves or spend too fast are found in their journals."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from holdfast._features.watchdog.model import FINDING
from holdfast._runtime.feature import Decision, Feature, PeriodicJob

if TYPE_CHECKING:
    from holdfast._engine.journal.history import History
    from holdfast._engine.journal.rows import Lease, Message, Write
    from holdfast._runtime.engine import Engine
    from holdfast._runtime.execution.execution import Execution


def _record_start(engine: Engine, facts: dict[str, Any]) -> None:
    """Record what the watchdog looks for in a run, if its flow says nothing."""
    default = engine.options.get("watchdog")
    if default is not None and "watch" not in facts:
        facts["watch"] = default.limits()


def _take_in(execution: Execution, message: Message) -> None:
    from holdfast._features.watchdog import watchdog_loop

    watchdog_loop.take_in(execution, message)


def _decide(engine: Engine, lease: Lease, history: History, message: Message, at_us: int) -> Write:
    from holdfast._features.watchdog import watchdog_loop

    return watchdog_loop.decided(engine, lease, history, message, at_us)


def _stops(message: Message) -> bool:
    from holdfast._features.watchdog import watchdog_loop

    return watchdog_loop.stops(message)


def _loop(engine: Engine, flows: Callable[[], Mapping[str, Any]]) -> PeriodicJob:
    from holdfast._features.watchdog.watchdog_loop import WatchdogLoop

    return WatchdogLoop(engine, flows)


FEATURE = Feature(
    name="watchdog",
    record_start=_record_start,
    messages={FINDING: _take_in},
    decisions={FINDING: Decision(write=_decide, stops=_stops)},
    periodic=_loop,
)
