"""What `verify` compares is one state of the file, whatever is committed while it reads."""

import pytest

from holdfast._engine.journal.entries import Kind
from holdfast._engine.journal.rows import Lease, Message, Write
from holdfast._stores.contract import Committed
from holdfast._stores.sqlite.sqlite_database import Database
from holdfast._stores.sqlite.sqlite_store import SqliteStore
from tests.contract.store_contract import entry, new_run, step


class Others:
    """Another process: at each call it moves a run, sends it a message, starts a run and ends it,
    and removes the one before."""

    def __init__(self, path: str) -> None:
        self.store = SqliteStore(path)
        self.owner = self.store.register_owner()
        self.calls = 0
        self.busy = self.started("busy")
        self.ended("new-0")

    def __call__(self) -> None:
        self.calls += 1
        chunk = (self.calls, b'"large"')
        body = b'{"result":{"chunk":%d}}' % self.calls
        write = Write(self.busy, [step(f"s{self.calls}", body=body)], [chunk])
        assert isinstance(self.store.append([write])[0], Committed)
        self.store.post("busy", Message(f"m{self.calls}", "signal", "me", 1, b"{}"))
        self.ended(f"new-{self.calls}")
        row = self.store.get(f"new-{self.calls - 1}")
        assert row is not None
        assert self.store.forget(row, 99)

    def started(self, run_id: str) -> Lease:
        lease = self.store.start(new_run(run_id), self.owner).lease
        assert lease is not None
        return lease

    def ended(self, run_id: str) -> None:
        self.store.append([Write(self.started(run_id), [entry(Kind.RUN_COMPLETED)])])


@pytest.mark.parametrize("run_ids", [None, ["busy"]])
def test_a_commit_between_any_two_reads_is_no_damage(tmp_path, monkeypatch, run_ids):
    others = Others(str(tmp_path / "a.db"))
    others()
    store = SqliteStore(str(tmp_path / "a.db"))
    fetch = Database.fetch

    def fetched(database, connection, name, values=()):
        if database is store._database and name != "integrity_check":
            others()
        return fetch(database, connection, name, values)

    monkeypatch.setattr(Database, "fetch", fetched)
    assert store.verify(run_ids) == []
    assert others.calls > 5
    monkeypatch.undo()
    assert store.verify() == []
    store.close()
    others.store.close()
