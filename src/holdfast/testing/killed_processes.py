"""The processes of a run that are killed one after another, and the work of each of them.

A life opens its own handle on the store and its own engine, as a process would. It ends with the
end of the run, with a hold, or with death at a chosen write; then its handle is gone and the next
life resumes the run. `Ledger` is an independent account: every body that was really called.
"""

from __future__ import annotations

import contextlib
import os
import signal
import threading
from collections.abc import Callable, Generator
from pathlib import Path
from typing import Any

import msgspec

from holdfast._engine.journal.entries import Kind
from holdfast._engine.scripts.doubt_policies import policy_name
from holdfast._engine.scripts.requests import Spec
from holdfast._stores.contract import Store as Kept
from holdfast.errors import HoldfastError, RunHeld, RunRolledBack
from holdfast.testing.clock import FakeClock
from holdfast.testing.internals import AsyncFlow, Engine, Flow, Frame, Store, watching
from holdfast.testing.store_proxy import Killed, Mortal, When
from holdfast.testing.stores import strict

AnyFlow = Flow[..., Any] | AsyncFlow[..., Any]
EXIT_ENDED = 0
EXIT_STOPPED = 3


class Executed(msgspec.Struct):
    """One call of user code, as the outside world saw it."""

    life: int
    step: str
    what: str
    attempt: int
    generation: int
    key: str
    effect: bool
    policy: str
    intended: bool
    """Whether the intent of this very attempt was durable when the body was called."""


class Ledger:
    """Every call of user code in all lives of a run."""

    def __init__(self, run_id: str, path: str | None = None) -> None:
        self.run_id = run_id
        self.life = 0
        self.calls: list[Executed] = []
        self._path = path

    def watch(self, frame: Frame, what: str) -> Callable[[BaseException | None], None]:
        """Note a call that begins now."""
        execution, call = frame.execution, frame.call
        assert call is not None
        if execution.run_id == self.run_id:
            spec = call.spec
            # An effect that commits together with its outcome needs no intent before.
            intended = (
                not spec.effect
                or spec.transaction
                or is_intended(execution.engine.backend, self.run_id, call.key, call.attempt.number)
            )
            self._add(
                Executed(
                    self.life,
                    call.key,
                    what,
                    call.attempt.number,
                    execution.generation,
                    call.idempotency_key,
                    spec.effect,
                    _policy(spec),
                    intended,
                )
            )
        return lambda _error: None

    def _add(self, executed: Executed) -> None:
        if self._path is None:
            self.calls.append(executed)
            return
        # One short write to a file opened for appending: it survives this process.
        with Path(self._path).open("ab", buffering=0) as file:
            file.write(msgspec.json.encode(executed) + b"\n")

    def take_over(self, path: str) -> None:
        """Read the notes of a process that is gone."""
        if Path(path).exists():
            lines = Path(path).read_bytes().splitlines()
            self.calls += [msgspec.json.decode(line, type=Executed) for line in lines]
            Path(path).unlink()

    def bodies(self, life: int | None = None) -> list[Executed]:
        """Return the calls of bodies, of one life or all."""
        return [call for call in self.calls if call.what == "body" and life in (None, call.life)]

    def counts(self) -> dict[str, int]:
        """Return how often the body of each step was called."""
        found: dict[str, int] = {}
        for call in self.bodies():
            found[call.step] = found.get(call.step, 0) + 1
        return found


def _policy(spec: Spec) -> str:
    if spec.transaction:
        return "transaction"
    return policy_name(spec.on_doubt) if spec.effect else ""


def is_intended(kept: Kept, run_id: str, step: str, attempt: int) -> bool:
    """Return whether the store has the intent of this attempt."""
    if isinstance(kept, Mortal):
        if kept.dead:
            return True
        kept = kept.inner
    row = kept.get(run_id)
    return row is not None and any(
        entry.kind is Kind.STEP_STARTED
        and entry.step == step
        and entry.attempt == attempt
        and b'"effect":true' in entry.body
        for entry in kept.load(row)
    )


