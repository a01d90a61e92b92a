"""W6 and W7: workers in processes of their own, and runs that another process submits.

A worker process says that it is ready (`Gate`), begins to take runs when it is told to, and logs
the moment of each step that it executes. What it costs is read from outside.
"""

from __future__ import annotations

import statistics
import time
from collections import Counter
from contextlib import ExitStack, contextmanager
from threading import Event, Thread
from typing import TYPE_CHECKING

from benchmarks.performing import WorkerFailed, perform, serving
from benchmarks.processes import cpu_s
from benchmarks.worker import EXECUTIONS, Gate, Numbers, executions

if TYPE_CHECKING:
    import subprocess
    from collections.abc import Iterator, Sequence
    from pathlib import Path

    from benchmarks.places import Place, Places
    from benchmarks.server import Server
    from benchmarks.subjects import Subject
    from benchmarks.workloads import Case

READY_WITHIN_S = 60
SETTLED_AFTER_S = 2.0
LOOK_S = 0.02
TOP_WAITS = 4

Process = "subprocess.Popen[str]"


def idle(subject: Subject, case: Case, places: Places) -> Numbers:
    """CPU of a worker that has nothing to do, and what it makes its server do."""
    place = places.make()
    server = places.server
    before_s = _server_share(server, case.seconds) if server else 0.0
    with serving(subject, case, place, "worker") as worker:
        _open_gate(subject, case, place, [worker])
        time.sleep(min(SETTLED_AFTER_S, case.seconds))
        worker_s, server_s = cpu_s(worker.pid), server.cpu_s() if server else 0.0
        began = time.monotonic()
        time.sleep(case.seconds)
        wall_s = time.monotonic() - began
        worker_s = cpu_s(worker.pid) - worker_s
        server_s = server.cpu_s() - server_s if server else 0.0
    numbers = {"idle_percent": worker_s / wall_s * 100}
    if server:
        numbers["idle_server_percent"] = max(0.0, server_s / wall_s * 100 - before_s)
    return numbers


def _server_share(server: Server, seconds: float) -> float:
    """What the server takes with nobody connected, in percent of a core."""
    before_s = server.cpu_s()
    time.sleep(seconds)
    return (server.cpu_s() - before_s) / seconds * 100


def latency(subject: Subject, case: Case, places: Places) -> Numbers:
    """From the call of submit in one process to the body of the first step in another."""
    place = places.make()
    with serving(subject, case, place, "worker") as worker:
        _open_gate(subject, case, place, [worker])
        submitted = perform(subject, case, place, "submit")
        began = dict(executions(place.directory, "work"))
    waited_ms = sorted(
        (began[number] - submitted[str(number)]) * 1e3 for number in range(case.runs)
    )
    return {
        "latency_p50_ms": statistics.median(waited_ms),
        "latency_p95_ms": waited_ms[int(len(waited_ms) * 0.95)],
    }


def throughput(subject: Subject, case: Case, places: Places) -> Numbers:
    """Runs that wait already are taken by several workers, which begin at one moment."""
    place = places.make()
    server = places.server
    numbers = perform(subject, case, place, "submit")
    with ExitStack() as stack:
        workers = [
            stack.enter_context(serving(subject, case, place, f"worker-{number}"))
            for number in range(case.workers)
        ]
        _wait_until_ready(subject, case, place, workers)
        counted = server.counters() if server else (0, 0, 0)
        workers_s = [cpu_s(worker.pid) for worker in workers]
        server_s = server.cpu_s() if server else 0.0
        with _sampled(server) as waits:
            began = time.monotonic()
            Gate(place.directory).open()
            _wait_for_steps(subject, case, place, workers)
            wall_s = time.monotonic() - began
        steps = case.runs * case.steps
        workers_s = [cpu_s(worker.pid) - s for worker, s in zip(workers, workers_s, strict=True)]
        numbers |= {
            "steps_per_s": steps / wall_s,
            "runs_per_s": case.runs / wall_s,
            "worker_cores": sum(workers_s) / wall_s,
            "worker_cpu_us_per_step": sum(workers_s) / steps * 1e6,
        }
        if server:
            commits, wal_bytes, syncs = (
                now - then for now, then in zip(server.counters(), counted, strict=True)
            )
            server_s = server.cpu_s() - server_s
            numbers |= {
                "server_cores": server_s / wall_s,
                "server_cpu_us_per_step": server_s / steps * 1e6,
                "commits_per_s": commits / wall_s,
                "syncs_per_s": syncs / wall_s,
                "wal_kb_per_run": wal_bytes / 1e3 / case.runs,
                "stored_kb_per_run": place.stored_bytes() / 1e3 / case.runs,
            }
            numbers |= _shares(waits)
    return numbers


def _shares(waits: Counter[str]) -> Numbers:
    total = sum(waits.values())
    return {f"waits % {name}": count / total * 100 for name, count in waits.most_common(TOP_WAITS)}


@contextmanager
def _sampled(server: Server | None) -> Iterator[Counter[str]]:
    """What the server's backends wait for, looked at again and again meanwhile."""
    waits: Counter[str] = Counter()
    if server is None:
        yield waits
        return
    over = Event()

    def sample() -> None:
        with server.watching() as look:
            while not over.wait(LOOK_S):
                waits.update(look())

    sampler = Thread(target=sample)
    sampler.start()
    try:
        yield waits
    finally:
        over.set()
        sampler.join()


def _open_gate(
    subject: Subject, case: Case, place: Place, workers: Sequence[subprocess.Popen[str]]
) -> None:
    _wait_until_ready(subject, case, place, workers)
    Gate(place.directory).open()
    time.sleep(LOOK_S)


def _wait_until_ready(
    subject: Subject, case: Case, place: Place, workers: Sequence[subprocess.Popen[str]]
) -> None:
    deadline = time.monotonic() + READY_WITHIN_S
    while Gate(place.directory).ready() < len(workers):
        _check_alive(subject, case, place, workers)
        if time.monotonic() > deadline:
            raise WorkerFailed(subject.name, case.key, None, "the worker does not become ready")
        time.sleep(LOOK_S)


def _wait_for_steps(
    subject: Subject, case: Case, place: Place, workers: Sequence[subprocess.Popen[str]]
) -> None:
    path = place.directory / EXECUTIONS.format(phase="work")
    found = 0
    with path.open("rb") as log:
        while found < case.runs * case.steps:
            found += log.read().count(b"\n")
            _check_alive(subject, case, place, workers)
            time.sleep(LOOK_S / 4)


def _check_alive(
    subject: Subject, case: Case, place: Place, workers: Sequence[subprocess.Popen[str]]
) -> None:
    for worker in workers:
        if worker.poll() is not None:
            raise WorkerFailed(subject.name, case.key, worker.returncode, _said(place.directory))


def _said(directory: Path) -> str:
    return "\n".join(path.read_text() for path in sorted(directory.glob("worker*.log")))
