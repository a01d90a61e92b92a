"""A run is held in doubt: three workers' processes died inside an effect, and a person settles it."""

from __future__ import annotations

from tests.handbook.world import World

PROGRAM = """
@effect
def charge(order):
    if did(f"charged {order}") == 1:
        die()
    return "charged"


@flow
def pay(order):
    return charge(order)


if __name__ == "__main__":
    for order in ("one", "two", "three"):
        pay.submit(order, order)
"""


def test_three_doubts_are_settled_in_three_ways(world: World):
    world.program(PROGRAM)
    assert world.shell("python agent.py").returncode == 0
    with world.started("holdfast worker agent.py --concurrency 1"):
        for run_id in ("one", "two", "three"):
            world.until(run_id, "held: in_doubt")
        world.says("held: in_doubt", world.paste("runs --held-reason in_doubt"))
        world.says("idempotency key", world.paste("explain", RUN="one"))
        world.filled |= {"STEP": "charge", "JSON": "'\"ch-1\"'", "REASON": "'wrong order'"}
        world.paste("settle RUN STEP --done", RUN="one")
        world.paste("settle RUN STEP --not-done", RUN="two")
        world.paste("settle RUN STEP --fail", RUN="three")
        world.until("one", "completed")
        world.until("two", "completed")
        world.until("three", "failed")
    assert [world.did(f"charged {it}") for it in ("one", "two", "three")] == [1, 2, 1]
    told = world.paste("history", RUN="one")
    assert "step_settled" in told
    assert len(world.actors("one")) == 1
