"""`holdfast worker` in real processes, with real signals; and the commands about queues."""

from __future__ import annotations

import contextlib
import io
import os
import pty
import re
import signal
import subprocess
import sys
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

import holdfast as hf
from holdfast._operator.cli.worker_panel import Panel
from holdfast._operator.cli.worker_pool import ONE_SIGNAL_S, WorkerPool
from holdfast._operator.cli.worker_process import AtWork, Order, ProcessStatus
from tests.model.memory_store import MemoryStore
from tests.ops.test_cli_run import PATIENCE_S, Command

MODULE = "tests.ops.agent"


@pytest.fixture
def holdfast(tmp_path: Path) -> Command:
    return Command(tmp_path)


@pytest.fixture
def store(holdfast: Command) -> Iterator[hf.types.Store]:
    with hf.open(f"sqlite:///{holdfast.folder}/holdfast.db", default=False) as opened:
        yield opened


def until(fact: Callable[[], Any], process: subprocess.Popen[str] | None = None) -> Any:
    deadline = time.monotonic() + PATIENCE_S
    while not (said := fact()):
        if process is not None and process.poll() is not None:
            raise AssertionError(f"it ended: {process.communicate()}")
        assert time.monotonic() < deadline
        time.sleep(0.01)
    return said


@contextlib.contextmanager
def worker(
    holdfast: Command, store: hf.types.Store, *options: str
) -> Iterator[subprocess.Popen[str]]:
    """A worker that is ready; killed at the end if it still lives."""
    process = holdfast.start("worker", MODULE, *options)
    try:
        until(store.workers, process)
        yield process
    finally:
        process.kill()
        process.communicate()


def submit(holdfast: Command, name: str, run_id: str, *args: int, queue: str | None = None) -> None:
    """Submit from a process of its own, which ends."""
    code = (
        f"from tests.ops.agent import {name} as chosen\n"
        f"chosen.with_options(queue={queue!r}).submit({run_id!r}, *{args!r})"
    )
    subprocess.run(
        [sys.executable, "-c", code],
        cwd=holdfast.folder,
        env=holdfast.env,
        stderr=subprocess.DEVNULL,
        check=True,
    )


def children(process: subprocess.Popen[str]) -> list[int]:
    path = Path(f"/proc/{process.pid}/task/{process.pid}/children")
    return [int(pid) for pid in path.read_text().split()]


def is_gone(pid: int) -> bool:
    try:
        return "Z" in Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0]
    except (FileNotFoundError, ProcessLookupError):
        return True


def status(store: hf.types.Store, run_id: str) -> str:
    return str(store.get(run_id).status)


# -- its life ----------------------------------------------------------------------------------


def test_it_executes_and_drains(holdfast: Command, store: hf.types.Store):
    with worker(holdfast, store, "--name", "w", "--processes", "2") as process:
        until(lambda: len(store.workers()) == 2, process)
        assert {seen.name for seen in store.workers()} == {"w.1", "w.2"}
        submit(holdfast, "waits", "long", 5)
        until((holdfast.folder / "inside").exists, process)
        process.send_signal(signal.SIGTERM)
        until(lambda: all(seen.draining for seen in store.workers()))
        submit(holdfast, "waits", "later", 5)
        (holdfast.folder / "let-go").touch()
        _, err = process.communicate(timeout=PATIENCE_S)
    assert process.returncode == 0, err
    assert "draining" in err
    assert (status(store, "long"), status(store, "later")) == ("completed", "queued")


SLOW_TO_START = """
import signal, threading
from pathlib import Path
import holdfast

@holdfast.effect(name="slow.charge")
def charge(number: int) -> int:
    Path(f"charged-{number}").touch()
    return number

@holdfast.flow(name="slow.pay")
def pay(number: int) -> int:
    return charge(number)

told = signal.getsignal(signal.SIGTERM)
if callable(told):  # In a process of a worker, which is imported as long as it was not told to end.
    ended = threading.Event()

    def end(number, frame):
        told(number, frame)
        ended.set()

    signal.signal(signal.SIGTERM, end)
    Path(f"starts-{__import__('os').getpid()}").touch()
    ended.wait()
    signal.signal(signal.SIGTERM, told)
"""


