"""Who is alive, by real processes: killed, stopped, forked, and in other pid namespaces."""

import os
import signal
import subprocess
import sys
import threading
import time
from contextlib import contextmanager
from typing import Any

import pytest

from holdfast._engine.journal.lifecycle import Status
from holdfast._engine.journal.rows import Lease, Write
from holdfast._stores.contract import Busy, Committed, Fenced, Query
from holdfast._stores.sqlite.owner_locks import describe, is_gone
from holdfast._stores.sqlite.sqlite_store import SqliteStore
from holdfast.errors import StoreFailed
from tests.contract.store_contract import new_run, step

OWNER = """
import sys, time
from holdfast._stores.sqlite.sqlite_store import SqliteStore
from tests.contract.store_contract import new_run
store = SqliteStore(sys.argv[1])
owner = store.register_owner()
store.start(new_run(sys.argv[2]), owner)
print(owner, flush=True)
sys.stdin.read()
"""

JUDGE = """
import sys
from holdfast._stores.sqlite.sqlite_store import SqliteStore
store = SqliteStore(sys.argv[1])
print([row.run_id for row in store.claimable(store.now_us(), 9)], flush=True)
store.close()
"""

IN_A_NAMESPACE = ("unshare", "-Urmpf", "--mount-proc")


@contextmanager
def owning_process(path, run_id="r", prefix=()):
    """Start a process that owns a run; it lives until the block ends, or it is killed."""
    process = subprocess.Popen(
        [*prefix, sys.executable, "-c", OWNER, str(path), run_id],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert process.stdout is not None
    assert process.stdin is not None
    assert int(process.stdout.readline()) > 0
    try:
        yield process
    finally:
        process.send_signal(signal.SIGCONT)
        process.kill()
        process.wait()
        process.stdin.close()
        process.stdout.close()


@pytest.fixture
def store(tmp_path):
    store = SqliteStore(str(tmp_path / "a.db"))
    yield store
    store.close()


def claimable(store) -> list[str]:
    return [row.run_id for row in store.claimable(store.now_us(), 9)]


def judged_elsewhere(path, prefix=()) -> str:
    done = subprocess.run(
        [*prefix, sys.executable, "-c", JUDGE, str(path)],
        capture_output=True,
        text=True,
        check=True,
    )
    return done.stdout.strip()


def test_a_killed_owner_is_dead_at_once(store):
    with owning_process(store.path) as process:
        assert claimable(store) == []
        process.send_signal(signal.SIGKILL)
        process.wait()
        assert claimable(store) == ["r"]
        lease = store.claim("r", store.register_owner(), store.now_us())
        assert isinstance(lease, Lease)
        assert lease.row.epoch == 2


def test_51_a_stopped_owner_is_alive(store):
    with owning_process(store.path) as process:
        process.send_signal(signal.SIGSTOP)
        assert claimable(store) == []
        busy = store.claim("r", store.register_owner(), store.now_us())
        assert isinstance(busy, Busy)
        assert str(process.pid) in busy.owner
        process.send_signal(signal.SIGCONT)


def test_other_pid_namespaces_never_take_each_other_for_dead(store):
    """The same pid means another process there: only the lock may speak."""
    with owning_process(store.path, "inside", IN_A_NAMESPACE) as process:
        assert claimable(store) == []
        assert judged_elsewhere(store.path, IN_A_NAMESPACE) == "[]"
        os.killpg(os.getpgid(process.pid), 0)
    with owning_process(store.path, "outside"):
        assert "outside" not in judged_elsewhere(store.path, IN_A_NAMESPACE)


def test_without_the_lock_file_other_namespaces_wait_for_the_lease(store):
    with owning_process(store.path, "inside", IN_A_NAMESPACE):
        os.rename(f"{store.path}-owners.lock", f"{store.path}-moved")
        (store._locks).close()
        assert claimable(store) == []


def test_without_the_lock_file_pid_and_start_time_speak(store):
    with owning_process(store.path) as process:
        os.rename(f"{store.path}-owners.lock", f"{store.path}-moved")
        assert claimable(store) == []
        process.kill()
        process.wait()
        assert claimable(store) == ["r"]


def test_a_reused_pid_is_another_process():
    row = describe(1, 0, 0)
    assert not is_gone(row)
    row.started = "1"
    assert is_gone(row)
    row.boot_id = "another boot"
    assert not is_gone(row)


def test_50_one_of_many_processes_gets_the_run(store):
    store.start(new_run("r"), None)
    code = (
        "import sys\n"
        "from holdfast._engine.journal.rows import Lease\n"
        "from holdfast._stores.sqlite.sqlite_store import SqliteStore\n"
        "store = SqliteStore(sys.argv[1])\n"
        "owner = store.register_owner()\n"
        "print('ready', flush=True); sys.stdin.readline()\n"
        "got = store.claim('r', owner, store.now_us())\n"
        "print('won' if isinstance(got, Lease) else 'lost', flush=True); sys.stdin.readline()\n"
    )
    racers: list[Any] = [
        subprocess.Popen(
            [sys.executable, "-c", code, store.path],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        for _ in range(8)
    ]
    assert [racer.stdout.readline() for racer in racers] == ["ready\n"] * 8
    for racer in racers:
        racer.stdin.write("go\n")
        racer.stdin.flush()
    assert sorted(racer.stdout.readline() for racer in racers) == ["lost\n"] * 7 + ["won\n"]
    for racer in racers:
        racer.communicate("end\n")
    assert store.verify() == []


# -- forks -----------------------------------------------------------------------------------------


def in_child(work) -> None:
    """Run something in a forked child; an error there is an error here."""
    pid = os.fork()
    if pid == 0:
        try:
            work()
        except BaseException as error:
            print(repr(error), file=sys.stderr)
            os._exit(1)
        os._exit(0)
    assert os.waitpid(pid, 0)[1] == 0


@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
def test_31_parent_and_child_both_go_on_after_a_fork(store):
    owner = store.register_owner()
    lease = store.start(new_run("r"), owner).lease
    assert lease is not None

    def work():
        assert store.get("r") is not None
        child = store.register_owner()
        assert child != owner
        assert claimable(store) == []  # The parent is alive, and is seen to be.
        made = store.start(new_run("child"), child)
        assert made.lease is not None
        for _ in range(20):
            assert isinstance(store.append([Write(made.lease, [step()])])[0], Committed)

    for _ in range(3):
        in_child(work)
        assert isinstance(store.append([Write(lease, [step()])])[0], Committed)
        break
    assert claimable(store) == ["child"]  # The child is gone.
    assert len(store.list(Query())) == 2
    assert store.verify() == []


@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
def test_31_a_child_does_not_keep_its_dead_parent_alive(store):
    """The lock of the parent must not live on in what the child inherited."""
    code = (
        "import os, sys, time\n"
        "from holdfast._stores.sqlite.sqlite_store import SqliteStore\n"
        "from tests.contract.store_contract import new_run\n"
        "store = SqliteStore(sys.argv[1])\n"
        "store.start(new_run('r'), store.register_owner())\n"
        "pid = os.fork()\n"
        "if pid:\n"
        "    print(pid, flush=True); os._exit(0)\n"
        "time.sleep(60)\n"
    )
    done = subprocess.Popen([sys.executable, "-c", code, store.path], stdout=subprocess.PIPE)
    assert done.stdout is not None
    child = int(done.stdout.readline())
    done.wait()
    try:
        assert claimable(store) == ["r"]
    finally:
        os.kill(child, signal.SIGKILL)
        done.stdout.close()


@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
def test_31_forks_while_threads_read_and_write(store):
    owner = store.register_owner()
    lease = store.start(new_run("r"), owner).lease
    assert lease is not None
    stop = threading.Event()
    errors: list[BaseException] = []

    def write():
        while not stop.is_set():
            store.append([Write(lease, [step()])])

    def read():
        while not stop.is_set():
            row = store.get("r")
            store.load(row)

    def guarded(work):
        try:
            work()
        except BaseException as error:
            errors.append(error)

    threads = [threading.Thread(target=guarded, args=(work,)) for work in (write, read, read)]
    for thread in threads:
        thread.start()
    for number in range(5):
        in_child(lambda number=number: store.start(new_run(f"child-{number}"), None))
    stop.set()
    for thread in threads:
        thread.join()
    assert errors == []
    assert len(store.list(Query())) == 6
    assert store.verify() == []


def test_31_a_fork_behind_pythons_back_is_noticed(store):
    store._database._pid -= 1
    with pytest.raises(StoreFailed, match="forked"):
        store.start(new_run("r"), None)
    store._database._pid += 1


# -- several handles and threads -------------------------------------------------------------------


def test_64_threads_share_one_handle(store):
    owner = store.register_owner()
    errors: list[BaseException] = []

    def work(number):
        try:
            lease = store.start(new_run(f"r{number}"), owner).lease
            for _ in range(10):
                assert isinstance(store.append([Write(lease, [step()])])[0], Committed)
                assert len(store.load(store.get(f"r{number}"))) >= 2
        except BaseException as error:
            errors.append(error)

    threads = [threading.Thread(target=work, args=(number,)) for number in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert errors == []
    assert {row.steps for row in store.list(Query())} == {10}
    assert store.verify() == []


def test_33_processes_write_at_the_same_time(store):
    code = (
        "import sys\n"
        "from holdfast._engine.journal.rows import Write\n"
        "from holdfast._stores.contract import Committed\n"
        "from holdfast._stores.sqlite.sqlite_store import SqliteStore\n"
        "from tests.contract.store_contract import new_run, step\n"
        "store = SqliteStore(sys.argv[1])\n"
        "lease = store.start(new_run(sys.argv[2]), store.register_owner()).lease\n"
        "for _ in range(50):\n"
        "    assert isinstance(store.append([Write(lease, [step()])])[0], Committed)\n"
    )
    writers = [
        subprocess.Popen([sys.executable, "-c", code, store.path, f"r{number}"])
        for number in range(4)
    ]
    assert [writer.wait() for writer in writers] == [0] * 4
    assert {row.steps for row in store.list(Query())} == {50}
    assert store.regression() is None
    assert store.verify() == []


def test_a_zombie_handle_is_fenced(store):
    """A process that stood still while another took its run over changes zero rows."""
    lease = store.start(new_run("r"), store.register_owner()).lease
    other = SqliteStore(store.path, lease_s=30)
    taken = other.claim("r", other.register_owner(), store.now_us() + 31_000_000)
    assert isinstance(taken, Lease)
    before = other.get("r")
    assert isinstance(store.append([Write(lease, [step()])])[0], Fenced)
    assert store.get("r") == before
    assert before is not None
    assert before.status is Status.RUNNING
    other.close()


def test_w6_a_commit_of_another_process_wakes_a_waiter(store):
    other = SqliteStore(store.path)
    other.wait_for_change(0)
    while other.wait_for_change(0):
        pass
    committed_s = []

    def commit():
        committed_s.append(time.monotonic())
        store.start(new_run("r"), None)

    timer = threading.Timer(0.05, commit)
    timer.start()
    assert other.wait_for_change(10)
    assert time.monotonic() - committed_s[0] < 5
    timer.join()
    assert not other.wait_for_change(0)
    other.close()
    assert other.wait_for_change(10)


def test_waiting_works_without_inotify(store, monkeypatch):
    monkeypatch.setattr("holdfast._stores.sqlite.file_watch.sys.platform", "darwin")
    other = SqliteStore(store.path)
    other.wait_for_change(0)
    assert not other.wait_for_change(0)
    threading.Timer(0.05, store.start, (new_run("r"), None)).start()
    assert other.wait_for_change(10)
    other.close()


def test_a_new_file_is_opened_by_many_at_once(tmp_path):
    wrong: list[str] = []

    def open_one(path: str, together: threading.Barrier) -> None:
        together.wait()
        try:
            SqliteStore(path).close()
        except Exception as error:  # Shown below, by the thread that can fail the test.
            wrong.append(repr(error))

    for number in range(100):
        together = threading.Barrier(3)
        path = str(tmp_path / f"{number}.db")
        threads = [threading.Thread(target=open_one, args=(path, together)) for _ in range(3)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert wrong == []
