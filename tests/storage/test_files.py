"""Where a store may lie, and what is said when it may not."""

import logging
import os
import shutil
import stat
import subprocess
import sys

import apsw
import pytest

from holdfast._stores import locate
from holdfast._stores.contract import Query, Store
from holdfast._stores.locate import open_store
from holdfast._stores.sqlite import backups, filesystem, migrations, sqlite_database
from holdfast._stores.sqlite.sqlite_store import SqliteStore
from holdfast.errors import (
    Corrupt,
    HoldfastError,
    StoreFailed,
    StoreTooNew,
    StoreUnusable,
)
from tests.contract.store_contract import new_run


def mode_of(path) -> int:
    return stat.S_IMODE(os.stat(path).st_mode)


# -- urls ------------------------------------------------------------------------------------------


def test_urls_name_files(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    store = open_store("sqlite:///relative.db", namespace="n", lease_s=5)
    assert isinstance(store, SqliteStore)
    assert isinstance(store, Store)
    assert (store.namespace, store.lease_s) == ("n", 5)
    store.close()
    assert (tmp_path / "relative.db").exists()
    absolute = open_store(f"sqlite:///{tmp_path}/with%20space.db")
    absolute.close()
    assert (tmp_path / "with space.db").exists()
    again = open_store(store.url)
    assert again.store_id == store.store_id
    again.close()


def test_memory_urls_are_private():
    one, two = open_store("memory:"), open_store("memory:")
    assert (one.url, two.url) == ("memory:", "memory:")
    one.start(new_run("r"), None)
    assert two.get("r") is None
    one.close()
    two.close()


@pytest.mark.parametrize(
    ("url", "said"),
    [
        ("postgresql://host/db?pool=none", "pool='none'"),
        ("mysql://host/db", "sqlite:///relative.db"),
        ("holdfast.db", "sqlite:///relative.db"),
        ("", "sqlite:///relative.db"),
        ("sqlite://relative.db", "three slashes"),
        ("sqlite:relative.db", "three slashes"),
        ("sqlite:///", "three slashes"),
        ("sqlite:///a.db?mode=rx", "mode is ro or rw"),
        ("sqlite:///a.db?wal=1", "unknown option 'wal'"),
        ("sqlite:///a#b.db", "%23"),
    ],
)
def test_other_urls_are_refused_with_what_to_write(url, said):
    with pytest.raises(StoreUnusable, match=said):
        open_store(url)


def test_url_options():
    place = locate.parse("sqlite:////var/a.db?mode=ro&force_fs=1")
    assert place == locate.SqlitePlace("/var/a.db", read_only=True, force_fs=True)


# -- paths -----------------------------------------------------------------------------------------


def test_111_every_file_is_ours_alone(tmp_path):
    before = os.umask(0)
    store = SqliteStore(str(tmp_path / "a.db"))
    store.register_owner()
    store.start(new_run("r"), None)
    names = sorted(path.name for path in tmp_path.iterdir())
    assert names == [
        "a.db",
        *(f"a.db-{n}" for n in ("owners.lock", "reserve", "shm", "wal", "witness")),
    ]
    assert {mode_of(path) for path in tmp_path.iterdir()} == {0o600}
    store.close()
    os.umask(before)


def test_111_a_database_that_others_may_read_is_refused(tmp_path):
    SqliteStore(str(tmp_path / "a.db")).close()
    os.chmod(tmp_path / "a.db", 0o644)
    with pytest.raises(StoreUnusable, match="chmod 600"):
        SqliteStore(str(tmp_path / "a.db"))


@pytest.mark.parametrize("text", ["x", "print('an agent')\n" * 100])
@pytest.mark.parametrize("mode", [0o644, 0o600])
def test_what_is_no_database_is_told_before_its_permissions(tmp_path, text, mode):
    path = tmp_path / "agent.py"
    path.write_text(text)
    os.chmod(path, mode)
    with pytest.raises(StoreUnusable, match="is not a database"):
        open_store(f"sqlite:///{path}")
    assert path.read_text() == text


def test_112_a_symbolic_link_is_refused(tmp_path):
    SqliteStore(str(tmp_path / "a.db")).close()
    (tmp_path / "link.db").symlink_to(tmp_path / "a.db")
    with pytest.raises(StoreUnusable, match="symbolic link"):
        SqliteStore(str(tmp_path / "link.db"))
    (tmp_path / "dangling.db").symlink_to(tmp_path / "nothing")
    with pytest.raises(StoreUnusable, match="symbolic link"):
        SqliteStore(str(tmp_path / "dangling.db"))


def test_112_a_linked_companion_is_refused(tmp_path):
    SqliteStore(str(tmp_path / "a.db")).close()
    precious = tmp_path / "precious"
    precious.write_text("mine")
    (tmp_path / "a.db-witness").unlink()
    (tmp_path / "a.db-witness").symlink_to(precious)
    with pytest.raises(StoreUnusable, match="witness"):
        SqliteStore(str(tmp_path / "a.db"))
    assert precious.read_text() == "mine"


def test_a_linked_folder_is_the_folder(tmp_path):
    (tmp_path / "real").mkdir()
    (tmp_path / "linked").symlink_to(tmp_path / "real")
    store = SqliteStore(str(tmp_path / "linked" / "a.db"))
    assert store.path == str(tmp_path / "real" / "a.db")
    store.close()


def test_no_folder_no_file_no_database(tmp_path):
    with pytest.raises(StoreUnusable, match="mkdir -p"):
        SqliteStore(str(tmp_path / "none" / "a.db"))
    with pytest.raises(StoreUnusable, match="not a file"):
        SqliteStore(str(tmp_path))
    text = tmp_path / "text.db"
    text.touch(0o600)
    text.write_text("this is not a database, whatever its name says\n" * 50)
    with pytest.raises(StoreUnusable, match="not a database"):
        SqliteStore(str(text))
    with pytest.raises(StoreUnusable, match="no database at"):
        SqliteStore(str(tmp_path / "none.db"), read_only=True)


def of_another_program(path, ending):
    """Make a database in a process of its own, which ends in its own way."""
    code = (
        "import os, sys, apsw\n"
        "other = apsw.Connection(sys.argv[1])\n"
        f"{ending.partition(':')[0]}\n"
        "other.execute('CREATE TABLE mine (x)')\n"
        f"{ending.partition(':')[2]}\n"
    )
    subprocess.run([sys.executable, "-c", code, str(path)], check=False)


WAL = "other.execute('PRAGMA journal_mode = wal')"
STRANGERS = {
    "one byte": b"x",
    "a short text": b"my notes\n",
    "the first bytes of a database": b"SQLite format 3\x00",
    "a long text": b"my notes\n" * 5000,
    "noughts": bytes(9000),
    "a database": ":other.close()",
    "a database with a WAL": f"{WAL}:other.close()",
    "a database whose process died": f"{WAL}:os._exit(9)",
}


@pytest.mark.parametrize("made", STRANGERS.values(), ids=STRANGERS)
def test_a_file_that_is_no_store_is_refused_and_not_changed(tmp_path, made):
    path = tmp_path / "precious.db"
    path.touch(0o600)
    if isinstance(made, bytes):
        path.write_bytes(made)
    else:
        of_another_program(path, made)
    log = tmp_path / "precious.db-wal"
    before = path.read_bytes(), log.exists() and log.read_bytes()
    for query in ("", "?mode=ro"):
        with pytest.raises(
            StoreUnusable, match=r"precious.db is (not a database|a database of ano)"
        ):
            open_store(f"sqlite:///{path}{query}")
        with pytest.raises(StoreUnusable):
            open_store(f"sqlite:///{path}{query}", create=False)
    with pytest.raises(StoreUnusable):
        backups.restore(str(path), str(tmp_path / "restored.db"))
    assert (path.read_bytes(), log.exists() and log.read_bytes()) == before
    there = {found.name.removeprefix("precious.db") for found in tmp_path.iterdir()}
    assert there <= {"", "-wal", "-shm"}


def test_an_empty_file_becomes_a_store(tmp_path):
    path = tmp_path / "made-by-mkstemp.db"
    path.touch(0o600)
    store = SqliteStore(str(path))
    store.start(new_run("r"), None)
    assert store.verify() == []
    store.close()


def test_90_a_newer_schema_is_refused(tmp_path):
    SqliteStore(str(tmp_path / "a.db")).close()
    raw = apsw.Connection(str(tmp_path / "a.db"))
    raw.execute("PRAGMA user_version = 99")
    raw.close()
    with pytest.raises(StoreTooNew, match="99.*upgrade"):
        SqliteStore(str(tmp_path / "a.db"))


def test_a_migration_is_all_or_nothing(tmp_path, monkeypatch):
    broken = (*migrations.steps(), "CREATE TABLE more (x); CREATE TABLE runs (y)")
    store = SqliteStore(str(tmp_path / "a.db"))
    store.start(new_run("r"), None)
    store.close()
    monkeypatch.setattr(migrations, "steps", lambda: broken)
    with pytest.raises(HoldfastError):
        SqliteStore(str(tmp_path / "a.db"))
    monkeypatch.undo()
    store = SqliteStore(str(tmp_path / "a.db"))
    assert store.get("r") is not None
    assert store.verify() == []
    store.close()


def test_a_store_of_an_older_schema_is_brought_up_to_date(tmp_path, monkeypatch):
    store = SqliteStore(str(tmp_path / "a.db"))
    store.start(new_run("r"), None)
    store.close()
    more = (*migrations.steps(), "CREATE TABLE more (x)")
    monkeypatch.setattr(migrations, "steps", lambda: more)
    migrations.expected.cache_clear()
    with pytest.raises(StoreUnusable, match="older schema"):
        SqliteStore(str(tmp_path / "a.db"), read_only=True)
    store = SqliteStore(str(tmp_path / "a.db"))
    assert store.get("r") is not None
    assert store.regression() is None
    store.close()
    monkeypatch.undo()
    migrations.expected.cache_clear()


def test_a_changed_definition_is_noticed(tmp_path):
    SqliteStore(str(tmp_path / "a.db")).close()
    raw = apsw.Connection(str(tmp_path / "a.db"))
    raw.execute("DROP INDEX runs_by_hash")
    raw.close()
    with pytest.raises(Corrupt, match="runs_by_hash"):
        SqliteStore(str(tmp_path / "a.db"))


@pytest.mark.parametrize("how", ["replaced", "deleted"])
def test_29_a_file_that_is_replaced_or_deleted_stops_the_handle(tmp_path, monkeypatch, how):
    monkeypatch.setattr("holdfast._stores.sqlite.transaction_writer.LOOK_EVERY_S", 0)
    store = SqliteStore(str(tmp_path / "a.db"))
    store.start(new_run("r"), None)
    if how == "replaced":
        shutil.copy(tmp_path / "a.db", tmp_path / "b.db")
        os.replace(tmp_path / "b.db", tmp_path / "a.db")
    else:
        (tmp_path / "a.db").unlink()
    with pytest.raises(StoreFailed, match=how):
        store.start(new_run("s"), None)
    with pytest.raises(StoreFailed, match="dead since"):
        store.start(new_run("s"), None)
    store.close()


@pytest.mark.parametrize("read_only", [False, True])
def test_29_reads_notice_a_file_that_is_replaced_or_deleted(tmp_path, monkeypatch, read_only):
    """Else what is shown would be of a file that nobody else can see."""
    monkeypatch.setattr("holdfast._stores.sqlite.sqlite_database.LOOK_EVERY_S", 0)
    path = tmp_path / "a.db"
    made = SqliteStore(str(path))
    made.start(new_run("r"), None)
    made.close()
    store = SqliteStore(str(path), read_only=read_only)
    assert store.get("r") is not None
    shutil.copy(path, tmp_path / "b.db")
    os.rename(path, tmp_path / "away.db")
    for _ in range(2):
        with pytest.raises(StoreFailed, match="deleted or moved"):
            store.get("r")
    os.rename(tmp_path / "b.db", path)
    with pytest.raises(StoreFailed, match="replaced by another file"):
        store.list(Query())
    os.rename(tmp_path / "away.db", path)
    assert store.get("r") is not None  # It is the same file, and nothing was written meanwhile.
    store.close()


def test_29_a_file_that_is_overwritten_in_place_stops_the_handle(tmp_path):
    path = str(tmp_path / "a.db")
    SqliteStore(path).close()
    old = (tmp_path / "a.db").read_bytes()
    store = SqliteStore(path)
    store.start(new_run("r"), None)
    other = SqliteStore(path)
    store.close()
    raw = apsw.Connection(path)
    raw.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    raw.close()
    with open(path, "r+b") as file:
        file.write(old)
    with pytest.raises(HoldfastError):
        other.start(new_run("s"), None)
    other.close()


# -- file systems ----------------------------------------------------------------------------------


@pytest.fixture
def mounted(tmp_path, monkeypatch):
    def mount(kind):
        mounts = tmp_path / "mounts"
        mounts.write_text(f"dev / ext4 rw 0 0\nhost:/x {tmp_path} {kind} rw 0 0\n")
        monkeypatch.setattr(filesystem, "MOUNTS", mounts)

    return mount


@pytest.mark.parametrize("kind", ["nfs4", "cifs", "9p", "fuse.sshfs"])
def test_30_a_network_file_system_is_refused(tmp_path, mounted, kind):
    mounted(kind)
    with pytest.raises(StoreUnusable, match=f"{kind}.*force_fs=1"):
        SqliteStore(str(tmp_path / "a.db"))
    store = open_store(f"sqlite:///{tmp_path}/a.db?force_fs=1")
    owner = store.register_owner()
    store.start(new_run("r"), owner)
    store.close()
    other = open_store(f"sqlite:///{tmp_path}/a.db?force_fs=1")
    assert other.claimable(other.now_us(), 9) == []  # Its locks prove nothing there.
    other.close()


def test_30_an_overlay_is_warned_about(tmp_path, mounted, caplog):
    mounted("overlay")
    with caplog.at_level(logging.WARNING):
        SqliteStore(str(tmp_path / "a.db")).close()
    assert "overlay" in caplog.text


def test_mounts_are_found_by_their_longest_prefix(tmp_path, monkeypatch):
    mounts = tmp_path / "mounts"
    mounts.write_text("a / ext4 rw 0 0\nb /data\\040dir nfs rw 0 0\nc /data xfs rw 0 0\n")
    monkeypatch.setattr(filesystem, "MOUNTS", mounts)
    assert filesystem.file_system_of("/data dir/x") == "nfs"
    assert filesystem.file_system_of("/data/x") == "xfs"
    assert filesystem.file_system_of("/database") == "ext4"
    monkeypatch.setattr(filesystem, "MOUNTS", tmp_path / "none")
    assert filesystem.file_system_of("/data") == ""


# -- settings --------------------------------------------------------------------------------------


def test_durability_is_read_back(tmp_path):
    store = SqliteStore(str(tmp_path / "a.db"))
    writer = store._database.writer
    asked = ("journal_mode", "synchronous", "page_size", "foreign_keys", "mmap_size")
    found = [writer.execute(f"PRAGMA {name}").fetchall()[0][0] for name in asked]
    assert found == ["wal", 2, 8192, 1, 0]
    store.close()


def test_a_setting_that_cannot_be_made_is_refused(tmp_path, monkeypatch):
    monkeypatch.setitem(sqlite_database.Q, "synchronous", "PRAGMA synchronous = NORMAL")
    with pytest.raises(StoreUnusable, match="synchronous"):
        SqliteStore(str(tmp_path / "a.db"))


def test_34_an_old_sqlite_writes_under_a_side_lock(tmp_path, monkeypatch):
    monkeypatch.setattr(
        "holdfast._stores.sqlite.transaction_writer.sqlite_version", lambda: (3, 46, 0)
    )
    store = SqliteStore(str(tmp_path / "a.db"))
    store.start(new_run("r"), None)
    assert (tmp_path / "a.db-write.lock").exists()
    store.close()


# -- reading only ----------------------------------------------------------------------------------


def test_a_store_can_be_opened_for_reading(tmp_path):
    store = SqliteStore(str(tmp_path / "a.db"))
    store.start(new_run("r"), None)
    reader = open_store(f"sqlite:///{tmp_path}/a.db?mode=ro")
    row = reader.get("r")
    assert row is not None
    assert len(reader.load(row)) == 1
    assert reader.regression() is None
    with pytest.raises(StoreUnusable, match="reading only"):
        reader.start(new_run("s"), None)
    reader.close()
    store.close()


IN_A_READ_ONLY_MOUNT = """
import subprocess, sys
from holdfast._stores.sqlite.sqlite_store import SqliteStore
from holdfast.errors import StoreUnusable
from tests.contract.store_contract import new_run
folder = sys.argv[1]
subprocess.run(["mount", "-t", "tmpfs", "none", folder], check=True)
store = SqliteStore(folder + "/a.db")
store.start(new_run("r"), None)
store.close()
subprocess.run(["mount", "-o", "remount,ro", folder], check=True)
try:
    SqliteStore(folder + "/a.db")
except StoreUnusable as error:
    assert "mode=ro" in str(error), error
else:
    raise AssertionError("opened for writing")
reader = SqliteStore(folder + "/a.db", read_only=True)
assert len(reader.load(reader.get("r"))) == 1
assert reader.verify() == []
print("read")
import os
from holdfast._operator.cli.main import main
for words in (["doctor"], ["--json", "doctor"], ["store", "backup", sys.argv[2]]):
    try:
        main(["--url", f"sqlite:///{folder}/a.db?mode=ro", *words], standalone_mode=False)
    except SystemExit as ended:
        assert ended.code in (0, 3), ended.code
with_copy = SqliteStore(sys.argv[2])
assert len(with_copy.load(with_copy.get("r"))) == 1
assert not os.path.exists(sys.argv[2] + ".part")
"""


def test_24_a_read_only_folder_can_be_read_looked_at_and_copied(tmp_path):
    (tmp_path / "mounted").mkdir()
    words = [str(tmp_path / "mounted"), str(tmp_path / "copy.db")]
    done = subprocess.run(
        ["unshare", "-Urm", sys.executable, "-c", IN_A_READ_ONLY_MOUNT, *words],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.stdout.startswith("read\n"), done.stderr
    assert done.returncode == 0, done.stderr
    assert "Written: " in done.stdout
