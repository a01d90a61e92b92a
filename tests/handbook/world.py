"""Plays a section of the runbook in the situation that it is about.

A test makes the situation with real processes, and pastes the commands of the section, which are
read from the page itself: one that is not there cannot be pasted, and one that was not pasted fails
the test. Words in capitals are what a reader fills in.
"""

from __future__ import annotations

import contextlib
import os
import re
import shlex
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import holdfast as hf
from tests.docs.page import RUNBOOK, blocks
from tests.ops.prompt import Prompt

PATIENCE_S = 60
BIN = Path(sys.executable).parent


INTRODUCTION = "introduction"
_SECTION = re.compile(r'^<a id="([\w-]+)"></a>\n', re.MULTILINE)


def sections() -> dict[str, str]:
    """The sections of the runbook by their anchors; what stands before them is the introduction."""
    introduction, *parts = _SECTION.split(RUNBOOK.read_text(encoding="utf-8"))
    return {INTRODUCTION: introduction, **dict(zip(parts[::2], parts[1::2], strict=True))}


class Page:
    """The commands of a section, with the code that each is said to end with."""

    def __init__(self, name: str) -> None:
        self.text = sections()[name]
        self.codes: dict[str, int] = {}
        for block in blocks(self.text):
            assert block.run, "what the runbook says is tried"
            for number, command in enumerate(block.commands, 1):
                last = number == len(block.commands)
                self.codes[re.sub(r"\s+", " ", command)] = block.exit_code if last else 0
        self.tried: set[str] = set()

    def command(self, start: str) -> str:
        """The one command of the page that begins like this."""
        exact = [it for it in self.codes if it == f"holdfast {start}"]
        found = exact or [it for it in self.codes if it.startswith(f"holdfast {start}")]
        assert len(found) == 1, (start, found)
        self.tried.add(found[0])
        return found[0]

    @property
    def left(self) -> set[str]:
        return set(self.codes) - self.tried


class World:
    """A folder with a program, a store, and the processes that work on it."""

    def __init__(self, folder: Path, page: str, prompt: Prompt | None = None) -> None:
        self.folder = folder
        self.prompt = prompt
        self.page = Page(page)
        self.filled: dict[str, str] = {"MODULE": "agent.py"}
        self.env = os.environ | {"PATH": f"{BIN}{os.pathsep}{os.environ['PATH']}", "NO_COLOR": "1"}
        self.url = f"sqlite:///{folder}/holdfast.db"
        self._store: hf.types.Store | None = None

    def program(self, text: str) -> None:
        """Write the program. `did(…)` of it notes what happened in the world."""
        (self.folder / "agent.py").write_text(PRELUDE + text, encoding="utf-8")

    def did(self, what: str) -> int:
        """How often something happened in the world."""
        log = self.folder / "done.log"
        return log.read_text().split("\n").count(what) if log.exists() else 0

    # -- commands ------------------------------------------------------------------------------

    def paste(self, start: str, code: int | None = None, **filled: str) -> str:
        """Paste a command of the page into a shell, filled in; returns what it prints."""
        command = self.page.command(start)
        expected = self.page.codes[command] if code is None else code
        done = self.shell(self._filled(command, filled))
        assert done.returncode == expected, (command, done.returncode, done.stdout + done.stderr)
        return done.stdout + done.stderr

    def shell(self, line: str) -> subprocess.CompletedProcess[str]:
        """Give a line to a shell, in the folder of the program; a command of ours alone to the
        prompt, if there is one, which is quicker."""
        if self.prompt is not None and line.startswith("holdfast "):
            return self.prompt(shlex.split(line)[1:], self.folder, self.env)
        return subprocess.run(
            line,
            shell=True,
            cwd=self.folder,
            env=self.env,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=PATIENCE_S,
            check=False,
        )

    def says(self, text: str, printed: str) -> None:
        """What the page says that one sees is what one sees."""
        assert text in self.page.text
        assert text in re.sub(r"\s+", " ", printed), printed

    @contextlib.contextmanager
    def background(self, start: str, **filled: str) -> Iterator[subprocess.Popen[str]]:
        """A command of the page that goes on until it is ended: a worker, the page."""
        with self.started(self._filled(self.page.command(start), filled)) as process:
            yield process

    @contextlib.contextmanager
    def started(self, line: str) -> Iterator[subprocess.Popen[str]]:
        """Any command in the background; at the end it and all its processes are gone."""
        log = self.folder / "background.log"
        with log.open("a") as out:
            process = subprocess.Popen(
                f"exec {line}",
                shell=True,
                cwd=self.folder,
                env=self.env,
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=out,
                text=True,
                start_new_session=True,
            )
        try:
            yield process
        finally:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait(PATIENCE_S)

    def _filled(self, command: str, filled: dict[str, str]) -> str:
        for name, text in (self.filled | filled).items():
            command = re.sub(rf"\b{name}\b", text.replace("\\", r"\\"), command)
        left = re.findall(r"\b[A-Z]{3,}\b", re.sub(r"'[^']*'|agent.py", "", command))
        assert not left, f"not filled in: {left}"
        return command

    # -- the store -----------------------------------------------------------------------------

    @property
    def store(self) -> hf.types.Store:
        """The store, for looking; it is opened once."""
        if self._store is None:
            self._store = hf.open(self.url, default=False)
        return self._store

    def close(self) -> None:
        """Let go of the store: before its files are moved, and at the end."""
        if self._store is not None:
            self._store.close()
            self._store = None

    def status(self, run_id: str) -> str:
        """The status of a run; of a held one with the reason."""
        row = self.store._backend.get(run_id)
        if row is None:
            return "none"
        return f"held: {row.held_reason}" if row.status == "held" else str(row.status)

    def until(self, run_id: str, status: str) -> None:
        """Wait until a run has this status."""
        self.wait(lambda: self.status(run_id) == status, lambda: self.status(run_id))

    def wait(self, fact: Callable[[], object], told: Callable[[], object] = str) -> None:
        """Wait for a fact."""
        deadline = time.monotonic() + PATIENCE_S
        while not fact():
            log = self.folder / "background.log"
            assert time.monotonic() < deadline, (told(), log.exists() and log.read_text()[-4000:])
            time.sleep(0.05)

    def actors(self, run_id: str) -> set[str]:
        """Who decided something about a run."""
        entries = self.store.history(run_id)
        return {it.body["actor"] for it in entries if it.body.get("actor")}


PRELUDE = """\
import os, signal, sys, time
from pathlib import Path

import holdfast
from holdfast import Budget, Queue, Retry, Watchdog, ask, effect, flow, step, wait_for_signal
from holdfast.context import record_usage

HERE = Path(__file__).parent


def did(what):
    with (HERE / "done.log").open("a") as out:
        out.write(what + "\\n")
    return (HERE / "done.log").read_text().split("\\n").count(what)


def die():
    os.kill(os.getpid(), signal.SIGKILL)


def in_a_process(work, *args):
    # In a process of its own, which may die of it.
    pid = os.fork()
    if pid == 0:
        try:
            work(*args)
        finally:
            os._exit(0)
    os.waitpid(pid, 0)


"""