class End(msgspec.Struct):
    """How a life ended: with a value, with an error, or by death."""

    value: Any = None
    error: BaseException | None = None
    died_in: str | None = None
    writes: int = 0

    @property
    def held(self) -> RunHeld | None:
        """The error of a held run."""
        return self.error if isinstance(self.error, RunHeld) else None


class Work(msgspec.Struct):
    """The user's flow with its arguments."""

    flow: Any
    run_id: str
    args: tuple[Any, ...]
    kwargs: dict[str, Any]

    def perform(self, store: Store) -> Any:
        """Execute the run on a store, until it ends or stops. A rollback is an end too: the caller
        receives its result."""
        bound = self.flow.with_options(store=store)
        try:
            if not isinstance(self.flow, AsyncFlow):
                return bound.run(self.run_id, *self.args, **self.kwargs)
            import asyncio

            return asyncio.run(bound.run(self.run_id, *self.args, **self.kwargs))
        except RunRolledBack as rolled_back:
            return str(rolled_back)


@contextlib.contextmanager
def process(kept: Kept, clock: FakeClock) -> Generator[Store, None, None]:
    """Stand for a process: an engine of its own, gone without a clean shutdown at the end."""
    engine = Engine(kept, clock)
    engine.listeners = ()  # A killed process writes no measures at its end.
    try:
        with strict():
            yield Store(kept, engine)
    finally:
        engine.close()


def live(
    work: Work,
    kept: Kept,
    clock: FakeClock,
    ledger: Ledger,
    at: int | None = None,
    when: When = "before",
) -> End:
    """Execute the run in a life of its own; `at` is the write in which it dies."""
    mortal = Mortal(kept, at, when)
    ledger.life += 1
    with _dying_quietly(), watching(ledger.watch), process(mortal.as_store(), clock) as store:
        try:
            end = End(work.perform(store))
        except HoldfastError as error:
            end = End(error=error)
        except BaseException as error:
            if not mortal.dead:
                raise
            end = End(error=error)
    end.writes = mortal.writes
    end.died_in = mortal.died_in
    return end


@contextlib.contextmanager
def _dying_quietly() -> Generator[None, None, None]:
    """The threads of a dying process have nothing to report."""
    before = threading.excepthook

    def hook(args: threading.ExceptHookArgs) -> None:
        if not issubclass(args.exc_type, Killed):
            before(args)

    threading.excepthook = hook
    try:
        yield
    finally:
        threading.excepthook = before


def live_and_be_killed(
    work: Work,
    reopen: Callable[[], Kept],
    clock: FakeClock,
    ledger: Ledger,
    path: str,
    at: int,
    when: When,
    beside: contextlib.AbstractContextManager[None],
) -> End:
    """Execute the run in a forked process that gets a real SIGKILL at its n-th write. `beside` runs
    in this process meanwhile."""
    ledger.life += 1
    pid = os.fork()
    if pid == 0:
        code = EXIT_STOPPED
        try:
            own = Ledger(ledger.run_id, path)
            own.life = ledger.life
            mortal = Mortal(reopen(), at, when, lambda what: _kill_myself(f"{path}.where", what))
            with watching(own.watch), process(mortal.as_store(), clock) as store:
                work.perform(store)
            code = EXIT_ENDED
        finally:
            os._exit(code)
    with beside:
        _, status = os.waitpid(pid, 0)
    ledger.take_over(path)
    if os.WIFSIGNALED(status):
        return End(died_in=Path(f"{path}.where").read_text(encoding="utf-8"))
    return End(error=None if os.WEXITSTATUS(status) == EXIT_ENDED else HoldfastError("it stopped"))


def _kill_myself(path: str, what: str) -> None:
    Path(path).write_text(what, encoding="utf-8")
    os.kill(os.getpid(), signal.SIGKILL)
