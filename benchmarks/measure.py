"""The parent's side: how one case is measured on one subject."""

from __future__ import annotations

import statistics
import subprocess
import time
from typing import TYPE_CHECKING

from benchmarks import fleet
from benchmarks.distributions import installed_with
from benchmarks.performing import WorkerFailed, environment, perform
from benchmarks.worker import Numbers, executions
from benchmarks.workloads import MESSAGE_BYTES

if TYPE_CHECKING:
    from benchmarks.places import Place, Places
    from benchmarks.subjects import Subject
    from benchmarks.workloads import Case

IMPORTS_PER_REPETITION = 5


def measure(subject: Subject, case: Case, places: Places) -> Numbers:
    match case.method:
        case "timed":
            return perform(subject, case, places.make())
        case "stored":
            return _stored(subject, case, places)
        case "killed":
            return _killed(subject, case, places)
        case "imported":
            return _imported(subject, places.make())
        case "idle":
            return fleet.idle(subject, case, places)
        case "latency":
            return fleet.latency(subject, case, places)
        case "fleet":
            return fleet.throughput(subject, case, places)


def _stored(subject: Subject, case: Case, places: Places) -> Numbers:
    """Bytes on disk less an empty store, relative to the bytes of the messages."""
    empty, full = places.make("empty"), places.make("full")
    perform(subject, case, empty, "empty")
    numbers = perform(subject, case, full)
    stored = full.stored_bytes() - empty.stored_bytes()
    return {
        "stored_mb": stored / 1e6,
        "per_content": stored / (case.steps * MESSAGE_BYTES),
        "steps_per_s": numbers["steps_per_s"],
    }


def _killed(subject: Subject, case: Case, places: Places) -> Numbers:
    """Time from process start to the first new step, less that of a fresh start."""
    fresh, resumed = places.make("fresh"), places.make("resumed")
    started = time.monotonic()
    perform(subject, case, fresh, "fresh", steps=1)
    fresh_s = executions(fresh.directory, "fresh")[0][1] - started

    perform(subject, case, resumed, "until_killed")
    started = time.monotonic()
    perform(subject, case, resumed, "resume")
    bodies = executions(resumed.directory, "resume")
    first_new_at = next(at for number, at in bodies if number >= case.kill_at)
    assert bodies[-1][0] == case.steps - 1, "the resumed run did not reach its end"
    return {
        "fresh_s": fresh_s,
        "resume_s": first_new_at - started - fresh_s,
        "re_executed": sum(number < case.kill_at for number, _ in bodies),
    }


def _imported(subject: Subject, place: Place) -> Numbers:
    """Import time over bare Python, in pairs, after one import that is not counted."""
    _seconds_of(subject, subject.imports, place)
    extra_s = [
        _seconds_of(subject, subject.imports, place) - _seconds_of(subject, "pass", place)
        for _ in range(IMPORTS_PER_REPETITION)
    ]
    return {
        "import_ms": statistics.median(extra_s) * 1e3,
        "distributions": len(installed_with(subject.python, subject.distributions)),
    }


def _seconds_of(subject: Subject, code: str, place: Place) -> float:
    before = time.perf_counter()
    done = subprocess.run(
        [subject.python, "-c", code],
        cwd=place.directory,
        env=environment(),
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode:
        raise WorkerFailed(subject.name, code, done.returncode, done.stderr)
    return time.perf_counter() - before
