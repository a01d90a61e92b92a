"""Server-sent events: changes of runs and of the store, as they become durable.

One thread per process waits for changes of the store and notifies all streams. The cursor of a
stream is the number of the last entry that it sent. A client that reconnects with it
(`Last-Event-ID`) continues after that entry, and no entry is lost or sent twice. The journal has
all entries, so nothing is buffered here.
"""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

import msgspec

from holdfast._engine.journal.lifecycle import FINAL
from holdfast._engine.journal.rows import etag_of
from holdfast._operator.read import run_views
from holdfast._operator.web import request_models
from holdfast._operator.web.access_tokens import Role
from holdfast._operator.web.http_responses import encoded
from holdfast._operator.web.journals import entry_data
from holdfast._operator.web.routes import API, Ask, Route
from holdfast._stores.contract import Store
from holdfast._stores.lookups import existing_row
from holdfast.errors import HoldfastError

KEEP_ALIVE_S = 15.0
CHECK_S = 1.0
"""How often the permission of a listener is checked."""
CHANGE_S = 1.0
"""The minimum time between two notifications."""
BATCH, BATCH_BYTES = 200, 1 << 20
LOOK_S = 1.0
RETRY_S = 2.0

InThread = Callable[..., Awaitable[Any]]


class Changes:
    """Receives changes of the store, and notifies all streams of this process."""

    def __init__(self, store: Store) -> None:
        self.count = 0
        self._ended = threading.Event()
        self._store = store
        self._loop: asyncio.AbstractEventLoop | None = None
        self._changed = asyncio.Event()
        self._thread: threading.Thread | None = None

    @property
    def closed(self) -> bool:
        """Whether all streams have to end."""
        return self._ended.is_set()

    def start(self) -> None:
        """Start the listening thread, when the first stream is opened."""
        if self._thread is None:
            self._loop = asyncio.get_running_loop()
            self._thread = threading.Thread(target=self._listen, name="changes", daemon=True)
            self._thread.start()

    def poke(self) -> None:
        """Notify the streams of a change that this process made."""
        if self._loop is not None and not self._loop.is_closed():
            self._loop.call_soon_threadsafe(self._tell)

    def close(self) -> None:
        """End all streams."""
        self._ended.set()
        self.poke()

    async def wait(self, seen: int, ask: Ask) -> bool:
        """Wait until the store has changed since `seen` was read, or the listener lost its
        permission; return False if it is time for a keep-alive."""
        until_s = time.monotonic() + KEEP_ALIVE_S
        while (left_s := until_s - time.monotonic()) > 0:
            if await self._heard(seen, min(left_s, CHECK_S)) or not valid(ask):
                return True
        return False

    async def _heard(self, seen: int, timeout_s: float) -> bool:
        if self.count == seen and not self.closed:
            waiting = self._changed.wait()
            try:
                await asyncio.wait_for(waiting, timeout_s)
            except TimeoutError:
                return False
        return True

    async def pause(self, ask: Ask, seconds: float) -> None:
        """Wait this long, regardless of changes; end early only if the listener signs out."""
        until_s = time.monotonic() + seconds
        while not (ask.ended or self.closed) and (left_s := until_s - time.monotonic()) > 0:
            await self._heard(self.count, left_s)

    def _tell(self) -> None:
        self.count += 1
        told, self._changed = self._changed, asyncio.Event()
        told.set()

    def _listen(self) -> None:
        while not self.closed:
            try:
                if self._store.wait_for_change(LOOK_S):
                    self.poke()
            except HoldfastError:
                self._ended.wait(RETRY_S)  # The streams report the error themselves.
            except RuntimeError:
                return  # The loop or the store has ended.


def event(name: str, data: Any, number: int | None = None) -> bytes:
    """Return one event."""
    head = f"id: {number}\n" if number is not None else ""
    return f"{head}event: {name}\ndata: ".encode() + encoded(data) + b"\n\n"


STILL_HERE = b": still here\n\n"


def valid(ask: Ask) -> bool:
    """Return whether the listener still has permission: not signed out, not revoked, not
    expired."""
    try:
        if ask.session is not None:
            return ask.site.sessions.holds(ask.session)
        return ask.site.tokens.current(ask.visitor.token) is not None
    except HoldfastError:
        return False  # Unreadable tokens grant no access.


# -- the entries of one run --------------------------------------------------------------------


class Part(msgspec.Struct):
    """New entries of a run."""

    events: list[bytes]
    cursor: int
    more: bool
    status: str
    final: bool


class Tail:
    """The entries of one run, from a number on, then each new entry."""

    def __init__(self, ask: Ask) -> None:
        self.ask = ask
        self.cursor: int = max(ask.query.after, ask.last_event or 0)
        existing_row(ask.store, ask.query.id)

    async def events(self, changes: Changes, in_thread: InThread) -> AsyncIterator[bytes]:
        """Yield the events."""
        status = ""
        while valid(self.ask) and not changes.closed:
            seen = changes.count
            try:
                part: Part = await in_thread(self._read)
            except HoldfastError as error:
                yield event("trouble", {"type": type(error).__name__, "message": str(error)})
                return
            for one in part.events:
                if self.ask.ended:
                    return
                yield one
            self.cursor = part.cursor
            if part.more:
                continue
            if part.status != status:
                status = part.status
                yield event("run", await in_thread(self._summary))
            if part.final:
                yield event("end", {"etag": status, "last": self.cursor})
                return
            if not await changes.wait(seen, self.ask):
                yield STILL_HERE

    def _read(self) -> Part:
        store, run_id = self.ask.store, self.ask.query.id
        row = existing_row(store, run_id)
        found = run_views.history(store, run_id, plain=True, after=self.cursor, limit=BATCH)
        events: list[bytes] = []
        cursor, size = self.cursor, 0
        for entry in found:
            events.append(event("entry", entry_data(entry), entry.seq))
            cursor, size = entry.seq, size + len(events[-1])
            if size > BATCH_BYTES:
                break
        return Part(
            events=events,
            cursor=cursor,
            more=cursor < row.last_seq,
            status=etag_of(row),
            final=row.status in FINAL,
        )

    def _summary(self) -> Any:
        row = existing_row(self.ask.store, self.ask.query.id)
        return {
            "run": run_views.summary_of(self.ask.store, row),
            "etag": etag_of(row),
        }


# -- changes of the store ----------------------------------------------------------------------


class Change:
    """Notifications that the store has changed, at most one a second."""

    def __init__(self, ask: Ask) -> None:
        self.ask = ask

    async def events(self, changes: Changes, in_thread: InThread) -> AsyncIterator[bytes]:
        """Yield the events."""
        seen = changes.count
        yield STILL_HERE
        while valid(self.ask) and not changes.closed:
            if not await changes.wait(seen, self.ask):
                yield STILL_HERE
                continue
            if changes.count == seen or not valid(self.ask):
                continue  # The listener lost its permission.
            seen = changes.count
            yield event("change", {"count": seen})
            await changes.pause(self.ask, CHANGE_S)


ROUTES = [
    Route(
        "GET",
        f"{API}/run/history/stream",
        Role.VIEWER,
        "Streams the entries of a run: events entry, run, end.",
        Tail,
        bytes,
        request_models.HistoryStreamQuery,
        kind="stream",
    ),
    Route(
        "GET",
        f"{API}/changes",
        Role.VIEWER,
        "Streams changes of the store: events change.",
        Change,
        bytes,
        kind="stream",
    ),
]
