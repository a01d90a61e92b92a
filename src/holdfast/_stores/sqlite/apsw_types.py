"""Types of the part of apsw that the store uses."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, Protocol, cast

import apsw

from holdfast._stores.structs import Progress


class Cursor(Protocol):
    """The result of a statement."""

    def fetchall(self) -> list[Any]:
        """Return all rows."""
        ...

    def __iter__(self) -> Iterator[Any]:
        """Return the rows one by one."""
        ...


class Connection(Protocol):
    """A connection to a SQLite file."""

    @property
    def in_transaction(self) -> bool:
        """Whether a transaction is open."""
        ...

    @property
    def system_errno(self) -> int:
        """The last error of the operating system."""
        ...

    def execute(self, statements: str, bindings: Any = None) -> Cursor:
        """Run a statement."""
        ...

    def changes(self) -> int:
        """Return how many rows the last statement changed."""
        ...

    def set_wal_hook(self, callable: Callable[[Any, str, int], int] | None) -> None:
        """Set a function that receives the size of the WAL after each commit."""
        ...

    def set_busy_handler(self, callable: Callable[[int], bool] | None) -> None:
        """Set a function that decides whether to wait while another connection writes."""
        ...

    def config(self, op: int, *args: int) -> int:
        """Set an option of this connection."""
        ...

    def close(self) -> None:
        """Close the connection."""
        ...


def connect(name: str, flags: int, cached_statements: int = 100) -> Connection:
    """Open a connection."""
    return cast(
        "Connection", apsw.Connection(name, flags=flags, statementcachesize=cached_statements)
    )


def copy_pages(source: Connection, target: Connection, progress: Progress) -> None:
    """Copy one state of a database into another."""
    into = cast("apsw.Connection", target)
    with into.backup("main", cast("apsw.Connection", source), "main") as running:
        while not running.done:
            running.step(256)
            progress("pages", running.page_count - running.remaining, running.page_count)
