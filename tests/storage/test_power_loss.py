"""What is on the disk after a power loss: a file as it was synced last, under a name that was synced."""

import os
import shutil

import pytest

from holdfast import flow, testing
from holdfast._operator.web.access_tokens import Tokens
from holdfast._stores.sqlite.sqlite_store import SqliteStore
from tests.contract.store_contract import new_run


class Disk:
    """Remembers what a power loss leaves: contents of files, and which file has a name, as of their
    sync."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.contents: dict[int, bytes] = {}
        self.names: dict[str, int] = {}
        real = os.fsync

        def fsync(handle: int) -> None:
            real(handle)
            path = os.readlink(f"/proc/self/fd/{handle}")
            if os.path.isdir(path):
                self.names |= {entry.path: entry.inode() for entry in os.scandir(path)}
            else:
                with open(path, "rb") as file:
                    self.contents[os.fstat(handle).st_ino] = file.read()

        monkeypatch.setattr(os, "fsync", fsync)

    def left(self, path: str) -> bytes | None:
        """Return what is left of a file; of one that was never synced, its size."""
        if path not in self.names:
            return None
        return self.contents.get(self.names[path], bytes(os.stat(path).st_size))


def test_a_power_loss_in_the_first_seconds_of_a_store_loses_no_commit(tmp_path, monkeypatch):
    disk = Disk(monkeypatch)
    path = str(tmp_path / "a.db")
    store = SqliteStore(path)
    for number in range(4):
        image = tmp_path / f"image-{number}"
        image.mkdir()
        for suffix in ("", "-wal"):  # SQLite has synced them before it said so.
            shutil.copy(path + suffix, image / f"a.db{suffix}")
        witness = disk.left(f"{path}-witness")
        assert witness is not None, "its name is lost"
        (image / "a.db-witness").write_bytes(witness)
        (image / "a.db-witness").chmod(0o600)
        after = SqliteStore(str(image / "a.db"))
        assert after.regression() is None
        after.close()
        store.start(new_run(f"r{number}"), None)
    store.close()


@flow
def power_loss() -> int:
    return 1


@pytest.mark.parametrize("name", ["run.jsonl", "run.jsonl.gz"])
def test_an_export_that_was_announced_is_there_under_its_name(tmp_path, monkeypatch, name):
    with testing.store() as store:
        power_loss.run("r")
        disk = Disk(monkeypatch)
        path = tmp_path / name
        store.export_run("r", path)
        assert disk.left(str(path)) == path.read_bytes()


def test_a_revoked_token_stays_revoked(tmp_path, monkeypatch):
    disk = Disk(monkeypatch)
    path = tmp_path / "tokens"
    tokens = Tokens(path)
    tokens.create("kim", "viewer")
    made = path.read_bytes()
    assert disk.left(str(path)) == made
    tokens.revoke("kim")
    assert disk.left(str(path)) == path.read_bytes() != made
