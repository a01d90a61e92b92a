"""Commands of ours as processes that start quickly: forked from one that has imported everything.

Half of what a short command costs is the start of Python. Where many are tried, one process imports
the command line once, and each command is a child of it, with its own folder, environment, output and
exit code. That it also works from a shell is shown by tests that use one.
"""

from __future__ import annotations

import gc
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from functools import cache
from pathlib import Path

from tests.crash.forkserver import execute
from tests.tidy.source import ROOT

READY = "ready\n"


class Prompt:
    """Takes commands, one after the other."""

    def __init__(self) -> None:
        self._server = subprocess.Popen(
            [sys.executable, "-m", "tests.ops.prompt"],
            cwd=ROOT,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        assert self._server.stdout is not None
        assert self._server.stdout.readline() == READY

    def __call__(
        self, words: list[str], folder: Path, env: Mapping[str, str]
    ) -> subprocess.CompletedProcess[str]:
        """Give a command, without its first word; returns its exit code and all that it printed."""
        with tempfile.NamedTemporaryFile("r", encoding="utf-8") as out:
            code = self._ordered(words, folder, env, out.name, out.name)
            return subprocess.CompletedProcess(words, code, out.read(), "")

    def apart(
        self, words: list[str], folder: Path, env: Mapping[str, str]
    ) -> subprocess.CompletedProcess[str]:
        """Give a command, and keep what it printed as an error apart from its answer."""
        with (
            tempfile.NamedTemporaryFile("r", encoding="utf-8") as out,
            tempfile.NamedTemporaryFile("r", encoding="utf-8") as err,
        ):
            code = self._ordered(words, folder, env, out.name, err.name)
            return subprocess.CompletedProcess(words, code, out.read(), err.read())

    def _ordered(
        self, words: list[str], folder: Path, env: Mapping[str, str], out: str, err: str
    ) -> int:
        assert self._server.stdin is not None
        assert self._server.stdout is not None
        order = {"words": words, "folder": str(folder), "env": dict(env), "out": out, "err": err}
        self._server.stdin.write(json.dumps(order) + "\n")
        self._server.stdin.flush()
        return int(self._server.stdout.readline())

    def close(self) -> None:
        """End it."""
        self._server.communicate()


@cache
def shared_prompt() -> Prompt:
    """The prompt of this test process, started at its first use. It ends with it."""
    return Prompt()


def _serve() -> None:
    from holdfast._operator.cli.main import main

    gc.collect()
    gc.freeze()  # What a child does not look at stays shared.
    sys.stdout.write(READY)
    sys.stdout.flush()
    for line in sys.stdin:
        order = json.loads(line)
        pid = os.fork()
        if pid == 0:
            os.setsid()
            os.chdir(order["folder"])
            sys.path.insert(0, order["folder"])
            os.environ.clear()
            os.environ.update(order["env"])
            os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
            for number, name in ((1, order["out"]), (2, order["err"])):
                os.dup2(os.open(name, os.O_WRONLY | os.O_APPEND), number)
            sys.stdin = os.fdopen(0)
            execute(lambda: main(order["words"]))
        _, status = os.waitpid(pid, 0)
        sys.stdout.write(f"{os.waitstatus_to_exitcode(status)}\n")
        sys.stdout.flush()


if __name__ == "__main__":
    _serve()
