"""SIGKILL at every named place and at random times: the journal agrees with the world."""

from __future__ import annotations

import pytest

from tests import sweeps
from tests.crash.harness import BOTH_STORES, World
from tests.crash.kills import POINTS, RESULT, SCRIPT, kill_at_random, kill_several, summary
from tests.crash.payments import Client

KILLS = sweeps.size(5, 10)
SEEDS = [1]
PARTS = 4
"""The places are shared out, so that several processes look at them."""
PROGRAMS = sweeps.size(3, 6)
"""Random flows per seed; each of them is killed several times."""


@pytest.mark.sweep
@BOTH_STORES
@pytest.mark.parametrize("seed", SEEDS)
def test_random_kills(world: World, payments: Client, seed: int) -> None:
    result = kill_at_random(world, payments, kills=KILLS, seed=seed)
    assert not result.violations, "\n".join(result.violations)
    assert result.kills == KILLS


@pytest.mark.sweep
@BOTH_STORES
def test_random_kills_among_several_processes(world: World, payments: Client) -> None:
    result = kill_several(world, payments, kills=KILLS, seed=SEEDS[0])
    assert not result.violations, "\n".join(result.violations)
    assert result.kills == KILLS


@BOTH_STORES
@pytest.mark.parametrize("part", range(PARTS))
def test_every_boundary(world: World, payments: Client, part: int) -> None:
    """Die at each place in turn, every resume ending at the next one.

    Of branches that run at once, one may have passed a place before another died; then the run
    ends, and the next one is the first to come by.
    """
    run = 0
    for place in POINTS[part::PARTS]:
        ended = world.run(SCRIPT, run, run, kill_at=place)
        if not ended.killed:
            assert ended.result == [RESULT], place
            run += 1
            ended = world.run(SCRIPT, run, run, kill_at=place)
        assert ended.killed, f"{place}: {ended}"
    assert world.run(SCRIPT, run, run).result == [RESULT]
    found = summary(world, payments, kills=len(POINTS[part::PARTS]), runs=run + 1, before=[])
    assert not found.violations, "\n".join(found.violations)


@pytest.mark.sweep
@pytest.mark.parametrize("colour", ["sync", "async"])
@pytest.mark.parametrize("seed", SEEDS)
def test_random_flows(world: World, colour: str, seed: int) -> None:
    """Loops in branches in loops: each place gets the result of its own last execution."""
    ended = world.run("forest.py", seed, PROGRAMS, colour)
    assert ended.code == 0, ended.stderr
    assert ended.result["kills"] > PROGRAMS
