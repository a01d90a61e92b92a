"""A handle to a run, wherever it lives."""

from __future__ import annotations

import contextlib
import functools
import threading
import time
from collections.abc import AsyncIterator, Callable, Iterator
from typing import TYPE_CHECKING, Any, Generic, Self, TypeVar, cast

import msgspec

from holdfast import errors
from holdfast._api.store_actions import Acting, refuse_in_a_loop
from holdfast._engine.journal.entries import Kind
from holdfast._engine.journal.lifecycle import Status
from holdfast._engine.values.durations import Duration, seconds
from holdfast._runtime.execution.admission import outcome
from holdfast._stores.addresses import place

if TYPE_CHECKING:
    from holdfast._engine.decisions.control import Stopped
    from holdfast._engine.journal.rows import RunRow
    from holdfast._runtime.engine import Engine
    from holdfast._runtime.execution.execution import Execution

R = TypeVar("R")
T = TypeVar("T")

POLL_S = 0.5
QUIET_S = 0.02
"""How long an awaited stream lets changes gather, so that a busy store is not read all the time."""
PATIENCE_S = 10.0
"""How long a cancel waits for the run's owner by default."""
SETTLED = frozenset(
    {Status.COMPLETED, Status.FAILED, Status.CANCELLED, Status.ROLLED_BACK, Status.HELD}
)
"""Where a run goes no further by itself."""


class Emitted(msgspec.Struct, frozen=True):
    """One value of a run's stream. Each execution of a step begins its output anew."""

    seq: int
    step: str | None
    attempt: int
    value: Any
    begins: bool = False
    """Whether a step begins its output here: for the first time, with its next attempt, or with the
    same one again after its process died. What came from that step before is superseded. A value
    that the flow itself emits comes once, and begins nothing."""


class Handle(Generic[R]):
    """A run that was started or submitted."""

    def __init__(self, engine: Engine, run_id: str) -> None:
        self._engine = engine
        self.run_id = run_id
        self._thread: threading.Thread | None = None
        self._error: BaseException | None = None

    def __repr__(self) -> str:
        return f"<handle of run {self.run_id!r}>"

    def _works_in_thread(self, execution: Execution, work: Callable[[], Any]) -> None:
        """Execute the run, which was taken, in a background thread of this process."""

        def target() -> None:
            try:
                work()
            except BaseException as error:
                self._error = error

        self._thread = self._engine.in_thread(execution, target)

    def status(self) -> Status:
        """Return where the run is in its life."""
        return self._row().status

    def result(self, timeout: Duration | None = None) -> R:
        """Wait for the end of the run and return its result, or raise why there is none."""
        self._refuse_in_a_loop("result", "await handle.aio.result(…)")
        timeout_s = None if timeout is None else seconds(timeout, "result(timeout=…)")
        deadline = None if timeout_s is None else time.monotonic() + timeout_s
        while True:
            row = self._look()
            if row.status in SETTLED:
                return self._outcome(row)
            self._engine.backend.wait_for_change(patience_s(row, timeout_s, deadline))

    def cancel(
        self, *, actor: str | None = None, reason: str = "", wait_s: float = PATIENCE_S
    ) -> Stopped:
        """Cancel the run and its children. The answer is the truth: "cancelled", "finished" before,
        or "pending", with what stands against it."""
        if wait_s != 0:
            self._refuse_in_a_loop("cancel", "await handle.aio.cancel(…)")
        store = Acting(self._engine.backend)
        return store.cancel(self.run_id, actor=actor, reason=reason, wait_s=wait_s)

    def stream(self, after: int = 0) -> Iterator[Emitted]:
        """Yield what the run emits behind entry number `after`, until it goes no further."""
        self._refuse_in_a_loop("stream", "async for … in handle.aio.stream(…)")
        return stream(self._engine, self.run_id, after)

    @property
    def aio(self) -> AwaitedHandle[R]:
        """The same for callers in an event loop, which goes on meanwhile."""
        return AwaitedHandle(self._engine, self)

    def _refuse_in_a_loop(self, name: str, instead: str) -> None:
        refuse_in_a_loop(f"{name}() of the handle", self.run_id, instead)

    def _look(self) -> RunRow:
        """Return the run's row as it is now; raise what ended its work in this process."""
        row = self._row()
        died = self._thread is not None and not self._thread.is_alive()
        if row.status not in SETTLED and died and self._error is not None:
            raise self._error
        return row

    def _outcome(self, row: RunRow) -> R:
        """Return the result of the run, which goes no further, or raise why it has none: with the
        error itself as the cause, if the run failed in a thread of this handle."""
        try:
            return cast("R", outcome(self._engine, row))
        except errors.RunFailed as failed:
            raise failed from self._cause(failed)

    def _cause(self, failed: errors.RunFailed) -> BaseException | None:
        if self._thread is None:
            return None
        self._thread.join(PATIENCE_S)  # Its failure is recorded: it is about to end.
        own = self._error
        if not isinstance(own, errors.RunFailed):
            return None
        # It may have been taken up since, and have failed elsewhere for another reason.
        same = (own.type_name, own.message) == (failed.type_name, failed.message)
        return own.__cause__ if same else None

    def _row(self) -> RunRow:
        row = self._engine.backend.get(self.run_id)
        if row is None:
            raise _not_found(self._engine, self.run_id)
        if row.deleted_us is not None:
            raise errors.RunDeleted(self.run_id)
        return row