def test_a_process_that_starts_while_it_drains_takes_nothing(
    holdfast: Command, store: hf.types.Store
):
    (holdfast.folder / "slow.py").write_text(SLOW_TO_START)
    submits = "import slow; [slow.pay.submit(f'r{n}', n) for n in range(4)]"
    subprocess.run(
        [sys.executable, "-c", submits], cwd=holdfast.folder, env=holdfast.env, check=True
    )
    process = holdfast.start("worker", "slow.py", "--processes", "2")
    try:
        until(lambda: len(list(holdfast.folder.glob("starts-*"))) == 2, process)
        process.send_signal(signal.SIGTERM)
        _, err = process.communicate(timeout=PATIENCE_S)
    finally:
        process.kill()
        process.communicate()
    assert (process.returncode, "draining" in err) == (0, True), err
    assert list(holdfast.folder.glob("charged-*")) == []
    assert [status(store, f"r{n}") for n in range(4)] == ["queued"] * 4


def test_what_does_not_end_in_time_is_given_back(holdfast: Command, store: hf.types.Store):
    submit(holdfast, "waits", "r")
    with worker(holdfast, store, "--drain", "0") as process:
        until((holdfast.folder / "inside").exists, process)
        process.send_signal(signal.SIGINT)
        _, err = process.communicate(timeout=PATIENCE_S)
    assert process.returncode == 0, err
    (holdfast.folder / "let-go").touch()
    with worker(holdfast, store):
        assert store.handle("r").result(PATIENCE_S) == 2
    assert holdfast.executed().count("first") == 1


def test_a_second_signal_ends_at_once(holdfast: Command, store: hf.types.Store):
    submit(holdfast, "waits", "r")
    with worker(holdfast, store, "--drain", "3600") as process:
        until((holdfast.folder / "inside").exists, process)
        process.send_signal(signal.SIGTERM)
        until(lambda: [seen for seen in store.workers() if seen.draining], process)
        time.sleep(ONE_SIGNAL_S)  # Before that, it is taken for the same one.
        process.send_signal(signal.SIGTERM)
        _, err = process.communicate(timeout=PATIENCE_S)
    assert process.returncode == 130, err
    assert status(store, "r") == "running"


def test_two_signals_in_the_same_instant_are_one(holdfast: Command, store: hf.types.Store):
    """`timeout 60 holdfast worker …` signals the process, and then its group."""
    submit(holdfast, "waits", "r", 5)
    with worker(holdfast, store) as process:
        until((holdfast.folder / "inside").exists, process)
        process.send_signal(signal.SIGTERM)
        process.send_signal(signal.SIGINT)
        until(lambda: [seen for seen in store.workers() if seen.draining], process)
        (holdfast.folder / "let-go").touch()
        _, err = process.communicate(timeout=PATIENCE_S)
    assert process.returncode == 0, err
    assert "killed" not in err
    assert status(store, "r") == "completed"


def test_a_killed_process_is_replaced_and_its_runs_go_on(holdfast: Command, store: hf.types.Store):
    submit(holdfast, "killed", "r", 4)
    with worker(holdfast, store) as process:
        assert store.handle("r").result(PATIENCE_S) == 50
        process.send_signal(signal.SIGTERM)
        _, err = process.communicate(timeout=PATIENCE_S)
    assert process.returncode == 0
    assert err.count("was killed by SIGKILL") == 2
    assert holdfast.executed() == ["first", "deadly", "deadly", "deadly"]


def test_processes_end_when_their_parent_is_gone(holdfast: Command, store: hf.types.Store):
    with worker(holdfast, store, "--processes", "2") as process:
        until(lambda: len(store.workers()) == 2, process)
        theirs = children(process)
        process.kill()
        until(lambda: all(is_gone(pid) for pid in theirs))


