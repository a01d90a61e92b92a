"""`holdfast worker` while the server is away: it says so, waits, and goes on."""

from __future__ import annotations

import contextlib
import os
import pty
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import psycopg
import pytest

import holdfast as hf
from holdfast._stores.postgres import postgres_errors
from tests.ops.test_cli_run import PATIENCE_S, Command
from tests.ops.test_cli_worker import MODULE, answer, status, submit, until
from tests.postgres.server import Server, free_port


@pytest.fixture
def server() -> Iterator[Server]:
    with Server() as server:
        yield server


@pytest.fixture
def holdfast(tmp_path: Path, server: Server) -> Command:
    command = Command(tmp_path)
    command.env["HOLDFAST_URL"] = server.database("runs")
    return command


@contextlib.contextmanager
def worker(holdfast: Command, port: int, *options: str) -> Iterator[subprocess.Popen[str]]:
    process = holdfast.start(
        "worker", MODULE, "--health", f"127.0.0.1:{port}", "--concurrency", "1", *options
    )
    try:
        yield process
    finally:
        process.kill()
        process.communicate()


def _read(process: subprocess.Popen[str], said: list[str]) -> None:
    assert process.stderr is not None
    for line in process.stderr:
        said.append(line)


def test_a_worker_whose_places_are_all_taken_sees_that_the_server_has_gone(
    holdfast: Command, server: Server
):
    port = free_port()
    submit(holdfast, "waits", "r", 5)
    with worker(holdfast, port) as process:
        until((holdfast.folder / "inside").exists, process)
        until(lambda: answer(port, "/ready")[0] == 200, process)
        server.stop("immediate")
        until(lambda: answer(port, "/ready")[0] == 503, process)
        assert answer(port, "/live")[0] == 200
        server.start()
        until(lambda: answer(port, "/ready")[0] == 200, process)
        (holdfast.folder / "let-go").touch()
        with hf.open(holdfast.env["HOLDFAST_URL"], default=False) as store:
            until(lambda: status(store, "r") == "completed", process)
        process.send_signal(signal.SIGTERM)
        _, err = process.communicate(timeout=PATIENCE_S)
    assert process.returncode == 0, err
    assert err.count("cannot use the store") == err.count("can be used again") == 1, err
    assert err.index("cannot use the store") < err.index("can be used again")
    assert "Traceback" not in err
    assert "error ignored" not in err
    first = err.splitlines()[0]
    assert "1 process, " in first
    assert f"postgresql://holdfast@127.0.0.1:{server.port}/runs" in first


def test_a_worker_waits_for_a_server_that_is_not_there_yet(holdfast: Command, server: Server):
    port = free_port()
    submit(holdfast, "waits", "r", 5)
    (holdfast.folder / "let-go").touch()
    server.stop("immediate")
    with worker(holdfast, port) as process:
        said: list[str] = []
        reader = threading.Thread(target=_read, args=(process, said), daemon=True)
        reader.start()
        until(lambda: "waiting for it" in "".join(said), process)
        assert answer(port, "/ready")[0] == 503
        assert answer(port, "/live")[0] == 200
        server.start()
        until(lambda: answer(port, "/ready")[0] == 200, process)
        with hf.open(holdfast.env["HOLDFAST_URL"], default=False) as store:
            until(lambda: status(store, "r") == "completed", process)
        process.send_signal(signal.SIGTERM)
        process.wait(PATIENCE_S)
        reader.join(PATIENCE_S)
    err = "".join(said)
    assert process.returncode == 0, err
    assert err.count("waiting for it") == 1, err
    assert "Traceback" not in err


def test_a_worker_that_waits_can_be_ended(holdfast: Command, server: Server):
    port = free_port()
    server.stop("immediate")
    with worker(holdfast, port, "--processes", "2") as process:
        until(lambda: answer(port, "/ready")[0] == 503, process)
        process.send_signal(signal.SIGTERM)
        _, err = process.communicate(timeout=PATIENCE_S)
    assert process.returncode == 0, err


def test_what_waiting_does_not_mend_ends_at_once(holdfast: Command, server: Server):
    url = f"postgresql://holdfast@127.0.0.1:{server.port}/no_such_database"
    done = holdfast("worker", MODULE, "--url", url)
    assert done.returncode == 1, done.stderr
    assert "does not exist" in done.stderr
    assert "Traceback" not in done.stderr


def test_the_view_says_that_the_store_cannot_be_reached(holdfast: Command, server: Server):
    submit(holdfast, "waits", "r", 5)
    ours, theirs = pty.openpty()
    said = bytearray()

    def read() -> None:
        with contextlib.suppress(OSError):
            while data := os.read(ours, 4096):
                said.extend(data)

    reader = threading.Thread(target=read, daemon=True)
    process = subprocess.Popen(
        [sys.executable, "-m", "holdfast._operator.cli", "worker", MODULE, "--concurrency", "1"],
        cwd=holdfast.folder,
        env=holdfast.env | {"TERM": "xterm", "COLUMNS": "80", "LINES": "24"},
        stdout=theirs,
        stderr=theirs,
        start_new_session=True,
    )
    os.close(theirs)
    reader.start()
    try:
        until((holdfast.folder / "inside").exists)
        server.stop("immediate")
        until(lambda: b"the store cannot be reached since" in said)
        server.start()
        del said[:]
        until(lambda: b"ready" in said)
        (holdfast.folder / "let-go").touch()
        process.send_signal(signal.SIGINT)
        assert process.wait(PATIENCE_S) == 0
    finally:
        process.kill()
        process.wait()
        reader.join()
        os.close(ours)
    last = bytes(said[said.rindex(b"holdfast worker") :])
    assert b"ended" in last.partition(b"places")[0]
    assert b"dead" not in last


def test_only_the_way_to_the_server_is_told_apart(server: Server):
    away = postgres_errors.translated(psycopg.OperationalError("gone"), "postgresql://x")
    assert isinstance(away, hf.errors.StoreFailed)
    assert away.unreachable
    url = server.database("once")
    server.stop("immediate")
    with pytest.raises(hf.errors.StoreUnusable) as refused:
        hf.open(url, default=False)
    assert refused.value.unreachable
