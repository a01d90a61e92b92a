"""200 runs in all states move to another store, through kills, and end there as if in one."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

import holdfast
from holdfast._engine.journal.lifecycle import FINAL
from holdfast._stores.contract import Query
from tests.crash.harness import World, wait_for
from tests.crash.payments import Client
from tests.crash.scripts.moving import STATES, run_ids

PER_STATE = 25
TOTAL = PER_STATE * len(STATES)

EXECUTED = {
    "completed": {"prepare": 1, "pay": 1},
    "failed": {"prepare": 1, "fragile": 2, "pay": 1},
    "held": {"prepare": 1, "pay_and_ask": 1},
    "queued": {"prepare": 1, "pay": 1},
    "holder": {"prepare": 1, "pay_by_key": 2},
    "waiting": {"prepare": 1},
    "midway": {"prepare": 1, "slow": 2, "pay": 1},
    "doubt": {"prepare": 1, "pay_and_retry": 2},
}
"""How often each body is executed in all, in both stores: again only what had no outcome."""


@pytest.fixture(params=["sqlite", pytest.param("postgresql", marks=pytest.mark.sweep(whole=True))])
def target(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """The address of an empty store."""
    url = f"sqlite:///{tmp_path}/target.db"
    if request.param == "postgresql":
        url = str(request.getfixturevalue("postgres_url"))
    with holdfast.open(url, default=False):
        return url


def copier(source: str, target: str) -> subprocess.Popen[str]:
    command = [
        sys.executable,
        "-m",
        "holdfast._operator.cli",
        "store",
        "move",
        source,
        target,
        "--json",
    ]
    return subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=dict(os.environ)
    )


def arrived(store: holdfast.types.Store) -> set[str]:
    return {row.run_id for row in store._backend.list(Query(limit=2 * TOTAL))}


def killed_half_way(source: str, target: str, at: int) -> bool:
    """Kill a copy as soon as so many runs have arrived; nothing may be able to go on in both.
    Returns whether it was killed: on a busy machine it may be over when we see how far it got."""
    process = copier(source, target)
    with holdfast.open(target, default=False) as there:
        wait_for(
            lambda: len(arrived(there)) >= at or process.poll() is not None, f"{at} runs arrived"
        )
        process.kill()
        process.communicate()
        here_and_there = arrived(there)
    assert at <= len(here_and_there) <= TOTAL
    with holdfast.open(source, default=False) as here:
        for run_id in here_and_there:
            row = here._backend.get(run_id)
            assert row is not None
            moved = row.status in FINAL or (row.status, row.held_reason) == ("held", "moved")
            assert moved, f"{run_id} is {row.status} in the source, and arrived"
    return process.returncode == -signal.SIGKILL


def test_two_hundred_runs_move_through_kills(world: World, payments: Client, target: str) -> None:
    source = world.url
    world.crash("moving.py", "populate", PER_STATE, at="populated")
    killed = [killed_half_way(source, target, at) for at in (30, 90, 150)]
    assert any(killed)

    process = copier(source, target)
    said, complaints = process.communicate()
    assert process.returncode == 0, said + complaints
    answer = json.loads(said)
    assert answer["runs"]["moved"] + answer["runs"]["there already"] == TOTAL

    ended = world.run("moving.py", "finish", PER_STATE, url=target, source=source)

    assert_right(ended.result, payments)
    assert_executed(world)
    for url in (source, target):
        with holdfast.open(url, default=False) as store:
            assert not list(store.verify())


def assert_right(results: dict[str, Any], payments: Client) -> None:
    """Each run has its own charge, under one key; the two that share a business key share it."""
    assert set(results) == {run_id for run_id, _, _ in run_ids(PER_STATE)}
    charges = Counter(paid for _, paid in results.values())
    shared = {results[f"holder-{n}"][1] for n in range(PER_STATE)}
    assert all(count == (2 if paid in shared else 1) for paid, count in charges.items())
    assert all(results[f"waiting-{n}"][1] in shared for n in range(PER_STATE))
    state = payments.state()
    assert len(state) == TOTAL - PER_STATE, "one key for each charge"
    assert all(len(key["charges"]) == 1 for key in state.values())


def assert_executed(world: World) -> None:
    counts: dict[str, Counter[str]] = {}
    for execution in world.executions():
        counts.setdefault(execution.run, Counter())[execution.step] += 1
    wrong = {
        run_id: dict(counts.get(run_id, {}))
        for run_id, state, _ in run_ids(PER_STATE)
        if counts.get(run_id, {}) != EXECUTED[state]
    }
    assert not wrong


def test_a_key_that_is_derived_anew_would_be_noticed(
    world: World, payments: Client, target: str
) -> None:
    """The planted bug: in the target, effects that were begun show a key of the target's own."""
    source = world.url
    world.crash("moving.py", "populate", 1, at="populated")
    process = copier(source, target)
    process.communicate()
    assert process.returncode == 0

    world.run("moving.py", "finish", 1, url=target, source=source, plant="derived anew")

    state = payments.state()
    assert len(state) > len(STATES) - 1, "a second key was shown for one charge"
