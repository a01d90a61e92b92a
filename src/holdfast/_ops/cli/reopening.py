"""A store that somebody watches for long: opened anew when the handle that was there has failed."""

from __future__ import annotations

from holdfast._ops.cli.session import Session, open_store
from holdfast._store.contract import Store


class Watched:
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