def test_poison_is_quarantined_and_taken_up_with_others(holdfast: Command, store: hf.types.Store):
    """A run that kills every process it is in harms the others only for a moment."""
    store.set_queue(hf.Queue("q", concurrency=9))
    submit(holdfast, "poisoned", "poison", queue="q")
    with worker(holdfast, store) as process:
        until(lambda: status(store, "poison") == "held", process)
        submit(holdfast, "waits", "fine", 5)
        (holdfast.folder / "let-go").touch()
        assert store.handle("fine").result(PATIENCE_S) == 6
        process.send_signal(signal.SIGTERM)
        _, err = process.communicate(timeout=PATIENCE_S)
    assert "4 times now" in err
    [queue] = holdfast.json("queues")["queues"]
    assert (queue["name"], queue["quarantined"]) == ("q", 1)
    listed = holdfast.json("runs", "--queue", "q", "--held-reason", "quarantined")["runs"]
    assert [run["run_id"] for run in listed] == ["poison"]
    told = holdfast("resume", "--queue", "q", "--quarantined", "--yes")
    assert told.returncode == 0, told.stderr
    assert told.stdout.startswith("poison: ")
    assert status(store, "poison") == "queued"


# -- health ------------------------------------------------------------------------------------


HEALTH_SAID = re.compile("health: " + re.escape("http://127.0.0.1:") + r"(\d+)/live")


def answer(port: int, path: str, method: str = "GET") -> tuple[int, str]:
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    request = urllib.request.Request(f"http://127.0.0.1:{port}{path}", method=method)
    try:
        with opener.open(request, timeout=10) as said:
            return said.status, said.read().decode()
    except urllib.error.HTTPError as error:
        with error:
            return error.code, error.read().decode()
    except OSError:
        return 0, ""


def answered(port: int, path: str, method: str = "GET") -> tuple[int, str]:
    """What is answered there, however late: a busy machine may let a request run into its limit."""
    found: tuple[int, str] = until(lambda: (got := answer(port, path, method))[0] and got)
    return found


def health_port(process: subprocess.Popen[str]) -> int:
    """The port that the worker says that it was given."""
    assert process.stderr is not None
    said = iter(process.stderr.readline, "")
    return int(next(found[1] for line in said if (found := HEALTH_SAID.search(line))))


def test_health(holdfast: Command, store: hf.types.Store):
    submit(holdfast, "waits", "r")
    with worker(holdfast, store, "--health", "127.0.0.1:0", "--drain", "60s") as process:
        port = health_port(process)
        # While a store does not answer for a while, as one whose process gets no time, none is ready.
        until(lambda: answer(port, "/ready") == (200, '{"ready": true}'), process)
        assert answered(port, "/live") == (200, '{"live": true}')
        assert answered(port, "/live", "HEAD") == (200, "")
        for path in ("/", "/ready/", "//ready", "/Ready", "/live?x=1", "/../live", "/runs"):
            assert answered(port, path)[0] == 404, path
        assert answered(port, "/ready", "POST")[0] == 501
        until((holdfast.folder / "inside").exists, process)
        process.send_signal(signal.SIGTERM)
        until(lambda: answer(port, "/ready")[0] == 503, process)
        assert answered(port, "/live")[0] == 200
        (holdfast.folder / "let-go").touch()
        process.communicate(timeout=PATIENCE_S)


# -- mistakes ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (["nowhere"], "no module 'nowhere'"),
        (["nowhere.py"], "no file nowhere.py"),
        (["json"], "MODULE json: no flow is defined there"),
        ([MODULE, "--url", "memory:"], "other processes can open"),
        ([MODULE, "--health", "8080"], "HOST:PORT"),
        ([], "Missing argument"),
    ],
)
def test_wrong_usage_ends_at_once(holdfast: Command, words: list[str], told: str):
    done = holdfast("worker", *words)
    assert done.returncode == 2, done.stderr
    assert told in done.stderr
    assert "Traceback" not in done.stderr


def test_a_module_that_raises_is_given_up(holdfast: Command):
    (holdfast.folder / "bad.py").write_text("raise RuntimeError('not today')\n")
    done = holdfast("worker", "bad.py")
    assert done.returncode == 1
    assert "not today" in done.stderr
    assert "before it could work" in done.stderr


@pytest.mark.parametrize(
    ("text", "error"),
    [
        ("def x(:\n", "SyntaxError: invalid syntax"),
        ("import not_there\n", "No module named 'not_there'"),
        ("flwo\n", "NameError: name 'flwo' is not defined"),
    ],
)
def test_a_module_that_can_never_be_imported_ends_it_at_once(
    holdfast: Command, text: str, error: str
):
    (holdfast.folder / "bad.py").write_text(text)
    done = holdfast("worker", "bad.py")
    assert done.returncode == 1
    assert done.stderr.count("Traceback") == 1
    assert error in done.stderr.splitlines()[-1]
    assert "another starts" not in done.stderr