class AwaitedHandle(Generic[R]):
    """`handle.aio`: the same for async callers. However many wait, they wait in the event loop; a
    thread is needed only to look."""

    def __init__(self, engine: Engine, handle: Handle[R]) -> None:
        self._engine = engine
        self._handle = handle
        self.run_id = handle.run_id

    async def status(self) -> Status:
        """Return where the run is in its life."""
        return await self._in_thread(self._handle.status)

    async def result(self, timeout: Duration | None = None) -> R:  # noqa: ASYNC109 - as its twin
        """Await the end of the run and return its result, or raise why there is none."""
        timeout_s = None if timeout is None else seconds(timeout, "result(timeout=…)")
        deadline = None if timeout_s is None else time.monotonic() + timeout_s
        with Bell(self._engine) as bell:
            while True:
                row = await self._in_thread(self._handle._look)  # pyright: ignore[reportPrivateUsage]
                if row.status in SETTLED:
                    return await self._in_thread(self._handle._outcome, row)  # pyright: ignore[reportPrivateUsage]
                await bell.rings(patience_s(row, timeout_s, deadline))

    async def cancel(
        self, *, actor: str | None = None, reason: str = "", wait_s: float = PATIENCE_S
    ) -> Stopped:
        """Cancel the run and its children, and await what comes of it."""
        cancel = functools.partial(self._handle.cancel, actor=actor, reason=reason, wait_s=wait_s)
        return await self._in_thread(cancel)

    def stream(self, after: int = 0) -> AsyncIterator[Emitted]:
        """Yield what the run emits behind entry number `after`, until it goes no further."""
        return _awaited_stream(self._engine, self.run_id, after)

    async def _in_thread(self, work: Callable[..., T], *args: Any) -> T:
        import asyncio

        loop = asyncio.get_running_loop()
        return await loop.run_in_executor(self._engine.threads(), work, *args)


def patience_s(row: RunRow, timeout_s: float | None, deadline: float | None) -> float:
    """Return for how long to wait before looking again; raise if the time is over."""
    left_s = POLL_S if deadline is None else min(POLL_S, deadline - time.monotonic())
    if left_s <= 0:
        raise TimeoutError(f"run {row.run_id!r} is still {row.status} after {timeout_s:g} s")
    return left_s


def stream(engine: Engine, run_id: str, after: int = 0) -> Iterator[Emitted]:
    """Yield what a run emits, in order, until it goes no further."""
    seen = after
    while True:
        news, seen, settled = _news(engine, run_id, seen)
        yield from news
        if settled:
            return
        engine.backend.wait_for_change(POLL_S)


def _not_found(engine: Engine, run_id: str) -> errors.RunNotFound:
    kept = engine.backend
    return errors.RunNotFound(run_id, place(kept.url, kept.namespace))


def _news(engine: Engine, run_id: str, seen: int) -> tuple[list[Emitted], int, bool]:
    """Return what a run has emitted since an entry, how far that is, and whether it is all."""
    row = engine.backend.get(run_id)
    if row is None:
        raise _not_found(engine, run_id)
    if row.deleted_us is not None:
        raise errors.RunDeleted(run_id)
    news: list[Emitted] = []
    if row.last_seq > seen:
        values = engine.values(row)
        for entry in engine.backend.load(row, [(1, seen)] if seen else []):
            if entry.kind is Kind.VALUE_EMITTED:
                data = entry.data()
                value = values.decode(bytes(data["value"]))
                begins = "begins" in data
                news.append(Emitted(entry.seq, entry.step, entry.attempt, value, begins))
    return news, max(seen, row.last_seq), row.status in SETTLED


async def _awaited_stream(engine: Engine, run_id: str, after: int) -> AsyncIterator[Emitted]:
    import asyncio

    loop = asyncio.get_running_loop()
    with Bell(engine) as bell:
        seen, settled = after, False
        while not settled:
            look = loop.run_in_executor(engine.threads(), _news, engine, run_id, seen)
            news, seen, settled = await look
            for value in news:
                yield value
            if not settled:
                await bell.rings(POLL_S)
                await asyncio.sleep(QUIET_S)


class Bell:
    """Rings in the running event loop when the store has changed."""

    def __init__(self, engine: Engine) -> None:
        import asyncio

        self._engine = engine
        self._loop = asyncio.get_running_loop()
        self._changed = asyncio.Event()

    def __enter__(self) -> Self:
        self._engine.listener.add(self._ring)
        return self

    def __exit__(self, *_ended: object) -> None:
        self._engine.listener.remove(self._ring)

    def _ring(self) -> None:
        with contextlib.suppress(RuntimeError):  # The loop was closed: nobody waits.
            self._loop.call_soon_threadsafe(self._changed.set)

    async def rings(self, within_s: float) -> None:
        """Wait until it has rung since it was last waited for, or the time is over."""
        import asyncio

        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(self._changed.wait(), within_s)
        self._changed.clear()
