"""A fork whose process is killed at each boundary of its life, and the run that it came from."""

from __future__ import annotations

from tests.crash.harness import BOTH_STORES, World, assert_sound

SCRIPT = "forking.py"
TURNS = 20
CUT = 17
BEFORE = f"turns[{CUT - 1}]/forking.think"
RESULT = [f"thought {TURNS}", "told 7", "published 7"]


@BOTH_STORES
def test_killed_at_each_boundary_of_its_life(world: World) -> None:
    assert world.run(SCRIPT, "go", "r").result == RESULT
    world.crash(SCRIPT, "fork", "r", "f", BEFORE, at="before the fork")
    with world.store() as store:
        assert "f" not in [run.run_id for run in store.runs()]
    world.crash(SCRIPT, "fork", "r", "f", BEFORE, at="after the fork")
    again = world.run(SCRIPT, "fork", "r", "f", BEFORE).result
    assert again == {"created": False, "repeats": ["forking.tell"]}

    for point in (f"before {CUT}", f"in {CUT + 1}", f"end of {CUT + 2}", "in tell"):
        world.crash(SCRIPT, "go", "f", at=f"f {point}")
    assert world.run(SCRIPT, "go", "f").result == RESULT

    done = world.counts("f")
    assert set(done) == {*(f"think-{n}" for n in range(CUT, TURNS + 1)), "tell"}
    assert [step for step, times in done.items() if times > 1] == [f"think-{CUT + 1}", "tell"]
    keys = {
        run: {e.note for e in world.executions() if (e.run, e.step) == (run, "tell")}
        for run in "rf"
    }
    assert len(keys["f"]) == 1, "one key on every attempt"
    assert keys["f"] != keys["r"], "and not that of the other run"
    assert world.counts("r")["publish"] == 1
    with world.store() as store:
        assert any(e.kind == "skipped_duplicate" for e in store.history("f"))
        assert_sound(store, "r")
        assert_sound(store, "f")


@BOTH_STORES
def test_killed_while_it_goes_back_inside_its_loop(world: World) -> None:
    """Whoever takes it up, it goes on from the state that it borrowed."""
    world.run(SCRIPT, "go", "r")
    world.run(SCRIPT, "fork", "r", "f", BEFORE)
    world.run(SCRIPT, "go", "f")
    kept = f"turns[{CUT}]/forking.think"
    world.crash(SCRIPT, "back", "f", kept, at="rolled back")
    with world.store() as store:
        assert store.get("f").status == "held"
        store.resume("f")
    for point in (f"before {CUT + 2}", f"in {CUT + 3}"):
        world.crash(SCRIPT, "go", "f", at=f"f {point}")
    assert world.run(SCRIPT, "go", "f").result == RESULT
    assert world.counts("f") == {
        f"think-{CUT}": 1,
        f"think-{CUT + 1}": 1,
        f"think-{CUT + 2}": 2,
        f"think-{CUT + 3}": 3,
        "tell": 2,
    }
    with world.store() as store:
        assert_sound(store, "r")
        assert_sound(store, "f")


def test_of_a_run_whose_process_died(world: World) -> None:
    """Its journal so far counts, whoever takes it up; both go on, apart from each other."""
    world.crash(SCRIPT, "go", "r", at="r in 9")
    world.run(SCRIPT, "fork", "r", "f", "turns[5]/forking.think")
    assert world.run(SCRIPT, "go", "f").result == RESULT
    assert world.run(SCRIPT, "go", "r").result == RESULT
    assert set(world.counts("f")) == {
        *(f"think-{n}" for n in range(6, TURNS + 1)),
        "tell",
        "publish",
    }
    with world.store() as store:
        assert_sound(store, "r")
        assert_sound(store, "f")
