"""Start scripts in processes of their own, kill them, and count what they did.

A `World` is one test's files: a SQLite store (or a store on a PostgreSQL server), a ledger of
executions, and a folder of facts.
Nothing here waits for time: it waits for a fact, for a process to end, or for a condition.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Any

import pytest

import holdfast
from tests.crash.forkserver import ForkedProcess, fork_server
from tests.crash.payments import Client

ROOT = Path(__file__).parents[2]
SCRIPTS = Path(__file__).parent / "scripts"
WAIT_AT_MOST_S = 60.0
BOTH_STORES = pytest.mark.parametrize("world", ["sqlite", "postgresql"], indirect=True)
"""For tests that hold for a file and for a server alike."""
SERVER_IN_SWEEPS = pytest.mark.parametrize(
    "world",
    ["sqlite", pytest.param("postgresql", marks=pytest.mark.sweep(whole=True))],
    indirect=True,
)
"""For tests of many processes: with a server only in a whole sweep."""
LEASE_S = 30.0
"""The lease of a store that says nothing else: what a fast takeover must not wait for."""


@dataclass(frozen=True)
class Execution:
    """One execution of a step's body, as the ledger outside the process has it."""

    run: str
    step: str
    pid: int
    at: float
    note: str


@dataclass
class Ended:
    """How a script ended: its exit code, and what it said last."""

    code: int
    said: dict[str, Any]
    stderr: str

    @property
    def killed(self) -> bool:
        return self.code == -signal.SIGKILL

    @property
    def result(self) -> Any:
        assert "result" in self.said, f"no result: {self}"
        return self.said["result"]

    @property
    def error(self) -> str:
        assert "error" in self.said, f"no error: {self}"
        return self.said["error"]


@dataclass
class Script:
    """A script that was started."""

    process: ForkedProcess | subprocess.Popen[bytes]
    world: World
    stdout: Path
    stderr: Path
    started_at: float

    def until(self, fact: str) -> Script:
        """Wait until the script has stated a fact."""

        def stated() -> bool:
            if (self.world.marks / fact).exists():
                return True
            assert self.process.poll() is None, f"ended without {fact!r}: {self.end()}"
            return False

        wait_for(stated, fact)
        return self

    def signal(self, number: int) -> None:
        self.process.send_signal(number)

    def kill(self) -> Ended:
        self.process.kill()
        return self.end()

    def end(self) -> Ended:
        """Wait until it ends, and say how."""
        code = self.process.wait(WAIT_AT_MOST_S)
        lines = self.stdout.read_text().splitlines()
        said = json.loads(lines[-1]) if lines else {}
        return Ended(code, said, self.stderr.read_text())


