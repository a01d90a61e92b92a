"""What a read compares comes from one state of the store: another writer commits after every single
statement of every read operation, and nothing is ever called damaged. I16."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from holdfast._engine.decisions.control import asked
from holdfast._engine.journal.changes import ClaimKey, TakeMessage
from holdfast._engine.journal.entries import Kind
from holdfast._engine.journal.rows import Account, Lease, Memo, Message, RunRow, Write
from holdfast._stores import locate, lookups
from holdfast._stores.contract import Query, Store
from holdfast._stores.postgres import server_connection
from holdfast._stores.postgres.server_connection import Link
from holdfast._stores.sqlite import sqlite_database
from holdfast._stores.sqlite.sqlite_database import Database
from holdfast.errors import Corrupt, RunDeleted
from tests.contract.ground import A, entry, intent, new_run, step

STORES = pytest.mark.parametrize("kind", ["sqlite", "postgresql"])


@pytest.fixture
def url(kind: str, tmp_path: Path, request: pytest.FixtureRequest) -> str:
    if kind == "sqlite":
        return f"sqlite:///{tmp_path}/a.db"
    found: str = request.getfixturevalue("postgres_url")
    return found


class Between:
    """Does the next piece of work after each statement of a read."""

    def __init__(self, patch: pytest.MonkeyPatch) -> None:
        self._pieces: list[Callable[[], None]] = []
        self._busy = False
        self.statements = 0
        for where in (Database, Link):
            patch.setattr(where, "fetch", self._fetching(where.fetch))

    def _fetching(self, real: Any) -> Any:
        def fetch(*args: Any, **kwargs: Any) -> Any:
            found = real(*args, **kwargs)
            self._next()
            return found

        return fetch

    def _next(self) -> None:
        if not self._busy and self._pieces:
            self._busy = True
            try:
                self._pieces.pop(0)()
                self.statements += 1
            finally:
                self._busy = False

    @contextlib.contextmanager
    def doing(self, pieces: list[Callable[[], None]]) -> Iterator[None]:
        self._pieces = pieces
        try:
            yield
        finally:
            self._pieces = []


class Meddler:
    """Another process, which writes to the runs that are read."""

    def __init__(self, store: Store) -> None:
        self.store = store
        self.owner = store.register_owner()
        self._lease = self._started("r")
        self._write(self._lease, step("a"), step("b"))
        self._number = 0
        self.post()
        self.post()
        self.old = self._ended("old")

    def _started(self, run_id: str, parent: str | None = None) -> Lease:
        new = new_run(run_id)
        new.parent, new.chunks = parent, [(1, b'"large"')]
        lease = self.store.start(new, self.owner).lease
        assert lease is not None
        return lease

    def _ended(self, run_id: str) -> RunRow:
        """Return a run that has everything, and has ended."""
        lease = self._started(run_id)
        claim = ClaimKey("pay", "of-" + run_id, "e", A)
        self.store.append([Write(lease, [intent("e")], changes=[claim])])
        self.store.post(run_id, asked("note", "m", "ana", "", 1))
        self.store.put_account(Account(run_id, 1, 1, 1, 1, 1))
        self._write(lease, entry(Kind.RUN_COMPLETED))
        return lease.row

    def _write(self, lease: Lease, *drafts: Any, took: list[str] | None = None) -> None:
        self.store.append([Write(lease, list(drafts), changes=[*map(TakeMessage, took or [])])])

    def post(self) -> None:
        self._number += 1
        self.store.post("r", Message(f"m{self._number}", "signal:go", "ana", 1, b"{}"))

    def flood(self) -> None:
        """Messages come and are taken, steps are recorded, runs and children start."""
        self.post()
        self._write(self._lease, step("more"), took=[f"m{self._number}"])
        self.post()
        self._started(f"run-{self._number}")
        self._started(f"child-{self._number}", parent="r")

    def make(self) -> None:
        """What was not there is there."""
        self.flood()
        self._made = self._ended("new")
        self.store.put_memo(Memo("s", "new", b"1"))

    def remove(self) -> None:
        """What was there is not there any more."""
        self.flood()
        assert self.store.forget(self.old, 1)
        assert self.store.forget(self._made, 1)
        self.store.put_memo(Memo("s", "new", None))
        self.store.drop_memos(self.store.now_us() + 1)


Read = Callable[[Store, RunRow, RunRow], object]
READS: dict[str, Read] = {
    "get": lambda store, run, old: store.get("r"),
    "get what is being made": lambda store, run, old: store.get("new"),
    "by_number": lambda store, run, old: store.by_number(run.run_no),
    "list": lambda store, run, old: store.list(Query()),
    "list children": lambda store, run, old: store.list(Query(parent="r")),
    "load": lambda store, run, old: store.load(run),
    "load with a gap": lambda store, run, old: store.load(run, [(2, 2)]),
    "load what is being removed": lambda store, run, old: store.load(old, [(2, 2)]),
    "entry": lambda store, run, old: store.entry(run.run_no, 2),
    "entry of what is being removed": lambda store, run, old: store.entry(old.run_no, 2),
    "chunks": lambda store, run, old: store.chunks(run.run_no, 1),
    "chunks of what is being removed": lambda store, run, old: store.chunks(old.run_no, 1),
    "key": lambda store, run, old: store.key("pay", "of-old"),
    "key that is being claimed": lambda store, run, old: store.key("pay", "of-new"),
    "inbox": lambda store, run, old: store.inbox(run.run_no),
    "inbox behind a number": lambda store, run, old: store.inbox(run.run_no, 1),
    "inbox of what is being removed": lambda store, run, old: store.inbox(old.run_no),
    "messages": lambda store, run, old: store.messages(run.run_no),
    "messages of what is being removed": lambda store, run, old: store.messages(old.run_no),
    "news": lambda store, run, old: store.news([run.run_no]),
    "questions": lambda store, run, old: store.questions("r"),
    "account": lambda store, run, old: store.account("old"),
    "account that is being made": lambda store, run, old: store.account("new"),
    "memo that is being made": lambda store, run, old: store.memo("s", "new"),
    "memos": lambda store, run, old: store.memos("s"),
    "expired memos": lambda store, run, old: store.expired_memos("s"),
    "whole": lambda store, run, old: store.whole(run),
    "whole of what is being removed": lambda store, run, old: store.whole(old),
    "waiting_on": lambda store, run, old: store.waiting_on("token"),
    "claimable": lambda store, run, old: store.claimable(store.now_us(), 10),
    "queues": lambda store, run, old: store.queues(),
    "pulses": lambda store, run, old: store.pulses(),
    "verify one run": lambda store, run, old: no_damage(store.verify(["r"])),
    "verify what is being removed": lambda store, run, old: no_damage(store.verify(["old"])),
    "verify": lambda store, run, old: no_damage(store.verify()),
}


def no_damage(findings: list[Any]) -> None:
    assert findings == []


@STORES
@pytest.mark.parametrize("first", [0, 1], ids=["flood first", "made first"])
def test_no_read_takes_what_others_commit_for_damage(
    url: str, first: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert read_beside_others(url, first, monkeypatch, list(READS)) >= len(READS)


def read_beside_others(
    url: str, first: int, monkeypatch: pytest.MonkeyPatch, names: list[str]
) -> int:
    """Read while another process commits; returns after how many statements it did."""
    between = Between(monkeypatch)
    for name in names:
        writer = locate.open_store(url, namespace=name)
        reader = locate.open_store(url, namespace=name)
        try:
            meddler = Meddler(writer)
            row = reader.get("r")
            assert row is not None
            pieces = [meddler.flood, meddler.make, meddler.remove, meddler.flood, meddler.flood]
            with between.doing(pieces[first:]), contextlib.suppress(RunDeleted):
                READS[name](reader, row, meddler.old)
        except Corrupt as damage:
            pytest.fail(f"{name}: {damage}")
        finally:
            reader.close()
            writer.close()
    return between.statements


# -- planted: what reads one state, taken away ----------------------------------------------------


@STORES
def test_an_inbox_that_is_read_by_two_statements_is_noticed(
    url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = lookups.messages_since

    def messages_since(fetch: Any, run_no: int, after: int) -> Any:
        def both(name: str, values: Any = ()) -> list[Any]:
            by_name = [it for it in fetch(name, values) if it[0]]
            return by_name + [it for it in fetch(name, values) if not it[0]]

        return real(both, run_no, after)

    monkeypatch.setattr(lookups, "messages_since", messages_since)
    with pytest.raises(pytest.fail.Exception, match="inbox"):
        read_beside_others(url, 0, monkeypatch, ["inbox"])


@STORES
@pytest.mark.parametrize("name", ["verify", "whole of what is being removed"])
def test_reads_at_several_moments_are_noticed(
    url: str, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    statements = {**sqlite_database.Q, "begin_reading": "SELECT 1"}
    monkeypatch.setattr(sqlite_database, "Q", statements)
    monkeypatch.setitem(server_connection.Q, "begin_reading", "BEGIN")
    with pytest.raises((AssertionError, pytest.fail.Exception)):
        for first in (0, 1):
            read_beside_others(url, first, monkeypatch, [name])
