"""Nodes that ask through a durable transport, killed: what is recorded is not sent again, and each
request has its own answer."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread
from typing import Any

import pytest

ROOT = Path(__file__).parents[3]
PATIENCE_S = 60.0
KEYS = " ".join(
    f"http:{task}.POST 127.0.0.1.ask{again}" for task in ("one-1", "two-2") for again in ("", "#2")
)


class Server(ThreadingHTTPServer):
    """Answers with the number of the request."""

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.count = 0


class Handler(BaseHTTPRequestHandler):
    def do_POST(self) -> None:
        server: Any = self.server
        server.count += 1
        body = f"answer-{server.count}".encode()
        self.rfile.read(int(self.headers["content-length"]))
        self.send_response(200)
        self.send_header("content-length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_said: Any) -> None:
        pass


@pytest.fixture
def server() -> Iterator[Server]:
    with Server() as made:
        thread = Thread(target=made.serve_forever)
        thread.start()
        yield made
        made.shutdown()
        thread.join()


def life(server: Server, folder: Path, awaits: str, die: str = "") -> Any:
    environ = {
        "DIE": die,
        "ASYNC": awaits,
        "SERVER": f"http://127.0.0.1:{server.server_port}/ask",
        "PYTHONPATH": str(ROOT),
    }
    return subprocess.run(
        [sys.executable, "-m", "tests.integrations.langgraph.http_agent"],
        cwd=folder,
        env={**os.environ, **environ},
        capture_output=True,
        text=True,
        timeout=PATIENCE_S,
        check=False,
    )


@pytest.mark.parametrize("awaits", ["", "1"], ids=["sync", "async"])
@pytest.mark.parametrize(
    ("die", "heard"),
    [
        ("before 2", "answer-1 answer-2 answer-3 answer-4"),
        ("sent 2", "answer-1 answer-3 answer-4 answer-5"),
        ("sent 4", "answer-1 answer-2 answer-3 answer-5"),
    ],
)
def test_killed_between_nodes_and_in_a_second_request(
    server: Server, tmp_path: Path, die: str, heard: str, awaits: str
) -> None:
    killed = life(server, tmp_path, awaits, die)
    assert killed.returncode == -signal.SIGKILL, killed.stderr
    ended = life(server, tmp_path, awaits)
    assert ended.returncode == 0, ended.stderr
    answers, keys = ended.stdout.splitlines()
    assert answers == heard
    assert server.count == (4 if die.startswith("before") else 5)
    assert keys == KEYS
