"""What runs that wait cost an idle worker, and whether all timers of one second fire once.

    python -m benchmarks.waiting [--store sqlite] [--runs 10000] [--timers 2000] [--seconds 20]

First a worker on an empty store, then one on a store with `runs` runs asleep and as many that wait
for an answer: CPU and memory of both, read from outside. Then `timers` sleeps that are due in the
same second, all in one store; each run must have one `timer_fired`, and its step executed once.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
import time
from collections import Counter
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import holdfast
from benchmarks.processes import cpu_s
from holdfast import ask, flow, sleep, step
from holdfast.context import now

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

ROOT = Path(__file__).parents[1]
DATA = ROOT / "benchmarks" / ".data"
SETTLED_AFTER_S = 5.0
PATIENCE_S = 600.0
AT_ONCE = 50
LONG = "30d"
MEMORY_MORE_MB = 50.0
CPU_PERCENT = 1.0


@step
def woken(number: int) -> int:
    """Stands for what a run does when its time has come."""
    return number


@flow(name="benchmark_sleeper")
def sleeper(number: int) -> int:
    sleep(LONG)
    return woken(number)


@flow(name="benchmark_asker")
def asker(number: int) -> str:
    return ask(f"Shall number {number} go on?", name="go", choices=["yes", "no"])


@flow(name="benchmark_timer")
def timer(number: int, due: float) -> int:
    sleep(max(0.0, due - now().timestamp()))
    return woken(number)


class Cost(NamedTuple):
    """What a process took while it had nothing to do."""

    cpu_percent: float
    memory_mb: float


def work(url: str) -> None:
    """Be a worker until stdin is closed."""
    with holdfast.open(url) as store, store.worker(concurrency=AT_ONCE):
        print("ready", flush=True)
        sys.stdin.read()


@contextmanager
def worker(url: str) -> Iterator[subprocess.Popen[str]]:
    """A worker in a process of its own."""
    process = subprocess.Popen(
        [sys.executable, "-m", "benchmarks.waiting", "--work", url],
        cwd=ROOT,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert process.stdin is not None
    assert process.stdout is not None
    try:
        assert process.stdout.readline() == "ready\n"
        yield process
    finally:
        process.stdin.close()
        process.wait()
        process.stdout.close()


def cost(url: str, seconds: float) -> Cost:
    """Measure a new worker that finds nothing to do."""
    with worker(url) as process:
        return cost_of(process.pid, seconds)


def cost_of(pid: int, seconds: float) -> Cost:
    """Measure a process that has nothing to do."""
    time.sleep(SETTLED_AFTER_S)
    before_s, began = cpu_s(pid), time.monotonic()
    time.sleep(seconds)
    took_s, wall_s = cpu_s(pid) - before_s, time.monotonic() - began
    return Cost(took_s / wall_s * 100, memory_mb(pid))


def memory_mb(pid: int) -> float:
    """Resident memory of a process (Linux)."""
    pages = int(Path(f"/proc/{pid}/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE") / 1e6


def until(condition: Callable[[], bool], what: str) -> None:
    """Wait for a fact."""
    deadline = time.monotonic() + PATIENCE_S
    while not condition():
        if time.monotonic() > deadline:
            raise TimeoutError(what)
        time.sleep(0.2)


def fill(url: str, runs: int, seconds: float) -> Cost:
    """Have so many runs sleep, and as many wait for an answer; measure the worker that had them."""
    with holdfast.open(url, default=False) as store:
        sleeping, asking = sleeper.with_options(store=store), asker.with_options(store=store)
        for number in range(runs):
            sleeping.submit(f"sleeper-{number}", number)
            asking.submit(f"asker-{number}", number)
        with worker(url) as process:
            until(lambda: count(store, "waiting") >= 2 * runs, "all runs wait")
            return cost_of(process.pid, seconds)


def count(store: holdfast.types.Store, status: str) -> int:
    """Count runs of a status, page by page."""
    return len(store.runs(status=status, limit=1_000_000))


def fire(url: str, timers: int, ahead_s: float) -> tuple[Counter[int], float]:
    """Let timers of one moment fire; returns how many runs have how many `timer_fired`, and how
    long after the moment the last one was through."""
    with holdfast.open(url, default=False) as store:
        due = time.time() + ahead_s
        timing = timer.with_options(store=store)
        for number in range(timers):
            timing.submit(f"timer-{number}", number, due)
        with worker(url):
            until(lambda: is_through(store, timers), "all timers have fired")
        ended = max(
            each.updated_at.timestamp() for each in store.runs(flow="benchmark_timer", limit=timers)
        )
        fired = Counter(
            sum(entry.kind == "timer_fired" for entry in store.history(f"timer-{number}"))
            for number in range(timers)
        )
        return fired, ended - due


def is_through(store: holdfast.types.Store, timers: int) -> bool:
    return len(store.runs(flow="benchmark_timer", status="completed", limit=timers + 1)) == timers


@contextmanager
def stores(kind: str) -> Iterator[list[str]]:
    """Give the addresses of three new stores: empty, filled, and for timers."""
    DATA.mkdir(parents=True, exist_ok=True)
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(dir=DATA)))
        if kind == "sqlite":
            yield [f"sqlite:///{folder}/{name}.db" for name in ("empty", "filled", "timers")]
        else:
            from tests.postgres.server import Server

            server = stack.enter_context(Server())
            names = ("empty", "filled", "timers")
            for name in names:
                server.execute(f"CREATE DATABASE {name}")
            yield [server.url(name) for name in names]


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.waiting", description=__doc__)
    parser.add_argument("--store", choices=["sqlite", "postgresql"], default="sqlite")
    parser.add_argument("--runs", type=int, default=10_000)
    parser.add_argument("--timers", type=int, default=2_000)
    parser.add_argument("--ahead", type=float, default=30.0, help="seconds until timers are due")
    parser.add_argument(
        "--seconds", type=float, default=20.0, help="how long an idle worker is read"
    )
    parser.add_argument("--work", metavar="URL", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.work:
        work(options.work)
        return 0
    with stores(options.store) as (empty, filled, timers):
        nothing = cost(empty, options.seconds)
        print(f"{options.store}, empty: {told(nothing)}", flush=True)
        brought = fill(filled, options.runs, options.seconds)
        print(f"the worker that brought them to wait: {told(brought)}", flush=True)
        full = cost(filled, options.seconds)
        print(f"{options.runs:,} asleep and {options.runs:,} asking: {told(full)}", flush=True)
        more_mb = max(full.memory_mb, brought.memory_mb) - nothing.memory_mb
        print(f"memory more: {more_mb:.1f} MB", flush=True)
        fired, late_s = fire(timers, options.timers, options.ahead)
        print(
            f"{options.timers:,} timers of one second: fired {dict(fired)}, through {late_s:.1f} s after"
        )
    good = (
        max(full.cpu_percent, brought.cpu_percent) < CPU_PERCENT
        and more_mb < MEMORY_MORE_MB
        and set(fired) == {1}
    )
    return 0 if good else 1


def told(cost: Cost) -> str:
    return f"{cost.cpu_percent:.2f} % of a core, {cost.memory_mb:.1f} MB"


if __name__ == "__main__":
    sys.exit(main())
