"""Reopen a store whose handle has failed, for commands that use it for a long time.

The file of a store may be moved away and back, for a restore or by mistake. A handle on the old
file reports that and stays unusable. The next call opens a new handle, as soon as the file exists.
"""

from __future__ import annotations

import functools
import threading
from collections.abc import Callable
from typing import Any, cast

from holdfast._operator.cli.session import Session, open_store
from holdfast._stores.contract import Store
from holdfast.errors import StoreFailed


def reconnecting(store: Store, opens: Callable[[], Store]) -> Store:
    """Return a store that `opens` reopens whenever its handle has failed. It must be the same store
    each time. The caller closes the first handle."""
    return cast("Store", _Reconnecting(store, opens))


class _Reconnecting:
    """Passes every call to the current handle."""

    def __init__(self, store: Store, opens: Callable[[], Store]) -> None:
        self._first = store
        self._handle: Store | None = store
        self._opens = opens
        self._lock = threading.Lock()

    def __getattr__(self, name: str) -> Any:
        found = getattr(self._handle or self._first, name)
        return functools.partial(self._call, name) if callable(found) else found

    def _call(self, name: str, *args: Any, **kwargs: Any) -> Any:
        handle = self._current()
        try:
            return getattr(handle, name)(*args, **kwargs)
        except StoreFailed:
            self._leave(handle)
            raise

    def _current(self) -> Store:
        with self._lock:
            if self._handle is None:
                opened = self._opens()
                if opened.store_id != self._first.store_id:
                    opened.close()
                    raise StoreFailed(
                        f"another store is at {self._first.url} now, not the one served "
                        "here; restore that store, or restart this command"
                    )
                self._handle = opened
            return self._handle

    def _leave(self, handle: Store) -> None:
        with self._lock:
            if self._handle is not handle:
                return
            self._handle = None
        if handle is not self._first:
            handle.close()


# -- the store of a command that polls ----------------------------------------------------------


class WatchedStore:
    """The store of a session while it answers; then a new handle on the same address."""

    def __init__(self, session: Session) -> None:
        self._session = session
        self._first = session.store()
        self.store: Store | None = self._first

    def opened(self) -> Store:
        """Return the handle; open one if there is none."""
        if self.store is None:
            self.store = open_store(self._session.url, self._session.namespace, create=False)
        return self.store

    def drop(self) -> None:
        """Drop a handle that may be dead; the session closes its own at the end."""
        if self.store is not None and self.store is not self._first:
            self.store.close()
        self.store = None
