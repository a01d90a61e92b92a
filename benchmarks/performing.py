"""Processes of a subject: each takes one request and answers with one line of JSON."""

from __future__ import annotations

import json
import os
import signal
import subprocess
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from benchmarks.workloads import Case, Phase, Request

if TYPE_CHECKING:
    from collections.abc import Iterator

    from benchmarks.places import Place
    from benchmarks.subjects import Subject
    from benchmarks.worker import Numbers

REPOSITORY = Path(__file__).parent.parent
WORKER_TIMEOUT_S = 1_800
ENDED_WITHIN_S = 20


class WorkerFailed(Exception):
    def __init__(self, subject: str, case: str, returncode: int | None, stderr: str) -> None:
        super().__init__(subject, case, returncode, stderr)
        self.subject = subject
        self.case = case
        self.returncode = returncode
        self.stderr = stderr

    def __str__(self) -> str:
        lines = self.stderr.strip().splitlines() or ["(no message)"]
        return f"{self.subject} {self.case}: exit {self.returncode}: {lines[-1]}"


def perform(
    subject: Subject,
    case: Case,
    place: Place,
    phase: Phase = "measure",
    steps: int | None = None,
) -> Numbers:
    """One process, from its start to its end."""
    worker = subprocess.run(
        _command(subject, case, place, phase, steps),
        cwd=REPOSITORY,
        env=environment(),
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


@contextmanager
def serving(
    subject: Subject, case: Case, place: Place, name: str
) -> Iterator[subprocess.Popen[str]]:
    """A process that works in the background, killed at the end; what it says goes to a file."""
    said = place.directory / f"{name}.log"
    with said.open("w") as log:
        process = subprocess.Popen(
            _command(subject, case, place, "work", None),
            cwd=REPOSITORY,
            env=environment(),
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            text=True,
        )
    try:
        yield process
        if process.poll() is not None:
            raise WorkerFailed(subject.name, case.key, process.returncode, said.read_text())
    finally:
        process.kill()
        process.wait(ENDED_WITHIN_S)


def _command(
    subject: Subject, case: Case, place: Place, phase: Phase, steps: int | None
) -> list[str]:
    request = Request(
        task=case.task,
        directory=str(place.directory),
        url=place.url,
        steps=case.steps if steps is None else steps,
        runs=case.runs,
        warm_up=case.warm_up,
        window=case.window,
        kill_at=case.kill_at,
        pause_s=case.pause_s,
        phase=phase,
        mode=subject.mode,
    )
    return [str(subject.python), "-m", subject.module, request.to_json()]


def environment() -> dict[str, str]:
    """Ours without settings of Holdfast, and with everything off that would phone."""
    kept = {
        name: value
        for name, value in os.environ.items()
        if not name.startswith(("HOLDFAST_", "DBOS_", "LANGSMITH_", "LANGCHAIN_", "ABSURD_", "PG"))
    }
    return kept | {"LANGSMITH_TRACING": "false", "LANGCHAIN_TRACING_V2": "false"}
