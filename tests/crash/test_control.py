"""Processes die half way through a cancel and a pause: afterwards there is one truth. Children come to
their end once, whoever is killed."""

from __future__ import annotations

import contextlib
import functools
import random

import pytest

import holdfast
from holdfast.errors import RunEnded
from tests.crash.fleet import Sizes, working
from tests.crash.harness import BOTH_STORES, SCRIPTS, Script, World, assert_sound, wait_for

FAMILY = ["r", "r::family_middle", "r::family_middle::family_youngest"]
YOUNGEST = FAMILY[-1]


def waiting(world: World) -> Script:
    """Start the eldest, and wait until the youngest waits."""
    script = world.start("family.py", "run")
    with world.store() as store:
        wait_for(lambda: is_waiting(store), "three generations that wait")
    return script


def is_waiting(store: holdfast.types.Store) -> bool:
    rows = [store._backend.get(run_id) for run_id in FAMILY]
    return all(row is not None and row.status == "waiting" for row in rows)


def unloaded(world: World) -> None:
    """Leave the three generations waiting, with nobody who has them."""
    assert waiting(world).kill().killed
    assert world.run("family.py", "recover").result == dict.fromkeys(FAMILY, "waiting")


def check_cancelled(world: World) -> None:
    with world.store() as store:
        assert [store.get(run_id).status for run_id in FAMILY] == ["cancelled"] * 3
        for run_id in FAMILY:
            assert_sound(store, run_id)
            kinds = [entry.kind for entry in store.history(run_id)]
            assert kinds.count("run_cancelled") == 1
        with pytest.raises(RunEnded):
            store.signal(YOUNGEST, "go", "late")
    assert world.counts() == {"first": 1}


def check_goes_on(world: World) -> None:
    """A paused family goes on when it is resumed, and executes nothing twice."""
    with world.store() as store:
        run = store.get("r")
        assert (run.status, run.held_reason) == ("held", "paused")
        store.signal(YOUNGEST, "go", "sent")
        store.resume("r", actor="bob")
    told = world.run("family.py", "recover").result
    assert told == dict.fromkeys(FAMILY, "completed")
    with world.store() as store:
        assert store.get("r").result == ["SENT", "LAST"]
        assert_sound(store)
    assert world.counts() == {"first": 1, "last": 1}
    assert world.counts(YOUNGEST) == {"sent": 1}


# -- M24: cancel, killed half way --------------------------------------------------------------


@BOTH_STORES
def test_who_asks_for_a_cancel_dies_and_the_owner_carries_it_out(world: World) -> None:
    script = waiting(world)
    world.crash("family.py", "cancel", at="asked")
    assert script.end().error == "RunCancelled"
    # Its children were told with it; if their process ended first, the next one carries it out.
    world.run("family.py", "recover")
    check_cancelled(world)


@BOTH_STORES
def test_the_owner_dies_before_the_entry_and_who_asked_writes_it(world: World) -> None:
    script = world.start("family.py", "run", kill_at="given back")
    with world.store() as store:
        wait_for(lambda: is_waiting(store), "three generations that wait")
    assert world.run("family.py", "cancel").result == "cancelled"
    assert script.end().killed
    world.run("family.py", "recover")
    check_cancelled(world)


def test_both_die_and_whoever_comes_next_carries_it_out(world: World) -> None:
    script = world.start("family.py", "run", kill_at="given back")
    with world.store() as store:
        wait_for(lambda: is_waiting(store), "three generations that wait")
    # The mark of the point is one for all processes: who asks dies by another name.
    world.crash("family.py", "cancel", at="asked")
    assert script.end().killed
    world.run("family.py", "recover")
    check_cancelled(world)


@BOTH_STORES
def test_killed_when_the_parent_is_cancelled_and_its_children_are_only_told(world: World) -> None:
    unloaded(world)
    world.crash("family.py", "cancel", at="written")
    with world.store() as store:
        assert [store.get(run_id).status for run_id in FAMILY] == [
            "cancelled",
            "waiting",
            "waiting",
        ]
    world.run("family.py", "recover")
    check_cancelled(world)


def test_the_same_cancel_again_finishes_what_was_begun(world: World) -> None:
    unloaded(world)
    world.crash("family.py", "cancel", at="written")
    assert world.run("family.py", "cancel").result == "cancelled"
    check_cancelled(world)


# -- M24: human handoff, killed half way -------------------------------------------------------


