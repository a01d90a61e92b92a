"""Pages and examples of integrations, played in the environment of their framework.

    play_page("http", tmp_path, [CallTools(…), Say("…")])
    play_example("openai_chat.py", tmp_path, script, kills=["entry:3", "ended:2"])

SDKs are led to the model server by the variables that they read themselves (`OPENAI_BASE_URL` …).
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from holdfast.testing import FakeModelServer

ROOT = Path(__file__).resolve().parents[2]
PATIENCE_S = 100


def environ_of(server: FakeModelServer) -> dict[str, str]:
    return {
        "OPENAI_BASE_URL": f"{server.url}/v1",
        "OPENAI_API_KEY": "test-key",
        "ANTHROPIC_BASE_URL": server.url,
        "ANTHROPIC_API_KEY": "test-key",
        "HOLDFAST_URL": "sqlite:///runs.db",
        "NO_COLOR": "1",
        "PYTHONPATH": str(ROOT),
    }


def run(
    arguments: Sequence[str], folder: Path, server: FakeModelServer, **more: str
) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, *arguments],
        cwd=folder,
        env=os.environ | environ_of(server) | more,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=PATIENCE_S,
        check=False,
    )


def play_page(name: str, folder: Path, script: list[Any], program: int = 1) -> FakeModelServer:
    """Execute a program of docs/integrations/<name>.md; returns the server."""
    with FakeModelServer(script) as server:
        page = ROOT / "docs" / "integrations" / f"{name}.md"
        done = run(["-m", "tests.docs.play", str(page), str(program)], folder, server)
        assert done.returncode == 0, done.stdout + done.stderr
        assert server.problems == []
        return server


def play_example(
    name: str, folder: Path, script: list[Any], kills: Sequence[str] = ()
) -> tuple[str, FakeModelServer]:
    """Run examples/integrations/<name>, once for each kill and once to its end; returns what the
    last one printed, and the server."""
    command = ["-m", "tests.integrations.killing", str(ROOT / "examples" / "integrations" / name)]
    with FakeModelServer(script) as server:
        for kill in kills:
            done = run(command, folder, server, KILL=kill)
            assert done.returncode == -signal.SIGKILL, done.stdout + done.stderr
        done = run(command, folder, server)
        assert done.returncode == 0, done.stdout + done.stderr
        assert server.problems == []
        return done.stdout, server
