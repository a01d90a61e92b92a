"""A store of a test's own: private, empty, the process's default while it is open, and strict.

with testing.store() as store:
    assert my_flow.run("r-1", 3) == 9
    assert store.get("r-1").steps[0].status == "completed"
"""

from __future__ import annotations

import contextlib
import os
import tempfile
import threading
from collections.abc import Callable, Generator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from holdfast._engine.journal.history import History
from holdfast._engine.journal.lifecycle import Status
from holdfast._engine.scripts.stops import Tried
from holdfast.errors import RunNotFound
from holdfast.testing.clock import PATIENCE_S, FakeClock, real_deadline
from holdfast.testing.faults import FaultyStore, StoreFaults
from holdfast.testing.internals import Engine, Kept, Store, as_default, open_store, overrides

if TYPE_CHECKING:
    from holdfast.types import Handle

STRICT = "HOLDFAST_STRICT"
LOOK_S = 0.05
"""How often to check for a fact when the store reports no change."""


class PrivateStore(Store):
    """An opened store with further methods for tests."""

    def __init__(self, kept: Kept, engine: Engine, clock: FakeClock | None) -> None:
        super().__init__(kept, engine)
        self._clock = clock

    @property
    def clock(self) -> FakeClock:
        """The clock that was given, for tests that move it."""
        if self._clock is None:
            raise AttributeError(
                "this store runs on the machine's clock; give testing.store(clock=…)"
            )
        return self._clock

    def wait_until(
        self,
        run_id: str,
        *,
        status: str | Sequence[str] | None = None,
        waiting: str | bool | None = None,
        done: str | None = None,
        timeout_s: float = PATIENCE_S,
    ) -> Handle[Any]:
        """Wait for a fact about a run, in real time, and return a handle to it.

        `status="held"` (or several); `waiting=True`, or the beginning of what it waits for, such as
        "timer"; `done="search#2"`, a step that has an outcome. All given conditions must hold.
        """
        left_s = real_deadline(timeout_s)
        while True:
            found = self._facts(run_id)
            if _fits(found, status, waiting, done):
                return self.handle(run_id)
            if left_s() <= 0:
                wanted = {"status": status, "waiting": waiting, "done": done}
                asked = ", ".join(f"{name}={it!r}" for name, it in wanted.items() if it is not None)
                raise TimeoutError(
                    f"run {run_id!r} has not come to {asked} within {timeout_s:g} s: {found}"
                )
            self._backend.wait_for_change(min(LOOK_S, max(0.0, left_s())))

    def _facts(self, run_id: str) -> _Facts:
        if self._backend.get(run_id) is None:
            return _Facts(None, None, {})
        steps = _states(self._backend, run_id)
        # The row is read last: an outcome stays, while a row that was read before it may still show
        # the wait that the outcome ended.
        row = self._backend.get(run_id)
        if row is None:
            return _Facts(None, None, {})
        waits = None if Tried.read(row.waiting_on) is not None else row.waiting_on
        return _Facts(row.status, waits, steps)


class _Facts:
    def __init__(
        self, status: Status | None, waiting_on: str | None, steps: dict[str, str]
    ) -> None:
        self.status = status
        self.waiting_on = waiting_on
        self.steps = steps

    def __str__(self) -> str:
        if self.status is None:
            return "there is no such run"
        steps = ", ".join(f"{key} {state}" for key, state in self.steps.items()) or "no steps"
        waits = f" on {self.waiting_on}" if self.waiting_on else ""
        return f"it is {self.status}{waits}; {steps}"


def _fits(
    found: _Facts, status: str | Sequence[str] | None, waiting: str | bool | None, done: str | None
) -> bool:
    if found.status is None:
        return False
    if status is not None:
        wanted = [status] if isinstance(status, str) else list(status)
        if found.status not in [Status(name) for name in wanted]:
            return False
    if waiting is not None:
        waits = found.status is Status.WAITING or found.waiting_on is not None
        if isinstance(waiting, str):
            waits = waits and (found.waiting_on or "").startswith(waiting)
        if waits != bool(waiting):
            return False
    return done is None or found.steps.get(done) in ("completed", "failed", "skipped_duplicate")


def _states(kept: Kept, run_id: str) -> dict[str, str]:
    row = kept.get(run_id)
    if row is None:
        raise RunNotFound(run_id, kept.url)
    history = History.fold(run_id, kept.load(row))
    return {record.key: record.state.value for record in history.records.values()}


@contextlib.contextmanager
def store(
    clock: FakeClock | None = None,
    url: str | None = None,
    *,
    faults: StoreFaults | None = None,
    lease_s: float = 30.0,
) -> Generator[PrivateStore, None, None]:
    """Open a private store for a test: in memory, or at `url`.

    `url="sqlite:"` is a new SQLite file in a temporary folder. While it is open it is the process's
    default store, and strict mode is on: a step that would not be recorded raises an error. With
    `clock=FakeClock()`, time stands still until the test moves it; with `faults=StoreFaults()`,
    operations of the store fail as planned.
    """
    with contextlib.ExitStack() as stack:
        if url == "sqlite:":
            url = new_sqlite_url(stack)
        kept = open_store(url or "memory:", clock=clock, lease_s=lease_s)
        if faults is not None:
            kept = FaultyStore(kept, faults).as_store()
        engine = Engine(kept, clock)
        stack.callback(engine.close)
        stack.enter_context(as_default(engine))
        stack.enter_context(strict())
        yield PrivateStore(kept, engine, clock)


def new_sqlite_url(stack: contextlib.ExitStack) -> str:
    """Return the URL of a SQLite file in a folder that is removed with the stack."""
    folder = stack.enter_context(tempfile.TemporaryDirectory(prefix="holdfast-test-"))
    return f"sqlite:///{Path(folder).resolve()}/store.db"


@contextlib.contextmanager
def strict() -> Generator[None, None, None]:
    """Turn strict mode on for a while; overlapping uses may end in any order."""
    _Strict.enter()
    try:
        yield
    finally:
        _Strict.leave()


class _Strict:
    """How many uses of strict mode there are, and the setting before the first one."""

    lock = threading.Lock()
    users = 0
    before: str | None = None

    @classmethod
    def enter(cls) -> None:
        with cls.lock:
            if cls.users == 0:
                cls.before = os.environ.get(STRICT)
            cls.users += 1
            os.environ[STRICT] = "1"

    @classmethod
    def leave(cls) -> None:
        with cls.lock:
            cls.users -= 1
            if cls.users:
                return
            if cls.before is None:
                os.environ.pop(STRICT, None)
            else:
                os.environ[STRICT] = cls.before


@contextlib.contextmanager
def override(factory: Callable[[], Any], fake: Any) -> Generator[None, None, None]:
    """Use `fake` instead of what `resource(factory)` would build, while it is entered."""
    missing = object()
    before = overrides.get(factory, missing)
    overrides[factory] = fake
    try:
        yield
    finally:
        if before is missing:
            overrides.pop(factory, None)
        else:
            overrides[factory] = before
