"""A block as a run: `with holdfast.run("order-42"):` makes an existing script durable.

The body always executes; its steps replay. When the script is run again, it goes on.
"""

from __future__ import annotations

from collections.abc import Mapping
from contextvars import Token
from types import TracebackType
from typing import TYPE_CHECKING, NoReturn, Self

from holdfast._engine.journal.lifecycle import FINAL
from holdfast._engine.journal.step_keys import check_name, check_run_id
from holdfast._engine.scripts.stops import Unwind
from holdfast._features.budgets.model import Budget, checked_budget, limits_of
from holdfast._features.drift.runtime import begin_block
from holdfast._features.rollback import runtime as rollback
from holdfast._runtime import engine as engines
from holdfast._runtime.engine import Engine, HasEngine
from holdfast._runtime.execution import run_end
from holdfast._runtime.execution.admission import Ended, RunRequest, admit
from holdfast._runtime.execution.execute import admit_async, finish, finish_async
from holdfast._runtime.execution.execution import Execution
from holdfast._runtime.execution.frames import Frame, current, current_task, here
from holdfast.errors import RunError, UsageError


class Block:
    """The common part of the sync and the awaited block."""

    awaits = False

    def __init__(
        self,
        run_id: str,
        *,
        name: str = "block",
        store: HasEngine | None = None,
        tags: Mapping[str, str] | None = None,
        budget: Budget | None = None,
    ) -> None:
        self.run_id = check_run_id(run_id)
        self._name = check_name("block", name)
        self._store = store
        self._tags = dict(tags or {})
        self._budget = checked_budget(budget, f"run {run_id!r}")
        self._execution: Execution | None = None
        self._token: Token[Frame | None] | None = None

    def _engine(self) -> Engine:
        return self._store._engine if self._store is not None else engines.default_engine()  # pyright: ignore[reportPrivateUsage]

    def _request(self) -> RunRequest:
        if current.get() is not None:
            raise UsageError(f"run({self.run_id!r}) inside a run: blocks do not nest")
        if self._execution is not None:
            raise UsageError("a block is entered once; call holdfast.run(…) again")
        return RunRequest(
            run_id=self.run_id,
            flow=self._name,
            names=(self._name,),
            version="1",
            input={},
            defaults={},
            fingerprint=lambda: "",
            code=lambda: "",
            awaits=self.awaits,
            tags=self._tags,
            facts={} if self._budget is None else {"budget": limits_of(self._budget)},
            replays_ended=True,
        )

    def _begin(self, admitted: Execution | Ended) -> None:
        assert isinstance(admitted, Execution)
        self._execution = admitted
        frame = Frame(admitted, admitted.root, here(awaits=self.awaits), awaits=self.awaits)
        self._token = current.set(frame)

    def _end(self, error: BaseException | None) -> tuple[Execution, run_end.Ending] | None:
        """Return what is to be written, or None where the run had ended before."""
        assert self._execution is not None
        assert self._token is not None
        current.reset(self._token)
        execution = self._execution
        if execution.lease.row.status in FINAL:
            if isinstance(error, Unwind):
                raise error.error from None
            return None
        if error is None:
            return execution, run_end.returned(execution, None)
        return execution, run_end.raised(execution, error, wraps=False)


class RunBlock(Block):
    """`with holdfast.run("order-42"):`."""

    def __enter__(self) -> Self:
        if current_task() is not None:
            raise UsageError("in async code write `async with holdfast.aio.run(…):`")
        admitted = admit(self._engine(), self._request())
        pending = rollback.pending(admitted)
        if pending is not None:
            finish(*pending)
        self._begin(admitted)
        try:
            begin_block(admitted)
        except BaseException as error:
            self.__exit__(type(error), error, None)
            raise
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        ended = self._end(error)
        if ended is None:
            return
        try:
            finish(*ended)
        except BaseException as raised:
            if raised is not error:
                _show_own_line(raised, error, trace)
                raise

    if not TYPE_CHECKING:  # A type checker reports it.

        async def __aenter__(self) -> NoReturn:
            """Name the block in a message."""
            raise UsageError("in async code write `async with holdfast.aio.run(…):`")

        async def __aexit__(self, *raised: object) -> None:
            """Nobody enters it so."""


class AsyncRunBlock(Block):
    """`async with holdfast.aio.run("order-42"):`."""

    awaits = True

    async def __aenter__(self) -> Self:
        admitted = await admit_async(self._engine(), self._request())
        pending = rollback.pending(admitted)
        if pending is not None:
            await finish_async(*pending)
        self._begin(admitted)
        try:
            begin_block(admitted)
        except BaseException as error:
            await self.__aexit__(type(error), error, None)
            raise
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        ended = self._end(error)
        if ended is None:
            return
        try:
            await finish_async(*ended)
        except BaseException as raised:
            if raised is not error:
                _show_own_line(raised, error, trace)
                raise

    if not TYPE_CHECKING:

        def __enter__(self) -> NoReturn:
            """Return the line that enters it."""
            raise UsageError(
                "write `async with holdfast.aio.run(…):`, or in sync code `with holdfast.run(…):`"
            )

        def __exit__(self, *raised: object) -> None:
            """Nobody enters it so."""


def _show_own_line(
    raised: BaseException, error: BaseException | None, trace: TracebackType | None
) -> None:
    """Let an error show the user's line at which the run was stopped, and not the exception by which
    we got from there to here."""
    if isinstance(error, Unwind):
        raised.__suppress_context__ = True
        if isinstance(raised, RunError):
            raised.__traceback__ = _outside(trace)


def _outside(trace: TracebackType | None) -> TracebackType | None:
    """Return a traceback up to where it enters Holdfast."""
    if trace is None or trace.tb_frame.f_globals.get("__name__", "").startswith("holdfast."):
        return None
    return TracebackType(_outside(trace.tb_next), trace.tb_frame, trace.tb_lasti, trace.tb_lineno)


def run(
    run_id: str,
    /,
    *,
    name: str = "block",
    store: HasEngine | None = None,
    tags: Mapping[str, str] | None = None,
    budget: Budget | None = None,
) -> RunBlock:
    """Make a block a run: steps inside it are recorded, and replay when the script runs again."""
    return RunBlock(run_id, name=name, store=store, tags=tags, budget=budget)


def aio_run(
    run_id: str,
    /,
    *,
    name: str = "block",
    store: HasEngine | None = None,
    tags: Mapping[str, str] | None = None,
    budget: Budget | None = None,
) -> AsyncRunBlock:
    """Make a block of async code a run: `async with holdfast.aio.run("order-42"):`."""
    return AsyncRunBlock(run_id, name=name, store=store, tags=tags, budget=budget)
