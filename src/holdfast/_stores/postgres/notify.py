"""Telling other processes of commits, after they are through.

A transaction that notifies holds one lock of the whole server until its commit is on disk: commits
that notify wait for each other. So it is done apart, by a thread that tells once for everything that
has gathered, in a transaction of its own that waits for no disk. What is lost with the process is
found by those who look now and then.
"""

from __future__ import annotations

import atexit
import contextlib
import os
import threading
import weakref
from collections.abc import Callable


class Teller:
    """Says "something has changed", soon after it is asked to."""

    def __init__(self, say: Callable[[], None]) -> None:
        self._say = say
        self._fresh()
        _tellers.add(self)

    def _fresh(self) -> None:
        self._pid = os.getpid()
        self._asked = threading.Event()
        self._lock = threading.Lock()
        self._thread: threading.Thread | None = None
        self._closed = False

    def tell(self) -> None:
        """Tell it soon; returns at once."""
        if self._pid != os.getpid():
            self._fresh()
        if self._asked.is_set() or self._closed:
            return
        self._asked.set()
        if self._thread is None:
            with self._lock:
                if self._thread is None:
                    self._thread = threading.Thread(
                        target=self._run, name="holdfast-tell", daemon=True
                    )
                    self._thread.start()

    def _run(self) -> None:
        while not self._closed:
            self._asked.wait()
            self._say_now()

    def _say_now(self) -> None:
        self._asked.clear()  # Before it is said: what is asked from now on is said again.
        with contextlib.suppress(Exception):
            self._say()

    def close(self) -> None:
        """Say what is still to be said, and end the thread."""
        if self._pid != os.getpid() or self._closed:
            return
        self._closed = True
        if self._asked.is_set():
            self._say_now()
        self._asked.set()
        thread = self._thread
        if thread is not None and thread is not threading.current_thread():
            thread.join(timeout=2)


_tellers: weakref.WeakSet[Teller] = weakref.WeakSet()


def _at_exit() -> None:
    """A script that submits a run and ends has told of it."""
    for teller in list(_tellers):
        teller.close()


atexit.register(_at_exit)