def test_a_module_that_is_broken_while_it_works_is_tried_again(
    holdfast: Command, store: hf.types.Store
):
    good = "import holdfast\n@holdfast.flow\ndef late(): ...\n"
    file, tries = holdfast.folder / "late.py", holdfast.folder / "tries"
    file.write_text(good)
    process = holdfast.start("worker", "late.py")
    try:
        (first,) = until(store.workers, process)
        file.write_text("open('tries', 'a').write('x')\nflwo\n")
        os.kill(first.pid, signal.SIGKILL)
        until(lambda: tries.exists() and tries.stat().st_size > 1, process)
        file.write_text(good)
        until(lambda: {it.pid for it in store.workers()} - {first.pid}, process)
    finally:
        process.kill()
        process.communicate()


# -- the view ----------------------------------------------------------------------------------


def test_the_view_fits_into_a_small_terminal():
    out = Console(width=80, height=24, record=True, file=io.StringIO())
    kept = MemoryStore()
    for number in range(9):
        kept.set_limits(hf.Queue(f"queue-{number}", concurrency=5).limits)
    panel = Panel(lambda: kept, kept.url, out)
    panel.look()
    order = Order([], "", "", None, 50, 20.0, None, True, -1, -1)
    workforce = WorkerPool([order] * 7, panel.say)
    runs = [AtWork("a-run-with-a-long-id-" * 3, "agent\x1b[31m", "turns[3]/think", 0)] * 20
    for process in workforce.processes:
        process.standing = ProcessStatus("worker-1", True, working=50, taken=1000, runs=runs)
        process.output.extend(["a line\x1b[2J that is long " * 9] * 9)
    panel.draw(workforce)
    out.print(panel.picture(workforce))
    shown = out.export_text()
    lines = shown.rstrip().splitlines()[-24:]
    assert "holdfast worker" in shown
    assert "and 3 more" in shown
    assert "\x1b" not in shown
    assert max(map(len, lines)) <= 80
    with out.capture() as captured:
        out.print(panel.picture(workforce))
    assert len(captured.get().splitlines()) <= 24
    kept.close()


def test_what_was_logged_is_brief_in_the_view_and_not_cut_too_early():
    out = Console(width=80, height=24, record=True, file=io.StringIO())
    kept = MemoryStore()
    panel = Panel(lambda: kept, kept.url, out)
    workforce = WorkerPool([Order([], "", "", None, 50, 20.0, None, True, -1, -1)], panel.say)
    [process] = workforce.processes
    process.output.append("2026-01-02 03:04:05,678 INFO run a completed")
    process.output.append(f"2026-01-02 03:04:06,678 WARNING worker {'w' * 60} cannot use it: gone")
    panel.draw(workforce)
    out.print(panel.picture(workforce))
    shown = out.export_text()
    assert "03:04:05 run a completed" in shown
    assert "03:04:06 ! worker" in shown
    assert "cannot use it: gone" in shown
    assert "2026" not in shown
    kept.close()


def test_a_terminal_sees_it_live(holdfast: Command, store: hf.types.Store):
    ours, theirs = pty.openpty()
    said = bytearray()

    def read() -> None:
        with contextlib.suppress(OSError):
            while data := os.read(ours, 4096):
                said.extend(data)

    reader = threading.Thread(target=read, daemon=True)
    process = subprocess.Popen(
        [sys.executable, "-m", "holdfast._operator.cli", "worker", MODULE],
        cwd=holdfast.folder,
        env=holdfast.env | {"TERM": "xterm", "COLUMNS": "80", "LINES": "24"},
        stdout=theirs,
        stderr=theirs,
        start_new_session=True,
    )
    os.close(theirs)
    reader.start()
    try:
        submit(holdfast, "waits", "seen-at-work")
        until(lambda: b"seen-at-work" in said)
        until(lambda: b"long" in said)
        process.send_signal(signal.SIGINT)
        (holdfast.folder / "let-go").touch()
        assert process.wait(PATIENCE_S) == 0
    finally:
        process.kill()
        process.wait()
        reader.join()
        os.close(ours)
    assert b"draining" in said


