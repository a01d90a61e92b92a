"""The file of a `memory:` store: private, in memory where there is room, and gone with its process."""

import gc
import multiprocessing
import os
import signal
import stat
import subprocess
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from holdfast._stores import temporary_folders
from holdfast._stores.locate import open_store, open_temporary
from holdfast._stores.sqlite.sqlite_store import SqliteStore
from holdfast._stores.temporary_folders import TemporaryFolder
from holdfast.errors import StoreFailed, StoreUnusable
from tests.contract.store_contract import new_run


@pytest.fixture
def base(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder in which temporary folders are made, by this process and those it starts."""
    monkeypatch.setattr(temporary_folders, "IN_MEMORY", str(tmp_path / "none"))
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    return tmp_path


def folders(base: Path) -> list[Path]:
    return sorted(base.glob(f"{temporary_folders.PREFIX}*"))


def opened() -> SqliteStore:
    store = open_store("memory:")
    assert isinstance(store, SqliteStore)
    return store


def process(base: Path, code: str) -> "subprocess.Popen[bytes]":
    head = (
        "import os, sys, tempfile, holdfast\n"
        "from holdfast._stores import temporary_folders\n"
        f"temporary_folders.IN_MEMORY = ''; tempfile.tempdir = {str(base)!r}\n"
    )
    command = [sys.executable, "-c", head + code]
    return subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE)


# -- where it is -----------------------------------------------------------------------------------


def test_it_is_in_memory_where_there_is_room(tmp_path, monkeypatch):
    monkeypatch.setattr(temporary_folders, "IN_MEMORY", str(tmp_path))
    monkeypatch.setattr(temporary_folders, "ROOM_BYTES", 1)
    store = opened()
    assert store.path.startswith(str(tmp_path))
    store.close()


def test_without_room_in_memory_it_is_where_temporary_files_are(base, monkeypatch):
    shared = base / "shared"
    shared.mkdir()
    monkeypatch.setattr(temporary_folders, "IN_MEMORY", str(shared))
    monkeypatch.setattr(temporary_folders, "ROOM_BYTES", 1 << 62)
    store = opened()
    assert Path(store.path).parent.parent == base
    store.close()


def test_nobody_else_can_read_it(base):
    store = opened()
    (folder,) = folders(base)
    assert stat.S_IMODE(folder.stat().st_mode) == 0o700
    store.close()


def test_a_folder_that_cannot_be_made_is_said(base, monkeypatch):
    monkeypatch.setattr("tempfile.tempdir", str(base / "gone"))
    with pytest.raises(StoreUnusable, match="TMPDIR"):
        opened()


def test_that_there_is_no_place_for_temporary_files_is_said(base, monkeypatch):
    monkeypatch.setattr("tempfile.tempdir", None)
    monkeypatch.setattr("tempfile._candidate_tempdir_list", lambda: [str(base / "gone")])
    with pytest.raises(StoreUnusable, match="TMPDIR"):
        opened()


# -- when it goes ----------------------------------------------------------------------------------


def test_it_goes_when_the_store_is_closed(base):
    store = opened()
    store.register_owner()
    store.start(new_run("r"), None)
    (folder,) = folders(base)
    assert {"store.db", "store.db-wal", "store.db-witness", "store.db-owners.lock"} <= {
        file.name for file in folder.iterdir()
    }
    store.close()
    assert folders(base) == []
    store.close()


def test_it_goes_with_its_last_handle(base):
    folder = TemporaryFolder()
    one, two = open_temporary(folder), open_temporary(folder)
    one.start(new_run("r"), None)
    one.close()
    assert two.get("r") is not None
    two.close()
    assert folders(base) == []


def test_many_handles_may_open_it_at_once(base):
    for _ in range(20):
        folder = TemporaryFolder()
        folder.hold()
        together = threading.Barrier(4)

        def handle(folder=folder, together=together):
            together.wait()
            return open_temporary(folder)

        with ThreadPoolExecutor(4) as threads:
            stores = [each.result() for each in [threads.submit(handle) for _ in range(4)]]
        assert len({store.store_id for store in stores}) == 1
        stores[0].start(new_run("r"), None)
        assert all(store.get("r") is not None for store in stores)
        for store in stores:
            store.close()
        folder.release()
    assert folders(base) == []


def test_it_goes_when_nobody_has_the_store_any_more(base):
    open_files = set(os.listdir("/proc/self/fd"))
    store = opened()
    store.start(new_run("r"), None)
    del store
    gc.collect()
    assert folders(base) == []
    assert set(os.listdir("/proc/self/fd")) <= open_files


def test_it_goes_at_exit(base):
    code = "store = holdfast.open('memory:'); print(store._backend.path)"
    path, _ = process(base, code).communicate()
    assert path.startswith(bytes(base))
    assert folders(base) == []


def test_what_a_killed_process_left_goes_with_the_next_store(base, monkeypatch):
    killed = process(base, "holdfast.open('memory:'); print(flush=True); sys.stdin.read()")
    assert killed.stdout is not None
    killed.stdout.readline()
    (left,) = folders(base)
    monkeypatch.setattr(temporary_folders, "_swept", set())
    opened().close()
    assert folders(base) == [left], "its process lives"
    killed.send_signal(signal.SIGKILL)
    killed.communicate()
    monkeypatch.setattr(temporary_folders, "_swept", set())
    opened().close()
    assert folders(base) == []


def test_files_of_others_are_never_removed(base, monkeypatch):
    mine = base / f"{temporary_folders.PREFIX}notes"
    mine.mkdir()
    (mine / "notes.txt").write_text("mine")
    (base / f"{temporary_folders.PREFIX}link").symlink_to(base)
    (base / "store.db").write_text("mine")
    monkeypatch.setattr(temporary_folders, "_swept", set())
    opened().close()
    assert (mine / "notes.txt").read_text() == "mine"
    assert (base / "store.db").read_text() == "mine"


# -- forks -----------------------------------------------------------------------------------------


def test_a_forked_process_shares_it_and_removes_nothing(base):
    store = opened()
    store.start(new_run("before"), None)
    pid = os.fork()
    if pid == 0:
        code = 1
        try:
            store.start(new_run("by the child"), None)
            store.close()
            temporary_folders.remove_all()
            code = 0
        finally:
            os._exit(code)
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0
    assert store.get("by the child") is not None
    store.start(new_run("after"), None)
    store.close()
    assert folders(base) == []


def test_a_forked_process_removes_what_its_dead_sibling_left(base):
    opened().close()  # The parent has looked for such folders already.
    for _ in range(3):
        pid = os.fork()
        if pid == 0:
            try:
                store = opened()
                store.start(new_run("r"), None)
            finally:
                os._exit(0)
        os.waitpid(pid, 0)
        assert len(folders(base)) == 1, "only what the last child left"


def _started_in_a_child(store: SqliteStore) -> None:
    store.start(new_run("by the child"), None)


def test_a_process_of_multiprocessing_shares_it(base):
    store = opened()
    child = multiprocessing.get_context("fork").Process(target=_started_in_a_child, args=(store,))
    child.start()
    child.join()
    assert child.exitcode == 0
    assert store.get("by the child") is not None
    store.close()


def test_a_child_is_told_when_its_parent_has_closed_the_store(base):
    store = opened()
    reading, writing = os.pipe()
    pid = os.fork()
    if pid == 0:
        code = 1
        try:
            os.close(writing)
            os.read(reading, 1)  # Until the parent closes its end.
            store.get("r")
        except StoreFailed as failed:
            code = 0 if "ends with the process" in str(failed) else 2
        finally:
            os._exit(code)
    store.close()
    os.close(writing)
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0
    os.close(reading)


# -- what it can do --------------------------------------------------------------------------------


def test_a_backup_of_it_is_a_store_in_a_file(base, tmp_path):
    store = opened()
    store.start(new_run("r"), None)
    store.backup(str(tmp_path / "kept.db"))
    store.close()
    kept = SqliteStore(str(tmp_path / "kept.db"))
    assert kept.get("r") is not None
    assert kept.verify() == []
    kept.close()


def test_stores_have_ids_of_their_own(base):
    one, two = opened(), opened()
    assert one.store_id != two.store_id
    assert one.verify() == two.verify() == []
    one.close()
    two.close()
