"""How long an operator waits: lists and runs, over HTTP on this machine and at the command line.

    python -m benchmarks.operators [--store sqlite] [--runs 100000] [--steps 5000] [--times 60] [--smoke]

A store with `runs` runs in every status, made in bulk as a fleet would leave them, and one run of
`steps` steps (two entries each). Then real requests to a real server in a process of its own, and the
command `runs`, in process and as a process. Median and 95th percentile, beside the targets.
"""

from __future__ import annotations

import argparse
import contextlib
import functools
import http.client
import io
import json
import socket
import statistics
import subprocess
import sys
import tempfile
import time
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import msgspec
import psycopg
from click.testing import CliRunner

import holdfast
from holdfast import flow, step
from holdfast._engine.journal.entries import Draft, Kind
from holdfast._engine.journal.rows import Write
from holdfast._engine.values import codec
from holdfast._operator.cli.main import main as cli
from holdfast._stores.contract import Committed, NewRun, Store
from holdfast._stores.locate import open_store

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from holdfast._engine.journal.rows import Lease

ROOT = Path(__file__).parents[1]
DATA = ROOT / "benchmarks" / ".data"
BATCH = 2000
LIST_MS, RUN_MS = 150.0, 500.0
LONG = "long-run"
FLOWS, CUSTOMERS = 10, 1000


@step(commit="grouped")
def note(number: int, text: str) -> dict[str, object]:
    """Stands for a step of a long conversation."""
    return {"number": number, "text": text * 2}


@flow(name="benchmark_long")
def long_run(steps: int) -> int:
    for number in range(steps):
        note(number, "some words of a model " * 3)
    return steps


class Measured(NamedTuple):
    """How long something took, again and again."""

    what: str
    took_ms: list[float]
    target_ms: float | None

    @property
    def p50(self) -> float:
        return statistics.median(self.took_ms)

    @property
    def p95(self) -> float:
        return sorted(self.took_ms)[max(0, round(0.95 * len(self.took_ms)) - 1)]

    @property
    def met(self) -> bool:
        return self.target_ms is None or self.p95 <= self.target_ms


# -- the store ---------------------------------------------------------------------------------


def fill(url: str, runs: int, steps: int) -> None:
    """Write many runs in bulk, and one long one by executing it."""
    store = open_store(url, namespace="default")
    owner = store.register_owner()
    for first in range(0, runs, BATCH):
        numbers = range(first, min(first + BATCH, runs))
        started = store.start_all([(_new(store, it), owner if it % 20 else None) for it in numbers])
        writes = [
            _ended(store, number, made.lease)
            for number, made in zip(numbers, started, strict=True)
            if made.lease is not None
        ]
        assert all(isinstance(it, Committed) for it in store.append(writes))
    store.close()
    if url.startswith("postgresql:"):
        with psycopg.connect(url, autocommit=True) as link:
            link.execute("ANALYZE")  # As the server does by itself within a minute.
    with holdfast.open(url, default=False) as opened:
        long_run.with_options(store=opened).run(LONG, steps)


def _new(store: Store, number: int) -> NewRun:
    body = {"input": _node({"number": number}), "fingerprint": "f", "format": 1}
    tags = {"customer": f"c{number % CUSTOMERS}"}
    return NewRun(
        f"run-{number}",
        f"flow_{number % FLOWS}",
        "1",
        bytes(16),
        [Draft(Kind.RUN_STARTED, store.now_us(), body=msgspec.json.encode(body))],
        tags=msgspec.json.encode(tags).decode(),
        queue="mail" if number % 3 == 0 else None,
    )


def _ended(store: Store, number: int, lease: Lease) -> Write:
    now_us = store.now_us()
    value = {"args": _node({}), "result": _node({"ok": True})}
    done = Draft(
        Kind.STEP_COMPLETED,
        now_us,
        step="work",
        attempt=1,
        position=0,
        args_digest=bytes(16),
        started_us=now_us - 5000,
        body=msgspec.json.encode(value),
    )
    kind, facts, changes = _end(number)
    end = Draft(kind, now_us, body=msgspec.json.encode(facts))
    return Write(lease, [done, end], row=changes)


def _end(number: int) -> tuple[Kind, dict[str, object], dict[str, object]]:
    if number % 100 == 1:
        facts: dict[str, object] = {
            "reason": "quarantined",
            "detail": "five claims brought nothing",
            "actions": [],
        }
        return Kind.RUN_HELD, facts, {"held_reason": "quarantined"}
    if number % 50 == 3:
        return Kind.RUN_FAILED, {"error": {"type": "ValueError", "message": "no"}, "steps": []}, {}
    return Kind.RUN_COMPLETED, {"result": _node({"ok": True})}, {}


def _node(value: object) -> msgspec.Raw:
    return msgspec.Raw(codec.encode(value))


# -- measuring ---------------------------------------------------------------------------------