# -- queues ------------------------------------------------------------------------------------


def test_queues_are_seen_and_changed(holdfast: Command, store: hf.types.Store):
    assert "No queue" in holdfast("queues").stdout
    assert holdfast("queues", "show", "mail").returncode == 6
    assert holdfast("queues", "resume", "mail").returncode == 6
    submit(holdfast, "waits", "r", queue="mail")
    set_ = holdfast(
        "queues", "set", "mail", "--concurrency", "5", "--rate", "100", "--period", "30s"
    )
    assert set_.returncode == 0, set_.stderr
    assert "0/5 at once, 100 in 30 s" in " ".join(set_.stdout.split())
    paused = holdfast.json("queues", "pause", "mail")["queue"]
    assert (paused["paused"], paused["rate"], paused["concurrency"]) == (True, 100, 5)
    shown = holdfast("queues").stdout
    assert "paused" in shown
    assert "No worker is alive" in shown
    assert holdfast.json("queues", "resume", "mail")["queue"]["paused"] is False
    unlimited = holdfast.json("queues", "set", "mail", "--rate", "none")["queue"]
    assert (unlimited["rate"], unlimited["concurrency"]) == (None, 5)
    shown = holdfast.json("queues", "show", "mail")["queue"]
    assert {**shown, "oldest_s": None} == {**unlimited, "oldest_s": None}
    for wrong in (["--concurrency", "0"], ["--rate", "fast"], ["--period", "0"], []):
        assert holdfast("queues", "set", "mail", *wrong).returncode == 2


def test_failed_runs_are_taken_up_together(holdfast: Command, store: hf.types.Store):
    for number in range(2):
        submit(holdfast, "fails", f"f{number}", queue="q")
    with worker(holdfast, store):
        until(lambda: {status(store, "f0"), status(store, "f1")} == {"failed"})
        (holdfast.folder / "mended").touch()
        told = holdfast.json("resume", "--queue", "q", "--failed", "--yes")
        assert [one["run_id"] for one in told["resumed"]] == ["f1", "f0"]
        assert told["refused"] == 0
        assert store.handle("f0").result(PATIENCE_S) == "mended"
    for wrong in ([], ["r", "--failed"], ["--failed", "--quarantined"], ["--queue", "q"]):
        assert holdfast("resume", *wrong).returncode == 2


def test_a_worker_can_be_given_another_lease(holdfast: Command, store: hf.types.Store) -> None:
    with worker(holdfast, store, "--lease", "7"):
        [left_s] = [
            (pulse.until_us - store._backend.now_us()) / 1e6 for pulse in store._backend.pulses()
        ]
        assert 0 < left_s <= 7
    assert holdfast("worker", MODULE, "--lease", "0").returncode == 2


NARROW = """
import os, time
from holdfast import Queue, flow, step

def note(word):
    with open("ledger", "a") as ledger:
        ledger.write(word + "\\n")

@step(name="narrow step")
def passes(n: int) -> int:
    note("in")
    time.sleep(0.1)
    note("out")
    return n

@flow(name="narrow", queue=Queue("narrow", concurrency=1))
def narrow(n: int) -> int:
    return passes(n)
"""


def test_no_process_takes_before_the_limits_are_declared(holdfast: Command, store: hf.types.Store):
    """The runs are there before the first worker: whichever process looks first knows the limit."""
    (holdfast.folder / "narrow.py").write_text(NARROW)
    code = "import narrow\nfor n in range(6): narrow.narrow.submit(f'r{n}', n)"
    submitted = [sys.executable, "-c", code]
    subprocess.run(
        submitted, cwd=holdfast.folder, env=holdfast.env, stderr=subprocess.DEVNULL, check=True
    )
    process = holdfast.start("worker", "narrow.py", "--processes", "3", "--concurrency", "3")
    try:
        until(lambda: len(store.runs(status="completed")) == 6, process)
    finally:
        process.kill()
        process.communicate()
    assert (holdfast.folder / "ledger").read_text().split() == ["in", "out"] * 6