@dataclass
class World:
    """The files of one test, and the processes it started."""

    root: Path
    env: dict[str, str] = field(default_factory=dict)
    within: tuple[str, ...] = ()
    """A command that starts the scripts, such as one that gives them a pid namespace."""
    scripts: list[Script] = field(default_factory=list)
    elsewhere: str | None = None
    """The URL of a store on a server, instead of the file."""

    def __post_init__(self) -> None:
        self.marks.mkdir(exist_ok=True)

    @property
    def database(self) -> Path:
        return self.root / "runs.db"

    @property
    def url(self) -> str:
        return self.elsewhere or f"sqlite:///{self.database}"

    @property
    def ledger(self) -> Path:
        return self.root / "ledger"

    @property
    def marks(self) -> Path:
        return self.root / "marks"

    def mark(self, name: str) -> None:
        (self.marks / name).touch()

    def start(self, script: str | Path, *args: object, **env: object) -> Script:
        """Start a script; keyword arguments become `CRASH_…` variables: kill_at, lease_s."""
        number = len(self.scripts)
        stdout, stderr = self.root / f"{number}.out", self.root / f"{number}.err"
        with stdout.open("wb") as out, stderr.open("wb") as err:
            started_at = time.time()
            process = self._process(
                [str(SCRIPTS / script), *map(str, args)], out, err, self._environment(env)
            )
        self.scripts.append(Script(process, self, stdout, stderr, started_at))
        return self.scripts[-1]

    def _process(
        self, command: list[str], out: IO[bytes], err: IO[bytes], env: dict[str, str]
    ) -> ForkedProcess | subprocess.Popen[bytes]:
        server = fork_server()
        if not self.within and server.can_start(env):
            return server.start(command, stdout=out, stderr=err, cwd=self.root, env=env)
        return subprocess.Popen(
            [*self.within, sys.executable, *command],
            stdin=subprocess.DEVNULL,
            stdout=out,
            stderr=err,
            cwd=self.root,
            env=env,
        )

    def _environment(self, more: dict[str, object]) -> dict[str, str]:
        ours = {
            "PYTHONPATH": str(ROOT),
            "CRASH_URL": self.url,
            "CRASH_LEDGER": str(self.ledger),
            "CRASH_MARKS": str(self.marks),
        }
        named = {f"CRASH_{name.upper()}": str(value) for name, value in more.items()}
        return {**os.environ, **ours, **self.env, **named}

    def run(self, script: str | Path, *args: object, **env: object) -> Ended:
        """Start a script and wait until it ends."""
        return self.start(script, *args, **env).end()

    def crash(self, script: str | Path, *args: object, at: str, **env: object) -> Ended:
        """Run a script that kills itself at a named point."""
        ended = self.run(script, *args, kill_at=at, **env)
        assert ended.killed, f"it should have died at {at}: {ended}"
        return ended

    @contextmanager
    def store(self, **options: Any) -> Iterator[holdfast.types.Store]:
        """Open the store to look at it and to act on it, beside whatever else is open."""
        with holdfast.open(self.url, default=False, **options) as store:
            yield store

    def history(self, run_id: str = "r") -> list[Any]:
        with self.store() as store:
            return store.history(run_id)

    def status(self, run_id: str = "r") -> str:
        with self.store() as store:
            return str(store.get(run_id).status)

    def executions(self) -> list[Execution]:
        if not self.ledger.exists():
            return []
        lines = self.ledger.read_text().splitlines()
        return [Execution(*line) for line in json.loads(f"[{','.join(lines)}]")]

    def counts(self, run: str = "r") -> Counter[str]:
        """Return how often each step's body was executed in total, over all processes."""
        return Counter(e.step for e in self.executions() if e.run == run)

    def close(self) -> None:
        """Leave no process behind, whatever happened."""
        for script in self.scripts:
            if script.process.poll() is None:
                script.process.kill()
                script.process.wait()


@contextmanager
def payment_server() -> Iterator[Client]:
    """Start the payment server in its own process; it ends when its stdin closes."""
    process = subprocess.Popen(
        [sys.executable, str(Path(__file__).parent / "payments.py")],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert process.stdin is not None
    assert process.stdout is not None
    try:
        yield Client(process.stdout.readline().strip())
    finally:
        process.stdin.close()
        process.stdout.close()
        process.wait(WAIT_AT_MOST_S)


def wait_for(condition: Callable[[], Any], what: str, at_most_s: float = WAIT_AT_MOST_S) -> Any:
    """Poll until the condition holds; fail, naming it, when it does not for a minute."""
    deadline = time.monotonic() + at_most_s
    while not (value := condition()):
        assert time.monotonic() < deadline, f"never came: {what}"
        time.sleep(0.005)
    return value


# --- assertions -------------------------------------------------------------------------------


def completed_steps(entries: list[Any]) -> set[str]:
    """Return the keys of the steps that have an outcome in the journal."""
    done = {"step_completed", "step_settled", "skipped_duplicate"}
    return {entry.step for entry in entries if entry.kind in done}


def kinds(entries: list[Any], *, runs: bool = False) -> list[str]:
    """Return the kinds of the entries, without those of the run as a whole."""
    return [str(e.kind) for e in entries if runs or not e.kind.startswith("run_")]


def assert_once(counts: Counter[str], *, but: dict[str, int] | None = None) -> None:
    """Assert that each step was executed once, but for those that may have been more often."""
    at_most = but or {}
    wrong = {s: n for s, n in counts.items() if n > at_most.get(s, 1)}
    assert not wrong, f"executed too often: {wrong}"


def assert_sound(store: holdfast.types.Store, run_id: str = "r") -> None:
    """Assert what is true of every journal: gapless, one outcome per step and generation."""
    entries = store.history(run_id)
    assert [e.seq for e in entries] == list(range(1, len(entries) + 1))
    outcomes: Counter[tuple[int, str | None]] = Counter()
    generation = 1
    for entry in entries:
        if entry.kind in ("run_resumed", "drift_found"):
            generation = entry.body.get("generation", generation)
        if entry.kind in {"step_completed", "skipped_duplicate"}:
            outcomes[generation, entry.step] += 1
    twice = [key for key, n in outcomes.items() if n > 1]
    assert not twice, f"two outcomes: {twice}"
    assert list(store.verify()) == []
