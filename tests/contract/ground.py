"""What the tests of the contract stand on: a fresh store, a clock, and short ways to say things."""

from __future__ import annotations

import abc
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from holdfast._engine.journal.changes import ClaimKey, SetKey
from holdfast._engine.journal.entries import Draft, Kind
from holdfast._engine.journal.rows import Lease, RunRow, Write
from holdfast._stores.contract import (
    NewRun,
    Outcome,
    Store,
)

A = b"a" * 16
B = b"b" * 16
ODD_STRINGS = (
    "'; DROP TABLE runs; --",
    '"quoted"',
    "new\nline",
    "tab\tand \\ backslash",
    "\u202eright to left",
    "emoji \U0001f600 and e\u0301",
    "%like_",
    "../../etc/passwd",
    "nul\x00inside",
    " " * 3,
    "x" * 2000,
)


class FakeClock:
    """A clock that moves when it is told to, also backwards."""

    def __init__(self, at_us: int = 1_700_000_000_000_000) -> None:
        self.at_us = at_us

    def __call__(self) -> int:
        """Return the time in microseconds."""
        return self.at_us

    def advance_s(self, seconds: float) -> None:
        """Let time pass, or jump back."""
        self.at_us += int(seconds * 1_000_000)


def started(at_us: int = 1) -> Draft:
    """Return the entry that every run begins with."""
    return Draft(Kind.RUN_STARTED, at_us, body=b'{"args":[]}')


def new_run(run_id: str, flow: str = "f", digest: bytes = A, tags: str = "{}") -> NewRun:
    """Return a plain run."""
    return NewRun(run_id, flow, "1", digest, [started()], tags=tags)


def step(name: str = "s", at_us: int = 2, body: bytes = b'{"result":1}') -> Draft:
    """Return a joined row: a plain step that started and completed."""
    return Draft(Kind.STEP_COMPLETED, at_us, name, 1, 0, A, at_us, body)


def intent(name: str = "e", at_us: int = 2) -> Draft:
    """Return the intent of an effect."""
    return Draft(Kind.STEP_STARTED, at_us, name, 1, 0, A, body=b'{"effect":true}')


def entry(kind: Kind, at_us: int = 3, body: bytes = b"{}") -> Draft:
    """Return an entry that belongs to the run, not to a step."""
    return Draft(kind, at_us, body=body)


class Ground(abc.ABC):
    """Each test gets a fresh store and a clock that stands still."""

    folder: Path
    clock: FakeClock
    store: Store
    owner: int

    @abc.abstractmethod
    def open_store(self, namespace: str = "default") -> Store:
        """Open a store: fresh at the first call of a test, the same data at the next."""

    @abc.abstractmethod
    def kill_owner(self, store: Store, owner: int) -> None:
        """End the process that a handle stands for, so that its death is proven."""

    @abc.abstractmethod
    def lose_commits(self, run_id: str) -> Store:
        """Return a store that lost acknowledged commits; the run is in what is left."""

    def users_write(self, connection: Any, text: str) -> None:
        """Write a line of the user's own, by the connection that `append_within` lends."""
        raise NotImplementedError

    def users_lines(self) -> list[str]:
        """Return what stands there, as everybody sees it."""
        raise NotImplementedError

    @pytest.fixture(autouse=True)
    def _fresh(self, tmp_path: Path) -> Iterator[None]:
        self.folder = tmp_path
        self.clock = FakeClock()
        self.store = self.open_store()
        self.owner = self.store.register_owner()
        yield
        self.store.close()

    # -- what tests say ---------------------------------------------------------------------------

    def started_run(self, run_id: str = "r") -> Lease:
        """Start a run that this process owns."""
        lease = self.store.start(new_run(run_id), self.owner).lease
        assert lease is not None
        return lease

    def append(self, lease: Lease, *drafts: Draft) -> Outcome:
        """Write entries to one run."""
        return self.store.append([Write(lease, list(drafts))])[0]

    def claimed(self, run_id: str, owner: int | None = None, store: Store | None = None) -> Lease:
        """Claim a run and expect to get it."""
        store = store or self.store
        got = store.claim(run_id, self.owner if owner is None else owner, store.now_us())
        assert isinstance(got, Lease), got
        return got

    def row(self, run_id: str = "r") -> RunRow:
        """Return the row of a run that is there."""
        row = self.store.get(run_id)
        assert row is not None
        return row

    def kinds(self, run_id: str = "r") -> list[str]:
        """Return what the journal of a run says happened."""
        row = self.row(run_id)
        return [part.kind.value for item in self.store.load(row) for part in item.expand()]

    def claim_key(self, lease: Lease, digest: bytes = A, name: str = "e") -> Outcome:
        """Write an intent that claims the key "k" of the effect "pay"."""
        claim = ClaimKey("pay", "k", name, digest)
        return self.store.append([Write(lease, [intent(name)], changes=[claim])])[0]

    def set_key(self, lease: Lease, state: str, *, result: bool = False) -> Outcome:
        """Write an outcome that says what became of the key."""
        change = SetKey("pay", "k", state, result)
        return self.store.append([Write(lease, [step("e")], changes=[change])])[0]

    def claimable(self, store: Store | None = None) -> list[str]:
        """Return the ids of the runs that a worker may take now."""
        return [row.run_id for row in (store or self.store).claimable(self.clock(), 100)]
