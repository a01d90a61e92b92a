"""`holdfast worker` with figures, alerts and log lines as data: real processes, real HTTP, kill -9."""

from __future__ import annotations

import contextlib
import http.client
import json
import os
import shlex
import signal
import ssl
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import holdfast
from holdfast._operator.web.access_tokens import Tokens
from tests.observers.signalled import (
    CANARY,
    signalled_bad,
    signalled_deadly,
    signalled_doubtful,
    signalled_good,
)
from tests.observers.test_metrics import value
from tests.postgres.server import free_port

ROOT = Path(__file__).parents[2]
MODULE = "tests.observers.signalled"
PATIENCE_S = 30


def until(fact: Callable[[], Any]) -> Any:
    deadline = time.monotonic() + PATIENCE_S
    while not (said := fact()):
        assert time.monotonic() < deadline
        time.sleep(0.02)
    return said


@pytest.fixture
def store(tmp_path: Path) -> Iterator[holdfast.types.Store]:
    with holdfast.open(f"sqlite:///{tmp_path}/runs.db") as store:
        yield store


def command(store: holdfast.types.Store, folder: Path, *words: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-m", "holdfast._operator.cli", "--url", store.url, *words],
        cwd=folder,
        env=os.environ | {"PYTHONPATH": str(ROOT), "AGENT_FOLDER": str(folder)},
        text=True,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        start_new_session=True,
    )


@contextlib.contextmanager
def worker(
    store: holdfast.types.Store, folder: Path, *options: str
) -> Iterator[subprocess.Popen[str]]:
    """A worker that is ready; killed at the end with all its processes."""
    before = {it.pid for it in store.workers()}  # One that was killed may be among them yet.
    process = command(store, folder, "worker", MODULE, *options)
    try:
        until(lambda: {it.pid for it in store.workers()} - before or process.poll() is not None)
        assert process.poll() is None, process.communicate()
        yield process
    finally:
        kill(process)
        process.communicate()


def kill(process: subprocess.Popen[str]) -> None:
    children = Path(f"/proc/{process.pid}/task/{process.pid}/children")
    with contextlib.suppress(FileNotFoundError, ProcessLookupError):
        for pid in [process.pid, *map(int, children.read_text().split())]:
            os.kill(pid, signal.SIGKILL)


def ended(process: subprocess.Popen[str]) -> str:
    process.send_signal(signal.SIGTERM)
    _, err = process.communicate(timeout=PATIENCE_S)
    assert process.returncode == 0, err
    return err


# -- figures -----------------------------------------------------------------------------------


class Scraper:
    def __init__(self, port: int, token: str, tls: ssl.SSLContext | None = None) -> None:
        self.port, self.tls = port, tls
        self.right = {"Authorization": f"Bearer {token}"}

    def ask(
        self, headers: dict[str, str], path: str = "/metrics", method: str = "GET"
    ) -> tuple[int, str]:
        if self.tls is None:
            link = http.client.HTTPConnection("127.0.0.1", self.port, timeout=PATIENCE_S)
        else:
            link = http.client.HTTPSConnection(
                "localhost", self.port, timeout=PATIENCE_S, context=self.tls
            )
        with contextlib.closing(link):
            link.request(method, path, headers=headers)
            answer = link.getresponse()
            return answer.status, answer.read().decode()

    def figure(self, name: str, **labels: str) -> float:
        code, text = self.ask(self.right)
        assert code == 200
        try:
            return value(text, name, **labels)
        except KeyError:
            return 0.0

    def is_up(self) -> bool:
        with contextlib.suppress(OSError):
            return self.ask(self.right)[0] == 200
        return False


def token(store: holdfast.types.Store, name: str) -> str:
    return Tokens.of(store._backend).create(name, "viewer")


def test_figures_of_all_processes_are_added_up_and_never_fall(store, tmp_path):
    port = free_port()
    scraper = Scraper(port, token(store, "prometheus"))
    for number in range(6):
        signalled_good.submit(f"figure-{number}", CANARY)
    options = ("--processes", "2", "--concurrency", "2", "--metrics", f"127.0.0.1:{port}")
    with worker(store, tmp_path, *options) as process:
        until(scraper.is_up)
        good = {"flow": "signalled_good", "status": "completed"}
        until(lambda: scraper.figure("runs_ended_total", **good) == 6)
        assert scraper.figure("cost_usd_total", model="m-1") == 1.5
        assert scraper.figure("worker_processes") == 2
        assert scraper.figure("worker_places") == 4
        # One of the processes dies with what it had counted.
        signalled_deadly.submit("figure-deadly", CANARY)
        until(lambda: scraper.figure("runs_executing") == 1)
        assert scraper.figure("worker_places_busy") == 1
        (tmp_path / "die").touch()
        until(lambda: scraper.figure("worker_restarts_total") == 1)
        until(lambda: store.get("figure-deadly").status == "completed")
        until(lambda: scraper.figure("runs_executing") == 0)
        assert scraper.figure("runs_ended_total", **good) == 6
        until(
            lambda: scraper.figure("runs_ended_total", flow="signalled_deadly", status="completed")
        )
        text = scraper.ask(scraper.right)[1]
        assert CANARY not in text
        assert "figure-" not in text
        ended(process)


def test_only_who_has_a_token_is_told(store, tmp_path):
    port = free_port()
    right = token(store, "right")
    scraper = Scraper(port, right)
    with worker(store, tmp_path, "--metrics", f"127.0.0.1:{port}"):
        until(scraper.is_up)
        code, text = scraper.ask({})
        assert (code, "holdfast_" in text) == (401, False)
        assert scraper.ask({"Authorization": f"Bearer {right}x"})[0] == 401
        # A wrong one waits longer each time; a right one does not wait for the others.
        began_s = time.monotonic()
        assert scraper.ask({}, "/", "POST")[0] == 401
        assert time.monotonic() - began_s > 0.7
        assert scraper.ask(scraper.right)[0] == 200
        assert scraper.ask(scraper.right, "/health")[0] == 404
        Tokens.of(store._backend).revoke("right")
        assert scraper.ask(scraper.right)[0] == 401