@BOTH_STORES
def test_who_asks_for_a_pause_dies_and_the_owner_carries_it_out(world: World) -> None:
    script = waiting(world)
    world.crash("family.py", "pause", at="asked")
    assert script.end().error == "RunHeld"
    check_goes_on(world)


def test_both_die_half_way_through_a_pause(world: World) -> None:
    script = world.start("family.py", "run", kill_at="given back")
    with world.store() as store:
        wait_for(lambda: is_waiting(store), "three generations that wait")
    world.crash("family.py", "pause", at="asked")
    assert script.end().killed
    world.run("family.py", "recover")
    check_goes_on(world)


# -- deadlines ---------------------------------------------------------------------------------


@BOTH_STORES
def test_a_deadline_passes_while_nobody_has_the_run(world: World) -> None:
    script = world.start("family.py", "deadline")
    with world.store() as store:
        wait_for(lambda: store._backend.get("r") is not None, "the run")
        assert script.kill().killed

        def is_over() -> bool:
            world.run("family.py", "recover")
            return store.get("r").status == "cancelled"

        wait_for(is_over, "the deadline")
        assert store.history("r")[-1].body["actor"] == "deadline"
        statuses = {run.status for run in store.runs()}
    assert statuses == {"cancelled"}
    assert world.counts()["last"] == 0


# -- shutdown ----------------------------------------------------------------------------------


@BOTH_STORES
def test_a_worker_is_told_to_stop_while_a_step_executes_and_others_wait(world: World) -> None:
    """SIGTERM: the step ends and is recorded, nothing more is taken, and nobody has any run."""
    from tests.crash.scripts.family import family_eldest, family_item

    with world.store() as store:
        family_item.with_options(store=store).submit("h", "hold")
        family_eldest.with_options(store=store).submit("r")
        with working(world, Sizes(processes=1), script=SCRIPTS / "family.py") as fleet:
            wait_for((world.marks / "inside hold").exists, "a step that executes")
            wait_for(lambda: is_waiting(store), "three generations that wait")
            fleet.process.terminate()
            wait_for(lambda: any(seen.draining for seen in store.workers()), "a worker that drains")
            store.signal(YOUNGEST, "go", "sent")
            world.mark("let go")
            assert fleet.process.wait(60) == 0
        assert store.get("h").status == "completed"
        rows = [store._backend.get(run_id) for run_id in (*FAMILY, "h")]
        assert [row.owner for row in rows if row is not None] == [None] * 4
    assert world.run("family.py", "recover").result == {
        **dict.fromkeys(FAMILY, "completed"),
        "h": "completed",
    }
    assert (world.counts("h"), world.counts()) == ({"hold": 1}, {"first": 1, "last": 1})


# -- children under fire -----------------------------------------------------------------------

PARENTS, ITEMS = 4, ["a", "b", "c"]


@BOTH_STORES
def test_workers_are_killed_and_each_child_ends_once_in_its_parent(world: World) -> None:
    from tests.crash.scripts.family import family_fan

    chance = random.Random(11)
    kills = 0
    with world.store() as store:
        fan = family_fan.with_options(store=store)
        for number in range(PARENTS):
            fan.submit(f"p{number}", ITEMS)
        workers = [world.start("family.py", "worker") for _ in range(2)]

        def ended() -> int:
            return len(store.runs(status="completed"))

        def ended_at_least(wanted: int) -> bool:
            return ended() >= wanted

        for wanted in (2, 5, 9):
            wait_for(functools.partial(ended_at_least, wanted), f"{wanted} runs that ended")
            workers[chance.randrange(2)].process.kill()
            kills += 1
            workers = [w for w in workers if w.process.poll() is None][:1]
            workers += [world.start("family.py", "worker") for _ in range(2 - len(workers))]
        wait_for(lambda: ended() == PARENTS * (len(ITEMS) + 1), "all runs")
        world.mark("enough")
        for worker in workers:
            with contextlib.suppress(AssertionError):
                worker.end()
        for number in range(PARENTS):
            check_parent(store, f"p{number}")
    executed = len([e for e in world.executions() if e.step in ITEMS])
    # What was executing when a worker was killed may be executed again; a worker has two places.
    assert executed <= PARENTS * len(ITEMS) + 2 * kills


def check_parent(store: holdfast.types.Store, run_id: str) -> None:
    assert store.get(run_id).result == ["A", "B", "C"]
    delivered = [e.body["run"] for e in store.history(run_id) if e.kind == "child_ended"]
    assert len(delivered) == len(set(delivered)) == len(ITEMS)
    for child in (run_id, *delivered):
        assert_sound(store, child)
