"""Faults 20-22: a disk that is really full, and limits of a process."""

import subprocess
import sys

FULL_DISK = """
import os, subprocess, sys
from holdfast._engine.journal.entries import Draft, Kind
from holdfast._engine.journal.rows import Write
from holdfast._stores.contract import Committed
from holdfast._stores.sqlite.sqlite_store import SqliteStore
from holdfast.errors import StoreFull
from tests.contract.store_contract import intent, new_run, step

folder = sys.argv[1]
subprocess.run(["mount", "-t", "tmpfs", "-o", "size=12m", "none", folder], check=True)
store = SqliteStore(folder + "/a.db")
lease = store.start(new_run("r"), store.register_owner()).lease
store.append([Write(lease, [intent("pay")])])
ballast = os.open(folder + "/ballast", os.O_CREAT | os.O_WRONLY)
try:
    while True:
        os.write(ballast, bytes(4096))
except OSError:
    os.close(ballast)

# What has not happened yet is refused, as often as it is tried, and the reserve is not touched.
wanted = [Draft(Kind.STEP_STARTED, 5, "big", body=b'{"x":"' + b"y" * 100_000 + b'"}')]
for _ in range(3):
    before = store.get("r")
    try:
        store.append([Write(lease, wanted)])
    except StoreFull:
        pass
    else:
        raise AssertionError("there was room")
    assert store.get("r") == before == lease.row
assert os.path.exists(folder + "/a.db-reserve")

# The outcome of an effect that has happened uses the reserve.
outcome = step("pay", body=b'{"result":"' + b"z" * 100_000 + b'"}')
assert isinstance(store.append([Write(lease, [outcome])])[0], Committed)
assert not os.path.exists(folder + "/a.db-reserve")

# With space again, the same handle goes on, and nothing was lost.
os.unlink(folder + "/ballast")
assert isinstance(store.append([Write(lease, wanted)])[0], Committed)
assert store.verify() == []
store.close()
again = SqliteStore(folder + "/a.db")
assert again.regression() is None
assert [e.step for e in again.load(again.get("r"))][2:] == ["pay", "pay", "big"]
assert os.path.exists(folder + "/a.db-reserve")
print("survived")
"""

FULL_FOR_COMMANDS = """
import os, subprocess, sys
from holdfast._engine.journal.entries import Kind
from holdfast._engine.journal.rows import Write
from holdfast._stores.sqlite.sqlite_store import SqliteStore
from tests.contract.store_contract import entry, new_run

folder = sys.argv[1]
subprocess.run(["mount", "-t", "tmpfs", "-o", "size=8m", "none", folder], check=True)

def fill():
    handle = os.open(folder + "/ballast", os.O_CREAT | os.O_WRONLY | os.O_APPEND)
    try:
        while True:
            os.write(handle, bytes(4096))
    except OSError:
        os.close(handle)

def refused(url, *words, named):
    command = [sys.executable, "-m", "holdfast._operator.cli", "--url", url, *words]
    done = subprocess.run(command, capture_output=True, text=True)
    said = f"holdfast: the disk is full: no space left for {folder}/{named}. Nothing recorded was"
    assert done.returncode == 1 and done.stderr.startswith(said), (words, done)

url = f"sqlite:///{folder}/a.db"
store = SqliteStore(folder + "/a.db")
lease = store.start(new_run("r"), store.register_owner()).lease

# The store is open, so that its companions are there: what a command writes beside it is named.
fill()
refused(url, "store", "backup", folder + "/copy.db", named="copy.db")
refused(url, "store", "export", "r", folder + "/r.json", named="r.json")
refused(url, "tokens", "create", "joe", named="a.db-tokens")
assert not [name for name in os.listdir(folder) if "part" in name or "json" in name]
os.unlink(folder + "/ballast")
store.append([Write(lease, [entry(Kind.RUN_COMPLETED)])])
store.close()
export = [sys.executable, "-m", "holdfast._operator.cli", "--url", url, "store", "export", "r", folder + "/r.json"]
subprocess.run(export, check=True, capture_output=True)

# It is closed: SQLite has no room for its companions, and says "disk I/O error".
fill()
refused(url, "runs", named="a.db")
refused(url + "?mode=ro", "runs", named="a.db")
refused(f"sqlite:///{folder}/new.db", "store", "import", folder + "/r.json", named="new.db")
os.unlink(folder + "/ballast")
again = SqliteStore(folder + "/a.db")
assert again.verify() == []
print("survived")
"""

SMALL_FILES = """
import resource, sys
from holdfast._engine.journal.rows import Write
from holdfast._stores.contract import Committed
from holdfast._stores.sqlite.sqlite_store import SqliteStore
from holdfast.errors import StoreFull
from tests.contract.store_contract import new_run, step

store = SqliteStore(sys.argv[1] + "/a.db")
lease = store.start(new_run("r"), store.register_owner()).lease
resource.setrlimit(resource.RLIMIT_FSIZE, (3 << 20, resource.RLIM_INFINITY))
written = 0
try:
    for _ in range(1000):
        store.append([Write(lease, [step(body=b'{"result":"' + b"z" * 20_000 + b'"}')])])
        written += 1
except StoreFull:
    pass
else:
    raise AssertionError("there was no limit")
resource.setrlimit(resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
assert store.get("r").steps == written > 0
assert isinstance(store.append([Write(lease, [step()])])[0], Committed)
assert store.verify() == []
print("survived")
"""

FEW_FILES = """
import os, resource, sys
from holdfast._stores.sqlite.sqlite_store import SqliteStore
from holdfast.errors import StoreError
from tests.contract.store_contract import new_run

SqliteStore(sys.argv[1] + "/a.db").close()
used = len(os.listdir("/proc/self/fd"))
refused = 0
for more in range(0, 12):
    resource.setrlimit(resource.RLIMIT_NOFILE, (used + more, 4096))
    try:
        store = SqliteStore(sys.argv[1] + "/a.db")
        try:
            store.start(new_run(f"r{more}"), store.register_owner())
        finally:
            store.close()
    except StoreError:
        refused += 1
resource.setrlimit(resource.RLIMIT_NOFILE, (1024, 4096))
store = SqliteStore(sys.argv[1] + "/a.db")
assert refused, "there was no limit"
assert store.verify() == []
print("survived")
"""


def run(code, *arguments, prefix=()):
    done = subprocess.run(
        [*prefix, sys.executable, "-c", code, *arguments],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.stdout == "survived\n", done.stderr


def test_20_21_a_full_disk_blocks_intents_and_keeps_outcomes(tmp_path):
    run(FULL_DISK, str(tmp_path), prefix=("unshare", "-Urm"))


def test_20_commands_say_that_the_disk_is_full_and_which_file_has_no_room(tmp_path):
    run(FULL_FOR_COMMANDS, str(tmp_path), prefix=("unshare", "-Urm"))


def test_22_a_limit_on_file_size_is_a_full_disk(tmp_path):
    run(SMALL_FILES, str(tmp_path))


def test_36_too_many_open_files_is_an_error_of_ours(tmp_path):
    run(FEW_FILES, str(tmp_path))
