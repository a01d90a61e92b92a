"""Notifications of commits: LISTEN and NOTIFY.

`Notices` receives the commits of other processes, on its own connection, in a thread. Notifications
only reduce latency: behind a pooler in transaction mode none arrive, and one may be lost with its
connection. A waiting process also polls.

`Teller` notifies other processes after a commit. A transaction that notifies holds a server-wide
lock until its commit is on disk, so such commits wait for each other. Therefore a thread sends one
notification for all recent commits, in a separate transaction that does not wait for the disk.
Polling compensates for a notification that is lost with the process.
"""

from __future__ import annotations

import atexit
import contextlib
import os
import select
import socket
import threading
import time
import weakref
from collections.abc import Callable

import psycopg

from holdfast._stores.postgres.server_connection import Q

LONGEST_PAUSE_S = 5.0
UNHEARD_S = 1.0
"""The time after which a change may have happened without a notification."""


class Notices:
    """Counts notifications; each thread waits for notifications that it has not seen."""

    def __init__(self, conninfo: str, namespace: str) -> None:
        self._conninfo = conninfo
        self._namespace = namespace
        self._fresh()

    def _fresh(self) -> None:
        self._pid = os.getpid()
        self._changed = threading.Condition()
        self._count = 0
        self._seen = threading.local()
        self._thread: threading.Thread | None = None
        self._closing = False
        self._bell: socket.socket | None = None
        self._rope: socket.socket | None = None

    def has_forked(self) -> None:
        """Reset in a forked child: the thread and the connection belong to the parent."""
        closing = self._closing
        self._fresh()
        self._closing = closing

    def wait(self, timeout_s: float) -> bool:
        """Block until a notification arrives, or the time has passed."""
        if self._pid != os.getpid():
            self._fresh()
        with self._changed:
            if self._closing:
                return True
            if self._thread is None:
                self._listen()
            if not hasattr(self._seen, "count"):
                self._seen.count = self._count
                return True  # Nothing listened until now: the store may have changed.
            told = self._changed.wait_for(
                lambda: self._count != self._seen.count or self._closing, min(timeout_s, UNHEARD_S)
            )
            self._seen.count = self._count
            return told or timeout_s >= UNHEARD_S

    def tell(self) -> None:
        """Wake the waiting threads of this process."""
        with self._changed:
            self._count += 1
            self._changed.notify_all()

    def close(self) -> None:
        """End the thread and wake all waiting threads."""
        if self._pid != os.getpid():
            return
        with self._changed:
            self._closing = True
            self._changed.notify_all()
        if self._thread is None or self._bell is None or self._rope is None:
            return
        with contextlib.suppress(OSError):
            self._rope.send(b"x")
        self._thread.join(timeout=5)
        self._bell.close()
        self._rope.close()

    # -- listening -----------------------------------------------------------------------------

    def _listen(self) -> None:
        """Begin to listen before a thread waits; if that fails, the background thread retries."""
        connection: psycopg.Connection[object] | None = None
        with contextlib.suppress(psycopg.Error):
            connection = self._connected()
        self._bell, self._rope = socket.socketpair()
        self._thread = threading.Thread(
            target=self._run,
            args=(connection, self._bell),
            name="holdfast-notices",
            daemon=True,
        )
        self._thread.start()

    def _connected(self) -> psycopg.Connection[object]:
        connection = psycopg.connect(self._conninfo, autocommit=True, prepare_threshold=None)
        connection.execute(Q["listen"].encode())
        return connection

    def _run(self, connection: psycopg.Connection[object] | None, bell: socket.socket) -> None:
        pause_s = 0.1
        while not self._closing:
            try:
                if connection is None:
                    connection = self._connected()
                    self.tell()  # Notifications may have been lost meanwhile.
                pause_s = 0.1
                self._hear(connection, bell)
            except (psycopg.Error, OSError, ValueError):
                _drop(connection)
                connection = None
                self._pause(pause_s)
                pause_s = min(LONGEST_PAUSE_S, pause_s * 2)
        _drop(connection)

    def _hear(self, connection: psycopg.Connection[object], bell: socket.socket) -> None:
        poll = select.poll()
        poll.register(connection.pgconn.socket, select.POLLIN)
        poll.register(bell, select.POLLIN)
        while not self._closing:
            poll.poll()
            connection.pgconn.consume_input()
            told = False
            while (notice := connection.pgconn.notifies()) is not None:
                told = told or notice.extra.decode("utf-8", "replace") == self._namespace
            if told:
                self.tell()

    def _pause(self, pause_s: float) -> None:
        deadline_s = time.monotonic() + pause_s
        while not self._closing and (left_s := deadline_s - time.monotonic()) > 0:
            with self._changed:
                self._changed.wait(left_s)


def _drop(connection: psycopg.Connection[object] | None) -> None:
    if connection is not None:
        with contextlib.suppress(psycopg.Error):
            connection.close()


class Teller:
    """Sends the notification "the store has changed" soon after a request."""

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
        """Request a notification; return at once."""
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
        self._asked.clear()  # Before sending, so that a later request causes another notification.
        with contextlib.suppress(Exception):
            self._say()

    def close(self) -> None:
        """Send a requested notification, and end the thread."""
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
    """Send pending notifications at exit, for a script that submits a run and ends."""
    for teller in list(_tellers):
        teller.close()


atexit.register(_at_exit)
