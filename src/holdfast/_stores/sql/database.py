"""The interface between `SqlStore` and a database: reading, and writing in a transaction.

A statement is known by its name; each dialect has the text of it in its `queries.sql`. Values are
given as a tuple, or as a dict where the statement has names for them; a list is one value, for
`IN` or `ANY`.
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
    """One transaction that writes. What it reads stays true until the commit as far as it is locked;
    SQLite locks everything."""

    tries: int
    """How often the same work was tried before, by a connection that broke: one of them may have
    been committed. Always 0 in SQLite."""

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
        """Wait until no other transaction has locked one of these names. Everybody locks names first,
        then rows of runs, then accounts."""
        ...

    def lock_row(self, name: str, values: Any) -> None:
        """Run a statement that locks a row."""
        ...

    def locked_run(self, namespace: str, run_id: str) -> RunRow | None:
        """Return the verified row of a run as it stays until the commit."""
        ...

    def run_numbers(self, count: int) -> list[int]:
        """Return numbers for new runs. One that is not used may be missing from then on, except in
        SQLite, where a transaction uses all that it asks for."""
        ...

    def add_run(self, made: Applied, chunks: Sequence[tuple[int, bytes]]) -> bool:
        """Insert a run with its entries and chunks; False if there is one with its id."""
        ...

    def put_run(self, was: RunRow, made: Applied) -> None:
        """Change the row of a run that is locked, and insert entries."""
        ...

    def changed(self, digest: bytes = b"", row: RunRow | None = None) -> None:
        """Wake those who wait for a change of the store after the commit. `digest` is of what was
        written, and goes into the chain of commits where the database has one; `row` is that of a
        run that this process claims."""
        ...


class Snapshot(NamedTuple):
    """One state of a store, to verify it. Everything that is compared comes from it, so that what
    others commit meanwhile is never taken for damage."""

    fetch: Fetch
    each: Callable[[str], Iterator[Any]]
    """The rows of a named statement, one by one: a table may be larger than the memory."""
    progress: Progress
    own_checks: Callable[[Snapshot], Iterable[Damage]]
    """Checks that only this database has."""
    lost: str | None = None
    """Which acknowledged commits are missing, if the database says so."""


class Reader(Protocol):
    """The reading side of a database."""

    def read(self, name: str, values: Any = ()) -> list[Any]:
        """Run a statement and return its rows."""
        ...

    def read_by_index(self, name: str, values: Any = ()) -> list[Any]:
        """The same. Where an index can be damaged by itself, its answer is compared with the table
        now and then, by the statement `NAME_hidden`."""
        ...

    def check_index(self, name: str) -> None:
        """Compare an index with its table now and then; raises `Corrupt`."""
        ...

    def check_numbers(
        self, rows: Sequence[RunRow], limit: int, before: int | None, last_run_no: int
    ) -> None:
        """Raise `Corrupt` if an unfiltered page of runs has not all that it should have."""
        ...

    def in_one_state(self, work: Callable[[Fetch], T]) -> T:
        """Do some work whose reads all see one state of the database."""
        ...

    def snapshot(self, work: Callable[[Snapshot], T], progress: Progress) -> T:
        """Do some work, which may take long, with one state of the whole database."""
        ...


class Writer(Protocol):
    """The writing side of a database."""

    @property
    def last_run_no(self) -> int:
        """The largest run number that was given, or 0 where that is not known."""
        ...

    def transact(self, work: Callable[[Any], T]) -> T:
        """Do some work with a `Transaction`, again if its connection breaks, and commit."""
        ...

    def beside(self, work: Callable[[Any], T]) -> T:
        """The same for rows that belong to no run: nobody is notified."""
        ...


class Owners(Protocol):
    """The processes that own runs, as one handle sees them. Work in a transaction gives its `fetch`,
    so that it needs no second connection."""

    def register(self) -> int:
        """Become an owner, in this process; returns its number."""
        ...

    def is_dead(self, owner: int, fetch: Fetch | None = None) -> bool:
        """Tell whether it is proven that an owner is dead."""
        ...

    def name(self, owner: int | None, fetch: Fetch | None = None) -> str:
        """Describe an owner for people."""
        ...

    def pulse_until_us(self, owner: int, fetch: Fetch | None = None) -> int:
        """Return until when an owner said it would live, or 0."""
        ...

    def not_alive(self, pulses: Iterable[Sequence[Any]], at_us: int) -> tuple[list[int], list[int]]:
        """Return the owners of these pulses that are dead, and those that are late with theirs."""
        ...
