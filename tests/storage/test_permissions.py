"""Files that this user may not use: named with their path, and with what to do about it."""

import os
import subprocess
import sys

import pytest

from holdfast._stores.sqlite.sqlite_store import SqliteStore
from tests.contract.store_contract import new_run

OPEN = "import sys, holdfast\nholdfast.open(sys.argv[1])"
SOMEBODY = 65534


def take_away(path, mode):
    """Leave this user what others may do: `mode` is for them. Root gives the file to another user."""
    if os.geteuid() == 0:
        os.chown(path, SOMEBODY, 0)
        os.chmod(path, mode << 3)
    else:
        os.chmod(path, mode << 6)


def in_a_process(*words, cwd):
    """Run Python without the right to override permissions: in a namespace in which the other user
    does not exist, root has none over his files."""
    prefix = ("unshare", "-Ur") if os.geteuid() == 0 else ()
    command = [*prefix, sys.executable, *words]
    return subprocess.run(command, cwd=cwd, capture_output=True, text=True, check=False)


@pytest.fixture
def folder(tmp_path):
    made = tmp_path / "kept"
    made.mkdir()
    store = SqliteStore(str(made / "a.db"))
    store.register_owner()
    store.start(new_run("r"), None)
    store.close()
    (made / "flows.py").write_text("")
    yield made
    if os.geteuid() == 0:
        os.chown(made, 0, 0)
    os.chmod(made, 0o700)


READ, WRITE, ENTER = 4, 2, 1
CASES = [
    ("kept/a.db", 0, "sqlite:///kept/a.db", "kept/a.db cannot be read by this user"),
    ("kept/a.db", 0, "sqlite:///kept/a.db?mode=ro", "kept/a.db cannot be read by this user"),
    ("kept/a.db", READ, "sqlite:///kept/a.db", "kept/a.db cannot be written by this user"),
    ("kept/a.db-witness", 0, "sqlite:///kept/a.db", "kept/a.db-witness cannot be opened"),
    ("kept/a.db-wal", 0, "sqlite:///kept/a.db", "kept/a.db cannot be opened"),
    ("kept", READ | ENTER, "sqlite:///kept/a.db", "kept cannot be written by this user"),
    ("kept", READ | ENTER, "sqlite:///kept/new.db", "kept/new.db cannot be created"),
    ("kept", READ | WRITE, "sqlite:///kept/a.db", "kept/a.db cannot be looked at"),
    ("kept", READ | WRITE, "sqlite:///kept/below/a.db", "kept/below"),
]


@pytest.mark.parametrize(("taken", "mode", "url", "said"), CASES)
def test_what_this_user_may_not_use_is_named(folder, taken, mode, url, said):
    where = folder.parent / taken
    if not where.exists():
        where.touch()
    take_away(where, mode)
    opened = in_a_process("-c", OPEN, url, cwd=folder.parent)
    last = opened.stderr.strip().splitlines()[-1]
    assert last.startswith("holdfast.errors.StoreUnusable: ")
    assert said in last
    assert ";" in last  # And what to do.
    if "new.db" not in url:  # Commands that look say of it that there is none yet.
        looked = in_a_process(
            "-m", "holdfast._operator.cli", "--url", url, "runs", cwd=folder.parent
        )
        assert looked.returncode == 1
        assert looked.stderr.startswith("holdfast: ")
        assert said in looked.stderr
        assert "Traceback" not in looked.stderr


@pytest.mark.parametrize(
    ("words", "code", "said"),
    [
        (["store", "backup", "kept/b.db"], 1, "kept/b.db: permission denied"),
        (["store", "export", "r", "kept/r.json"], 2, "kept/r.json cannot be written"),
        (["run", "kept/flows.py:flow", "x"], 2, "kept/flows.py cannot be read"),
    ],
)
def test_other_files_of_a_command_are_named(folder, words, code, said):
    store = SqliteStore(str(folder.parent / "a.db"))
    store.start(new_run("r"), None)
    store.close()
    take_away(folder, READ)
    words = ["-m", "holdfast._operator.cli", "--url", "sqlite:///a.db", *words]
    done = in_a_process(*words, cwd=folder.parent)
    assert done.returncode == code
    assert said in done.stderr
    assert "Traceback" not in done.stderr


def test_a_folder_that_is_a_file_is_told_as_that(folder):
    done = in_a_process("-c", OPEN, "sqlite:///kept/flows.py/a.db", cwd=folder.parent)
    assert "flows.py is not a folder" in done.stderr
