"""Too much waits in the queues: one is paused, the limit of another is raised, a worker is added."""

from __future__ import annotations

from tests.handbook.world import World

PROGRAM = """
@step
def work(name):
    did(f"began {name}")
    while not (HERE / "let-go").exists():
        time.sleep(0.02)
    return name


@flow(queue=Queue("urgent", concurrency=1))
def urgent(name):
    return work(name)


@flow(queue="nightly")
def nightly(name):
    return work(name)


if __name__ == "__main__":
    for number in range(4):
        urgent.submit(f"urgent-{number}", f"urgent-{number}")
        nightly.submit(f"nightly-{number}", f"nightly-{number}")
"""


def begun(world: World, queue: str) -> int:
    return sum(world.did(f"began {queue}-{number}") for number in range(4))


def test_the_urgent_ones_are_let_through(world: World):
    world.program(PROGRAM)
    assert world.shell("python agent.py").returncode == 0
    world.paste("queues pause OTHER", OTHER="nightly")
    with world.background("worker", QUEUE="urgent"):
        world.wait(lambda: begun(world, "urgent") == 1)
        told = world.paste("queues")
        world.says("at once", told)
        assert "1/1 at once" in told
        world.paste("trends")
        assert "is full" in world.paste("explain", RUN="urgent-3")
        world.paste("queues set QUEUE --concurrency", QUEUE="urgent", LIMIT="4")
        world.wait(lambda: begun(world, "urgent") == 4)
        assert begun(world, "nightly") == 0
        (world.folder / "let-go").touch()
        for number in range(4):
            world.until(f"urgent-{number}", "completed")
    world.paste("queues resume OTHER", OTHER="nightly")
    with world.started("holdfast worker agent.py"):
        for number in range(4):
            world.until(f"nightly-{number}", "completed")
    assert (begun(world, "urgent"), begun(world, "nightly")) == (4, 4)
