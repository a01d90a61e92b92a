"""The parent's side: how one case is measured on one subject."""

from __future__ import annotations

import json
import os
import signal
import statistics
import subprocess
import time
from pathlib import Path
from typing import TYPE_CHECKING

from benchmarks.disk import stored_bytes
from benchmarks.distributions import installed_with
from benchmarks.worker import Numbers, executions
from benchmarks.workloads import MESSAGE_BYTES, Case, Phase, Request

if TYPE_CHECKING:
    from benchmarks.subjects import Subject

REPOSITORY = Path(__file__).parent.parent
WORKER_TIMEOUT_S = 1_800
IMPORTS_PER_REPETITION = 5


class WorkerFailed(Exception):
    def __init__(self, subject: str, case: str, returncode: int, stderr: str) -> None:
        super().__init__(subject, case, returncode, stderr)
        self.subject = subject
        self.case = case
        self.returncode = returncode
        self.stderr = stderr

    def __str__(self) -> str:
        lines = self.stderr.strip().splitlines() or ["(no message)"]
        return f"{self.subject} {self.case}: exit {self.returncode}: {lines[-1]}"


def measure(subject: Subject, case: Case, directory: Path) -> Numbers:
    match case.method:
        case "timed":
            return _perform(subject, case, directory)
        case "stored":
            return _stored(subject, case, directory)
        case "killed":
            return _killed(subject, case, directory)
        case "imported":
            return _imported(subject, directory)


def _stored(subject: Subject, case: Case, directory: Path) -> Numbers:
    """Bytes on disk less an empty store, relative to the bytes of the messages."""
    _perform(subject, case, directory / "empty", "empty")
    numbers = _perform(subject, case, directory / "full")
    stored = stored_bytes(directory / "full") - stored_bytes(directory / "empty")
    return {
        "stored_mb": stored / 1e6,
        "per_content": stored / (case.steps * MESSAGE_BYTES),
        "steps_per_s": numbers["steps_per_s"],
    }


def _killed(subject: Subject, case: Case, directory: Path) -> Numbers:
    """Time from process start to the first new step, less that of a fresh start."""
    fresh, resumed = directory / "fresh", directory / "resumed"
    started = time.monotonic()
    _perform(subject, case, fresh, "fresh", steps=1)
    fresh_s = executions(fresh, "fresh")[0][1] - started

    _perform(subject, case, resumed, "until_killed")
    started = time.monotonic()
    _perform(subject, case, resumed, "resume")
    bodies = executions(resumed, "resume")
    first_new_at = next(at for number, at in bodies if number >= case.kill_at)
    assert bodies[-1][0] == case.steps - 1, "the resumed run did not reach its end"
    return {
        "fresh_s": fresh_s,
        "resume_s": first_new_at - started - fresh_s,
        "re_executed": sum(number < case.kill_at for number, _ in bodies),
    }


def _imported(subject: Subject, directory: Path) -> Numbers:
    """Import time over bare Python, in pairs, after one import that is not counted."""
    directory.mkdir(parents=True)
    _seconds_of(subject, subject.imports, directory)
    extra_s = [
        _seconds_of(subject, subject.imports, directory) - _seconds_of(subject, "pass", directory)
        for _ in range(IMPORTS_PER_REPETITION)
    ]
    return {
        "import_ms": statistics.median(extra_s) * 1e3,
        "distributions": len(installed_with(subject.python, subject.distributions)),
    }


def _seconds_of(subject: Subject, code: str, directory: Path) -> float:
    before = time.perf_counter()
    done = subprocess.run(
        [subject.python, "-c", code],
        cwd=directory,
        env=_environment(),
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode:
        raise WorkerFailed(subject.name, code, done.returncode, done.stderr)
    return time.perf_counter() - before


def _perform(
    subject: Subject,
    case: Case,
    directory: Path,
    phase: Phase = "measure",
    steps: int | None = None,
) -> Numbers:
    directory.mkdir(parents=True, exist_ok=True)
    request = Request(
        task=case.task,
        directory=str(directory),
        steps=case.steps if steps is None else steps,
        runs=case.runs,
        warm_up=case.warm_up,
        window=case.window,
        kill_at=case.kill_at,
        phase=phase,
        mode=subject.mode,
    )
    worker = subprocess.run(
        [subject.python, "-m", subject.module, request.to_json()],
        cwd=REPOSITORY,
        env=_environment(),
        capture_output=True,
        text=True,
        timeout=WORKER_TIMEOUT_S,
        check=False,
    )
    expected = -signal.SIGKILL if phase == "until_killed" else 0
    if worker.returncode != expected:
        raise WorkerFailed(subject.name, case.key, worker.returncode, worker.stderr)
    if phase == "until_killed":
        return {}
    numbers: Numbers = json.loads(worker.stdout.splitlines()[-1])
    return numbers


def _environment() -> dict[str, str]:
    """Ours without settings of Holdfast, and with everything off that would phone."""
    kept = {
        name: value
        for name, value in os.environ.items()
        if not name.startswith(("HOLDFAST_", "DBOS_", "LANGSMITH_", "LANGCHAIN_"))
    }
    return kept | {"LANGSMITH_TRACING": "false", "LANGCHAIN_TRACING_V2": "false"}
