"""The observers of this process, and what each of them receives. Without an observer, nothing is made."""

from __future__ import annotations

import contextvars
import functools
import threading
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, Protocol, Self, TypeVar

import msgspec

from holdfast._engine.journal.entries import Entry
from holdfast._engine.journal.rows import RunRow, Write
from holdfast._engine.journal.step_keys import told_name
from holdfast._engine.telemetry.observer_events import (
    ObservedAttempt,
    ObservedEntry,
    ObservedRun,
    Observer,
    observed_run,
    past_of,
)
from holdfast._runtime import log as logs
from holdfast.errors import UsageError

if TYPE_CHECKING:
    from holdfast._engine.journal.history import History
    from holdfast._engine.scripts.requests import StepCall
    from holdfast._engine.values.redactor import Redact
    from holdfast._runtime.feature import CommitListener
    from holdfast._stores.contract import Store

T = TypeVar("T")

observers: tuple[Observer, ...] = ()
"""All of this process. Replaced as a whole, so that a loop over it needs no lock."""
_complained: set[tuple[str, str]] = set()


def observe(observer: Observer) -> Callable[[], None]:
    """Notify an observer of all that runs do in this process, from now on. Returns a function that
    ends it."""
    global observers
    if not isinstance(observer, Observer):  # pyright: ignore[reportUnnecessaryIsInstance]
        raise UsageError(
            f"holdfast.observers.observe({observer!r:.80}): an object of a subclass of Observer"
        )
    observers = (*observers, observer)

    def end() -> None:
        global observers
        observers = tuple(one for one in observers if one is not observer)

    return end


def here(work: Callable[[], T]) -> Callable[[], T]:
    """Return work for another thread that observers see as if it were done here."""
    return functools.partial(contextvars.copy_context().run, work) if observers else work


class Observed(Protocol):
    """The engine that executes an attempt, as far as observers and listeners are concerned."""

    @property
    def backend(self) -> Store:
        """Where its runs are."""
        ...

    @property
    def now_us(self) -> Callable[[], int]:
        """The clock of the store."""
        ...

    @property
    def redact(self) -> Redact | None:
        """The function that redacts values."""
        ...

    @property
    def listeners(self) -> Sequence[CommitListener]:
        """The listeners of features."""
        ...


def run_claimed(store: Store, row: RunRow, history: History, *, resumed: bool) -> None:
    """A run is executed here from now on."""
    if observers:
        run = msgspec.structs.replace(_run(store, row), past=past_of(history, row))
        _tell("run_claimed", lambda it: it.run_claimed(run, resumed=resumed))


def left(store: Store, row: RunRow) -> None:
    """A run is executed here no longer."""
    if observers:
        run = _run(store, row)
        _tell("run_released", lambda it: it.run_released(run, str(row.status)))


def wrote(store: Store, write: Write) -> None:
    """A write is committed."""
    if observers and write.drafts:
        run = _run(store, write.lease.row)
        entries = [ObservedEntry(draft) for draft in write.drafts]
        _tell("entries_committed", lambda it: it.entries_committed(run, entries))


def noticed(store: Store, row: RunRow, entry: Entry) -> None:
    """The store wrote an entry by itself when this process asked for the run."""
    if observers:
        run = _run(store, row)
        _tell("entries_committed", lambda it: it.entries_committed(run, [ObservedEntry(entry)]))


class Unobserved:
    """A call of user code that nobody observes."""

    __slots__ = ()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        """Notify nobody."""

    def came_to(self, error: BaseException | None) -> None:
        """Notify nobody."""

    def give_up(self, error: BaseException) -> bool:
        """Notify nobody."""
        return True


_UNOBSERVED = Unobserved()


def attempt(engine: Observed, row: RunRow, call: StepCall, what: str) -> Unobserved:
    """Wrap a call of user code, in its thread or task, for observers."""
    return Attempt(engine, row, call, what) if observers else _UNOBSERVED


class Attempt(Unobserved):
    """A call of user code that observers receive."""

    __slots__ = ("_before", "_begun", "_call", "_engine", "_is_over", "_lock", "_observed")

    def __init__(self, engine: Observed, row: RunRow, call: StepCall, what: str) -> None:
        self._engine = engine
        self._call = call
        self._before = call.attempt.usage
        self._begun: list[tuple[Observer, Any]] | None = None
        self._is_over = False
        self._lock = threading.Lock()
        self._observed = ObservedAttempt(
            run=_run(engine.backend, row),
            key=call.key,
            name=told_name(call.spec.name, call.key),
            number=call.attempt.number,
            what=what,
            effect=call.spec.effect,
            started_us=engine.now_us(),
            redact=engine.redact,
        )

    def __enter__(self) -> Self:
        with self._lock:
            if not self._is_over:
                self._begin()
        return self

    def _begin(self) -> list[tuple[Observer, Any]]:
        begun: list[tuple[Observer, Any]] = []
        _tell("attempt_started", lambda it: begun.append((it, it.attempt_started(self._observed))))
        self._begun = begun
        return begun

    def came_to(self, error: BaseException | None) -> None:
        """It ended with an error that is not raised here, or with none."""
        self._observed.error = error

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        self._end(error)

    def give_up(self, error: BaseException) -> bool:
        """The attempt is abandoned, and its outcome does not count: notify observers now, in this
        thread, and not again. Returns False if it has ended after all."""
        return self._end(error)

    def _end(self, error: BaseException | None) -> bool:
        with self._lock:
            if self._is_over:
                return False
            self._is_over = True
            # Given up before user code was called at all, it is an attempt nevertheless.
            told = self._begin() if self._begun is None else self._begun
        observed = self._observed
        observed.error = error or observed.error
        observed.usage = _used(self._before, self._call.attempt.usage)
        for observer, begun in reversed(told):
            _guarded("attempt_ended", observer, lambda it: it.attempt_ended(observed, begun))  # noqa: B023
        if observed.traced and observed.what == "body":
            for listener in self._engine.listeners:
                listener.traced(observed.run.flow)
        return True


def _used(before: dict[str, Any] | None, after: dict[str, Any] | None) -> dict[str, Any] | None:
    """Return what one attempt used: an earlier one that left a doubt may not be written down yet."""
    if after is None or after is before:
        return None
    if before is None:
        return dict(after)
    return {
        name: amount - before.get(name, 0) if isinstance(amount, int | float) else amount
        for name, amount in after.items()
    }


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
