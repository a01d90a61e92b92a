"""Streams through a recorded call: live the first time, replayed from the record later.

The recorded call runs beside the consumer, in its own task or thread, and passes each item on as it
arrives. It returns all of them, and that is recorded. A replayed call passes nothing on and returns
everything. The stream ends only after the record is committed, so a consumer that has read to the
end never sends the request again. A consumer that leaves early cancels the call, as a crash does:
nothing is recorded, and the call is made again. With `linger_s` the call gets that long to end by
itself, for consumers that know the end before it arrives. `left` is set when the consumer has
closed the stream itself.

An awaited call that awaits what `put` returns reads no further than its consumer: it goes on when the
next item is wanted. So a consumer that leaves between two items finds the provider waiting there, as without
a record, and cuts nothing that the provider does after its last item: its clean-up is left to run.

Only the task or thread that reads a generator can close it. `Closer` is for all others: the reader
gets `Closed`, and the call ends as if the reader had left.
"""

from __future__ import annotations

import asyncio
import collections
import contextvars
import queue
import threading
from collections.abc import AsyncGenerator, Awaitable, Callable, Generator, Sequence
from typing import Any, TypeVar

T = TypeVar("T")
Put = Callable[[T], None]
"""Passes one item to the consumer; in a sync call it raises `Gone` when nobody reads any more."""
AsyncPut = Callable[[T], Awaitable[None]]
"""Passes one item to the consumer. Its result may be awaited: until the next item is wanted."""


class Gone(GeneratorExit):
    """The consumer of a stream has left: the call is cancelled, which is no outcome."""


class Left(GeneratorExit):
    """The reader has left an answer before its end. It is requested again when the run resumes; the
    same call made again in this run is the next one (`again`: its key is not given back)."""

    again = False


class Closed(Exception):
    """Another task or thread closed the stream while it was read."""


class Closer:
    """Closes a stream that another task or thread is reading."""

    def __init__(self) -> None:
        self.wake: Callable[[], None] | None = None

    def close(self) -> None:
        """Wake the reader, if there is one."""
        if self.wake is not None:
            self.wake()


_CLOSED: Any = object()


async def arelay(
    record: Callable[[AsyncPut[T]], Awaitable[Sequence[T]]],
    *,
    linger_s: float = 0.0,
    left: threading.Event | None = None,
    closer: Closer | None = None,
) -> AsyncGenerator[T]:
    """Yield the items that `record(put)` puts, then the rest of what it returned: everything, if
    replayed."""
    passed: asyncio.Queue[T | None] = asyncio.Queue()
    taken: collections.deque[asyncio.Future[None]] = collections.deque()
    seen = 0

    def put(item: T) -> asyncio.Future[None]:
        passed.put_nowait(item)
        taken.append(asyncio.get_running_loop().create_future())
        return taken[-1]

    async def call() -> Sequence[T]:
        try:
            return await record(put)
        finally:
            passed.put_nowait(None)

    if closer:
        closer.wake = lambda: passed.put_nowait(_CLOSED)
    task = asyncio.create_task(call())
    try:
        while (item := await passed.get()) is not None:
            if item is _CLOSED:
                raise Closed
            seen += 1
            yield item
            if not (went_on := taken.popleft()).done():
                went_on.set_result(None)
        for item in (await task)[seen:]:
            yield item
    except (GeneratorExit, Closed):
        if left:
            left.set()
        if linger_s and not task.done():
            await asyncio.wait([task], timeout=linger_s)
        raise
    finally:
        await _cut(task)
        if not task.cancelled():
            task.exception()  # A consumer that has left does not ask for it.


async def _cut(task: asyncio.Task[Any]) -> None:
    """Cancel a call and wait for its end. If the caller is cancelled meanwhile, cancel the call
    again."""
    cancelled: asyncio.CancelledError | None = None
    while not task.done():
        task.cancel()
        try:
            await asyncio.wait([task])
        except asyncio.CancelledError as error:
            cancelled = error
    if cancelled is not None:
        raise cancelled


def relay(
    record: Callable[[Put[T]], Sequence[T]],
    *,
    linger_s: float = 0.0,
    left: threading.Event | None = None,
    closer: Closer | None = None,
) -> Generator[T]:
    """The blocking twin of `arelay`: the call runs in a thread that carries the context."""
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
    if closer:
        closer.wake = lambda: passed.put(_CLOSED)
    thread.start()
    seen = 0
    try:
        while (item := passed.get()) is not None:
            if item is _CLOSED:
                raise Closed
            seen += 1
            yield item
        thread.join()
        if isinstance(end[0], BaseException):
            raise end[0]
        yield from end[0][seen:]
    except (GeneratorExit, Closed):
        if left:
            left.set()
        thread.join(linger_s)
        raise
    finally:
        gone.set()
