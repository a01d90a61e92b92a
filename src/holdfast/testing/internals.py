"""The test kit's only access to the runtime's internals.

A user's test needs the parts of a process: an engine on a store, the process's default, and a
report of every body that is called. Only this module accesses them.
"""

from __future__ import annotations

import contextlib
import functools
import inspect
import threading
from collections.abc import Callable, Generator
from typing import Any

from holdfast._api.flows import AsyncFlow, Flow
from holdfast._api.loops import turns as loop_over
from holdfast._api.opened_store import Store
from holdfast._api.steps import Settings, Step
from holdfast._runtime import engine as engines
from holdfast._runtime.commit.committer import Committer, Ticket
from holdfast._runtime.commit.heartbeat import Heartbeat
from holdfast._runtime.engine import Engine
from holdfast._runtime.execution import admission, execute as finishing, inbox, run_end
from holdfast._runtime.execution.attempt import Body
from holdfast._runtime.execution.branch_waits import calling_line, is_stale, look, settle_down
from holdfast._runtime.execution.execution import Code, Execution
from holdfast._runtime.execution.frames import Frame, current, here
from holdfast._runtime.execution.operations import place
from holdfast._runtime.execution.return_types import payload_reader
from holdfast._runtime.inbox_poller import InboxPoller
from holdfast._runtime.resources import overrides
from holdfast._runtime.worker.recovery_pass import Untried
from holdfast._stores import exports, lineage
from holdfast._stores.contract import Store as Kept
from holdfast._stores.locate import open_store, open_temporary
from holdfast._stores.store_clock import FakeMachine
from holdfast._stores.temporary_folders import TemporaryFolder

Watcher = Callable[[Frame, str], Callable[[BaseException | None], None]]
"""Receives each body that is about to be called; returns the callback for its end."""

_watchers: list[Watcher] = []
_lock = threading.Lock()
_target = Body.target


@contextlib.contextmanager
def watching(watcher: Watcher) -> Generator[None, None, None]:
    """Report every call of user code (body, on_doubt, fallback) while it is entered."""
    with _lock:
        if not _watchers:
            Body.target = _watched  # type: ignore[assignment, method-assign]
        _watchers.append(watcher)
    try:
        yield
    finally:
        with _lock:
            _watchers.remove(watcher)
            if not _watchers:
                Body.target = _target  # type: ignore[method-assign]


def _watched(body: Body, what: str) -> Callable[..., Any]:
    target = _target(body, what)
    if inspect.iscoroutinefunction(target):

        @functools.wraps(target)
        async def awaited(*args: Any, **kwargs: Any) -> Any:
            tell = _begin(what)
            try:
                result = await target(*args, **kwargs)
            except BaseException as error:
                tell(error)
                raise
            tell(None)
            return result

        return awaited

    @functools.wraps(target)
    def called(*args: Any, **kwargs: Any) -> Any:
        tell = _begin(what)
        try:
            result = target(*args, **kwargs)
        except BaseException as error:
            tell(error)
            raise
        tell(None)
        return result

    return called


def _begin(what: str) -> Callable[[BaseException | None], None]:
    frame = current.get()
    assert frame is not None
    assert frame.call is not None
    ends = [watcher(frame, what) for watcher in list(_watchers)]

    def tell(error: BaseException | None) -> None:
        for end in ends:
            end(error)

    return tell


@contextlib.contextmanager
def as_default(engine: Engine) -> Generator[None, None, None]:
    """Make an engine the process's default for a while, and restore the former one."""
    before = engines._default  # pyright: ignore[reportPrivateUsage]
    engines._default = engine  # pyright: ignore[reportPrivateUsage]
    try:
        yield
    finally:
        engines._default = before  # pyright: ignore[reportPrivateUsage]


__all__ = [
    "AsyncFlow",
    "Code",
    "Committer",
    "Engine",
    "Execution",
    "FakeMachine",
    "Flow",
    "Frame",
    "Heartbeat",
    "InboxPoller",
    "Kept",
    "Settings",
    "Step",
    "Store",
    "TemporaryFolder",
    "Ticket",
    "Untried",
    "admission",
    "as_default",
    "calling_line",
    "current",
    "exports",
    "finishing",
    "here",
    "inbox",
    "is_stale",
    "lineage",
    "look",
    "loop_over",
    "open_store",
    "open_temporary",
    "overrides",
    "payload_reader",
    "place",
    "run_end",
    "settle_down",
    "watching",
]
