"""The example web app in two real servers on one store: one is redeployed, one is killed."""

from __future__ import annotations

import http.client
import json
import signal
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from tests import sweeps
from tests.crash.harness import ROOT, SERVER_IN_SWEEPS, World, wait_for
from tests.postgres.server import free_port

REPORTS = sweeps.size(30, 60)
SOURCES = 5


class Server:
    """One process of the web app."""

    def __init__(self, world: World, name: str) -> None:
        self.port = free_port()
        log = (world.root / f"{name}.log").open("wb")
        self.process = subprocess.Popen(
            [
                *(sys.executable, "-m", "uvicorn", "tests.crash.scripts.web_app:app"),
                *("--port", str(self.port), "--log-level", "warning"),
                *("--timeout-graceful-shutdown", "1"),
            ],
            cwd=ROOT,
            env=world._environment({}) | {"HOLDFAST_URL": world.url},
            stdout=log,
            stderr=log,
        )
        log.close()
        wait_for(self._answers, f"{name} answers")

    def _answers(self) -> bool:
        assert self.process.poll() is None, "the server ended"
        try:
            return self.get("/runs/none")[0] == 404
        except OSError:
            return False

    def get(self, path: str) -> tuple[int, Any]:
        return self._call("GET", path)

    def post(self, path: str, body: dict[str, Any]) -> tuple[int, Any]:
        return self._call("POST", path, json.dumps(body))

    def _call(self, method: str, path: str, body: str | None = None) -> tuple[int, Any]:
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=30)
        try:
            connection.request(method, path, body, {"Content-Type": "application/json"})
            answer = connection.getresponse()
            return answer.status, json.loads(answer.read())
        finally:
            connection.close()

    def events(self, path: str, headers: dict[str, str] | None = None) -> Iterator[dict[str, str]]:
        """Yield server-sent events until the stream ends, or the server does."""
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=60)
        try:
            connection.request("GET", path, headers=headers or {})
            answer = connection.getresponse()
            assert answer.headers["Content-Type"].startswith("text/event-stream")
            event: dict[str, str] = {}
            while line := answer.readline():
                name, _, value = line.decode().strip().partition(": ")
                if name:
                    event[name] = value
                elif event:
                    yield event
                    event = {}
        except (OSError, http.client.HTTPException):
            return
        finally:
            connection.close()

    def end(self, number: int) -> None:
        self.process.send_signal(number)
        self.process.wait(60)


@contextmanager
def server(world: World, name: str) -> Iterator[Server]:
    started = Server(world, name)
    try:
        yield started
    finally:
        if started.process.poll() is None:
            started.end(signal.SIGKILL)


def executions(world: World) -> Counter[tuple[str, int]]:
    lines = world.ledger.read_text().splitlines() if world.ledger.exists() else []
    return Counter((topic, source) for topic, source, _ in map(json.loads, lines))


def all_completed(server: Server, names: list[str]) -> bool:
    return all(server.get(f"/runs/{name}")[1]["status"] == "completed" for name in names)


def post_all(*servers: Server, names: list[str]) -> None:
    for number, name in enumerate(names):
        code, told = servers[number % len(servers)].post(f"/reports/{name}", {"topic": name})
        assert (code, told["run_id"]) == (202, name)


@pytest.mark.sweep
@SERVER_IN_SWEEPS
@pytest.mark.parametrize("by", [signal.SIGTERM, signal.SIGKILL])
def test_a_server_goes_away_under_load(world: World, by: signal.Signals):
    names = ["watched", *(f"report-{number}" for number in range(REPORTS))]
    with server(world, "one") as one, server(world, "two") as two:
        post_all(one, names=["watched"])
        post_all(one, two, names=names[1:])
        stream = one.events("/runs/watched/events")
        seen = [next(stream), next(stream)]
        wait_for(lambda: sum(executions(world).values()) > REPORTS, "work is under way")
        one.process.send_signal(by)
        assert list(stream) == [], "it is cut off before the third"
        world.mark("let go")
        one.process.wait(60)
        seen += two.events("/runs/watched/events", {"Last-Event-ID": seen[-1]["id"]})
        with server(world, "three"):  # The redeployed one.
            wait_for(lambda: all_completed(two, names), "all reports")
        results = {name: two.get(f"/runs/{name}")[1]["result"] for name in names}
    for name, result in results.items():
        said = [line.rsplit(" ", 1)[0] for line in result.splitlines()]
        assert said == [f"{name} {source}" for source in range(1, SOURCES + 1)]
    check_stream(seen)
    check_executions(world, names, results, killed=by == signal.SIGKILL)


def check_stream(seen: list[dict[str, str]]) -> None:
    """Each piece of progress came once and in order, over both servers, and then the end."""
    *progress, end = seen
    assert [json.loads(event["data"])["read"] for event in progress] == list(range(1, SOURCES + 1))
    assert end["event"] == "end"
    assert json.loads(end["data"]) == {"status": "completed"}


def check_executions(
    world: World, names: list[str], results: dict[str, str], *, killed: bool
) -> None:
    """What is recorded was not executed again; only what was cut off in the middle was."""
    counts = executions(world)
    assert set(counts) == {(name, source) for name in names for source in range(1, SOURCES + 1)}
    last: dict[tuple[str, int], int] = {}
    for line in world.ledger.read_text().splitlines():
        topic, source, pid = json.loads(line)
        last[topic, source] = pid
    for name, result in results.items():
        for source, line in enumerate(result.splitlines(), start=1):
            assert last[name, source] == int(line.rsplit(" ", 1)[1]), "executed after its record"
    again = {call: count for call, count in counts.items() if count > 1}
    assert max(again.values(), default=1) <= 2
    if not killed:
        assert not again, "a drained server ended what it was at"


def test_posting_again_and_asking_wrongly(world: World):
    with server(world, "one") as one:
        assert one.post("/reports/r", {"topic": "x"})[0] == 202
        assert one.post("/reports/r", {"topic": "x"})[0] == 202
        assert one.post("/reports/r", {"topic": "y"})[0] == 409
        assert one.post("/reports/a::b", {"topic": "y"})[0] == 422
        wait_for(lambda: one.get("/runs/r")[1]["status"] == "completed", "the report")
        first, *_, end = one.events("/runs/r/events?after=0")
        assert (first["event"], end["event"]) == ("progress", "end")
        assert one.get("/runs/nobody/events")[0] == 404
    assert max(executions(world).values()) == 1
