"""A run kills its workers: it is quarantined, others are not, and mended runs go on."""

from __future__ import annotations

from tests.handbook.world import World

PROGRAM = """
@step
def explode(name):
    did(f"exploded {name}")
    if not (HERE / "mended").exists():
        os._exit(139)
    return name


@flow
def poisonous(name):
    return explode(name)


@flow
def harmless():
    return wait_for_signal("more")


if __name__ == "__main__":
    in_a_process(harmless.submit, "harmless")
    for name in ("first", "second", "third"):
        for _ in range(5):
            in_a_process(poisonous.run, name, name)
"""


def test_it_is_held_others_go_on_and_the_mended_ones_are_taken_up(world: World):
    world.program(PROGRAM)
    assert world.shell("python agent.py").returncode == 0
    for name in ("first", "second", "third"):
        assert world.status(name) == "held: quarantined"
        assert world.did(f"exploded {name}") == 4, "the fifth claim is not executed any more"
    world.says("held: quarantined", world.paste("runs --held-reason quarantined"))
    assert "quarantined" in world.paste("explain", RUN="first")
    (world.folder / "mended").touch()
    with world.started("holdfast worker agent.py"):
        world.paste("resume RUN", RUN="first")
        world.until("first", "completed")
        world.paste("cancel", RUN="second")
        world.paste("resume --quarantined")
        world.until("third", "completed")
        world.until("harmless", "waiting")
    assert "completed" in world.paste("show", RUN="third")
    assert world.status("second") == "cancelled"
    assert [world.did(f"exploded {it}") for it in ("first", "second", "third")] == [5, 4, 5]