@contextmanager
def page(url: str) -> Iterator[Client]:
    """`holdfast ui` as a process."""
    process = subprocess.Popen(
        [
            sys.executable,
            "-m",
            "holdfast._operator.cli",
            "--url",
            url,
            "--json",
            "ui",
            "--port",
            "0",
        ],
        cwd=ROOT,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert process.stdout is not None
    lines: list[str] = []
    while lines[-1:] != ["}\n"]:
        lines.append(process.stdout.readline())
        assert lines[-1], "holdfast ui has ended"
    told = json.loads("".join(lines))
    client = Client(told["url"].partition("//")[2].partition("/")[0], told["token"])
    try:
        yield client
    finally:
        client.wire.close()
        process.terminate()
        process.wait()
        process.stdout.close()


class Client:
    """One connection, as a browser keeps it."""

    def __init__(self, host: str, token: str) -> None:
        self.wire = http.client.HTTPConnection(host, timeout=60)
        self.wire.connect()
        self.wire.sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.headers = {"Authorization": f"Bearer {token}"}

    def get(self, path: str) -> bytes:
        self.wire.request("GET", path, headers=self.headers)
        answer = self.wire.getresponse()
        body = answer.read()
        assert answer.status == 200, (path, answer.status, body[:300])
        return body


def timed(what: str, call: Callable[[], object], times: int, target_ms: float | None) -> Measured:
    """Do something again and again; the first time does not count."""
    call()
    took: list[float] = []
    for _ in range(times):
        begun = time.perf_counter()
        call()
        took.append((time.perf_counter() - begun) * 1000)
    return Measured(what, took, target_ms)


LISTS = {
    "the newest": "",
    "status=held": "?status=held",
    "status=failed": "?status=failed",
    "status=running (none)": "?status=running",
    "held_reason=quarantined": "?held_reason=quarantined",
    "held_reason=budget (none)": "?held_reason=budget",
    "flow=flow_3": "?flow=flow_3",
    "flow=nobody (none)": "?flow=nobody",
    "queue=mail": "?queue=mail",
    "tag=customer=c77": "?tag=customer%3Dc77",
    "tag=customer=none (none)": "?tag=customer%3Dnone",
    "version=9 (none)": "?version=9",
    "older_than=1d (none)": "?older_than=1d",
    "search=99999": "?search=99999",
    "the oldest page": "?before=60",
}


def over_http(client: Client, times: int) -> Iterator[Measured]:
    for name, query in LISTS.items():
        path = f"/api/v1/runs{query}"
        yield timed(
            f"GET /api/v1/runs, {name}", functools.partial(client.get, path), times, LIST_MS
        )
    yield timed("GET / (the list page's shell)", lambda: client.get("/"), times, LIST_MS)
    yield timed("GET /api/v1/pending", lambda: client.get("/api/v1/pending"), times, LIST_MS)
    yield timed("GET /api/v1/fleet", lambda: client.get("/api/v1/fleet"), times, None)
    run = f"?id={LONG}"
    fewer = max(3, times // 3)
    for path, target_ms in (
        ("/api/v1/run", RUN_MS),
        ("/api/v1/run/timeline", RUN_MS),
        ("/api/v1/run/history", RUN_MS),
        ("/api/v1/run/steps", RUN_MS),
    ):
        what = f"GET {path}, the long run"
        yield timed(what, functools.partial(client.get, path + run), fewer, target_ms)


def at_the_command_line(url: str, times: int) -> Iterator[Measured]:
    def in_process(*options: str) -> None:
        done = CliRunner().invoke(cli, ["--url", url, "runs", *options])
        assert done.exit_code == 0, done.output

    def as_process() -> None:
        command = [sys.executable, "-m", "holdfast._operator.cli", "--url", url, "runs"]
        done = subprocess.run(command, cwd=ROOT, check=False, capture_output=True, text=True)
        assert done.returncode == 0, done.stderr

    fewer = max(3, times // 6)
    yield timed("runs, in process", in_process, times, LIST_MS)
    yield timed(
        "runs --status failed, in process", lambda: in_process("--status", "failed"), fewer, LIST_MS
    )
    yield timed(
        "runs --tag …, in process", lambda: in_process("--tag", "customer=c77"), fewer, LIST_MS
    )
    yield timed("runs, as a process", as_process, fewer, None)
    yield timed(
        "python -c pass",
        lambda: subprocess.run([sys.executable, "-c", "pass"], check=True),
        fewer,
        None,
    )


@contextmanager
def address(kind: str) -> Iterator[str]:
    """Give the address of a new store."""
    DATA.mkdir(parents=True, exist_ok=True)
    with ExitStack() as stack:
        if kind == "sqlite":
            folder = stack.enter_context(tempfile.TemporaryDirectory(dir=DATA))
            yield f"sqlite:///{folder}/runs.db"
        else:
            from tests.postgres.server import Server

            server = stack.enter_context(Server())
            server.execute("CREATE DATABASE operators")
            yield server.url("operators")


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.operators", description=__doc__)
    parser.add_argument("--store", choices=["sqlite", "postgresql"], default="sqlite")
    parser.add_argument("--runs", type=int, default=100_000)
    parser.add_argument("--steps", type=int, default=5_000)
    parser.add_argument("--times", type=int, default=60)
    parser.add_argument("--smoke", action="store_true", help="tiny sizes, once")
    options = parser.parse_args()
    if options.smoke:
        options.runs, options.steps, options.times = 500, 50, 3
    with address(options.store) as url:
        begun = time.monotonic()
        with contextlib.redirect_stderr(io.StringIO()):
            fill(url, options.runs, options.steps)
        print(
            f"{options.store}: {options.runs:,} runs, and one of {2 * options.steps:,} entries "
            f"(made in {time.monotonic() - begun:.0f} s)\n"
        )
        print(f"{'':46} {'p50':>9} {'p95':>9} {'target':>9}", flush=True)
        missed = 0
        with page(url) as client:
            for measured in over_http(client, options.times):
                missed += not show(measured)
        for measured in at_the_command_line(url, options.times):
            missed += not show(measured)
    return 1 if missed and not options.smoke else 0


def show(measured: Measured) -> bool:
    """Print one line; say whether its target is met."""
    target = "" if measured.target_ms is None else f"{measured.target_ms:.0f} ms"
    mark = "" if measured.met else "  missed"
    print(
        f"{measured.what:46} {measured.p50:>6.1f} ms {measured.p95:>6.1f} ms {target:>9}{mark}",
        flush=True,
    )
    return measured.met


if __name__ == "__main__":
    sys.exit(main())
