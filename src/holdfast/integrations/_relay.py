"""Streams through a recorded call: seen live the first time, replayed from the record later.

The recorded call is made beside the consumer, in a task or a thread of its own, and hands on each
item as it comes; it returns all of them, and that is what is recorded. A replayed call hands on
nothing and returns everything. The end of the stream is told only after the record is committed: who
has read to the end will never be asked again. A consumer that goes away early cancels the call, and
so does a crash: nothing is recorded, and it is made again. With `linger_s` the call gets that long to
end by itself, for consumers that know of the end before it comes. `left` is set when the consumer has
closed the stream itself.
"""

from __future__ import annotations

import asyncio
import contextvars
import queue
import threading
from collections.abc import AsyncGenerator, Awaitable, Callable, Generator, Sequence
from typing import Any, TypeVar

T = TypeVar("T")
Put = Callable[[T], None]
"""Hands one item to the consumer; in a sync call it raises `Gone` when nobody listens any more."""


class Gone(GeneratorExit):
    """The consumer of a stream has gone away: the call is cut short, and that is no outcome."""


class Left(GeneratorExit):
    """The reader has left an answer before its end. It is asked for again when the run is resumed; the
    same call made again in this run is the next one (`again`: its key is not given back)."""

    again = False


async def arelay(
    record: Callable[[Put[T]], Awaitable[Sequence[T]]],
    *,
    linger_s: float = 0.0,
    left: threading.Event | None = None,
) -> AsyncGenerator[T]:
    """Yield what `record(put)` puts, then what it returned beyond that: all of it, if replayed."""
    passed: asyncio.Queue[T | None] = asyncio.Queue()
    seen = 0

    async def call() -> Sequence[T]:
        try:
            return await record(passed.put_nowait)
        finally:
            passed.put_nowait(None)

    task = asyncio.create_task(call())
    try:
        while (item := await passed.get()) is not None:
            seen += 1
            yield item
        for item in (await task)[seen:]:
            yield item
    except GeneratorExit:
        if left:
            left.set()
        if linger_s and not task.done():
            await asyncio.wait([task], timeout=linger_s)
        raise
    finally:
        if not task.done():
            task.cancel()
            await asyncio.wait([task])
        if not task.cancelled():
            task.exception()  # Who has gone away does not ask for it.


def relay(
    record: Callable[[Put[T]], Sequence[T]],
    *,
    linger_s: float = 0.0,
    left: threading.Event | None = None,
) -> Generator[T]:
    """The blocking twin of `arelay`: the call is made in a thread that carries the context."""
    passed: queue.SimpleQueue[T | None] = queue.SimpleQueue()
    gone = threading.Event()
    end: list[Any] = []

    def put(item: T) -> None:
        if gone.is_set():
            raise Gone
        passed.put(item)

    def call() -> None:
        try:
            end.append(record(put))
        except BaseException as error:
            end.append(error)
        finally:
            passed.put(None)

    context = contextvars.copy_context()
    thread = threading.Thread(target=context.run, args=(call,), name="holdfast-relay", daemon=True)
    thread.start()
    seen = 0
    try:
        while (item := passed.get()) is not None:
            seen += 1
            yield item
        thread.join()
        if isinstance(end[0], BaseException):
            raise end[0]
        yield from end[0][seen:]
    except GeneratorExit:
        if left:
            left.set()
        thread.join(linger_s)
        raise
    finally:
        gone.set()