def test_with_tls_it_may_be_reached_from_elsewhere(store, tmp_path):
    subprocess.run(
        ["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1"]
        + [
            "-nodes",
            "-days",
            "2",
            "-subj",
            "/CN=localhost",
            "-addext",
            "subjectAltName=DNS:localhost",
        ]
        + ["-keyout", "key.pem", "-out", "cert.pem"],
        cwd=tmp_path,
        check=True,
        capture_output=True,
    )
    port = free_port()
    trusting = ssl.create_default_context(cafile=str(tmp_path / "cert.pem"))
    scraper = Scraper(port, token(store, "tls"), trusting)
    options = ("--metrics", f"0.0.0.0:{port}", "--metrics-origin", f"https://localhost:{port}")
    with worker(
        store, tmp_path, *options, "--metrics-tls-cert", "cert.pem", "--metrics-tls-key", "key.pem"
    ):
        until(scraper.is_up)
        assert scraper.ask({})[0] == 401
        assert scraper.ask(scraper.right | {"Host": f"127.0.0.1:{port}"})[0] == 421
        scraper.tls = None
        with pytest.raises((http.client.HTTPException, OSError)):
            scraper.ask(scraper.right)


# -- alerts ------------------------------------------------------------------------------------

NOTIFY = """
import os, pathlib, sys, time
here = pathlib.Path(os.environ["AGENT_FOLDER"])
told = sys.stdin.read()
mode = (here / "mode").read_text() if (here / "mode").exists() else ""
if mode == "hangs":
    (here / "hanging").write_text(str(os.getpid()))
    time.sleep(600)
if mode == "fails" and not (here / "failed").exists():
    (here / "failed").touch()
    sys.exit("no network")
with (here / "alerts").open("a") as out:
    out.write(told)
"""


@pytest.fixture
def notify(tmp_path: Path) -> tuple[str, str]:
    (tmp_path / "notify.py").write_text(NOTIFY)
    return "--alert", shlex.join([sys.executable, str(tmp_path / "notify.py")])


def alerts(folder: Path) -> list[dict[str, Any]]:
    path = folder / "alerts"
    return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []


def test_an_alert_whose_worker_was_killed_is_sent_by_another(store, tmp_path, notify):
    (tmp_path / "mode").write_text("hangs")
    with worker(store, tmp_path, *notify) as first:
        signalled_doubtful.submit("alert-killed", CANARY)
        hanging = int(until(lambda: _text(tmp_path / "hanging")))
        assert store.get("alert-killed").status == "held"
        kill(first)
        os.kill(hanging, signal.SIGKILL)
    (tmp_path / "mode").write_text("")
    with worker(store, tmp_path, *notify) as second:
        (alert,) = until(lambda: alerts(tmp_path))
        ended(second)
    assert (alert["kind"], alert["reason"]) == ("held", "in_doubt")
    assert alert["command"] == "holdfast explain alert-killed"
    assert len(alerts(tmp_path)) == 1


def _text(path: Path) -> str:
    return path.read_text() if path.exists() else ""


def test_two_workers_send_one_alert_and_a_command_that_fails_is_run_again(store, tmp_path, notify):
    (tmp_path / "mode").write_text("fails")
    json_lines = ("--log-format", "json")
    with (
        worker(store, tmp_path, *notify, *json_lines) as one,
        worker(store, tmp_path, *notify, *json_lines) as other,
    ):
        for number in range(4):
            signalled_bad.submit(f"alert-bad-{number}", CANARY)
        signalled_doubtful.submit("alert-doubt", CANARY)
        until(lambda: len(alerts(tmp_path)) == 5)
        logged = ended(one) + ended(other)
    found = alerts(tmp_path)
    assert len({it["id"] for it in found}) == len(found) == 5
    assert {it["kind"] for it in found} == {"held", "failed"}
    assert (tmp_path / "failed").exists()
    assert CANARY not in (tmp_path / "alerts").read_text()
    check_lines(logged)


def check_lines(logged: str) -> None:
    """Each line is one JSON object, those about runs have their fields, and nothing of the runs."""
    lines = [json.loads(line) for line in logged.splitlines()]
    assert CANARY not in logged
    assert "\x1b" not in logged
    held = next(it for it in lines if it.get("reason") == "in_doubt")
    assert (held["run_id"], held["step"]) == ("alert-doubt", "signalled_pay")
    again = next(it for it in lines if "was not sent" in it["message"])
    assert "exit code 1: no network" in again["message"]
    theirs = next(it for it in lines if it["logger"] == "signalled")
    assert theirs["message"].startswith("it thinks\n2026-01-01 ERROR forged \x1b")
    assert (theirs["step"], theirs["attempt"]) == ("signalled_think", 1)
    assert any(it["logger"] == "holdfast.worker" for it in lines)


def test_log_lines_of_a_worker_are_one_line_each_in_text_too(store, tmp_path):
    with worker(store, tmp_path) as process:
        signalled_good.submit("line-1", CANARY)
        until(lambda: store.get("line-1").status == "completed")
        err = ended(process)
    assert "\x1b" not in err
    assert "\\n2026-01-01 ERROR forged \\x1b[31m\\u202e" in err
    assert not any(line.startswith("2026-01-01 ERROR forged") for line in err.splitlines())
    assert CANARY not in err
