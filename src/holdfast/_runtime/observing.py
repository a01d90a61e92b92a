"""Who is told of what happens here. With no observer nothing is made up for one."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from holdfast._core.observing import (
    ObservedAttempt,
    ObservedEntry,
    ObservedRun,
    Observer,
    observed_run,
)
from holdfast._core.rows import RunRow, Write
from holdfast._runtime import logs
from holdfast.errors import UsageError

if TYPE_CHECKING:
    from holdfast._core.requests import StepCall
    from holdfast._runtime.engine import Engine
    from holdfast._runtime.execution import Execution
    from holdfast._store.contract import Store

observers: tuple[Observer, ...] = ()
"""All of this process. Replaced as a whole, so that a loop over it needs no lock."""
_complained: set[tuple[str, str]] = set()


def observe(observer: Observer) -> Callable[[], None]:
    """Tell an observer of all that runs do in this process, from now on. Returns a function that
    ends it."""
    global observers
    if not isinstance(observer, Observer):  # pyright: ignore[reportUnnecessaryIsInstance]
        raise UsageError(f"holdfast.observe({observer!r:.80}): an object of a subclass of Observer")
    observers = (*observers, observer)

    def end() -> None:
        global observers
        observers = tuple(one for one in observers if one is not observer)

    return end


def taken(execution: Execution, *, resumed: bool) -> None:
    """A run is executed here from now on."""
    if observers:
        run = _run(execution.engine.kept, execution.lease.row)
        _tell("taken", lambda it: it.taken(run, resumed=resumed))


def left(execution: Execution) -> None:
    """A run is executed here no longer."""
    if observers:
        row = execution.lease.row
        run = _run(execution.engine.kept, row)
        _tell("left", lambda it: it.left(run, str(row.status)))


def wrote(store: Store, write: Write) -> None:
    """A write is committed."""
    if observers and write.drafts:
        run = _run(store, write.lease.row)
        entries = [ObservedEntry(draft) for draft in write.drafts]
        _tell("written", lambda it: it.written(run, entries))


class Attempt:
    """`with Attempt(execution, call, what):` around a call of user code, in its thread or task."""

    __slots__ = ("_begun", "_call", "_observed")

    def __init__(self, execution: Execution, call: StepCall, what: str) -> None:
        self._begun: list[tuple[Observer, Any]] = []
        self._call = call
        self._observed: ObservedAttempt | None = None
        if observers:
            engine: Engine = execution.engine
            self._observed = ObservedAttempt(
                run=_run(engine.kept, execution.lease.row),
                key=call.key,
                name=call.spec.name,
                number=call.attempt,
                what=what,
                effect=call.spec.effect,
                started_us=engine.now_us(),
            )

    def __enter__(self) -> None:
        observed = self._observed
        if observed is not None:
            _tell("attempt_began", lambda it: self._begin(it, observed))

    def _begin(self, observer: Observer, observed: ObservedAttempt) -> None:
        self._begun.append((observer, observer.attempt_began(observed)))

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        observed = self._observed
        if observed is None:
            return
        observed.error = error
        observed.usage = None if self._call.usage is None else dict(self._call.usage)
        for observer, begun in reversed(self._begun):
            _guarded("attempt_ended", observer, lambda it: it.attempt_ended(observed, begun))  # noqa: B023


def _run(store: Store, row: RunRow) -> ObservedRun:
    return observed_run(store.store_id, store.namespace, row)


def _tell(event: str, call: Callable[[Observer], None]) -> None:
    for observer in observers:
        _guarded(event, observer, call)


def _guarded(event: str, observer: Observer, call: Callable[[Observer], None]) -> None:
    try:
        call(observer)
    except Exception as error:
        key = (type(observer).__qualname__, event)
        if key not in _complained:
            _complained.add(key)
            logs.failure("the observer %s failed in %s; runs go on", *key, error=error)
