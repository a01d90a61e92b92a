"""`sleep` and `wait_for_signal` as users see them: sync here, awaited twins with the prefix aio_."""

from __future__ import annotations

import datetime as dt
from collections.abc import Coroutine
from typing import Any, TypeVar, overload

from holdfast._engine.journal.step_keys import check_label, quoted
from holdfast._engine.scripts.requests import Script, StepCall
from holdfast._engine.scripts.waits import sleep_script, wait_script
from holdfast._engine.values.durations import Duration, ends, micros
from holdfast._runtime.execution.frames import Frame
from holdfast._runtime.execution.operations import called, perform, perform_async, place
from holdfast._runtime.execution.return_types import payload_reader

T = TypeVar("T")


def sleep(duration: Duration | dt.datetime) -> None:
    """Wait: seconds, a timedelta, "2h", or until a datetime. The end is worked out once and recorded;
    a crash, a restart or an unloaded run changes nothing about it."""
    frame = called("sleep(…)", "sleep", awaits=False)
    call, script = _sleeping(frame, duration)
    perform(frame.execution, call, script)


def aio_sleep(duration: Duration | dt.datetime) -> Coroutine[Any, Any, None]:
    """Wait in an async flow; the awaited twin of `sleep`."""
    frame = called("sleep(…)", "sleep", awaits=True)
    return perform_async(frame.execution, *_sleeping(frame, duration))


def _sleeping(frame: Frame, duration: Duration | dt.datetime) -> tuple[StepCall, Script]:
    until = ends(duration, "sleep(…)")
    call = place(frame, "sleep")
    return call, sleep_script(call, frame.execution.history, until)


@overload
def wait_for_signal(name: str, *, timeout: Duration | None = None, type: type[T]) -> T: ...
@overload
def wait_for_signal(name: str, *, timeout: Duration | None = None, type: None = None) -> Any: ...
def wait_for_signal(name: str, *, timeout: Duration | None = None, type: Any = None) -> Any:
    """Wait for a signal of this name and return its payload. One that came before is kept for it;
    each is taken exactly once. After `timeout` the flow gets WaitTimedOut."""
    frame = called("wait_for_signal(…)", "wait_for_signal", awaits=False)
    call, script = _waiting(frame, name, timeout, type)
    return perform(frame.execution, call, script)


@overload
def aio_wait_for_signal(
    name: str, *, timeout: Duration | None = None, type: type[T]
) -> Coroutine[Any, Any, T]: ...
@overload
def aio_wait_for_signal(
    name: str, *, timeout: Duration | None = None, type: None = None
) -> Coroutine[Any, Any, Any]: ...
def aio_wait_for_signal(
    name: str,
    *,
    timeout: Duration | None = None,
    type: Any = None,
) -> Coroutine[Any, Any, Any]:
    """Wait for a signal in an async flow; the awaited twin of `wait_for_signal`."""
    frame = called("wait_for_signal(…)", "wait_for_signal", awaits=True)
    return perform_async(frame.execution, *_waiting(frame, name, timeout, type))


def _waiting(
    frame: Frame, name: str, timeout: Duration | None, wanted: Any
) -> tuple[StepCall, Script]:
    check_label("the name of a signal", name)
    timeout_us = (
        None if timeout is None else micros(timeout, f"wait_for_signal({name!r}, timeout=…)")
    )
    execution = frame.execution
    call = place(frame, f"wait:{quoted(name)}")
    script = wait_script(
        call, execution.history, name, timeout_us, payload_reader(wanted), execution.decode
    )
    return call, script
