"""Wait for commits of any process without polling.

Every commit writes the witness, so a watch on that file (inotify) reports all of them. Each waiting
thread has its own watch: the kernel queues the events while the thread does other work. Without
inotify, the file is read 20 times a second.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import select
import sys
import threading
import time
import weakref
from collections.abc import Callable

_MODIFIED = 0x00000002
_CLOEXEC_NONBLOCK = os.O_CLOEXEC | os.O_NONBLOCK
POLL_S = 0.05


class Watch:
    """Waits for changes of one file."""

    def __init__(self, path: str, changes: Callable[[], object]) -> None:
        self._path = path
        self._changes = changes
        self._closing = threading.Event()
        self._bells: list[_Bell] = []
        self._local = threading.local()
        self._pid = os.getpid()

    def wait(self, timeout_s: float) -> bool:
        """Block until a commit may have changed the store, or the time has passed."""
        if self._closing.is_set():
            return True
        if self._pid != os.getpid():
            self._local, self._pid, self._bells = threading.local(), os.getpid(), []
        queue: _Queue | None = getattr(self._local, "queue", None)
        if queue is None:
            self._watch()
            return True  # Nothing watched until now: the store may have changed.
        if queue.handle is None or not self._bells:
            return self._poll(timeout_s)
        ready = _ready(queue.handle, self._bells[0].handle, timeout_s)
        if queue.handle in ready:
            queue.drain()
        return bool(ready)

    def _watch(self) -> None:
        """Begin to watch in this thread; if no descriptors are left, the file is read."""
        self._local.queue = _Queue(self._path)
        self._local.seen = self._changes()
        if not self._bells:
            with contextlib.suppress(OSError):
                self._bells.append(_Bell())

    def _poll(self, timeout_s: float) -> bool:
        deadline_s = time.monotonic() + timeout_s
        while True:
            now = self._changes()
            if now != self._local.seen:
                self._local.seen = now
                return True
            left_s = deadline_s - time.monotonic()
            if left_s <= 0 or self._closing.wait(min(left_s, POLL_S)):
                return self._closing.is_set()

    def close(self) -> None:
        """Wake all waiting threads; safe to call twice."""
        if self._closing.is_set():
            return
        self._closing.set()
        self._local = threading.local()
        for bell in self._bells:
            bell.ring()


class _Bell:
    """A pipe that wakes a polling thread when the store is closed."""

    def __init__(self) -> None:
        self.handle, self._other = os.pipe2(_CLOEXEC_NONBLOCK)
        weakref.finalize(self, os.close, self.handle)

    def ring(self) -> None:
        """Close the other end: this one stays readable from then on."""
        os.close(self._other)


def _ready(handle: int, wake: int, timeout_s: float) -> list[int]:
    """Return the readable ones of two descriptors (with any descriptor numbers)."""
    poll = select.poll()
    poll.register(handle, select.POLLIN)
    poll.register(wake, select.POLLIN)
    return [found for found, _ in poll.poll(timeout_s * 1000)]


class _Queue:
    """One thread's inotify queue; `handle` is None if none is available."""

    handle: int | None = None

    def __init__(self, path: str) -> None:
        if sys.platform != "linux":
            return
        with contextlib.suppress(OSError, AttributeError):
            libc = ctypes.CDLL(None, use_errno=True)
            handle = libc.inotify_init1(_CLOEXEC_NONBLOCK)
            if handle < 0:
                return
            if libc.inotify_add_watch(handle, os.fsencode(path), _MODIFIED) < 0:
                os.close(handle)
                return
            self.handle = handle

    def drain(self) -> None:
        """Discard the queued events."""
        assert self.handle is not None
        with contextlib.suppress(BlockingIOError):
            os.read(self.handle, 65536)

    def __del__(self) -> None:
        if self.handle is not None:
            with contextlib.suppress(OSError):
                os.close(self.handle)
