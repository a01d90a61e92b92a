"""Stores for long use: a handle that failed is dropped, and the store is opened again.

The file of a store may be put away and back, for a restore or by mistake. A handle on the file that
was there says so and is of no more use; whoever asks next gets a new one, as soon as there is a file.
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
    """Return a store that is opened again with `opens` whenever its handle has failed. It has to be
    the same store each time. The first handle is closed by whoever opened it."""
    return cast("Store", _Reconnecting(store, opens))


class _Reconnecting:
    """Gives every call to the handle of the moment."""

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
                        f"another store is at {self._first.url} now than the one that is served "
                        "here; put that back, or start this again"
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


# -- a store that a command watches -------------------------------------------------------------


class WatchedStore:
    """The store of a session, as long as it answers; then another handle on the same place."""

    def __init__(self, session: Session) -> None:
        self._session = session
        self._first = session.store()
        self.store: Store | None = self._first

    def opened(self) -> Store:
        """Return a handle, which is opened if there is none."""
        if self.store is None:
            self.store = open_store(self._session.url, self._session.namespace, create=False)
        return self.store

    def drop(self) -> None:
        """Leave a handle that may be dead; the session closes its own in the end."""
        if self.store is not None and self.store is not self._first:
            self.store.close()
        self.store = None
