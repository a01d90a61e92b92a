"""Backup, restore and adopt: every copy that lives on is a new incarnation."""

import os
import shutil
from pathlib import Path

import pytest

from holdfast._engine.journal.rows import Lease, Write
from holdfast._stores.contract import Committed
from holdfast._stores.sqlite.backups import restore
from holdfast._stores.sqlite.sqlite_store import SqliteStore
from holdfast.errors import StoreFailed, StoreLostData, StoreUnusable
from tests.contract.store_contract import intent, new_run, step


@pytest.fixture
def store(tmp_path):
    store = SqliteStore(str(tmp_path / "a.db"))
    store.start(new_run("r"), None)
    yield store
    store.close()


def incarnation(store) -> int:
    return store._writer.row.incarnation


def test_a_backup_opens_as_a_new_incarnation(store, tmp_path):
    path = str(tmp_path / "backup.db")
    store.backup(path)
    store.start(new_run("later"), None)
    assert sorted(p.name for p in tmp_path.iterdir() if p.name.startswith("b")) == ["backup.db"]
    copy = SqliteStore(path)
    assert (copy.store_id, incarnation(copy)) == (store.store_id, incarnation(store) + 1)
    assert copy.regression() is None
    assert copy.accepted_through() == 1
    assert copy.get("r") is not None
    assert copy.get("later") is None
    assert copy.verify() == []
    copy.close()
    again = SqliteStore(path)
    assert incarnation(again) == incarnation(copy)
    assert again.regression() is None
    again.close()


def test_a_backup_does_not_replace_anything(store, tmp_path):
    (tmp_path / "backup.db").touch()
    with pytest.raises(StoreUnusable, match="exists already"):
        store.backup(str(tmp_path / "backup.db"))
    (tmp_path / "other.db-witness").touch()
    with pytest.raises(StoreUnusable, match="exists already"):
        store.backup(str(tmp_path / "other.db"))


@pytest.mark.parametrize("how", ["backup", "plain copy"])
def test_a_restored_store_goes_on_and_knows_what_it_had(store, tmp_path, how):
    kept = tmp_path / "kept.db"
    if how == "backup":
        store.backup(str(kept))
    else:
        store.close()
        shutil.copy(store.path, kept)
    restore(str(kept), str(tmp_path / "restored.db"))
    restored = SqliteStore(str(tmp_path / "restored.db"))
    assert restored.accepted_through() == 1
    assert restored.regression() is None
    lease = restored.claim("r", restored.register_owner(), 5)
    assert isinstance(lease, Lease)
    assert isinstance(restored.append([Write(lease, [intent()])])[0], Committed)
    restored.close()


def test_restore_refuses_what_is_no_store(tmp_path):
    with pytest.raises(StoreUnusable, match="no backup"):
        restore(str(tmp_path / "none.db"), str(tmp_path / "a.db"))
    text = tmp_path / "text.db"
    text.touch(0o600)
    text.write_text("hello " * 1000)
    with pytest.raises(StoreUnusable, match="cannot be restored"):
        restore(str(text), str(tmp_path / "a.db"))
    assert not (tmp_path / "a.db").exists()


def test_28_a_backup_put_back_by_hand_needs_no_adopt_but_an_old_copy_does(store, tmp_path):
    store.close()
    old = (tmp_path / "a.db").read_bytes()
    store = SqliteStore(store.path)
    store.start(new_run("later"), None)
    store.close()
    (tmp_path / "a.db").write_bytes(old)
    store = SqliteStore(store.path)
    assert "missing" in (store.regression() or "")
    lease = store.claim("r", store.register_owner(), 5)
    assert isinstance(lease, Lease)
    assert isinstance(store.append([Write(lease, [step()])])[0], Committed)
    with pytest.raises(StoreLostData):
        store.append([Write(lease, [intent()])])
    store.close()
    store = SqliteStore(store.path)
    assert store.regression()  # Still known, although it was written to since.
    assert "missing" in store.accept_data_loss("me")
    store.close()
    store = SqliteStore(store.path)
    assert store.regression() is None
    assert store.accepted_through() == 1
    store.close()


def test_other_handles_stop_when_the_store_is_adopted(store):
    other = SqliteStore(store.path)
    store.accept_data_loss("me")
    with pytest.raises(StoreFailed, match="data loss was accepted"):
        other.start(new_run("s"), None)
    other.close()


def test_restoring_from_an_open_store_leaves_its_locks(store, tmp_path):
    """POSIX takes all locks of a process on a file when it closes any descriptor of that file."""
    path = tmp_path / "a.db"

    def locks() -> int:
        inode = f":{path.stat().st_ino} "
        lines = Path("/proc/locks").read_text().splitlines()
        return sum(inode in line and f" {os.getpid()} " in line for line in lines)

    before = locks()
    assert before > 0
    restore(str(path), str(tmp_path / "b.db"))
    assert locks() == before
