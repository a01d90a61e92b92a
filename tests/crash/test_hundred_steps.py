"""A hundred steps, SIGKILL inside step 47, and the run goes on: in every shape of a run."""

from __future__ import annotations

import pytest

from tests.crash.harness import (
    BOTH_STORES,
    World,
    assert_once,
    assert_sound,
    completed_steps,
)

pytestmark = BOTH_STORES

STEPS = 100
KILLED_IN = 47
RESULT = sum(i * i for i in range(1, STEPS + 1))
BRANCHES = 4
FLEET = 200
CLAIMS_UNTIL_QUARANTINE = 5
FLEET_STEPS, FLEET_MEETS_AT = 5, 3
"""Generous for a slow machine, and far below the lease: what is shown is that it did not wait."""

ONE_LINE = [
    "flow",
    "aio flow",
    "sync steps in aio flow",
    "plan",
    "turns",
    "aio turns",
    "block",
    "aio block",
]
PARALLEL = ["gather", "aio gather", "each", "aio each"]


@pytest.mark.parametrize("shape", ONE_LINE)
def test_killed_inside_step_47(world: World, shape: str) -> None:
    world.crash("hundred.py", shape, at=f"step {KILLED_IN}")
    assert world.counts() == {str(i): 1 for i in range(1, KILLED_IN + 1)}
    assert world.run("hundred.py", shape).result == RESULT
    expected = {str(i): 1 for i in range(1, STEPS + 1)}
    assert world.counts() == expected | {str(KILLED_IN): 2}
    with world.store() as store:
        assert_sound(store)
        assert store.get("r").status == "completed"


@pytest.mark.parametrize("shape", PARALLEL)
def test_killed_inside_step_47_of_parallel_branches(world: World, shape: str) -> None:
    world.crash("hundred.py", shape, at=f"step {KILLED_IN}")
    recorded = completed_steps(world.history())
    before = world.counts()
    in_flight = before.total() - len(recorded)
    assert 1 <= in_flight <= BRANCHES, "each branch is inside one step at most"

    assert world.run("hundred.py", shape).result == RESULT
    counts = world.counts()
    assert set(counts) == {str(i) for i in range(1, STEPS + 1)}
    twice = {step for step, n in counts.items() if n > 1}
    assert_once(counts, but=dict.fromkeys(twice, 2))
    assert str(KILLED_IN) in twice
    assert len(twice) == in_flight, "only what had no record was executed again"
    with world.store() as store:
        assert_sound(store)


def test_run_again_after_its_end_executes_nothing(world: World) -> None:
    assert world.run("hundred.py", "flow").result == RESULT
    assert world.run("hundred.py", "flow").result == RESULT
    assert_once(world.counts())


def test_resume_does_not_wait_for_the_lease_of_the_dead(world: World) -> None:
    world.crash("hundred.py", "flow", at=f"step {KILLED_IN}")
    again = world.start("hundred.py", "flow")
    assert again.end().result == RESULT
    claims = [e for e in world.history() if e.kind == "run_claimed"]
    assert len(claims) == 2
    assert claims[1].body["why"] == "owner_dead"


def test_killed_again_and_again_in_recovery(world: World) -> None:
    """Ten kills deep, a new step each time: no growth beyond the work that was repeated."""
    places = range(5, STEPS, 10)
    for place in places:
        world.crash("hundred.py", "flow", at=f"step {place}")
    assert world.run("hundred.py", "flow").result == RESULT
    assert_once(world.counts(), but={str(place): 2 for place in places})
    assert len([e for e in world.history() if e.kind == "run_claimed"]) == len(places) + 1


def test_two_hundred_runs_in_flight(world: World) -> None:
    world.crash("fleet.py", FLEET, at="all in flight")
    assert len(world.executions()) == FLEET * FLEET_MEETS_AT
    again = world.start("fleet.py", FLEET)
    expected = [run * sum(range(1, FLEET_STEPS + 1)) for run in range(FLEET)]
    assert again.end().result == expected
    wanted = {str(i): 1 + (i == FLEET_MEETS_AT) for i in range(1, FLEET_STEPS + 1)}
    for run in range(FLEET):
        assert world.counts(f"r{run}") == wanted
    with world.store() as store:
        for run in range(FLEET):
            claims = [e for e in store.history(f"r{run}") if e.kind == "run_claimed"]
            assert len(claims) == 2
            assert claims[-1].body["why"] == "owner_dead"
        assert not list(store.verify())


@pytest.mark.parametrize("way", ["_exit", "segfault", "SIGTERM", "SIGABRT"])
def test_other_ways_to_die(world: World, way: str) -> None:
    ended = world.run("hundred.py", "flow", kill_at=f"step {KILLED_IN}", die_by=way)
    assert ended.code != 0
    assert ended.said == {}
    assert world.run("hundred.py", "flow").result == RESULT
    assert_once(world.counts(), but={str(KILLED_IN): 2})


def test_a_run_that_kills_every_process_is_quarantined(world: World) -> None:
    """Five claims that brought nothing; then it is held, and says so instead of killing again."""
    poison = f"step {KILLED_IN}"
    for _ in range(CLAIMS_UNTIL_QUARANTINE):
        ended = world.run("hundred.py", "flow", kill_every_time_at=poison)
        if not ended.killed:
            break
    else:
        ended = world.run("hundred.py", "flow", kill_every_time_at=poison)
    assert (ended.error, ended.said["reason"]) == ("RunHeld", "quarantined")
    assert world.status() == "held"
    assert world.counts()[str(KILLED_IN)] <= CLAIMS_UNTIL_QUARANTINE
    with world.store() as store:
        assert "quarantined" in str(store.explain("r"))
        store.resume("r", actor="ops")
    assert world.run("hundred.py", "flow").result == RESULT
    assert_once(world.counts(), but={str(KILLED_IN): CLAIMS_UNTIL_QUARANTINE + 1})


def test_what_the_world_was_shown_is_not_lost(world: World) -> None:
    """Grouped steps and recorded values wait for nobody; an effect waits for all of them."""
    world.crash("grouped.py", at="shown")
    token, total = world.run("grouped.py").result
    assert total == sum(range(20))
    shown = {e.note for e in world.executions() if e.step == "show"}
    assert len(shown) == 1, "both attempts showed the same values and the same key"
    assert shown.pop().startswith(f"{token} ")
    assert_once(world.counts(), but={"show": 2})


def test_killed_among_grouped_steps(world: World) -> None:
    """Some cheap steps may be repeated; the result is right, and what counts happens once."""
    world.crash("grouped.py", at="cheap 10")
    assert world.run("grouped.py").result[1] == sum(range(20))
    counts = world.counts()
    assert_once(counts, but={f"cheap {i}": 2 for i in range(11)})
    assert counts["show"] == 1


def test_a_start_that_returned_is_kept(world: World) -> None:
    """`start` and `submit` commit before they return: killed right after, both runs are there."""
    world.crash("background.py", at="returned")
    with world.store() as store:
        for run_id in ("started", "submitted"):
            assert store.get(run_id).input == {"topic": "refunds"}
            assert store.get(run_id).status in {"queued", "running"}
