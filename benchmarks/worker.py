"""The worker's side: take one request, perform it, print one line of JSON.

Standard library only, like `workloads`.
"""

from __future__ import annotations

import json
import os
import random
import resource
import signal
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

from benchmarks.workloads import Request

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

Numbers = dict[str, float]
EXECUTIONS = "executions-{phase}.log"
EXECUTED_WITHIN_S = 60


class Perform(Protocol):
    def __call__(self, request: Request, /) -> Numbers: ...


def serve(tasks: Mapping[str, Perform]) -> None:
    request = Request.from_json(sys.argv[1])
    print(json.dumps(tasks[request.task](request)), flush=True)


class Stopwatch:
    """Steps per second of wall time, and the CPU time of all threads per step."""

    def __init__(self) -> None:
        self._cpu_before_s = time.process_time()
        self._before_s = time.perf_counter()

    def numbers(self, steps: int) -> Numbers:
        wall_s = time.perf_counter() - self._before_s
        cpu_s = time.process_time() - self._cpu_before_s
        return {
            "steps_per_s": steps / wall_s,
            "cpu_us_per_step": cpu_s / steps * 1e6,
            "peak_mb": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024,
        }


class Marks:
    """The moment after each step, to compare the last steps with the first."""

    def __init__(self) -> None:
        self._moments: list[float] = []

    def mark(self) -> None:
        self._moments.append(time.perf_counter())

    def clear(self) -> None:
        self._moments.clear()

    def numbers(self, window: int) -> Numbers:
        moments = self._moments
        numbers = {"steps_per_s": (len(moments) - 1) / (moments[-1] - moments[0])}
        if window:
            initial_wait_s = moments[window] - moments[0]
            last_s = moments[-1] - moments[-1 - window]
            numbers |= {"initial_wait_s": initial_wait_s, "growth": last_s / initial_wait_s}
        return numbers


class Executions:
    """A log of the step bodies that were executed, which survives `kill -9`.

    In the phase that ends in a kill, the body numbered `kill_at` dies before
    it returns: all steps before it have given their result to the flow.
    """

    def __init__(self) -> None:
        self._kill_at: int | None = None
        self._log = -1

    def open(self, request: Request) -> None:
        self._kill_at = request.kill_at if request.phase == "until_killed" else None
        self._log = os.open(
            Path(request.directory) / EXECUTIONS.format(phase=request.phase),
            os.O_WRONLY | os.O_CREAT | os.O_APPEND,
        )

    def executed(self, number: int) -> None:
        os.write(self._log, f"{number} {time.monotonic()!r}\n".encode())
        if number == self._kill_at:
            os.kill(os.getpid(), signal.SIGKILL)


def executions(directory: Path, phase: str) -> list[tuple[int, float]]:
    """The numbers of the executed bodies, each with its moment."""
    lines = (directory / EXECUTIONS.format(phase=phase)).read_text().splitlines()
    return [(int(number), float(at)) for number, at in (line.split() for line in lines)]


class Gate:
    """How worker processes and the parent agree on the moment to begin: by files."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory

    def pass_through(self) -> None:
        """Say that this process is ready, and wait for the parent."""
        (self._directory / f"ready-{os.getpid()}").touch()
        while not (self._directory / "begin").exists():
            time.sleep(0.002)

    def ready(self) -> int:
        return len(list(self._directory.glob("ready-*")))

    def open(self) -> None:
        (self._directory / "begin").touch()


class Submissions:
    """Runs that are submitted one by one, at random moments, whatever has become of the others.

    So the median of a subject that looks for work now and then is half of its pause.
    """

    def __init__(self, request: Request) -> None:
        self._path = Path(request.directory) / EXECUTIONS.format(phase="work")
        self._runs = request.runs
        self._at: Numbers = {}

    def __iter__(self) -> Iterator[int]:
        chance = random.Random(1)
        for number in range(self._runs):
            time.sleep(chance.uniform(0.05, 0.25))
            self._at[str(number)] = time.monotonic()
            yield number
        deadline = time.monotonic() + EXECUTED_WITHIN_S
        while self._path.read_bytes().count(b"\n") < self._runs:
            if time.monotonic() > deadline:
                raise TimeoutError("no worker executes what was submitted")
            time.sleep(0.01)

    def numbers(self) -> Numbers:
        """The moment of each submission, by its number."""
        return self._at


def rate(runs: int, began_s: float) -> Numbers:
    """How fast runs were submitted that wait for workers."""
    return {"submits_per_s": runs / (time.perf_counter() - began_s)}


def work_until_killed() -> None:
    """The parent ends a worker process when it has seen enough."""
    while True:
        time.sleep(3_600)
