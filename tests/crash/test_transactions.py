"""Killed at any moment, the user's table and the journal say the same: one row per effect."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import pytest

import holdfast
from holdfast import effect, flow, step, testing
from tests import sweeps
from tests.crash import beside
from tests.crash.harness import Script, World, assert_sound, wait_for

COUNT = 3
MANY = 20


@pytest.fixture(params=["sqlite", "postgresql"])
def url(request: pytest.FixtureRequest, world: World) -> str:
    """A store with the user's table in its database, known to the scripts of this world."""
    url = world.url
    if request.param == "postgresql":
        url = str(request.getfixturevalue("postgres_url"))
        world.env["CRASH_URL"] = url
    with holdfast.open(url, default=False):
        beside.create(url)
    return url


def agreed(url: str) -> list[str]:
    """Return what both sides say was ordered; fails if they say different things."""
    with holdfast.open(url, default=False) as store:
        entries = store.history("r") if store._backend.get("r") is not None else []
    recorded = [
        e.body["result"]
        for e in entries
        if e.kind == "step_completed" and str(e.step).startswith("order")
    ]
    assert sorted(recorded) == beside.ordered(url), "the journal and the table differ"
    return sorted(recorded)


def finished(world: World, url: str, count: int = COUNT) -> None:
    """Run it again, and look that everything was done and recorded once."""
    names = [f"order-{n}" for n in range(count)]
    assert world.run("orders.py", count).result == names
    assert agreed(url) == sorted(names)
    with holdfast.open(url, default=False) as store:
        assert_sound(store)


@pytest.mark.parametrize(
    ("at", "done", "calls"),
    [
        ("before order-1", ["order-0"], 2),
        ("inside order-1", ["order-0"], 2),
        ("after order-1", ["order-0", "order-1"], 1),
    ],
)
def test_killed_round_the_transaction(
    world: World, url: str, at: str, done: list[str], calls: int
) -> None:
    world.crash("orders.py", COUNT, at=at)
    assert agreed(url) == done

    finished(world, url)

    assert world.counts()["order-1"] == calls
    assert world.counts()["prepare-1"] == 1


def test_killed_at_random_moments(world: World, url: str) -> None:
    """Each process is killed a moment after it has called two bodies; so it has brought something
    new, and the run is no poison."""
    chance = random.Random(20)
    for _ in range(6):
        script = world.start("orders.py", MANY)
        _until_called(world, script, len(world.executions()) + 2)
        for _ in range(chance.randrange(200)):
            script.process.poll()
        script.kill()
        agreed(url)

    finished(world, url, MANY)


def _until_called(world: World, script: Script, bodies: int) -> None:
    def called_or_ended() -> bool:
        return len(world.executions()) >= bodies or script.process.poll() is not None

    wait_for(called_or_ended, "two bodies were called")


@pytest.mark.parametrize("at", ["inside order-1", "between"])
def test_the_planted_bug_is_noticed(world: World, url: str, at: str) -> None:
    """What the effect writes is committed apart from its outcome."""
    world.crash("orders.py", COUNT, at=at, plant="apart")

    with pytest.raises(AssertionError, match="the journal and the table differ"):
        agreed(url)


# --- at every write, before, inside and after -------------------------------------------------


@step(name="tx-matrix-prepare")
def prepare(n: int) -> int:
    return n


@effect(name="tx-matrix-add", transaction=True, key="add:{n}")
def add(n: int) -> int:
    connection = holdfast.context.sql_connection()
    connection.execute("CREATE TABLE IF NOT EXISTS added (n INTEGER)")
    connection.execute("INSERT INTO added VALUES (?)", (n,))
    return n


@effect(name="tx-matrix-count", transaction=True)
def found() -> list[Any]:
    return [
        n for (n,) in holdfast.context.sql_connection().execute("SELECT n FROM added ORDER BY n")
    ]


@flow(name="tx-matrix")
def matrix() -> list[Any]:
    for n in range(2):
        add(prepare(n))
    return found()


@pytest.mark.parametrize("kill", ["simulated", "process"])
def test_at_every_boundary(kill: Any) -> None:
    report = testing.crash_matrix(matrix, url="sqlite:", kill=kill)

    assert report.result == [0, 1]
    assert all(point.completed and point.result == [0, 1] for point in report.points)
    inside = [p for p in report.points if "the body of a transaction" in str(p.kills[0])]
    assert len(inside) == 6, "three effects, each killed before and after its body"


@pytest.mark.sweep
def test_two_deaths() -> None:
    report = testing.crash_matrix(matrix, url="sqlite:", crashes=2, max_points=sweeps.size(3, 5))

    assert all(point.result == [0, 1] for point in report.points)


def test_the_matrix_notices_the_planted_bug(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    from holdfast._stores.sqlite.sqlite_store import SqliteStore

    def apart(kept: Any, lease: Any, work: Any) -> Any:
        with beside.connected(kept.url) as connection:
            write = work(connection)
        return kept.append([write])[0]

    monkeypatch.setattr(SqliteStore, "append_within", apart)

    with pytest.raises(AssertionError, match=r"the result is \[0, 0, 1\]"):
        testing.crash_matrix(matrix, url="sqlite:")
