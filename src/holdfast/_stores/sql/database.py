"""The interface between `SqlStore` and a database: reading, and writing in a transaction.

A statement is identified by its name; each dialect has its text in `queries.sql`. Values are a
tuple, or a dict for a statement with named parameters; a list is one value, for `IN` or `ANY`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, NamedTuple, Protocol, TypeVar

from holdfast._engine.journal.rows import Applied, RunRow
from holdfast._stores.contract import Damage, Progress
from holdfast._stores.lookups import Fetch

T = TypeVar("T")

Statement = tuple[str, Any]
"""The name of a statement, and its values."""


class Transaction(Protocol):
    """One writing transaction. Locked rows stay unchanged until the commit; SQLite locks
    everything."""

    tries: int
    """The number of earlier tries on connections that broke; one of them may have been committed.
    Always 0 in SQLite."""

    def fetch(self, name: str, values: Any = ()) -> list[Any]:
        """Run a statement and return its rows."""
        ...

    def change(self, name: str, values: Any = ()) -> int:
        """Run a statement and return how many rows it changed."""
        ...

    def change_all(self, statements: Sequence[Statement]) -> None:
        """Run several statements, in order."""
        ...

    def lock(self, *names: tuple[str, ...]) -> None:
        """Lock these names until the commit. All transactions lock names first, then rows of runs,
        then accounts."""
        ...

    def lock_row(self, name: str, values: Any) -> None:
        """Run a statement that locks a row."""
        ...

    def locked_run(self, namespace: str, run_id: str) -> RunRow | None:
        """Return the verified row of a run, locked until the commit."""
        ...

    def run_numbers(self, count: int) -> list[int]:
        """Return numbers for new runs. An unused number may stay missing, except in SQLite, where a
        transaction uses all requested numbers."""
        ...

    def add_run(self, made: Applied, chunks: Sequence[tuple[int, bytes]]) -> bool:
        """Insert a run with its entries and chunks; return False if its id exists."""
        ...

    def put_run(self, was: RunRow, made: Applied) -> None:
        """Change the locked row of a run, and insert entries."""
        ...

    def changed(self, digest: bytes = b"", row: RunRow | None = None) -> None:
        """Wake the threads that wait for a change, after the commit. `digest` is the digest of the
        written rows and goes into the chain of commits, if the database has one; `row` is the row
        of a run that this process claims."""
        ...


class Snapshot(NamedTuple):
    """One state of a store, for verification. All compared data comes from it, so that concurrent
    commits are not reported as damage."""

    fetch: Fetch
    each: Callable[[str], Iterator[Any]]
    """Yields the rows of a named statement, one by one, because a table may be larger than the
    memory."""
    progress: Progress
    own_checks: Callable[[Snapshot], Iterable[Damage]]
    """Checks that are specific to this database."""
    lost: str | None = None
    """A text about missing acknowledged commits, if the database detects them."""


class Reader(Protocol):
    """The reading side of a database."""

    def read(self, name: str, values: Any = ()) -> list[Any]:
        """Run a statement and return its rows."""
        ...

    def read_by_index(self, name: str, values: Any = ()) -> list[Any]:
        """Run a statement and return its rows. If the database can have a damaged index, the answer
        is compared with the table from time to time, by the statement `NAME_hidden`."""
        ...

    def check_index(self, name: str) -> None:
        """Compare an index with its table from time to time; raise `Corrupt` on a difference."""
        ...

    def check_numbers(
        self, rows: Sequence[RunRow], limit: int, before: int | None, last_run_no: int
    ) -> None:
        """Raise `Corrupt` if an unfiltered page of runs is incomplete."""
        ...

    def in_one_state(self, work: Callable[[Fetch], T]) -> T:
        """Do work whose reads all see one state of the database."""
        ...

    def snapshot(self, work: Callable[[Snapshot], T], progress: Progress) -> T:
        """Do work, which may take long, with one state of the whole database."""
        ...


class Writer(Protocol):
    """The writing side of a database."""

    @property
    def last_run_no(self) -> int:
        """The largest assigned run number, or 0 if unknown."""
        ...

    def transact(self, work: Callable[[Any], T]) -> T:
        """Do work with a `Transaction`, repeat it if its connection breaks, and commit."""
        ...

    def beside(self, work: Callable[[Any], T]) -> T:
        """Do work in a transaction on rows that belong to no run, without notification."""
        ...


class Owners(Protocol):
    """The processes that own runs, for one handle. Work in a transaction passes its `fetch`, so
    that it needs no second connection."""

    def register(self) -> int:
        """Register this process as an owner; return its number."""
        ...

    def is_dead(self, owner: int, fetch: Fetch | None = None) -> bool:
        """Return whether an owner is proven dead."""
        ...

    def name(self, owner: int | None, fetch: Fetch | None = None) -> str:
        """Describe an owner for people."""
        ...

    def pulse_until_us(self, owner: int, fetch: Fetch | None = None) -> int:
        """Return the expiry of an owner's pulse, or 0."""
        ...

    def not_alive(self, pulses: Iterable[Sequence[Any]], at_us: int) -> tuple[list[int], list[int]]:
        """Return the dead owners of these pulses, and those whose pulse has expired."""
        ...
